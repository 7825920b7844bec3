//! The VariantAutoscaling that each HPA and ScaledObject with the annotations of llm-d WVA v0.9 should have.

use std::sync::Arc;

use serde_json::{Value, json};
use wva_crds::names::{
    DEFAULT_VARIANT_COST, INSTANCE_LABEL, MANAGED_ANNOTATION, MANAGED_BY_LABEL, MODEL_ANNOTATION,
};
use wva_objects::AnnotatedVariant;
use wva_rules::annotation_violations;

use crate::model::keys::WorkloadKey;
use crate::observe::variants::{Ownership, is_excluded, is_managed};
use crate::observe::watches::variant::{MANAGED_BY, Variant};
use crate::observe::watches::{Autoscaler, AutoscalerKind, AutoscalerName, Watches};

/// An HPA or ScaledObject with the annotations of llm-d WVA v0.9.
#[derive(Clone, Debug)]
pub struct AnnotatedAutoscaler {
    /// Of the autoscaler, its workload and its variant.
    pub namespace: String,
    autoscaler: Arc<Autoscaler>,
    /// Instance label of its variant.
    instance: Option<String>,
}

/// What an annotated autoscaler gets.
#[derive(Clone, Debug, PartialEq)]
pub enum AnnotationVerdict {
    /// This VariantAutoscaling.
    Variant(Value),
    /// None: the VariantAutoscaling of this name, which wva did not create, has its workload.
    Replaced(String),
    /// None until a person acts; an existing one stays as it is.
    Refused(String),
    /// None until the VariantAutoscaling of this name is deleted, which another autoscaler had.
    Waiting(String),
}

impl AnnotatedAutoscaler {
    /// `None` without the annotations. `namespace_instance`: instance label of the namespace, for autoscalers without one.
    #[must_use]
    pub fn new(
        namespace: &str,
        autoscaler: &Arc<Autoscaler>,
        namespace_instance: Option<&str>,
    ) -> Option<Self> {
        let own = autoscaler.annotations.as_ref()?.instance.as_deref();
        Some(Self {
            namespace: namespace.to_owned(),
            autoscaler: autoscaler.clone(),
            instance: own.or(namespace_instance).map(str::to_owned),
        })
    }

    /// Kind and name.
    #[must_use]
    pub fn name(&self) -> &AutoscalerName {
        &self.autoscaler.own_name
    }

    /// Instance to which it belongs.
    #[must_use]
    pub fn instance(&self) -> Option<&str> {
        self.instance.as_deref()
    }

    pub(crate) fn uid(&self) -> &str {
        self.autoscaler.annotations.as_ref().map_or("", |annotations| &annotations.uid)
    }

    pub(crate) fn is_terminating(&self) -> bool {
        self.autoscaler.annotations.as_ref().is_some_and(|annotations| annotations.is_terminating)
    }

    pub(crate) fn workload(&self) -> WorkloadKey {
        self.autoscaler.workload(&self.namespace)
    }

    /// Whether wva created the variant for it.
    #[must_use]
    pub fn owns(&self, variant: &Variant) -> bool {
        variant.key.namespace == self.namespace
            && variant.origin.as_ref().is_some_and(|origin| origin.autoscaler == *self.name())
    }

    fn scales_same(&self, other: &Self) -> bool {
        let (own, other) = (&self.autoscaler, &other.autoscaler);
        own.kind == other.kind && own.name == other.name
    }

    /// `all` and `variants` are those of its namespace.
    #[must_use]
    pub fn judge(&self, all: &[Self], variants: &[Arc<Variant>]) -> AnnotationVerdict {
        let workload = self.workload();
        let has_workload = |v: &&Arc<Variant>| v.spec.as_ref().is_ok_and(|spec| spec.workload == workload);
        let others = || variants.iter().filter(|v| !v.is_terminating && !self.owns(v));
        if let Some(other) = others().filter(|v| v.origin.is_none()).find(has_workload) {
            return AnnotationVerdict::Replaced(other.key.name.clone());
        }
        let described = self.autoscaler.annotations.as_ref().map(|annotations| &annotations.variant);
        let variant = match described {
            Some(Ok(variant)) => variant,
            Some(Err(error)) => return AnnotationVerdict::Refused(error.to_string()),
            None => return AnnotationVerdict::Refused(format!("no annotation {MANAGED_ANNOTATION}")),
        };
        let is_rival = |other: &&Self| other.name() != self.name() && other.scales_same(self);
        if let Some(rival) = all.iter().find(is_rival) {
            let (kind, name) = (&variant.target.kind, &variant.target.name);
            return AnnotationVerdict::Refused(format!(
                "metadata.annotations[{MANAGED_ANNOTATION}]: \"true\" also on {}, which scales the same {kind} {name}; keep \
                 one of the two autoscalers",
                rival.name()
            ));
        }
        if let Some(other) = others().find(|v| v.key.name == variant.name) {
            return self.judge_collision(other, all);
        }
        if let Some(other) = others().find(has_workload) {
            return AnnotationVerdict::Waiting(other.key.name.clone());
        }
        let object = self.object(variant);
        let violations = annotation_violations(&object);
        if violations.is_empty() {
            AnnotationVerdict::Variant(object)
        } else {
            AnnotationVerdict::Refused(violations.join("; "))
        }
    }

    fn judge_collision(&self, other: &Variant, all: &[Self]) -> AnnotationVerdict {
        let name = &other.key.name;
        let owner = match &other.origin {
            None => "wva did not create it".to_owned(),
            Some(origin) if all.iter().any(|a| *a.name() == origin.autoscaler) => {
                format!("it belongs to {}", origin.autoscaler)
            }
            Some(_) => return AnnotationVerdict::Waiting(name.clone()),
        };
        AnnotationVerdict::Refused(format!(
            "VariantAutoscaling {name} exists and {owner}; select another variant_name in the metric of {}, or delete that \
             object",
            self.name()
        ))
    }

    fn object(&self, variant: &AnnotatedVariant) -> Value {
        let mut object = variant.object();
        let metadata = &mut object["metadata"];
        metadata["namespace"] = json!(self.namespace);
        metadata["labels"][MANAGED_BY_LABEL] = json!(MANAGED_BY);
        if let Some(instance) = &self.instance {
            metadata["labels"][INSTANCE_LABEL] = json!(instance);
        }
        let (api_version, kind) = self.name().kind.api();
        metadata["ownerReferences"] = json!([{"apiVersion": api_version, "kind": kind, "name": self.name().name,
            "uid": self.uid(), "controller": true}]);
        let spec = &mut object["spec"];
        spec["variantCost"] = json!(variant.cost.as_deref().unwrap_or(DEFAULT_VARIANT_COST));
        spec["minReplicas"] = json!(self.autoscaler.limits.min);
        spec["maxReplicas"] = json!(self.autoscaler.limits.max);
        object
    }
}

/// Annotated autoscalers of this controller, by namespace and name.
pub(crate) fn annotated_autoscalers(watches: &Watches, ownership: &Ownership) -> Vec<AnnotatedAutoscaler> {
    let mut all = Vec::new();
    let instance_of = |namespace: &str| {
        let namespaces = watches.namespaces.as_ref()?;
        namespaces.get_with("", namespace, |facts| facts.instance.clone())?
    };
    for cache in [&watches.autoscalers, &watches.scaled_objects.cache] {
        cache.for_each(|namespace, _, autoscaler| {
            if autoscaler.annotations.is_some() {
                all.extend(AnnotatedAutoscaler::new(
                    namespace,
                    autoscaler,
                    instance_of(namespace).as_deref().filter(|label| !label.is_empty()),
                ));
            }
        });
    }
    all.retain(|a: &AnnotatedAutoscaler| {
        ownership.includes(a.instance()) && !is_excluded(watches.namespaces.as_ref(), &a.namespace)
    });
    all.sort_by(|a, b| a.namespace.cmp(&b.namespace));
    all
}

/// Variants that wva created for autoscalers that are not annotated any more. Kubernetes deletes those of deleted
/// autoscalers.
pub(crate) fn abandoned_variants(
    watches: &Watches,
    ownership: &Ownership,
    annotated: &[AnnotatedAutoscaler],
) -> Vec<Arc<Variant>> {
    let exists = |namespace: &str, owner: &AutoscalerName| {
        let cache = match owner.kind {
            AutoscalerKind::Hpa => &watches.autoscalers,
            AutoscalerKind::ScaledObject => &watches.scaled_objects.cache,
        };
        cache.get_with(namespace, &owner.name, |_| ()).is_some()
    };
    let mut all = Vec::new();
    watches.variants.for_each(|_, _, variant: &Arc<Variant>| {
        if is_managed(variant, ownership, watches.namespaces.as_ref()) && variant.origin.is_some() {
            all.push(variant.clone());
        }
    });
    all.retain(|variant| {
        let origin = variant.origin.as_ref();
        origin.is_some_and(|origin| exists(&variant.key.namespace, &origin.autoscaler))
            && !annotated.iter().any(|a| a.owns(variant))
    });
    all
}

/// Message about an autoscaler whose workload has a VariantAutoscaling that wva did not create.
#[must_use]
pub fn replaced_message(variant: &str) -> String {
    format!(
        "VariantAutoscaling {variant} has its workload, so the annotations {MANAGED_ANNOTATION} and {MODEL_ANNOTATION} are \
         not used"
    )
}

#[cfg(test)]
mod tests;
