//! State of a variant after a restart, and after changes of replicas, target and mode.

use jiff::SignedDuration;
use serde_json::{Value, json};
use wva_scaling::snapshot::Mode::{Auto, Fixed, Paused, Recommend};

use super::*;
use crate::cycle::conditions::conditions;
use crate::cycle::conditions::tests::no_target;
use crate::model::status_fingerprint::StatusFingerprint;
use crate::observe::variants::testing;

const MINUTE: std::time::Duration = std::time::Duration::from_mins(1);

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
fn a_target_ages_until_the_workload_comes_nearer() {
    let mut r = VariantMemory::default();
    let t0 = Instant::now();
    r.record_decision(state(4, 2), Auto, false, t0);
    assert_eq!(
        r.desired(2, t0 + MINUTE),
        Some(LastTarget { target: 4, before: None, age: GoDuration::from_secs(60) })
    );
    assert_eq!(
        r.desired(3, t0 + MINUTE),
        Some(LastTarget { target: 4, before: None, age: GoDuration::default() })
    );
}

#[test]
fn an_echo_of_the_replicas_is_not_kept() {
    let now = Instant::now();
    for (mode, kept) in [(Auto, None), (Recommend, None), (Paused, Some(2)), (Fixed(2), Some(2))] {
        let mut r = VariantMemory::default();
        r.record_decision(state(2, 2), mode, true, now);
        assert_eq!(r.desired(2, now).map(|d| d.target), kept, "{mode}");
        r.record_decision(state(3, 2), mode, false, now);
        r.record_decision(state(3, 2), mode, true, now);
        assert_eq!(r.desired(3, now).map(|d| d.target), Some(3), "{mode}");
    }
}

#[test]
fn only_auto_targets_age() {
    let now = Instant::now();
    let aged = VariantState { desired_age: GoDuration::from_secs(3600), ..state(4, 2) };
    for (mode, age) in [(Auto, 3600), (Recommend, 0), (Paused, 0), (Fixed(4), 0)] {
        let mut r = VariantMemory::default();
        r.record_decision(aged, mode, false, now);
        assert_eq!(
            r.desired(2, now),
            Some(LastTarget { target: 4, before: None, age: GoDuration::from_secs(age) }),
            "{mode}"
        );
    }
}

#[test]
fn a_deleted_workload_clears_its_target() {
    let now = Instant::now();
    let mut r = observed();
    r.record_decision(state(2, 1), Auto, false, now);
    r.update_workload(&workload("d"), false);
    assert_eq!(r.desired(2, now), None);
    assert!(r.target_seen);
}

#[test]
fn another_workload_does_not_inherit_the_target() {
    let now = Instant::now();
    let mut r = observed();
    r.record_decision(state(8, 8), Auto, false, now);
    r.update_workload(&workload("other"), false);
    assert!(!r.target_seen, "the other workload never existed");
    r.update_workload(&workload("other"), true);
    assert_eq!(r.desired(1, now), None);
    r.record_decision(state(2, 1), Auto, false, now);
    r.update_workload(&workload("other"), true);
    assert_eq!(r.desired(1, now).map(|d| d.target), Some(2), "the same one keeps it");
}

#[test]
fn a_restart_takes_the_target_of_a_recent_status() {
    let wall = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1);
    let check = |minutes_ago: i64, more: Value, want: Option<u32>| {
        let last_run = wall - SignedDuration::from_mins(minutes_ago);
        let mut status = json!({"desiredOptimizedAlloc": {"numReplicas": 7, "accelerator": "H100", "lastRunTime": last_run.to_string()}});
        status["conditions"] = more;
        let r = after_restart(status.clone(), wall);
        assert_eq!(r.desired(2, Instant::now()).map(|d| d.target), want, "{status}");
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
    assert_eq!(unreadable.desired(2, Instant::now()), None);
}

#[test]
fn a_recreated_object_starts_without_state() {
    let (now, wall) = (Instant::now(), Timestamp::UNIX_EPOCH);
    let mut memory = Memory::default();
    let m = testing::managed(json!({}));
    memory.entry(&m, now, wall).record_decision(state(5, 2), Auto, false, now);
    assert!(memory.entry(&m, now, wall).has_target());
    let m = testing::recreated(&m);
    assert!(!memory.entry(&m, now, wall).has_target());
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
    Decision { reporting, ..decision }
}

#[test]
fn a_replica_given_back_is_remembered_for_two_minutes() {
    let model = |id: &str, current: u32, kv: f64, gpus: u32| {
        let replicas: Vec<_> =
            (0..current).map(|i| json!({"pod": format!("{id}-{i}"), "kv": kv, "queue": 0})).collect();
        let variant = json!({"name": id, "current": current, "accelerator": "H100", "gpusPerReplica": gpus, "replicas": replicas});
        json!({"modelID": id, "namespace": "ns", "variants": [variant]})
    };
    let decide = |free: u32, models: [serde_json::Value; 2]| {
        let config = json!({"limitedMode": true, "inventory": {"H100": {"limit": free}}, "priorities": {"a": 1, "b": 2}});
        let text = json!({"config": config, "models": models}).to_string();
        let decision = wva_scaling::decide(&wva_scaling::Snapshot::parse(&text).unwrap()).decisions.remove(1);
        (decision.reason().code(), decision)
    };
    let (t0, mut r) = (Instant::now(), VariantMemory::default());
    // It only cannot grow.
    let (code, refused) = decide(1, [model("a", 1, 0.79, 2), model("b", 1, 0.79, 1)]);
    r.track_returned(&refused, t0);
    assert_eq!((code, r.returned(t0)), ("YieldsTo", None));
    let (code, given) = decide(0, [model("a", 1, 0.79, 1), model("b", 2, 0.6, 1)]);
    r.track_returned(&given, t0);
    assert_eq!(code, "YieldsTo");
    r.track_returned(&refused, t0 + MINUTE);
    let returned = r.returned(t0 + 2 * MINUTE).unwrap();
    let facts = (&*returned.namespace, &*returned.model_id, returned.replicas, returned.ago);
    assert_eq!(facts, ("ns", "a", 1, GoDuration::from_secs(120)));
    assert_eq!(r.returned(t0 + 2 * MINUTE + Duration::from_millis(1)), None);
}

#[test]
fn a_wake_is_remembered_until_a_replica_reports() {
    const HOLD: Duration = Duration::from_mins(10);
    let t0 = Instant::now();
    let mut r = VariantMemory::default();
    r.track_wake(&decision(0, 0, 0), HOLD, t0);
    assert_eq!(r.woken_ago(t0), None);
    r.track_wake(&decision(0, 1, 0), HOLD, t0);
    // The step is decided again while it is carried out, and while the replica loads.
    r.track_wake(&decision(0, 1, 0), HOLD, t0 + MINUTE);
    r.track_wake(&decision(1, 1, 0), HOLD, t0 + MINUTE);
    assert_eq!(r.woken_ago(t0 + 2 * MINUTE), Some(GoDuration::from_secs(120)));
    r.track_wake(&decision(1, 1, 1), HOLD, t0 + 2 * MINUTE);
    assert_eq!(r.woken_ago(t0 + 2 * MINUTE), None);
    // After the hold it is a new wake.
    r.track_wake(&decision(0, 1, 0), HOLD, t0);
    r.track_wake(&decision(0, 1, 0), HOLD, t0 + HOLD);
    assert_eq!(r.woken_ago(t0 + HOLD), Some(GoDuration::default()));
    r.track_wake(&decision(0, 0, 0), HOLD, t0 + HOLD);
    assert_eq!(r.woken_ago(t0 + HOLD), None);
    let held_back = |mode| Decision { mode, ..decision(0, 1, 0) };
    for (mode, wakes) in [(Auto, true), (Fixed(1), true), (Paused, false), (Recommend, false)] {
        r.track_wake(&held_back(mode), HOLD, t0);
        assert_eq!(r.woken_ago(t0).is_some(), wakes, "{mode}");
    }
}

#[test]
fn a_failed_wake_stays_one_until_a_replica_reports() {
    const HOLD: Duration = Duration::from_mins(10);
    let t0 = Instant::now();
    let mut r = VariantMemory::default();
    let failed = |at: Instant| move |since: Instant| Some(at).filter(|at| *at > since);
    assert!(!r.track_failed_wake(failed(t0)), "nothing was woken");
    r.track_wake(&decision(0, 1, 0), HOLD, t0);
    assert!(!r.track_failed_wake(failed(t0)), "the request that woke it failed");
    assert!(r.track_failed_wake(failed(t0 + MINUTE)));
    assert!(r.track_failed_wake(|_| None), "the failure is no longer recent");
    r.track_wake(&decision(1, 1, 1), HOLD, t0 + 2 * MINUTE);
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
        Memory::default().entry(&testing::managed(status), now, wall).woken_ago(now)
    };
    assert_eq!(woken_ago(1, "ScaleFromZero"), Some(GoDuration::from_secs(30)));
    assert_eq!(woken_ago(0, "ScaleFromZero"), None);
    assert_eq!(woken_ago(1, "MetricsFound"), None);
}
