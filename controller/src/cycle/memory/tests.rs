//! What a restart, a replica that does not come, a changed target and a changed mode leave in memory.

use jiff::SignedDuration;
use serde_json::{Value, json};
use wva_runtime::Availability;
use wva_scaling::snapshot::Mode::{Auto, Fixed, Paused, Recommend};

use super::*;
use crate::cycle::conditions::{Outlook, conditions};
use crate::model::written::Written;
use crate::observe::variants::testing;

const MINUTE: std::time::Duration = std::time::Duration::from_mins(1);

fn state(desired: u32, current: u32) -> VariantState {
    VariantState { desired, current, desired_age: GoDuration::default(), capacity: None }
}

fn workload(name: &str) -> WorkloadKey {
    WorkloadKey { namespace: "ns".into(), kind: "Deployment".into(), name: name.into() }
}

fn observed() -> Remembered {
    let mut r = Remembered::default();
    r.observe(&workload("d"), true);
    r
}

/// What a process that starts at this time remembers of a variant with this status.
fn after_restart(status: Value, wall: Timestamp) -> Remembered {
    Memory::default().of(&testing::managed(status), Instant::now(), wall).clone()
}

#[test]
fn a_decision_ages_until_the_workload_comes_nearer() {
    let mut r = Remembered::default();
    let t0 = Instant::now();
    r.decided(state(4, 2), Auto, false, t0);
    assert_eq!(r.desired(2, t0 + MINUTE), Some(Desired { target: 4, age: GoDuration::from_secs(60) }));
    assert_eq!(r.desired(3, t0 + MINUTE), Some(Desired { target: 4, age: GoDuration::default() }));
}

#[test]
fn what_only_echoes_the_present_is_no_memory() {
    let now = Instant::now();
    for (mode, kept) in [(Auto, None), (Recommend, None), (Paused, Some(2)), (Fixed(2), Some(2))] {
        let mut r = Remembered::default();
        r.decided(state(2, 2), mode, true, now);
        assert_eq!(r.desired(2, now).map(|d| d.target), kept, "{mode}");
        r.decided(state(3, 2), mode, false, now);
        r.decided(state(3, 2), mode, true, now);
        assert_eq!(r.desired(3, now).map(|d| d.target), Some(3), "{mode}");
    }
}

#[test]
fn a_target_that_nobody_carries_out_is_not_late_when_the_mode_becomes_auto() {
    let now = Instant::now();
    let aged = VariantState { desired_age: GoDuration::from_secs(3600), ..state(4, 2) };
    for (mode, age) in [(Auto, 3600), (Recommend, 0), (Paused, 0), (Fixed(4), 0)] {
        let mut r = Remembered::default();
        r.decided(aged, mode, false, now);
        assert_eq!(r.desired(2, now), Some(Desired { target: 4, age: GoDuration::from_secs(age) }), "{mode}");
    }
}

#[test]
fn a_workload_that_goes_takes_its_target_along() {
    let now = Instant::now();
    let mut r = observed();
    r.decided(state(2, 1), Auto, false, now);
    r.observe(&workload("d"), false);
    assert_eq!(r.desired(2, now), None);
    assert!(r.target_seen);
}

#[test]
fn another_workload_does_not_inherit_the_target() {
    let now = Instant::now();
    let mut r = observed();
    r.decided(state(8, 8), Auto, false, now);
    r.observe(&workload("other"), false);
    assert!(!r.target_seen, "the other one was never there");
    r.observe(&workload("other"), true);
    assert_eq!(r.desired(1, now), None);
    r.decided(state(2, 1), Auto, false, now);
    r.observe(&workload("other"), true);
    assert_eq!(r.desired(1, now).map(|d| d.target), Some(2), "the same one keeps it");
}

#[test]
fn after_a_restart_the_target_is_that_of_a_young_status() {
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
    // A part that cannot be read does not cost the rest.
    check(0, json!("none"), Some(7));
    // One that only echoed the replicas is no target.
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
fn an_object_made_anew_under_the_same_name_remembers_nothing() {
    let (now, wall) = (Instant::now(), Timestamp::UNIX_EPOCH);
    let mut memory = Memory::default();
    let m = testing::managed(json!({}));
    memory.of(&m, now, wall).decided(state(5, 2), Auto, false, now);
    assert!(memory.of(&m, now, wall).has_target());
    let m = testing::recreated(&m);
    assert!(!memory.of(&m, now, wall).has_target());
}

#[test]
fn after_a_restart_a_target_that_was_gone_is_still_one_that_was_there() {
    for seen in [true, false] {
        let gone =
            Outlook::NoTarget { kind: "Deployment", name: "d", seen, sight: Some(Availability::Watched) };
        let dated = conditions(gone).dated(&Written::default(), None, Timestamp::UNIX_EPOCH);
        let r = after_restart(json!({"conditions": dated}), Timestamp::UNIX_EPOCH);
        assert_eq!(r.target_seen, seen);
    }
}

#[test]
fn a_target_given_up_again_and_again_is_told_once() {
    let mut r = Remembered::default();
    assert_eq!(r.not_carried_out(None, 3, 2), None);
    assert_eq!(r.not_carried_out(Some(3), 3, 2), Some(3), "given up, and made again");
    assert_eq!(r.not_carried_out(None, 3, 2), Some(3), "nothing has moved");
    assert_eq!(r.not_carried_out(Some(3), 3, 2), Some(3), "given up once more");
    assert_eq!(r.not_carried_out(None, 3, 3), None, "the workload moved");
    assert_eq!(r.not_carried_out(Some(3), 2, 2), Some(3));
    assert_eq!(r.not_carried_out(None, 4, 2), None, "another target");
}

/// A decision on a variant with this many replicas, of which some report.
fn decision(current: u32, target: u32, reporting: u32) -> Decision {
    let fleet = json!({"models": [{"modelID": "m", "namespace": "ns", "variants": [{"name": "v", "current": current}]}]});
    let snapshot = wva_scaling::Snapshot::parse(&fleet.to_string()).unwrap();
    let mut decision = wva_scaling::decide(&snapshot).decisions.remove(0);
    decision.steps.last_mut().unwrap().after = target;
    Decision { reporting, ..decision }
}

#[test]
fn a_wake_is_remembered_until_a_replica_reports() {
    const HOLD: Duration = Duration::from_mins(10);
    let t0 = Instant::now();
    let mut r = Remembered::default();
    r.woken(&decision(0, 0, 0), HOLD, t0);
    assert_eq!(r.woken_ago(t0), None);
    r.woken(&decision(0, 1, 0), HOLD, t0);
    // It is decided again while it is carried out, and while the replica loads.
    r.woken(&decision(0, 1, 0), HOLD, t0 + MINUTE);
    r.woken(&decision(1, 1, 0), HOLD, t0 + MINUTE);
    assert_eq!(r.woken_ago(t0 + 2 * MINUTE), Some(GoDuration::from_secs(120)));
    r.woken(&decision(1, 1, 1), HOLD, t0 + 2 * MINUTE);
    assert_eq!(r.woken_ago(t0 + 2 * MINUTE), None);
    // After the hold it is another wake.
    r.woken(&decision(0, 1, 0), HOLD, t0);
    r.woken(&decision(0, 1, 0), HOLD, t0 + HOLD);
    assert_eq!(r.woken_ago(t0 + HOLD), Some(GoDuration::default()));
    r.woken(&decision(0, 0, 0), HOLD, t0 + HOLD);
    assert_eq!(r.woken_ago(t0 + HOLD), None);
    let held_back = |mode| Decision { mode, ..decision(0, 1, 0) };
    for (mode, wakes) in [(Auto, true), (Fixed(1), true), (Paused, false), (Recommend, false)] {
        r.woken(&held_back(mode), HOLD, t0);
        assert_eq!(r.woken_ago(t0).is_some(), wakes, "{mode}");
    }
}

#[test]
fn another_leader_goes_on_with_a_wake() {
    let now = Instant::now() + Duration::from_hours(1);
    let wall: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
    let woken_ago = |replicas: u32, reason: &str| {
        let alloc =
            json!({"numReplicas": replicas, "accelerator": "H100", "lastRunTime": "2026-01-01T00:00:30Z"});
        let condition = json!({"type": "MetricsAvailable", "status": "True", "reason": reason, "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"desiredOptimizedAlloc": alloc, "conditions": [condition]});
        Memory::default().of(&testing::managed(status), now, wall).woken_ago(now)
    };
    assert_eq!(woken_ago(1, "ScaleFromZero"), Some(GoDuration::from_secs(30)));
    assert_eq!(woken_ago(0, "ScaleFromZero"), None);
    assert_eq!(woken_ago(1, "MetricsFound"), None);
}
