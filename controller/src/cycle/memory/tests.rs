//! State of a variant after a restart, and after changes of replicas, target and mode.

use jiff::SignedDuration;
use serde_json::{Value, json};
use wva_crds::GoDuration;
use wva_scaling::{Decision, Reason, VariantState};

use super::*;
use crate::cycle::conditions::conditions;
use crate::cycle::conditions::tests::no_target;
use crate::model::status_fingerprint::StatusFingerprint;
use crate::observe::variants::testing;

const MINUTE: Duration = Duration::from_mins(1);
const HOLD: Duration = Duration::from_mins(10);

fn state(desired: u32, current: u32) -> VariantState {
    VariantState { desired, before: None, current, desired_age: GoDuration::default(), capacity: None }
}

fn workload(name: &str) -> WorkloadKey {
    WorkloadKey { namespace: "ns".into(), kind: "Deployment".into(), name: name.into() }
}

fn observed() -> VariantMemory {
    let mut r = VariantMemory::default();
    r.update_workload(&workload("d"), true);
    r
}

/// State that a process starting at this time takes from a status.
fn after_restart(status: Value, wall: Timestamp) -> VariantMemory {
    Memory::default().entry(&testing::managed(status), Instant::now(), wall).clone()
}

#[test]
fn a_deleted_workload_clears_its_target() {
    let now = Instant::now();
    let mut r = observed();
    r.decided.record(&decision(1, 2, 1), state(2, 1), HOLD, now);
    r.update_workload(&workload("d"), false);
    assert_eq!(r.decided.last_target(2, now), None);
    assert!(r.target_seen);
}

#[test]
fn another_workload_does_not_inherit_the_target() {
    let now = Instant::now();
    let mut r = observed();
    r.decided.record(&decision(1, 2, 1), state(8, 8), HOLD, now);
    r.update_workload(&workload("other"), false);
    assert!(!r.target_seen, "the other workload never existed");
    r.update_workload(&workload("other"), true);
    assert_eq!(r.decided.last_target(1, now), None);
    r.decided.record(&decision(1, 2, 1), state(2, 1), HOLD, now);
    r.update_workload(&workload("other"), true);
    assert_eq!(r.decided.last_target(1, now).map(|d| d.target), Some(2), "the same one keeps it");
}

#[test]
fn a_restart_takes_the_target_of_a_recent_status() {
    let wall = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
    let check = |minutes_ago: i64, more: Value, want: Option<u32>| {
        let last_run = wall - SignedDuration::from_mins(minutes_ago);
        let mut status = json!({"desiredOptimizedAlloc": {"numReplicas": 7, "accelerator": "H100", "lastRunTime": last_run.to_string()}});
        status["conditions"] = more;
        let r = after_restart(status.clone(), wall);
        assert_eq!(r.decided.last_target(2, Instant::now()).map(|d| d.target), want, "{status}");
        assert!(r.target_seen);
    };
    for (minutes_ago, want) in
        [(0, Some(7)), (14, Some(7)), (15, None), (60, None), (-1, Some(7)), (-60, None)]
    {
        check(minutes_ago, Value::Null, want);
    }
    // An unreadable field does not affect others.
    check(0, json!("none"), Some(7));
    // An echo of the replicas is not a target.
    let optimization_ready = |reason: &str| {
        json!([{"type": "OptimizationReady", "status": "False", "reason": reason,
        "message": "m", "lastTransitionTime": wall.to_string()}])
    };
    check(0, optimization_ready("MetricsUnavailable"), None);
    check(0, optimization_ready("SafetyNet"), Some(7));
    let unreadable = after_restart(json!({"desiredOptimizedAlloc": "seven"}), wall);
    assert_eq!(unreadable.decided.last_target(2, Instant::now()), None);
}

#[test]
fn a_recreated_object_starts_without_state() {
    let (now, wall) = (Instant::now(), Timestamp::UNIX_EPOCH);
    let mut memory = Memory::default();
    let m = testing::managed(json!({}));
    memory.entry(&m, now, wall).decided.record(&decision(1, 2, 1), state(5, 2), HOLD, now);
    assert!(memory.entry(&m, now, wall).decided.has_target());
    let m = testing::recreated(&m);
    assert!(!memory.entry(&m, now, wall).decided.has_target());
}

#[test]
fn a_restart_remembers_whether_the_workload_existed() {
    for existed in [true, false] {
        let timed = conditions(no_target("Deployment", "d", existed)).with_times(
            &StatusFingerprint::default(),
            None,
            Timestamp::UNIX_EPOCH,
        );
        let r = after_restart(json!({"conditions": timed}), Timestamp::UNIX_EPOCH);
        assert_eq!(r.target_seen, existed);
    }
}

#[test]
fn a_target_given_up_repeatedly_is_reported_once() {
    let mut r = VariantMemory::default();
    assert_eq!(r.track_not_carried_out(None, 3, 2), None);
    assert_eq!(r.track_not_carried_out(Some(3), 3, 2), Some(3), "given up, and decided again");
    assert_eq!(r.track_not_carried_out(None, 3, 2), Some(3), "no change");
    assert_eq!(r.track_not_carried_out(Some(3), 3, 2), Some(3), "given up once more");
    assert_eq!(r.track_not_carried_out(None, 3, 3), None, "the workload changed");
    assert_eq!(r.track_not_carried_out(Some(3), 2, 2), Some(3));
    assert_eq!(r.track_not_carried_out(None, 4, 2), None, "another target");
}

/// A decision on a variant with `current` replicas, of which `reporting` report.
fn decision(current: u32, target: u32, reporting: u32) -> Decision {
    let fleet = json!({"models": [{"modelID": "m", "namespace": "ns", "variants": [{"name": "v", "current": current}]}]});
    let snapshot = wva_scaling::Snapshot::parse(&fleet.to_string()).unwrap();
    let mut decision = wva_scaling::decide(&snapshot).decisions.remove(0);
    decision.steps.last_mut().unwrap().after = target;
    for step in &mut decision.steps {
        if matches!(step.reason, Reason::SafetyNet { .. }) {
            step.reason = Reason::NoChange { load: None, tokens: None, flow: None };
        }
    }
    decision.report.replicas.reporting = reporting;
    decision
}

#[test]
fn a_failed_wake_stays_one_until_a_replica_reports() {
    let t0 = Instant::now();
    let mut r = VariantMemory::default();
    let failed = |at: Instant| move |since: Instant| Some(at).filter(|at| *at > since);
    assert!(!r.track_failed_wake(failed(t0)), "nothing was woken");
    r.decided.record(&decision(0, 1, 0), state(1, 0), HOLD, t0);
    assert!(!r.track_failed_wake(failed(t0)), "the request that woke it failed");
    assert!(r.track_failed_wake(failed(t0 + MINUTE)));
    assert!(r.track_failed_wake(|_| None), "the failure is no longer recent");
    r.decided.record(&decision(1, 1, 1), state(1, 1), HOLD, t0 + 2 * MINUTE);
    assert!(!r.track_failed_wake(failed(t0 + 3 * MINUTE)), "a replica reports");
}

#[test]
fn another_leader_continues_a_wake() {
    let now = Instant::now() + Duration::from_hours(1);
    let wall: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
    let woken_ago = |replicas: u32, reason: &str| {
        let alloc =
            json!({"numReplicas": replicas, "accelerator": "H100", "lastRunTime": "2026-01-01T00:00:30Z"});
        let condition = json!({"type": "MetricsAvailable", "status": "True", "reason": reason, "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"desiredOptimizedAlloc": alloc, "conditions": [condition]});
        Memory::default().entry(&testing::managed(status), now, wall).decided.woken().map(|at| now - at)
    };
    assert_eq!(woken_ago(1, "ScaleFromZero"), Some(Duration::from_secs(30)));
    assert_eq!(woken_ago(0, "ScaleFromZero"), None);
    assert_eq!(woken_ago(1, "MetricsFound"), None);
}
