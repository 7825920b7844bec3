//! Zero, waking, and the inventory: the stages after the analyzers.

use super::fixture::{check, codes, snapshots, summary};
use crate::{Warning, decide, normalize_accelerator};

/// A model that may go to zero and shows all that is asked for.
const IDLE: &str = "config scaleToZeroDefault: true
    model requestsInRetention: 0, schedulerQueue: {size: 0, bytes: 0}, trackedFor: 10m, sinceActivity: 10m
    model sincePodStart: 10m";

#[test]
fn an_idle_model_goes_to_zero() {
    check(&format!("{IDLE}\na: 1 running=0 kv=.0"), &["a 1->0 NoRequests"]);
    check(&format!("{IDLE}\na: 2 running=0 kv=.0\nb: 0"), &["a 2->0 NoRequests", "b 0->0 NoChange"]);
    check(&format!("{IDLE}\na: 1 min=1 running=0 kv=.0"), &["a 1->0 NoRequests"]);
    check(&format!("{IDLE}\na: 1 min=1 minForbidsZero=true running=0 kv=.0"), &["a 1->1 AtMinimum"]);
    check(
        &format!("{IDLE}\na: 1 woken=1 running=0 kv=.0").replace("woken=1", "wokenAgo=10m"),
        &["a 1->0 NoRequests"],
    );
}

#[test]
fn each_piece_of_evidence_is_needed() {
    let fields = "requestsInRetention: 0, schedulerQueue: {size: 0, bytes: 0}";
    let idle = |model: &str, variant: &str| {
        format!("config scaleToZeroDefault: true\nmodel {model}\na: 1 {variant}")
    };
    check(&idle(fields, "running=0 kv=.0"), &["a 1->0 NoRequests"]);
    for (model, variant) in [
        ("requestsInRetention: 1, schedulerQueue: {size: 0}", "running=0 kv=.0"),
        ("schedulerQueue: {size: 0}", "running=0 kv=.0"),
        ("requestsInRetention: 0, schedulerQueue: null", "running=0 kv=.0"),
        ("requestsInRetention: 0, schedulerQueue: {size: 1}", "running=0 kv=.0"),
        ("requestsInRetention: 0, schedulerQueue: {bytes: 1}", "running=0 kv=.0"),
        ("requestsInRetention: 0, trackedFor: 9m59s", "running=0 kv=.0"),
        ("requestsInRetention: 0, sinceActivity: 9m59s", "running=0 kv=.0"),
        ("requestsInRetention: 0, sincePodStart: 9m59s", "running=0 kv=.0"),
        (fields, "running=1 kv=.0"),
        (fields, "kv=.0"),
        (fields, "running=0 kv=.0 queue=1"),
        (fields, "running=0 kv=.0 age=61s"),
        (fields, "running=0 kv=.0 wokenAgo=9m59s"),
    ] {
        check(&idle(model, variant), &["a 1->1 NoChange"]);
    }
    // No metrics are no zero.
    check(&idle(fields, "running=0"), &["a 1->1 SafetyNet"]);
    check(&format!("model {fields}\na: 1 running=0 kv=.0"), &["a 1->1 NoChange"]);
    let entry = "config scaleToZero: {default: {enable_scale_to_zero: true, retention_period: 30m}}";
    check(
        &format!("{entry}\nmodel {fields}, sinceActivity: 29m\na: 1 running=0 kv=.0"),
        &["a 1->1 NoChange"],
    );
    check(
        &format!("{entry}\nmodel {fields}, sinceActivity: 30m\na: 1 running=0 kv=.0"),
        &["a 1->0 NoRequests"],
    );
}

#[test]
fn a_zero_is_not_kept_when_its_evidence_is_gone() {
    check(&format!("{IDLE}\na: 1 desired=0 running=0 kv=.0"), &["a 1->0 KeptDecision"]);
    check(&format!("{IDLE}\na: 1 desired=0 running=1 kv=.0"), &["a 1->1 Superseded"]);
    check(&format!("{IDLE}\na: 1 desired=0"), &["a 1->1 SafetyNet"]);
}

#[test]
fn where_zero_is_not_allowed_the_cheapest_keeps_one() {
    check("a: 1 desired=0 kv=.1", &["a 1->1 MinimumKept"]);
    check(
        "a: 1 cost=80 desired=0 kv=.1; b: 1 cost=40 desired=0 kv=.1",
        &["a 1->0 KeptDecision", "b 1->1 MinimumKept"],
    );
    // A model at 0 stays there, whatever the bounds and the last target.
    check("a: 0 min=2", &["a 0->0 NoChange"]);
    check("a: 0 kv=.95,.95", &["a 0->0 NoChange"]);
    check("a: 0 min=1 desired=2 desiredAge=1m", &["a 0->0 NoChange"]);
}

#[test]
fn waiting_requests_wake_the_cheapest() {
    let waiting = "model schedulerQueue: {size: 3}";
    check(&format!("{waiting}\na: 0 cost=80\nb: 0 cost=40"), &["a 0->0 NoChange", "b 0->1 RequestsWaiting"]);
    check(&format!("{waiting}\na: 0 min=2"), &["a 0->2 AtMinimum"]);
    check(&format!("{waiting}\na: 0 max=0\nb: 0 cost=40"), &["a 0->0 NoChange", "b 0->1 RequestsWaiting"]);
    // A stuck one is passed over; one that merely loads is waited for.
    let b = "b: 0 cost=80";
    check(
        &format!("{waiting}\na: 1 ready=0 pending=61s/unschedulable cost=40\n{b}"),
        &["a 1->1 SafetyNet", "b 0->1 RequestsWaiting"],
    );
    check(
        &format!("{waiting}\na: 1 ready=0 pending=50s/unschedulable wokenAgo=50s cost=40\n{b}"),
        &["a 1->1 WakeHold", "b 0->0 NoChange"],
    );
}

#[test]
fn a_woken_replica_is_held_until_it_reports() {
    check("a: 0 wokenAgo=1s", &["a 0->1 WakeHold"]);
    let outcome = check("a: 1 ready=0 wokenAgo=40s desired=1", &["a 1->1 WakeHold"]);
    assert_eq!(outcome.decisions[0].safety_net, None);
    check("a: 1 wokenAgo=40s kv=.1", &["a 1->1 NoChange"]);
    check("a: 0 wokenAgo=10m", &["a 0->0 NoChange"]);
}

/// An inventory with so many H100 left.
fn stock(left: u32) -> String {
    format!(
        "config limitedMode: true, inventory: {{H100: {{limit: 8, used: {}}}, L4: {{limit: 1, used: 0}}}}",
        8 - left
    )
}

#[test]
fn a_scale_up_is_held_to_what_is_left() {
    let a = "a: 1 accelerator=H100 gpusPerReplica=2 kv=.78";
    check(&format!("{}\n{a}", stock(2)), &["a 1->2 SpareBelowTarget"]);
    let outcome = check(&format!("{}\n{a}", stock(1)), &["a 1->1 LimitedBy"]);
    assert_eq!(outcome.decisions[0].limited_by.as_deref(), Some("H100"));
    assert_eq!(codes(&outcome, "a"), ["SpareBelowTarget", "LimitedBy"]);
    let off = stock(1).replace("limitedMode: true, ", "");
    check(&format!("{off}\n{a}"), &["a 1->2 SpareBelowTarget"]);
    let by_model = format!("{off}, saturation: {{default: {{enableLimiter: true}}}}");
    check(&format!("{by_model}\n{a}"), &["a 1->1 LimitedBy"]);
}

#[test]
fn what_one_variant_cannot_get_the_next_may() {
    let a = "a: 1 cost=40 accelerator=NVIDIA-H100-80GB-HBM3 kv=.78";
    check(
        &format!("{}\n{a}\nb: 0 cost=80 accelerator=L4", stock(0)),
        &["a 1->1 LimitedBy", "b 0->1 SpareBelowTarget"],
    );
    // 10 -> 11 would fit, and the HPA would ignore it.
    check(
        &format!("{}\na: 10 hpa=0.1 cost=40 accelerator=H100 kv=.78\nb: 0 cost=80 accelerator=L4", stock(1)),
        &["a 10->10 LimitedBy", "b 0->1 SpareBelowTarget"],
    );
    check(
        &format!(
            "{}\nmodel schedulerQueue: {{size: 1}}\na: 0 cost=40 accelerator=H100\nb: 0 cost=80 accelerator=L4",
            stock(0)
        ),
        &["a 0->0 LimitedBy", "b 0->1 RequestsWaiting"],
    );
}

#[test]
fn the_most_saturated_model_is_served_first_after_kept_decisions() {
    let limited = stock(1);
    let (calm, hot) = (format!("{limited}\na: 1 accelerator=H100 kv=.75"), "b: 1 accelerator=H100 kv=.78");
    let outcome = decide(&snapshots(&[("m1", &calm), ("m2", hot)]));
    assert_eq!(summary(&outcome), ["a 1->1 LimitedBy", "b 1->2 SpareBelowTarget"]);
    let kept = format!("{limited}\na: 1 accelerator=H100 desired=2 kv=.60");
    let outcome = decide(&snapshots(&[("m1", &kept), ("m2", hot)]));
    assert_eq!(summary(&outcome), ["a 1->2 KeptDecision", "b 1->1 LimitedBy"]);
    // Equally saturated: the cheaper, then by name.
    let dear = format!("{limited}\na: 1 cost=80 accelerator=H100 kv=.78");
    let outcome = decide(&snapshots(&[("m1", &dear), ("m2", hot)]));
    assert_eq!(summary(&outcome), ["a 1->1 LimitedBy", "b 1->2 SpareBelowTarget"]);
}

#[test]
fn an_unknown_accelerator_is_not_limited_and_warned_of() {
    let outcome = check(&format!("{}\na: 1 accelerator=B200 kv=.78", stock(0)), &["a 1->2 SpareBelowTarget"]);
    assert!(
        matches!(&outcome.warnings[..], [Warning::AcceleratorNotInInventory { accelerator, .. }] if accelerator == "B200")
    );
    let outcome = check(&format!("{}\na: 1 kv=.78", stock(0)), &["a 1->2 SpareBelowTarget"]);
    assert_eq!(outcome.decisions[0].accelerator, "unresolved");
}

#[test]
fn a_model_nothing_could_wake_is_warned_of() {
    let outcome = check("config scaleToZeroDefault: true\na: 1 kv=.1", &["a 1->1 NoChange"]);
    assert!(matches!(&outcome.warnings[..], [Warning::NothingWakesIt { .. }]));
}

#[test]
fn accelerators_are_known_by_one_name() {
    for (label, name) in [
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("AMD-MI300X-192GB", "MI300X"),
        ("Intel-Gaudi-2-96GB", "Gaudi-2"),
        ("NVIDIA-A100-SXM4-80GB", "A100"),
        ("nvidia-l4", "l4"),
        ("nvidia-tesla-t4", "t4"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100-MIG-1g.5gb"),
        ("H100", "H100"),
        ("", ""),
    ] {
        assert_eq!(normalize_accelerator(label), name, "{label}");
    }
}
