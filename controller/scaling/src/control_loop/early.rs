//! Decisions between two cycles: models that begin to need more, and models at zero with waiting requests.

use std::collections::{BTreeMap, BTreeSet};

use crate::decision::{Decision, ModelKey, Outcome, VariantKey};
use crate::pipeline::decide;
use crate::snapshot::{Model, Replica, Snapshot, ThroughputMemory, Variant, WorkSample};

/// The decisions that are in force, and the snapshot that they replay from.
#[derive(Clone, Copy)]
pub struct InForce<'a> {
    /// Snapshot of the last cycle, with the models that were decided since.
    pub snapshot: &'a Snapshot,
    /// The decision on a variant.
    pub decision: &'a dyn Fn(&VariantKey) -> Option<&'a Decision>,
}

/// Result of a decision between two cycles.
#[derive(Debug)]
pub enum Early {
    /// Every model waits for the next cycle.
    Nothing,
    /// Some models were decided.
    Decided(Box<EarlyDecisions>),
    /// Models need a decision that changes others too, which only a cycle can take.
    NeedsCycle,
}

/// Models that were decided between two cycles.
#[derive(Debug)]
pub struct EarlyDecisions {
    /// Models that were decided.
    pub models: BTreeSet<ModelKey>,
    /// The snapshot in force, with their newest data. It replays to the decisions.
    pub snapshot: Snapshot,
    /// Decisions on their variants.
    pub outcome: Outcome,
}

/// What calls for a decision between two cycles.
#[derive(Clone, Copy, Debug)]
pub struct EarlyTrigger<'a> {
    /// Models that new samples show changed may need more than their targets.
    pub has_new_samples: bool,
    /// Models with requests at their endpoint pickers. They may be at 0, or on their way there.
    pub waiting: &'a BTreeSet<ModelKey>,
}

impl EarlyTrigger<'_> {
    /// Models that the decisions scale up.
    fn select(self, decisions: &[Decision], in_force: InForce<'_>) -> BTreeSet<ModelKey> {
        let mut models = models_to_wake(decisions, in_force, self.waiting);
        if self.has_new_samples {
            models.extend(models_to_grow(decisions, in_force));
        }
        models
    }
}

/// Decides the models of the snapshot `newest` that `trigger` concerns. Reads only those that changed.
#[must_use]
pub fn decide_early(mut newest: Snapshot, in_force: InForce<'_>, trigger: EarlyTrigger<'_>) -> Early {
    newest.models = candidates(newest.models, in_force.snapshot, trigger);
    let models = trigger.select(&decide(&newest).decisions, in_force);
    if models.is_empty() {
        return Early::Nothing;
    }
    let snapshot = replace_models(in_force.snapshot, newest, &models);
    let mut outcome = decide(&snapshot);
    // With scarce GPUs, a model may get less than it needs, or take what others have.
    let selected = trigger.select(&outcome.decisions, in_force);
    let is_kept = |d: &Decision| {
        models.contains(&d.model_key())
            || (in_force.decision)(&d.key).is_some_and(|before| before.steps == d.steps)
    };
    if !models.is_subset(&selected) || !outcome.decisions.iter().all(is_kept) {
        return Early::NeedsCycle;
    }
    outcome.decisions.retain(|d| models.contains(&d.model_key()));
    Early::Decided(Box::new(EarlyDecisions { models, snapshot, outcome }))
}

/// Models with waiting requests, and those that new samples show changed. The same load on the same replicas needs no more
/// than before.
fn candidates(mut models: Vec<Model>, in_force: &Snapshot, trigger: EarlyTrigger<'_>) -> Vec<Model> {
    let before: BTreeMap<ModelKey, &Model> = in_force.models.iter().map(|m| (m.key(), m)).collect();
    models.retain(|m| {
        let is_changed = || before.get(&m.key()).is_none_or(|before| has_changed(before, m));
        trigger.waiting.contains(&m.key()) || trigger.has_new_samples && is_changed()
    });
    models
}

/// Whether its load, or what serves it, differs. A greater age alone does not count.
fn has_changed(before: &Model, now: &Model) -> bool {
    let replica_changed = |(before, now): (&Replica, &Replica)| {
        let load = |r: &Replica| (r.kv, r.queue, r.running, r.asleep, r.work.len());
        let work_changed =
            |(before, now): (&WorkSample, &WorkSample)| WorkSample { age: before.age, ..*now } != *before;
        before.pod != now.pod
            || load(before) != load(now)
            || before.work.iter().zip(&now.work).any(work_changed)
    };
    let variant_changed = |(before, now): (&Variant, &Variant)| {
        let load = |v: &Variant| (v.current, v.ready, v.running, v.replicas.len());
        before.name != now.name
            || load(before) != load(now)
            || before.replicas.iter().zip(&now.replicas).any(replica_changed)
    };
    before.scheduler_queue != now.scheduler_queue
        || before.router != now.router
        || before.variants.len() != now.variants.len()
        || before.variants.iter().zip(&now.variants).any(variant_changed)
}

/// Models that need more than the target in force, if the last decision was not a scale-up.
fn models_to_grow(decisions: &[Decision], in_force: InForce<'_>) -> BTreeSet<ModelKey> {
    let mut growing = BTreeSet::new();
    let mut grown = BTreeSet::new();
    for decision in decisions {
        let Some(last) = (in_force.decision)(&decision.key) else { continue };
        if last.is_growing() {
            grown.insert(decision.model_key());
        } else if decision.grows() && decision.target() > last.target() {
            growing.insert(decision.model_key());
        }
    }
    growing.retain(|model| !grown.contains(model));
    growing
}

/// Models of `waiting` with a variant that is to leave 0 replicas, or no longer to go there.
fn models_to_wake(
    decisions: &[Decision],
    in_force: InForce<'_>,
    waiting: &BTreeSet<ModelKey>,
) -> BTreeSet<ModelKey> {
    let lifts = |d: &Decision| d.current == 0 && d.target() > 0 && d.wants_more();
    let last = |d: &Decision| (in_force.decision)(&d.key);
    let kept = |d: &Decision| d.target() > 0 && last(d).is_some_and(|l| l.current > 0 && l.target() == 0);
    let new = |d: &&Decision| {
        (kept(d) || lifts(d) && !last(d).is_some_and(lifts)) && waiting.contains(&d.model_key())
    };
    decisions.iter().filter(new).map(Decision::model_key).collect()
}

fn replace_models(in_force: &Snapshot, newest: Snapshot, which: &BTreeSet<ModelKey>) -> Snapshot {
    let newer: Vec<Model> = newest.models.into_iter().filter(|m| which.contains(&m.key())).collect();
    let variant_key =
        |m: &Model, name: &str| VariantKey { namespace: m.namespace.clone(), name: name.to_owned() };
    // A variant may have served another model in the last cycle.
    let moved: BTreeSet<VariantKey> =
        newer.iter().flat_map(|m| m.variants.iter().map(|v| variant_key(m, &v.name))).collect();
    let mut snapshot = in_force.clone();
    let is_newer = |l: &ThroughputMemory| which.contains(&ModelKey::new(&l.namespace, &l.model_id));
    snapshot.learned.retain(|l| !is_newer(l));
    snapshot.learned.extend(newest.learned.into_iter().filter(is_newer));
    snapshot.models.retain_mut(|m| {
        let mut variants = std::mem::take(&mut m.variants);
        variants.retain(|v| !moved.contains(&variant_key(m, &v.name)));
        m.variants = variants;
        !m.variants.is_empty() && !which.contains(&m.key())
    });
    snapshot.models.extend(newer);
    snapshot
}
