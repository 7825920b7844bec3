//! Which VariantAutoscalings this controller manages, and what each says. Admission is never trusted to have run: the
//! same rules are applied here, and an object that breaks them is set aside with the reason, never an error of a loop.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::{DynamicObject, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store};
use wva_crds::names::{ACCELERATOR_LABEL, EXCLUDE_ANNOTATION, INSTANCE_LABEL, MODE_ANNOTATION};
use wva_crds::{ScaleTargetRef, VariantAutoscalingSpec, VariantAutoscalingStatus};
use wva_scaling::VariantKey;
use wva_scaling::snapshot::Mode;
use wva_scaling::units::Cost;

use crate::watches::Watches;
use crate::workloads::WorkloadKey;

/// Which VariantAutoscalings belong to this controller.
#[derive(Clone, Debug, Default)]
pub struct Ownership {
    /// `CONTROLLER_INSTANCE`; `None` manages what carries no instance label.
    pub instance: Option<String>,
    /// Without an instance, manage labelled ones too.
    pub manage_labelled: bool,
}

impl Ownership {
    fn includes(&self, label: Option<&String>) -> bool {
        match (&self.instance, label) {
            (Some(own), label) => label == Some(own),
            (None, label) => label.is_none() || self.manage_labelled,
        }
    }
}

/// A VariantAutoscaling of this controller.
#[derive(Clone, Debug)]
pub(crate) struct Managed {
    /// Namespace and name.
    pub key: VariantKey,
    /// Tells a re-created object from the one before.
    pub uid: String,
    /// For `observedGeneration`.
    pub generation: Option<i64>,
    /// Value of its instance label.
    pub instance: Option<String>,
    /// Value of its accelerator label.
    pub accelerator: Option<String>,
    /// Creation, by which the older of two with one target is the one that counts.
    pub created: Option<Timestamp>,
    /// Its status as last seen; the default where it cannot be read.
    pub status: VariantAutoscalingStatus,
    /// What it declares, or why that cannot be used.
    pub declared: Result<Declared, Unusable>,
}

/// A valid declaration.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    /// The spec, defaults filled in.
    pub spec: VariantAutoscalingSpec,
    /// `spec.variantCost` as a number.
    pub cost: Cost,
    /// The mode annotation.
    pub mode: Mode,
}

/// Why a VariantAutoscaling is set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It breaks the rules; all of what is wrong, in words.
    Invalid(String),
    /// Another one has the same target and came first.
    Conflict {
        /// The one that counts.
        with: String,
        /// The target of both.
        target: String,
    },
}

/// All VariantAutoscalings this controller manages, in order of namespace and name.
#[must_use]
pub(crate) fn managed(watches: &Watches, ownership: &Ownership) -> Vec<Managed> {
    let mut all: Vec<Managed> = watches
        .variants
        .state()
        .into_iter()
        // What is being deleted is published no more, however long its finalizers take.
        .filter(|o| o.metadata.deletion_timestamp.is_none())
        .filter(|o| ownership.includes(o.labels().get(INSTANCE_LABEL).filter(|label| !label.is_empty())))
        .filter(|o| o.namespace().is_some_and(|ns| !is_excluded(watches.namespaces.as_ref(), &ns)))
        .map(|o| read(&o))
        .collect();
    all.sort_by(|a, b| a.key.cmp(&b.key));
    set_conflicts_aside(&mut all);
    all
}

/// Whether a namespace says that nothing of its own is managed. In single-namespace mode none is seen, so none is
/// excluded.
#[must_use]
pub fn is_excluded(namespaces: Option<&Store<PartialObjectMeta<Namespace>>>, name: &str) -> bool {
    let namespace = namespaces.and_then(|all| all.get(&ObjectRef::new(name)));
    namespace.is_some_and(|n| n.annotations().get(EXCLUDE_ANNOTATION).is_some_and(|v| v == "true"))
}

/// Reads one object as it is stored, which may be from a time with other rules.
fn read(object: &Arc<DynamicObject>) -> Managed {
    let label = |key: &str| object.labels().get(key).filter(|v| !v.is_empty()).cloned();
    let status = status(object);
    Managed {
        key: VariantKey { namespace: object.namespace().unwrap_or_default(), name: object.name_any() },
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation,
        instance: label(INSTANCE_LABEL),
        accelerator: label(ACCELERATOR_LABEL),
        created: object.creation_timestamp().map(|t| t.0),
        status,
        declared: declared(object),
    }
}

/// The status as far as it can be read: what another release wrote into one field must not cost the target.
pub(crate) fn status(object: &DynamicObject) -> VariantAutoscalingStatus {
    let Some(status) = object.data.get("status") else { return VariantAutoscalingStatus::default() };
    if let Ok(whole) = serde_json::from_value(status.clone()) {
        return whole;
    }
    let field = |name: &str| status.get(name).cloned().unwrap_or_default();
    VariantAutoscalingStatus {
        desired_optimized_alloc: serde_json::from_value(field("desiredOptimizedAlloc")).ok(),
        current_replicas: serde_json::from_value(field("currentReplicas")).ok(),
        ..VariantAutoscalingStatus::default()
    }
}

fn declared(object: &DynamicObject) -> Result<Declared, Unusable> {
    let invalid = |problem: String| Unusable::Invalid(problem);
    if let Some(problems) = crate::guard::violations(object) {
        return Err(invalid(problems));
    }
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    let spec: VariantAutoscalingSpec =
        serde_json::from_value(spec).map_err(|e| invalid(format!("spec: {e}")))?;
    let cost = spec.variant_cost.parse().map_err(|e| invalid(format!("spec.variantCost: {e}")))?;
    let mode = object.annotations().get(MODE_ANNOTATION).map(|m| m.parse()).transpose();
    let mode = mode
        .map_err(|e| invalid(format!("metadata.annotations[{MODE_ANNOTATION}]: {e}")))?
        .unwrap_or_default();
    Ok(Declared { spec, cost, mode })
}

/// Of several with one target the oldest counts, then the first by name.
fn set_conflicts_aside(all: &mut [Managed]) {
    let mut winners: BTreeMap<(String, String, String), (Option<Timestamp>, String)> = BTreeMap::new();
    let target = |m: &Managed| {
        let target = WorkloadKey::new(&m.key.namespace, &m.declared.as_ref().ok()?.spec.scale_target_ref);
        Some((target.namespace, target.kind, target.name))
    };
    for m in all.iter() {
        let Some(target) = target(m) else { continue };
        let own = (m.created, m.key.name.clone());
        let winner = winners.entry(target).or_insert_with(|| own.clone());
        if own < *winner {
            *winner = own;
        }
    }
    for m in all {
        let Some(target) = target(m) else { continue };
        if let Some((_, with)) = winners.get(&target).filter(|(_, name)| *name != m.key.name) {
            m.declared =
                Err(Unusable::Conflict { with: with.clone(), target: format!("{}/{}", target.1, target.2) });
        }
    }
}

/// The target a VariantAutoscaling names even where the rest of it is not usable; for messages.
#[must_use]
pub(crate) fn target_of(managed: &Managed) -> Option<&ScaleTargetRef> {
    managed.declared.as_ref().ok().map(|d| &d.spec.scale_target_ref)
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// The VariantAutoscaling `ns/v` of Deployment `d` with a status.
    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    pub(crate) fn managed(status: serde_json::Value) -> Managed {
        read(&Arc::new(object("v", &status)))
    }

    /// As it is stored.
    fn object(name: &str, status: &serde_json::Value) -> DynamicObject {
        let object = serde_json::json!({
            "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid of {name}"), "generation": 1},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "modelID": "m", "variantCost": "10.0"},
            "status": status,
        });
        serde_json::from_value(object).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, created: &str, target: &str) -> Managed {
        let object: DynamicObject = serde_json::from_value(serde_json::json!({
            "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": {"name": name, "namespace": "ns", "creationTimestamp": created},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": target, "apiVersion": "apps/v1"}, "modelID": "m", "variantCost": "10.0"},
        }))
        .unwrap();
        read(&Arc::new(object))
    }

    #[test]
    fn the_older_of_two_with_one_target_counts() {
        let mut all = [
            object("a", "2026-01-02T00:00:00Z", "t"),
            object("b", "2026-01-01T00:00:00Z", "t"),
            object("c", "2026-01-03T00:00:00Z", "other"),
        ];
        set_conflicts_aside(&mut all);
        let conflict = Unusable::Conflict { with: "b".into(), target: "Deployment/t".into() };
        assert_eq!(all[0].declared.as_ref().err(), Some(&conflict));
        assert!(all[1].declared.is_ok() && all[2].declared.is_ok());
    }

    #[test]
    fn two_of_one_age_are_ordered_by_name() {
        let mut all = [object("b", "2026-01-01T00:00:00Z", "t"), object("a", "2026-01-01T00:00:00Z", "t")];
        set_conflicts_aside(&mut all);
        assert!(all[0].declared.is_err() && all[1].declared.is_ok());
    }

    #[test]
    fn an_object_from_before_todays_rules_is_set_aside_with_the_reason() {
        let object: DynamicObject = serde_json::from_value(serde_json::json!({
            "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": {"name": "old", "namespace": "ns"}, "spec": {"modelID": "m"},
        }))
        .unwrap();
        let Err(Unusable::Invalid(problem)) = read(&Arc::new(object)).declared else {
            panic!("it is usable")
        };
        assert!(problem.contains("scaleTargetRef"), "{problem}");
    }

    #[test]
    fn two_controllers_never_manage_one() {
        let label = "x".to_owned();
        for (instance, labelled, takes_labelled, takes_plain) in [
            (None, false, false, true),
            (None, true, true, true),
            (Some("x"), false, true, false),
            (Some("y"), true, false, false),
        ] {
            let o = Ownership { instance: instance.map(str::to_owned), manage_labelled: labelled };
            assert_eq!(o.includes(Some(&label)), takes_labelled, "{o:?}");
            assert_eq!(o.includes(None), takes_plain, "{o:?}");
        }
    }
}
