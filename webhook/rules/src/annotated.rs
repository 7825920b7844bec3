//! The VariantAutoscaling that an HPA or ScaledObject with the annotations of llm-d WVA v0.9 should have. One judgement
//! for the controller and `wva doctor`.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize as _;
use serde_json::{Value, json};
use wva_crds::events::ObjectKind;
use wva_crds::names::{
    DEFAULT_VARIANT_COST, INSTANCE_LABEL, MANAGED_ANNOTATION, MANAGED_BY_LABEL, MODEL_ANNOTATION,
    VARIANT_COST_ANNOTATION,
};
use wva_objects::autoscaler::{Autoscaler, AutoscalerName};
use wva_objects::origin::{MANAGED_BY, Origin};
use wva_objects::{AnnotatedVariant, Target, WorkloadKey};

use crate::defaults::apply_defaults;
use crate::evaluate::validate;
use crate::facts::Facts;
use crate::stored::validate_stored;
use crate::verdict::Severity;

/// A VariantAutoscaling in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ExistingVariant {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The object is being deleted.
    pub is_terminating: bool,
    /// Autoscaler for which wva created it.
    pub origin: Option<Origin>,
    /// Workload that the variant scales. `None` if its spec is invalid.
    pub workload: Option<WorkloadKey>,
}

impl ExistingVariant {
    /// Reads a stored object. `None` if its metadata is invalid.
    #[must_use]
    pub fn read(object: &Value) -> Option<Self> {
        let meta = ObjectMeta::deserialize(&object["metadata"]).ok()?;
        let namespace = meta.namespace.clone().unwrap_or_default();
        let target = Target::from_object(object).filter(|_| !validate_stored(object.clone()).is_denied());
        Some(Self {
            workload: target.map(|target| WorkloadKey::for_target(&namespace, &target)),
            name: meta.name.clone().unwrap_or_default(),
            is_terminating: meta.deletion_timestamp.is_some(),
            origin: Origin::from_meta(&meta),
            namespace,
        })
    }
}

/// An HPA or ScaledObject with the annotations of llm-d WVA v0.9.
#[derive(Clone, Debug)]
pub struct AnnotatedAutoscaler {
    /// Namespace of the autoscaler, its workload and its variant.
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

    /// UID of the autoscaler.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.autoscaler.annotations.as_ref().map_or("", |annotations| &annotations.uid)
    }

    /// The autoscaler is being deleted.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.autoscaler.annotations.as_ref().is_some_and(|annotations| annotations.is_terminating)
    }

    /// The workload that it scales.
    #[must_use]
    pub fn workload(&self) -> WorkloadKey {
        self.autoscaler.workload(&self.namespace)
    }

    /// Whether wva created a variant of this namespace and origin for it.
    #[must_use]
    pub fn owns(&self, namespace: &str, origin: Option<&Origin>) -> bool {
        namespace == self.namespace && origin.is_some_and(|origin| origin.autoscaler == *self.name())
    }

    fn scales_same(&self, other: &Self) -> bool {
        let (own, other) = (&self.autoscaler, &other.autoscaler);
        own.kind == other.kind && own.name == other.name
    }

    /// `all` and `variants` are those of its namespace.
    #[must_use]
    pub fn judge(&self, all: &[Self], variants: &[ExistingVariant]) -> AnnotationVerdict {
        let workload = self.workload();
        let has_workload = |v: &&ExistingVariant| v.workload.as_ref() == Some(&workload);
        let is_own = |v: &ExistingVariant| self.owns(&v.namespace, v.origin.as_ref());
        let others = || variants.iter().filter(|v| !v.is_terminating && !is_own(v));
        if let Some(other) = others().filter(|v| v.origin.is_none()).find(has_workload) {
            return AnnotationVerdict::Replaced(other.name.clone());
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
        if let Some(other) = others().find(|v| v.name == variant.name) {
            return self.judge_collision(other, all);
        }
        if let Some(other) = others().find(has_workload) {
            return AnnotationVerdict::Waiting(other.name.clone());
        }
        let object = self.object(variant);
        let violations = violations(&object);
        if violations.is_empty() {
            AnnotationVerdict::Variant(object)
        } else {
            AnnotationVerdict::Refused(violations.join("; "))
        }
    }

    fn judge_collision(&self, other: &ExistingVariant, all: &[Self]) -> AnnotationVerdict {
        let name = &other.name;
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
        let ObjectKind { api_version, kind } = self.name().kind.api();
        metadata["ownerReferences"] = json!([{"apiVersion": api_version, "kind": kind, "name": self.name().name,
            "uid": self.uid(), "controller": true}]);
        let spec = &mut object["spec"];
        spec["variantCost"] = json!(variant.cost.as_deref().unwrap_or(DEFAULT_VARIANT_COST));
        spec["minReplicas"] = json!(self.autoscaler.limits.min);
        spec["maxReplicas"] = json!(self.autoscaler.limits.max);
        object
    }
}

/// Violations of the rules about a single object, in terms of the autoscaler's fields. Empty if there are none.
fn violations(variant: &Value) -> Vec<String> {
    let mut object = variant.clone();
    apply_defaults(&mut object);
    let verdict = validate(&Facts { is_synced: false, ..Facts::new(&object) });
    let denied = verdict.violations.iter().filter(|v| v.severity == Severity::Deny);
    denied.map(|v| format!("{}: {} [{}]", source_field(&v.field), v.message, v.code)).collect()
}

/// The field of the autoscaler from which a field of the variant comes.
fn source_field(field: &str) -> String {
    let annotation = match field {
        "spec.modelID" => MODEL_ANNOTATION,
        "spec.variantCost" => VARIANT_COST_ANNOTATION,
        other => return other.to_owned(),
    };
    format!("metadata.annotations[{annotation}]")
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
