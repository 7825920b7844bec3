//! Decisions between two cycles: models that begin to need more, and models at zero with waiting requests.

use std::collections::BTreeSet;

use crate::decision::{Decision, ModelKey, Outcome, VariantKey};
use crate::pipeline::decide;
use crate::snapshot::{Model, Snapshot, ThroughputMemory};

/// The decisions that are in force, and the snapshot that they replay from.
#[derive(Clone, Copy)]
pub struct InForce<'a> {
    /// Of the last cycle, with the models that were decided since.
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
    /// Which.
    pub models: BTreeSet<ModelKey>,
    /// The snapshot in force, with their newest data. It replays to the decisions.
    pub snapshot: Snapshot,
    /// Decisions on their variants.
    pub outcome: Outcome,
}

/// Decides the models that `select` returns for the decisions on the snapshot `newest`.
pub fn decide_early(
    newest: Snapshot,
    in_force: InForce<'_>,
    select: impl Fn(&[Decision], InForce<'_>) -> BTreeSet<ModelKey>,
) -> Early {
    let newest_decisions = decide(&newest).decisions;
    let models = select(&newest_decisions, in_force);
    if models.is_empty() {
        return Early::Nothing;
    }
    let snapshot = replace_models(in_force.snapshot, newest, &models);
    let mut outcome = decide(&snapshot);
    // With scarce GPUs, other models may lose what these gain.
    let is_kept = |d: &Decision| {
        if models.contains(&d.model_key()) {
            newest_decisions.iter().any(|n| n.key() == d.key() && n.target() == d.target())
        } else {
            (in_force.decision)(&d.key()).is_some_and(|before| before.steps == d.steps)
        }
    };
    if !outcome.decisions.iter().all(is_kept) {
        return Early::NeedsCycle;
    }
    outcome.decisions.retain(|d| models.contains(&d.model_key()));
    Early::Decided(Box::new(EarlyDecisions { models, snapshot, outcome }))
}

/// Models that need more than the target in force, if the last decision was not a scale-up.
#[must_use]
pub fn models_to_grow(decisions: &[Decision], in_force: InForce<'_>) -> BTreeSet<ModelKey> {
    let mut growing = BTreeSet::new();
    let mut grown = BTreeSet::new();
    for decision in decisions {
        let Some(last) = (in_force.decision)(&decision.key()) else { continue };
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
#[must_use]
pub fn models_to_wake(
    decisions: &[Decision],
    in_force: InForce<'_>,
    waiting: &BTreeSet<ModelKey>,
) -> BTreeSet<ModelKey> {
    let lifts = |d: &Decision| d.current == 0 && d.target() > 0 && d.wants_more();
    let last = |d: &Decision| (in_force.decision)(&d.key());
    let kept = |d: &Decision| d.target() > 0 && last(d).is_some_and(|l| l.current > 0 && l.target() == 0);
    let new = |d: &&Decision| {
        (kept(d) || lifts(d) && !last(d).is_some_and(lifts)) && waiting.contains(&d.model_key())
    };
    decisions.iter().filter(new).map(Decision::model_key).collect()
}

fn replace_models(in_force: &Snapshot, newest: Snapshot, which: &BTreeSet<ModelKey>) -> Snapshot {
    let key = |m: &Model| ModelKey::new(&m.namespace, &m.model_id);
    let newer: Vec<Model> = newest.models.into_iter().filter(|m| which.contains(&key(m))).collect();
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
        !m.variants.is_empty() && !which.contains(&key(m))
    });
    snapshot.models.extend(newer);
    snapshot
}
