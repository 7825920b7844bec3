//! Labelled variants whose controller instance does not run. [`Orphan::digest`] makes the reports of all controllers
//! equal, so that one event is written.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use wva_objects::orphan::{Orphan, OrphanEvidence, OrphanFacts};
use wva_objects::status::MAX_TARGET_AGE;
use wva_scaling::VariantKey;

use super::{Ownership, is_excluded};
use crate::model::moment::Moment;
use crate::model::reported::Problem;
use crate::observe::watches::Watches;
use crate::observe::watches::variant::{ParsedSpec, Variant};
use crate::observe::workloads;

/// Time in which a controller renews an old status, such as after the end of a namespace exclusion.
const RENEWAL: Duration = Duration::from_secs(10);

/// How long evidence has to last.
fn min_duration(evidence: OrphanEvidence) -> Duration {
    match evidence {
        OrphanEvidence::NoStatus => Duration::ZERO,
        OrphanEvidence::NotConfirmed(_) => RENEWAL,
        // The status does not show when it was last correct.
        OrphanEvidence::Outdated(_) => MAX_TARGET_AGE.unsigned_abs(),
    }
}

/// Evidence, and the time of its first sighting.
#[derive(Debug, Default)]
pub(crate) struct OrphanTracker(BTreeMap<VariantKey, (Orphan, Instant)>);

impl OrphanTracker {
    /// Returns the variants that no controller serves.
    pub(crate) fn update(
        &mut self,
        watches: &Watches,
        ownership: &Ownership,
        at: Moment,
    ) -> BTreeMap<VariantKey, Orphan> {
        let before = std::mem::take(&mut self.0);
        watches.variants.for_each(|namespace, _, v| {
            if ownership.includes(v.instance.as_deref())
                || is_excluded(watches.namespaces.as_ref(), namespace)
            {
                return;
            }
            let Some(orphan) = detect(watches, v, at.wall) else { return };
            let known = before.get(&v.key).filter(|(known, _)| *known == orphan);
            let since = known.map_or(at.now, |(_, since)| *since);
            self.0.insert(v.key.clone(), (orphan, since));
        });
        let confirmed = |(key, (orphan, since)): (&VariantKey, &(Orphan, Instant))| {
            let duration = at.now.saturating_duration_since(*since);
            (duration >= min_duration(orphan.evidence)).then(|| (key.clone(), orphan.clone()))
        };
        self.0.iter().filter_map(confirmed).collect()
    }
}

fn detect(watches: &Watches, variant: &Variant, now: Timestamp) -> Option<Orphan> {
    let exists = |spec: &ParsedSpec| workloads::current_replicas(watches, &spec.workload).is_some();
    let is_missing = variant.status.reported.has(Problem::TargetNotFound);
    let facts = OrphanFacts {
        uid: &variant.uid,
        instance: variant.instance.as_deref(),
        is_terminating: variant.is_terminating,
        created: variant.created,
        generation: variant.generation,
        status: variant.status.trace,
        workload_appeared: is_missing && variant.spec.as_ref().is_ok_and(exists),
    };
    facts.detect(now)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{CREATED, Cluster};

    fn at(second: i64) -> Timestamp {
        CREATED.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second)
    }

    /// Reported orphans at these seconds.
    fn reports(cluster: &Cluster, seconds: &[i64], own: Option<&str>) -> Vec<Vec<String>> {
        let ownership = Ownership { instance: own.map(str::to_owned), ..Ownership::default() };
        let (mut orphans, start) = (OrphanTracker::default(), Instant::now());
        let mut report = |second: &i64| {
            let now = start + Duration::from_secs(second.unsigned_abs());
            let all = orphans.update(&cluster.watches(), &ownership, Moment { now, wall: at(*second) });
            all.into_iter().map(|(key, orphan)| format!("{}: {orphan}", key.name)).collect()
        };
        seconds.iter().map(&mut report).collect()
    }

    /// A cluster with this status of a variant of instance `x`.
    fn labelled(status: &Value) -> Cluster {
        let mut cluster = Cluster::new();
        let labels = json!({"wva.llmd.ai/controller-instance": "x"});
        cluster.variant("a", "m", json!({"metadata": {"labels": labels}, "status": status}));
        cluster.variant("plain", "m", json!({}));
        cluster
    }

    /// Reported orphans a minute after a first update at this second.
    fn found(status: &Value, second: i64, own: Option<&str>) -> Vec<String> {
        reports(&labelled(status), &[second, second + 60], own).swap_remove(1)
    }

    fn counts(reports: &[Vec<String>]) -> Vec<usize> {
        reports.iter().map(Vec::len).collect()
    }

    fn without_target(reason: &str, generation: i64) -> Value {
        json!({"conditions": [{"type": "Ready", "status": "False", "reason": reason, "message": "m",
            "observedGeneration": generation, "lastTransitionTime": CREATED}]})
    }

    #[test]
    fn old_or_missing_status_makes_an_orphan() {
        let ran = json!({"desiredOptimizedAlloc": {"numReplicas": 1, "lastRunTime": CREATED}});
        let gone = without_target("DeploymentNotFound", 1);
        // By the schema, and by another controller.
        let defaulted = json!({"observedGeneration": -1});
        let foreign = json!({"conditions": [{"type": "team.example/Audited", "status": "True", "reason": "Seen",
            "message": "", "lastTransitionTime": CREATED}]});
        for (status, second, is_orphan) in [
            (&ran, 14 * 60, false),
            (&ran, 15 * 60 + 1, true),
            (&Value::Null, 0, false),
            (&Value::Null, 1, true),
            (&defaulted, 1, true),
            (&foreign, 1, true),
            (&gone, 24 * 3600, false),
        ] {
            for own in [None, Some("y")] {
                assert_eq!(found(status, second, own).len(), usize::from(is_orphan), "{status} at {second}");
            }
            assert_eq!(found(status, second, Some("x")), Vec::<String>::new(), "it is ours: {status}");
        }
    }

    #[test]
    fn reports_outdated_status_without_target_after_15_minutes() {
        let day = 24 * 3600;
        let reported = |cluster: &Cluster| counts(&reports(cluster, &[day, day + 899, day + 900], None));
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
            assert_eq!(reported(&cluster), want, "{reason}, generation {generation}, workload {workload}");
        }
        let mut cluster = labelled(&without_target("DeploymentNotFound", 1));
        let reported = reports(cluster.deployment("a", 1, 1), &[day, day + 900], None).swap_remove(1);
        assert!(reported[0].contains("its status of 2026-01-01T00:00:00Z has no target"), "{reported:?}");
    }

    #[test]
    fn gives_the_controller_time_to_renew_an_old_status() {
        let ran = json!({"desiredOptimizedAlloc": {"numReplicas": 1, "lastRunTime": CREATED}});
        let reported = reports(&labelled(&ran), &[3600, 3609, 3610], None);
        assert_eq!(counts(&reported), [0, 0, 1]);
    }

    #[test]
    fn names_instance_and_remedy() {
        let reported = found(&Value::Null, 100, None);
        assert!(
            reported[0].contains("never got a status") && reported[0].contains("CONTROLLER_INSTANCE=x"),
            "{reported:?}"
        );
        let ran = json!({"desiredOptimizedAlloc": {"numReplicas": 1, "lastRunTime": CREATED}});
        assert!(found(&ran, 3600, None)[0].contains("confirmed at 2026-01-01T00:00:00Z"));
    }
}
