//! Which VariantAutoscalings this controller manages.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use wva_rules::precedence;

use crate::model::conditions::Unusable;
use crate::model::keys::WorkloadKey;
use crate::observe::watches::Watches;
use crate::observe::watches::variant::{Declared, Variant};

mod orphans;
mod ownership;
mod takeover;

pub(crate) use orphans::OrphanTracker;
pub use orphans::detect_orphan;
pub(crate) use ownership::is_managed;
pub use ownership::{Ownership, Reach, is_excluded};
pub(crate) use takeover::Takeover;

/// A VariantAutoscaling that this controller manages.
#[derive(Clone, Debug)]
pub(crate) struct Managed {
    variant: Arc<Variant>,
    /// Set where another one has the same target and came first.
    conflict: Option<Unusable>,
}

impl Deref for Managed {
    type Target = Variant;

    fn deref(&self) -> &Variant {
        &self.variant
    }
}

impl Managed {
    /// What it declares, or why that cannot be used.
    pub(crate) fn declared(&self) -> Result<&Declared, &Unusable> {
        match &self.conflict {
            Some(conflict) => Err(conflict),
            None => self.variant.declared.as_ref(),
        }
    }
}

/// All VariantAutoscalings this controller manages, in order of namespace and name.
#[must_use]
pub(crate) fn managed(watches: &Watches, ownership: &Ownership) -> Vec<Managed> {
    let mut all: Vec<Managed> = watches
        .variants
        .all()
        .into_iter()
        .filter(|v| is_managed(v, ownership, watches.namespaces.as_ref()))
        .map(|variant| Managed { variant, conflict: None })
        .collect();
    set_conflicts_aside(&mut all);
    all
}

/// Of several with one target the first by [`precedence`] counts.
fn set_conflicts_aside(all: &mut [Managed]) {
    let mut winners: BTreeMap<&WorkloadKey, &Variant> = BTreeMap::new();
    for m in all.iter() {
        let Ok(declared) = m.declared() else { continue };
        let winner = winners.entry(&declared.workload).or_insert(m);
        if precedence(m.created, &m.key.name) < precedence(winner.created, &winner.key.name) {
            *winner = m;
        }
    }
    let conflict = |m: &Managed| {
        let workload = &m.declared().ok()?.workload;
        let with = winners.get(workload).filter(|winner| winner.key.name != m.key.name)?;
        let target = format!("{}/{}", workload.kind, workload.name);
        Some(Unusable::Conflict { with: with.key.name.clone(), target })
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

    /// The VariantAutoscaling `ns/v` of Deployment `d` with a status.
    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    pub(crate) fn managed(status: serde_json::Value) -> Managed {
        of(&object("v", &status))
    }

    /// Another object of the same name.
    pub(crate) fn made_anew(m: &Managed) -> Managed {
        let mut other = object(&m.key.name, &Value::Null);
        other.metadata.uid = Some("another".to_owned());
        of(&other)
    }

    fn of(object: &DynamicObject) -> Managed {
        Managed { variant: Arc::new(Variant::read(object)), conflict: None }
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
mod tests;
