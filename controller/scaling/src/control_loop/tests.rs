//! Memory of targets and wakes, and decisions between cycles.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;
use crate::decision::{Decision, VariantKey, VariantState};
use crate::snapshot::{Mode, OutputBucket, Variant};
use crate::{FallbackSource, Reason, decide};

/// Seconds of a clock that only tests set.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct At(pub(super) u64);

impl Time for At {
    fn since(self, earlier: Self) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }
}

const HOLD: Duration = Duration::from_mins(10);

fn state(desired: u32, current: u32) -> VariantState {
    VariantState { desired, before: None, current, desired_age: GoDuration::default(), capacity: None }
}

/// A decision without an analysis, on a variant with `current` replicas.
fn unmeasured(current: u32, target: u32, mode: Mode) -> Decision {
    let fleet = json!({"models": [{"modelID": "m", "namespace": "ns", "variants": [{"name": "v", "current": current}]}]});
    let mut decision = decide(&Snapshot::parse(&fleet.to_string()).unwrap()).decisions.remove(0);
    decision.steps.last_mut().unwrap().after = target;
    decision.report.mode = mode;
    decision
}

/// A decision on a variant with `current` replicas, of which `reporting` report.
fn decision(current: u32, target: u32, reporting: u32) -> Decision {
    decision_in(Mode::Auto, current, target, reporting)
}

fn decision_in(mode: Mode, current: u32, target: u32, reporting: u32) -> Decision {
    let mut decision = unmeasured(current, target, mode);
    for step in &mut decision.steps {
        if matches!(step.reason, Reason::SafetyNet { .. }) {
            step.reason = Reason::NO_CHANGE;
        }
    }
    decision.report.replicas.reporting = reporting;
    decision
}

fn completed(memory: &DecidedMemory<At>, current: u32, now: At) -> Variant {
    let mut variant = Variant { current, ..Variant::default() };
    memory.complete(&mut variant, now);
    variant
}

#[test]
fn a_target_ages_until_the_workload_comes_nearer() {
    let mut memory = DecidedMemory::default();
    memory.record(&decision(2, 4, 2), state(4, 2), HOLD, At(0));
    let last = |current, age| {
        assert_eq!(
            memory.last_target(current, At(60)),
            Some(LastTarget { target: 4, before: None, age: GoDuration::from_secs(age) })
        );
    };
    last(2, 60);
    last(3, 0);
}

#[test]
fn an_echo_of_the_replicas_is_not_kept() {
    let modes =
        [(Mode::Auto, None), (Mode::Recommend, None), (Mode::Paused, Some(2)), (Mode::Fixed(2), Some(2))];
    for (mode, kept) in modes {
        let mut memory = DecidedMemory::default();
        let target = |memory: &DecidedMemory<At>| memory.last_target(2, At(0)).map(|last| last.target);
        let decided = decision_in(mode, 2, 2, 2);
        let echo = unmeasured(2, 2, mode);
        assert_eq!(echo.safety_net(), Some(FallbackSource::CurrentReplicas));
        memory.record(&echo, state(2, 2), HOLD, At(0));
        assert_eq!(target(&memory), kept, "{mode}");
        memory.record(&decided, state(3, 2), HOLD, At(0));
        memory.record(&echo, state(3, 2), HOLD, At(0));
        assert_eq!(target(&memory), Some(3), "{mode}");
    }
}

#[test]
fn only_auto_targets_age() {
    let aged = VariantState { desired_age: GoDuration::from_secs(3600), ..state(4, 2) };
    for (mode, age) in [(Mode::Auto, 3600), (Mode::Recommend, 0), (Mode::Paused, 0), (Mode::Fixed(4), 0)] {
        let mut memory = DecidedMemory::default();
        memory.record(&decision_in(mode, 2, 4, 2), aged, HOLD, At(0));
        let age = GoDuration::from_secs(age);
        assert_eq!(memory.last_target(2, At(0)), Some(LastTarget { target: 4, before: None, age }), "{mode}");
    }
}

#[test]
fn unchanged_replicas_count_from_a_change_that_was_seen() {
    let mut memory = DecidedMemory::default();
    memory.observe(2, At(0));
    memory.observe(2, At(30));
    assert_eq!(completed(&memory, 2, At(30)).current_for, None, "no change was seen");
    memory.observe(3, At(60));
    memory.observe(3, At(90));
    assert_eq!(completed(&memory, 3, At(90)).current_for, Some(GoDuration::from_secs(30)));
}

#[test]
fn a_replica_given_back_is_remembered_for_two_minutes() {
    let model = |id: &str, current: u32, kv: f64, gpus: u32| {
        let replicas: Vec<_> =
            (0..current).map(|i| json!({"pod": format!("{id}-{i}"), "kv": kv, "queue": 0})).collect();
        let variant = json!({"name": id, "current": current, "accelerator": "H100", "gpusPerReplica": gpus, "replicas": replicas});
        json!({"modelID": id, "namespace": "ns", "variants": [variant]})
    };
    let decided = |free: u32, models: [Value; 2]| {
        let config = json!({"limitedMode": true, "inventory": {"H100": {"limit": free}}, "priorities": {"a": 1, "b": 2}});
        let text = json!({"config": config, "models": models}).to_string();
        let decision = decide(&Snapshot::parse(&text).unwrap()).decisions.remove(1);
        assert_eq!(decision.reason().code(), "YieldsTo");
        decision
    };
    let mut memory = DecidedMemory::default();
    let refused = decided(1, [model("a", 1, 0.79, 2), model("b", 1, 0.79, 1)]);
    memory.record(&refused, state(1, 1), HOLD, At(0));
    assert_eq!(completed(&memory, 1, At(0)).returned, None, "it only cannot grow");
    let given = decided(0, [model("a", 1, 0.79, 1), model("b", 2, 0.6, 1)]);
    memory.record(&given, state(1, 2), HOLD, At(0));
    memory.record(&refused, state(1, 1), HOLD, At(60));
    let returned = completed(&memory, 1, At(120)).returned.unwrap();
    let facts = (&*returned.namespace, &*returned.model_id, returned.replicas, returned.ago);
    assert_eq!(facts, ("ns", "a", 1, GoDuration::from_secs(120)));
    assert_eq!(completed(&memory, 1, At(121)).returned, None);
}

#[test]
fn a_wake_is_remembered_until_a_replica_reports() {
    let mut memory = DecidedMemory::default();
    let record = |memory: &mut DecidedMemory<At>, decision: Decision, now: u64| {
        memory.record(&decision, state(decision.target(), decision.current), HOLD, At(now));
    };
    let ago = |memory: &DecidedMemory<At>, now: u64| completed(memory, 1, At(now)).woken_ago;
    record(&mut memory, decision(0, 0, 0), 0);
    assert_eq!(ago(&memory, 0), None);
    record(&mut memory, decision(0, 1, 0), 0);
    // The step is decided again while it is carried out, and while the replica loads.
    record(&mut memory, decision(0, 1, 0), 60);
    record(&mut memory, decision(1, 1, 0), 60);
    assert_eq!(ago(&memory, 120), Some(GoDuration::from_secs(120)));
    record(&mut memory, decision(1, 1, 1), 120);
    assert_eq!(ago(&memory, 120), None);
    // After the hold it is a new wake.
    record(&mut memory, decision(0, 1, 0), 0);
    record(&mut memory, decision(0, 1, 0), 600);
    assert_eq!(ago(&memory, 600), Some(GoDuration::default()));
    record(&mut memory, decision(0, 0, 0), 600);
    assert_eq!(ago(&memory, 600), None);
    for (mode, wakes) in
        [(Mode::Auto, true), (Mode::Fixed(1), true), (Mode::Paused, false), (Mode::Recommend, false)]
    {
        record(&mut memory, decision_in(mode, 0, 1, 0), 0);
        assert_eq!(ago(&memory, 0).is_some(), wakes, "{mode}");
    }
}

#[test]
fn what_is_learnt_ages_and_a_sample_is_observed_once() {
    let bounds = |k2: f64| ComputeBounds {
        namespace: "ns".to_owned(),
        model_id: "m".to_owned(),
        accelerator: "H100".to_owned(),
        output: OutputBucket::Short,
        k2: vec![k2.try_into().unwrap()],
    };
    let next = |k2: f64| NextState { remembered: vec![bounds(k2)], ..NextState::default() };
    let mut control_loop = Loop::default();
    control_loop.end(&mut next(1.0), Some(At(0)), At(0));
    control_loop.end(&mut next(2.0), Some(At(0)), At(60));
    assert_eq!(control_loop.begin(Config::default(), At(60)).remembered, [bounds(1.0)], "the same sample");
    control_loop.end(&mut next(3.0), Some(At(60)), At(120));
    assert_eq!(control_loop.begin(Config::default(), At(120)).remembered, [bounds(3.0)]);
    let in_force = Snapshot { remembered: vec![bounds(1.0)], ..Snapshot::default() };
    assert_eq!(control_loop.begin_early(&in_force, At(120)).remembered, [bounds(1.0)], "of the last cycle");
    control_loop.retain(|_, model_id| model_id == "other");
    assert_eq!(control_loop.begin(Config::default(), At(120)).remembered, []);
}

#[test]
fn a_gap_between_samples_counts_as_activity() {
    let mut idleness = Idleness::new(At(0));
    let gap = Duration::from_mins(1);
    idleness.update(false, At(30), gap);
    assert_eq!(idleness.idle_for(At(30)), Duration::from_secs(30));
    idleness.update(false, At(91), gap);
    assert_eq!(idleness.idle_for(At(91)), Duration::ZERO, "no sample for 61 s");
    idleness.update(true, At(100), gap);
    idleness.update(false, At(95), gap);
    assert_eq!(idleness.idle_for(At(130)), Duration::from_secs(30), "an older sample changes nothing");
    assert_eq!(idleness.tracked_for(At(130)), Duration::from_secs(130));
}

/// Variants with one replica each, as (model, name, KV cache usage), and the number of free H100s.
fn snapshot(variants: &[(&str, &str, f64)], left: u64) -> Snapshot {
    let model = |(model, name, kv): &(&str, &str, f64)| -> Value {
        let replica = json!({"pod": format!("{name}-0"), "kv": kv, "queue": 0});
        let variant = json!({"name": name, "accelerator": "H100", "current": 1, "replicas": [replica]});
        json!({"modelID": model, "namespace": "ns", "variants": [variant]})
    };
    let models: Vec<Value> = variants.iter().map(model).collect();
    let config = json!({"limitedMode": true, "inventory": {"H100": {"limit": left}}});
    Snapshot::parse(&json!({"config": config, "models": models}).to_string()).unwrap()
}

struct Published {
    snapshot: Snapshot,
    decisions: BTreeMap<VariantKey, Decision>,
}

impl Published {
    fn grow(&self, newest: Snapshot) -> Early {
        let decision = |key: &VariantKey| self.decisions.get(key);
        let in_force = InForce { snapshot: &self.snapshot, decision: &decision };
        let trigger = EarlyTrigger { has_new_samples: true, waiting: &BTreeSet::new() };
        decide_early(newest, in_force, trigger)
    }
}

fn published(snapshot: Snapshot) -> Published {
    let decisions = decide(&snapshot).decisions.into_iter().map(|d| (d.key.clone(), d)).collect();
    Published { snapshot, decisions }
}

#[test]
fn an_early_decision_replays_from_its_snapshot() {
    let before = published(snapshot(&[("m", "a", 0.5), ("n", "b", 0.75)], 2));
    let newest = snapshot(&[("m", "a", 0.79), ("n", "b", 0.1)], 2);
    let Early::Decided(decided) = before.grow(newest) else { panic!("nothing was decided") };
    let EarlyDecisions { snapshot, outcome, .. } = *decided;
    let grown: Vec<_> = outcome.decisions.iter().map(|d| (d.key.name.as_str(), d.target())).collect();
    assert_eq!(grown, [("a", 2)]);
    let again: Vec<_> = decide(&snapshot).decisions;
    assert_eq!(again[0], outcome.decisions[0]);
    assert_eq!(again[1].steps, before.decisions[&again[1].key].steps);
}

#[test]
fn only_models_that_changed_are_decided() {
    let busy = || snapshot(&[("m", "a", 0.79)], 2);
    let calm = published(snapshot(&[("m", "a", 0.5)], 2));
    let before = Published { snapshot: busy(), ..calm };
    assert!(matches!(before.grow(busy()), Early::Nothing), "the cycle saw this load");
    let mut older = busy();
    older.models[0].variants[0].replicas[0].age = Duration::from_secs(9).into();
    assert!(matches!(before.grow(older), Early::Nothing), "a greater age does not count");
    let mut queued = busy();
    queued.models[0].variants[0].replicas[0].queue = serde_json::from_value(json!(3)).unwrap();
    assert!(matches!(before.grow(queued), Early::Decided(_)));
}

#[test]
fn a_gpu_given_to_another_model_is_not_given_again() {
    // `b` got the last GPU; `a` is more urgent now.
    let before = published(snapshot(&[("m", "a", 0.5), ("n", "b", 0.75)], 1));
    assert!(matches!(before.grow(snapshot(&[("m", "a", 0.79), ("n", "b", 0.75)], 1)), Early::NeedsCycle));
    // A GPU that was free may be taken.
    let before = published(snapshot(&[("m", "a", 0.5)], 1));
    assert!(matches!(before.grow(snapshot(&[("m", "a", 0.79)], 0)), Early::Nothing));
}

#[test]
fn a_variant_that_changed_its_model_appears_once() {
    let before = published(snapshot(&[("m", "a", 0.5)], 1));
    let newest = snapshot(&[("other", "a", 0.79)], 1);
    let Early::Decided(decided) = before.grow(newest) else { panic!("nothing was decided") };
    let snapshot = decided.snapshot;
    let models: Vec<_> = snapshot.models.iter().map(|m| m.model_id.as_str()).collect();
    assert_eq!(models, ["other"]);
}
