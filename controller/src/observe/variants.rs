use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use wva_objects::WorkloadKey;
use wva_rules::precedence;

use crate::model::conditions::VariantError;
use crate::observe::watches::Watches;
use crate::observe::watches::variant::{ParsedSpec, Variant};

mod orphans;
mod ownership;
mod takeover;

pub(crate) use orphans::OrphanTracker;
pub(crate) use ownership::is_managed;
pub use ownership::{Ownership, OwnershipView, is_excluded};
pub(crate) use takeover::TakeoverTracker;

#[derive(Clone, Debug)]
pub(crate) struct ManagedVariant {
    variant: Arc<Variant>,
    /// An older variant has the same target.
    conflict: Option<VariantError>,
}

impl Deref for ManagedVariant {
    type Target = Variant;

    fn deref(&self) -> &Variant {
        &self.variant
    }
}

impl ManagedVariant {
    /// What the object declares, or why it cannot be used.
    pub(crate) fn spec(&self) -> Result<&ParsedSpec, &VariantError> {
        match &self.conflict {
            Some(conflict) => Err(conflict),
            None => self.variant.spec.as_ref(),
        }
    }
}

#[must_use]
pub(crate) fn managed_variants(watches: &Watches, ownership: &Ownership) -> Vec<ManagedVariant> {
    let mut all: Vec<ManagedVariant> = watches
        .variants
        .all()
        .into_iter()
        .filter(|v| is_managed(v, ownership, watches.namespaces.as_ref()))
        .map(|variant| ManagedVariant { variant, conflict: None })
        .collect();
    mark_conflicts(&mut all);
    all
}

/// All of one target except the first by [`precedence`].
fn mark_conflicts(all: &mut [ManagedVariant]) {
    let mut winners: BTreeMap<&WorkloadKey, &Variant> = BTreeMap::new();
    for m in all.iter() {
        let Ok(spec) = m.spec() else { continue };
        let winner = winners.entry(&spec.workload).or_insert(m);
        if precedence(m.created, &m.key.name) < precedence(winner.created, &winner.key.name) {
            *winner = m;
        }
    }
    let conflict = |m: &ManagedVariant| {
        let workload = &m.spec().ok()?.workload;
        let with = winners.get(workload).filter(|winner| winner.key.name != m.key.name)?;
        let target = format!("{}/{}", workload.kind, workload.name);
        Some(VariantError::Conflict { with: with.key.name.clone(), target })
    };
    let conflicts: Vec<_> = all.iter().map(conflict).collect();
    for (m, conflict) in all.iter_mut().zip(conflicts) {
        m.conflict = conflict;
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use kube::api::DynamicObject;
    use serde_json::Value;

    use super::*;

    /// `ns/v` of Deployment `d`.
    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    pub(crate) fn managed(status: serde_json::Value) -> ManagedVariant {
        managed_variant(&object("v", &status))
    }

    /// Another object of the same name.
    pub(crate) fn recreated(m: &ManagedVariant) -> ManagedVariant {
        let mut other = object(&m.key.name, &Value::Null);
        other.metadata.uid = Some("another".to_owned());
        managed_variant(&other)
    }

    fn managed_variant(object: &DynamicObject) -> ManagedVariant {
        ManagedVariant { variant: Arc::new(Variant::read(object)), conflict: None }
    }

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
mod tests;
