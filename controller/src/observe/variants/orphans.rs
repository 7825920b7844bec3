//! Labelled variants that no controller serves: the instance they name does not run. Each controller looks for them, and
//! what it tells of one is told once for all controllers, see [`Orphan::digest`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use wva_runtime::age;
use wva_scaling::VariantKey;

use super::{Ownership, is_excluded};
use crate::model::moment::{LONGEST_AGE, Moment};
use crate::model::orphan::{Orphan, OrphanEvidence};
use crate::model::reported::Problem;
use crate::observe::watches::Watches;
use crate::observe::watches::variant::{Declared, Variant};
use crate::observe::workloads;

/// Time for the controller that an object names to write its first status.
const FIRST_STATUS: SignedDuration = SignedDuration::from_mins(1);
/// An old status that this controller has seen for less than this may be renewed at any moment: a namespace that was
/// excluded becomes everybody's at once.
const SETTLING: Duration = Duration::from_secs(10);

impl OrphanEvidence {
    /// How long it is to be seen before it is believed.
    fn patience(self) -> Duration {
        match self {
            Self::NoStatus => Duration::ZERO,
            Self::NotConfirmed(_) => SETTLING,
            // It tells no time at which it was still right.
            Self::Outdated(_) => LONGEST_AGE.unsigned_abs(),
        }
    }
}

/// The variants of other instances that look as if nobody served them, and since when.
#[derive(Debug, Default)]
pub(crate) struct OrphanTracker(BTreeMap<VariantKey, (Orphan, Instant)>);

impl OrphanTracker {
    /// Takes in how the variants look now, and says which of them nobody serves.
    pub(crate) fn at(
        &mut self,
        watches: &Watches,
        ownership: &Ownership,
        at: Moment,
    ) -> BTreeMap<VariantKey, Orphan> {
        let before = std::mem::take(&mut self.0);
        watches.variants.each(|namespace, _, v| {
            if ownership.includes(v.instance.as_deref())
                || is_excluded(watches.namespaces.as_ref(), namespace)
            {
                return;
            }
            let Some(orphan) = judge(Some(watches), v, at.wall) else { return };
            let known = before.get(&v.key).filter(|(known, _)| *known == orphan);
            let since = known.map_or(at.now, |(_, since)| *since);
            self.0.insert(v.key.clone(), (orphan, since));
        });
        let told = |(key, (orphan, since)): (&VariantKey, &(Orphan, Instant))| {
            let seen = at.now.saturating_duration_since(*since);
            (seen >= orphan.evidence.patience()).then(|| (key.clone(), orphan.clone()))
        };
        self.0.iter().filter_map(told).collect()
    }
}

/// The same of one object as it is stored, for who looks from outside and sees no workloads. Which instances run is not
/// asked.
#[must_use]
pub fn detect_orphan(object: &DynamicObject, now: Timestamp) -> Option<Orphan> {
    judge(None, &Variant::read(object), now)
}

fn judge(watches: Option<&Watches>, variant: &Variant, now: Timestamp) -> Option<Orphan> {
    let instance = variant.instance.clone().filter(|_| !variant.leaving)?;
    let written = &variant.status.written;
    let evidence = match written.last_run {
        Some(at) => (age(at, now) > LONGEST_AGE).then_some(OrphanEvidence::NotConfirmed(at)),
        // Where there is no target, nothing confirms it: a status like that is right until something shows otherwise.
        None if written.says_something() => {
            written.last_change().filter(|_| is_outdated(watches, variant)).map(OrphanEvidence::Outdated)
        }
        None => {
            let is_late = variant.created.is_some_and(|at| now.duration_since(at) > FIRST_STATUS);
            is_late.then_some(OrphanEvidence::NoStatus)
        }
    };
    Some(Orphan { uid: variant.uid.clone(), instance, evidence: evidence? })
}

/// Whether a status without a target speaks of what is no longer so: whoever served the variant would have told by now of
/// a change of the object, and of its workload. What else keeps it from a target, such as another variant that has the
/// same, is taken for as right as it was.
fn is_outdated(watches: Option<&Watches>, variant: &Variant) -> bool {
    let (status, declared) = (&variant.status, variant.declared.as_ref().ok());
    let is_there =
        |d: &Declared| watches.is_some_and(|watches| workloads::current(watches, &d.workload).is_some());
    let changed = status.observed.is_some() && status.observed != variant.generation;
    changed || (status.reported.has(Problem::TargetNotFound) && declared.is_some_and(is_there))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{CREATED, Cluster};

    fn at(second: i64) -> Timestamp {
        CREATED.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second)
    }

    /// What is told at these seconds, one after the other.
    fn looks(cluster: &Cluster, seconds: &[i64], own: Option<&str>) -> Vec<Vec<String>> {
        let ownership = Ownership { instance: own.map(str::to_owned), ..Ownership::default() };
        let (mut orphans, start) = (OrphanTracker::default(), Instant::now());
        let mut look = |second: &i64| {
            let now = start + Duration::from_secs(second.unsigned_abs());
            let all = orphans.at(&cluster.watches(), &ownership, Moment { now, wall: at(*second) });
            all.into_iter().map(|(key, orphan)| format!("{}: {orphan}", key.name)).collect()
        };
        seconds.iter().map(&mut look).collect()
    }

    /// A cluster with this status of a variant of instance `x`.
    fn labelled(status: &Value) -> Cluster {
        let mut cluster = Cluster::new();
        let labels = json!({"wva.llmd.ai/controller-instance": "x"});
        cluster.variant("a", "m", json!({"metadata": {"labels": labels}, "status": status}));
        cluster.variant("plain", "m", json!({}));
        cluster
    }

    /// What is told at a second, and a minute after.
    fn found(status: &Value, second: i64, own: Option<&str>) -> Vec<String> {
        looks(&labelled(status), &[second, second + 60], own).swap_remove(1)
    }

    fn counts(told: &[Vec<String>]) -> Vec<usize> {
        told.iter().map(Vec::len).collect()
    }

    /// A status without a target.
    fn without_target(reason: &str, generation: i64) -> Value {
        json!({"conditions": [{"type": "Ready", "status": "False", "reason": reason, "message": "m",
            "observedGeneration": generation, "lastTransitionTime": CREATED}]})
    }

    #[test]
    fn a_labelled_variant_with_an_old_status_or_none_is_nobodys() {
        let ran = json!({"desiredOptimizedAlloc": {"numReplicas": 1, "lastRunTime": CREATED}});
        let gone = without_target("DeploymentNotFound", 1);
        for (status, second, is_nobodys) in [
            (&ran, 14 * 60, false),
            (&ran, 15 * 60 + 1, true),
            (&Value::Null, 0, false),
            (&Value::Null, 1, true),
            (&gone, 24 * 3600, false),
        ] {
            for own in [None, Some("y")] {
                assert_eq!(found(status, second, own).len(), usize::from(is_nobodys), "{status} at {second}");
            }
            assert_eq!(found(status, second, Some("x")), Vec::<String>::new(), "it is ours: {status}");
        }
    }

    #[test]
    fn a_status_without_a_target_that_is_no_longer_so_is_told_of_after_a_quarter_of_an_hour() {
        let day = 24 * 3600;
        let told = |cluster: &Cluster| counts(&looks(cluster, &[day, day + 899, day + 900], None));
        for (reason, generation, workload, want) in [
            ("DeploymentNotFound", 1, false, [0, 0, 0]),
            ("DeploymentNotFound", 1, true, [0, 0, 1]),
            // The object is at generation 1.
            ("DeploymentNotFound", 0, false, [0, 0, 1]),
            ("InvalidConfiguration", 0, true, [0, 0, 1]),
            ("InvalidConfiguration", 1, true, [0, 0, 0]),
            ("TargetConflict", 1, true, [0, 0, 0]),
        ] {
            let mut cluster = labelled(&without_target(reason, generation));
            if workload {
                cluster.deployment("a", 1, 1);
            }
            assert_eq!(told(&cluster), want, "{reason}, generation {generation}, workload {workload}");
        }
        let mut cluster = labelled(&without_target("DeploymentNotFound", 1));
        let says = looks(cluster.deployment("a", 1, 1), &[day, day + 900], None).swap_remove(1);
        assert!(says[0].contains("renews its status of 2026-01-01T00:00:00Z"), "{says:?}");
    }

    #[test]
    fn an_old_status_is_told_of_only_once_its_controller_had_a_moment_to_renew_it() {
        let ran = json!({"desiredOptimizedAlloc": {"numReplicas": 1, "lastRunTime": CREATED}});
        let told = looks(&labelled(&ran), &[3600, 3609, 3610], None);
        assert_eq!(counts(&told), [0, 0, 1]);
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
        let of = |evidence| Orphan { uid: "u".into(), instance: "x".into(), evidence };
        assert_eq!(
            of(OrphanEvidence::NotConfirmed(at(0))).digest(),
            of(OrphanEvidence::NotConfirmed(at(0))).digest()
        );
        assert_ne!(
            of(OrphanEvidence::NotConfirmed(at(0))).digest(),
            of(OrphanEvidence::NotConfirmed(at(1))).digest()
        );
        assert_ne!(of(OrphanEvidence::NoStatus).digest(), of(OrphanEvidence::NotConfirmed(at(1))).digest());
        assert_eq!(
            of(OrphanEvidence::NotConfirmed(at(0))).digest(),
            0xa04d_4b0c_e0bc_a988,
            "another release tells it by the same name"
        );
    }
}
