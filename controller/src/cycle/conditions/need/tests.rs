//! Needs that siblings cover, and needs at a limit that the load crosses again and again.

use serde_json::{Value, json};

use super::*;
use crate::cycle::conditions::not_published;
use crate::fixture::{decision, key, merge, replicas};

fn model(variants: &[Value]) -> Snapshot {
    let variant = |variant: &Value| {
        let mut own = json!({"accelerator": "H100", "current": 2});
        merge(&mut own, variant.clone());
        own
    };
    let variants: Vec<Value> = variants.iter().map(variant).collect();
    let model = json!({"modelID": "m", "namespace": "ns", "variants": variants});
    Snapshot::parse(&json!({"config": {}, "models": [model]}).to_string()).unwrap()
}

/// `NeedMet` of variant `a`.
fn need_of_a(variants: &[Value]) -> ConditionDraft {
    let snapshot = model(variants);
    let decisions = wva_scaling::decide(&snapshot).decisions;
    let siblings = SiblingIndex::new(&snapshot, &decisions).of(&key("a"));
    let a = decisions.iter().find(|d| d.key.name == "a").unwrap();
    need_met(a, &not_published(), siblings)
}

fn busy(name: &str, cost: u32, over: Value) -> Value {
    let all = (0..2).map(|i| json!({"pod": format!("{name}-{i}"), "kv": 0.78, "queue": 0.0, "age": "1s"}));
    let mut variant = json!({"name": name, "cost": cost.to_string(), "replicas": all.collect::<Vec<_>>()});
    merge(&mut variant, over);
    variant
}

#[test]
fn a_sibling_that_grows_covers_the_need() {
    let full = || busy("a", 1, json!({"max": 2}));
    let shown = |others: &[Value]| {
        let need = need_of_a(&[&[full()], others].concat());
        (need.status, need.reason.as_str())
    };
    assert_eq!(shown(&[]), (ConditionStatus::False, "AtMaximum"));
    assert_eq!(shown(&[busy("b", 2, json!({}))]), (ConditionStatus::True, "Covered"));
    assert_eq!(shown(&[busy("b", 2, json!({"max": 2}))]), (ConditionStatus::False, "AtMaximum"));
    // An autoscaler that does not scale up.
    let blocked = |name, cost| busy(name, cost, json!({"obstacles": {"up": "the HPA is disabled upwards"}}));
    let of_blocked = |others: &[Value]| need_of_a(&[&[blocked("a", 1)], others].concat());
    let need = of_blocked(&[]);
    assert_eq!((need.status, need.reason.as_str()), (ConditionStatus::False, "NotCarriedOut"));
    assert_eq!(need.message, "More replicas are needed, but the HPA is disabled upwards");
    assert!(!of_blocked(&[blocked("b", 2)]).is_true());
    assert!(of_blocked(&[busy("b", 2, json!({}))]).is_true());
    // A decode replica computes no prompt.
    let prefill = busy("a", 1, json!({"max": 2, "role": "prefill"}));
    let need = need_of_a(&[prefill, busy("b", 2, json!({"role": "decode"}))]);
    assert_eq!((need.status, need.reason.as_str()), (ConditionStatus::False, "AtMaximum"));
}

#[test]
fn an_unmet_need_holds_while_the_load_crosses_the_limit() {
    let state =
        |kv: f64, max: u32| decision(json!({"replicas": replicas(2, kv, "1s"), "max": max}), json!({}));
    let (needs, fits, raised) = (state(0.78, 2), state(0.5, 2), state(0.78, 5));
    let start = Instant::now();
    let mut memory = NeedState::default();
    let mut look = |decision: &Decision, second: u64| {
        let new = need_met(decision, &not_published(), Siblings::default());
        memory.settle(new, decision.target(), start + Duration::from_secs(second)).reason.as_str()
    };
    assert_eq!(look(&needs, 0), "AtMaximum");
    assert_eq!(look(&fits, 60), "AtMaximum");
    assert_eq!(look(&needs, 75), "AtMaximum");
    assert_eq!(look(&fits, 194), "AtMaximum");
    assert_eq!(look(&fits, 195), "Covered");
    assert_eq!(look(&needs, 200), "AtMaximum");
    assert_eq!(look(&raised, 210), "Covered", "another target ends it at once");
    assert_eq!(look(&fits, 220), "Covered");
}

#[test]
fn the_need_behind_an_unreadable_picker_is_not_known() {
    let of = |mode: &str, obstacle| {
        let mut decision = decision(json!({"current": 0, "mode": mode}), json!({}));
        decision.report.model.wake_obstacle = obstacle;
        let need = need_met(&decision, &not_published(), Siblings::default());
        (need.status, need.reason)
    };
    let at_zero = (ConditionStatus::True, ConditionReason::AtZero);
    let hidden = Some(WakeObstacle::Unreadable);
    assert_eq!(of("auto", None), at_zero);
    assert_eq!(of("auto", hidden), (ConditionStatus::Unknown, ConditionReason::NotAnalyzed));
    assert_eq!(of("paused", hidden), at_zero, "requests do not wake it anyway");
}
