//! The worked examples of the percentage analyzer, row by row.

use super::fixture::{check, codes};

#[test]
fn spare_below_target_grows_by_one() {
    check("a: 2 kv=.75,.76", &["a 2->3 SpareBelowTarget"]);
}

#[test]
fn one_replica_would_not_bear_the_load() {
    check("a: 2 kv=.50,.50", &["a 2->2 NoChange"]);
}

#[test]
fn the_step_is_what_the_hpa_acts_on() {
    check("a: 10 hpa=0.1 kv=.72", &["a 10->12 SpareBelowTarget"]);
    check("a: 9 hpa=0.1 kv=.72", &["a 9->10 SpareBelowTarget"]);
}

#[test]
fn a_step_down_must_be_safe_as_a_whole() {
    check("a: 10 hpa=0.1 kv=.40", &["a 10->8 ScaleDownSafe"]);
    check("a: 10 hpa=0.1 kv=.58", &["a 10->10 StepNotSafe"]);
}

#[test]
fn pending_replicas_take_no_part_and_others_stay_eligible() {
    let a = "a: 3 ready=2 cost=40.0 kv=.78,.77";
    check(&format!("{a}\nb: 1 cost=80.0 kv=.75"), &["a 3->3 PendingReplicas", "b 1->2 SpareBelowTarget"]);
    check(a, &["a 3->3 PendingReplicas"]);
}

#[test]
fn a_kept_decision_outside_the_bounds_ends() {
    check("a: 3 desired=12 max=10 kv=.60", &["a 3->3 OutOfBounds"]);
    let outcome = check("a: 3 desired=12 max=10 kv=.75", &["a 3->4 SpareBelowTarget"]);
    assert_eq!(codes(&outcome, "a"), ["OutOfBounds", "SpareBelowTarget"]);
}

#[test]
fn a_target_is_clamped_to_the_maximum() {
    check("a: 12 max=10 kv=.65", &["a 12->10 AtMaximum"]);
}

#[test]
fn need_ends_a_kept_scale_down_and_not_a_kept_scale_up() {
    let outcome = check("a: 3 desired=2 kv=.75", &["a 3->4 SpareBelowTarget"]);
    assert_eq!(codes(&outcome, "a"), ["Superseded", "SpareBelowTarget"]);
    check("a: 3 desired=4 kv=.75", &["a 3->4 KeptDecision"]);
}

#[test]
fn of_equal_cost_the_one_with_more_spare_grows() {
    check("a: 1 kv=.78\nb: 1 kv=.70", &["a 1->1 NoChange", "b 1->2 SpareBelowTarget"]);
}

#[test]
fn of_equal_cost_the_one_with_more_spare_shrinks() {
    check("a: 2 kv=.20\nb: 2 kv=.30", &["a 2->1 ScaleDownSafe", "b 2->2 NoChange"]);
}
