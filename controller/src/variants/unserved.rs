//! Labelled variants that no controller serves: the instance they name does not run. Each controller looks for them, and
//! what it tells of one is told once for all controllers, see [`Unserved::digest`].

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use wva_crds::names::INSTANCE_LABEL;
use wva_scaling::VariantKey;

use super::{Ownership, Variant, is_excluded};
use crate::memory::STATUS_MEMORY;
use crate::watches::Watches;

/// Time for the controller that an object names to write its first status.
const FIRST_STATUS: SignedDuration = SignedDuration::from_mins(1);

/// A labelled variant that nobody serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unserved {
    /// Which object this is about.
    pub uid: String,
    /// The instance that should manage it.
    pub instance: String,
    /// When its target was last confirmed; `None` where it never had a status.
    pub last_run: Option<Timestamp>,
}

impl Unserved {
    /// The same wherever the same is found: by it the events of several controllers are one.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instance = &self.instance;
        write!(f, "No controller manages this object: it is labelled {INSTANCE_LABEL}={instance}, and ")?;
        match self.last_run {
            Some(at) => write!(f, "its target was last confirmed at {at}")?,
            None => f.write_str("it never got a status")?,
        }
        write!(f, ". Run a controller with CONTROLLER_INSTANCE={instance}, or change the label")
    }
}

/// The variants of other instances that nobody serves.
#[must_use]
pub(crate) fn unserved(
    watches: &Watches,
    ownership: &Ownership,
    now: Timestamp,
) -> BTreeMap<VariantKey, Unserved> {
    let mut found = BTreeMap::new();
    watches.variants.each(|namespace, _, v| {
        if ownership.includes(v.instance.as_deref()) || is_excluded(watches.namespaces.as_ref(), namespace) {
            return;
        }
        found.extend(judge(v, now).map(|unserved| (v.key.clone(), unserved)));
    });
    found
}

/// The same of one object as it is stored, for who looks from outside. Which instances run is not asked.
#[must_use]
pub fn nobody_serves(object: &DynamicObject, now: Timestamp) -> Option<Unserved> {
    judge(&Variant::read(object), now)
}

fn judge(variant: &Variant, now: Timestamp) -> Option<Unserved> {
    let last_run = variant.status.written.last_run;
    let forgotten = match last_run {
        Some(at) => now.duration_since(at) > STATUS_MEMORY,
        // Where there is no target, nothing confirms it: a status like that is as old as its last change.
        None if variant.status.written.says_something() => false,
        None => variant.created.is_some_and(|at| now.duration_since(at) > FIRST_STATUS),
    };
    let instance = variant.instance.clone().filter(|_| forgotten && !variant.leaving)?;
    Some(Unserved { uid: variant.uid.clone(), instance, last_run })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{CREATED, Cluster};

    fn at(second: i64) -> Timestamp {
        CREATED.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second)
    }

    fn found(status: &Value, second: i64, own: Option<&str>) -> Vec<String> {
        let mut cluster = Cluster::new();
        let labels = json!({"wva.llmd.ai/controller-instance": "x"});
        cluster.variant("a", "m", json!({"metadata": {"labels": labels}, "status": status}));
        cluster.variant("plain", "m", json!({}));
        let ownership = Ownership { instance: own.map(str::to_owned), ..Ownership::default() };
        let all = unserved(&cluster.watches(), &ownership, at(second));
        all.into_iter().map(|(key, unserved)| format!("{}: {unserved}", key.name)).collect()
    }

    #[test]
    fn a_labelled_variant_with_an_old_status_or_none_is_nobodys() {
        let ran = json!({"desiredOptimizedAlloc": {"numReplicas": 1, "lastRunTime": CREATED}});
        let gone = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "DeploymentNotFound",
            "message": "m", "lastTransitionTime": CREATED}]});
        for (status, second, is_nobodys) in [
            (&ran, 15 * 60, false),
            (&ran, 15 * 60 + 1, true),
            (&Value::Null, 60, false),
            (&Value::Null, 61, true),
            (&gone, 24 * 3600, false),
        ] {
            for own in [None, Some("y")] {
                assert_eq!(found(status, second, own).len(), usize::from(is_nobodys), "{status} at {second}");
            }
            assert_eq!(found(status, second, Some("x")), Vec::<String>::new(), "it is ours: {status}");
        }
    }

    #[test]
    fn it_says_whose_it_is_and_what_to_do() {
        let says = found(&Value::Null, 100, None);
        assert!(
            says[0].contains("never got a status") && says[0].contains("CONTROLLER_INSTANCE=x"),
            "{says:?}"
        );
        let ran = json!({"desiredOptimizedAlloc": {"numReplicas": 1, "lastRunTime": CREATED}});
        assert!(found(&ran, 3600, None)[0].contains("confirmed at 2026-01-01T00:00:00Z"));
    }

    #[test]
    fn two_controllers_tell_the_same_and_a_later_end_tells_something_else() {
        let of = |last_run| Unserved { uid: "u".into(), instance: "x".into(), last_run };
        assert_eq!(of(Some(at(0))).digest(), of(Some(at(0))).digest());
        assert_ne!(of(Some(at(0))).digest(), of(Some(at(1))).digest());
        assert_ne!(of(None).digest(), of(Some(at(1))).digest());
    }
}
