//! Decisions between two cycles. A model is scaled up early if its last decision did not ask for more replicas and the
//! newest sample does.

use std::collections::BTreeSet;
use std::time::Instant;

use jiff::Timestamp;
use wva_runtime::spans;
use wva_scaling::snapshot::{Model, ThroughputMemory};
use wva_scaling::{Decision, Outcome, Snapshot, decide};

use super::Engine;
use super::state::State;
use crate::model::keys::ModelKey;
use crate::model::moment::Moment;
use crate::model::published::Published;

pub(super) enum IncrementalOutcome {
    Nothing,
    Decided(BTreeSet<ModelKey>),
    NeedsCycle,
}

impl Engine {
    /// If other models are affected, the next cycle decides.
    pub(super) fn scale_up_early(&self, state: &mut State) {
        state.sampling.has_new_samples = false;
        let Some(before) = self.published.borrow().clone() else { return };
        let select = |decisions: &[Decision], before: &Published| {
            if self.config().early_scale_up { models_to_grow(decisions, before) } else { BTreeSet::new() }
        };
        if let IncrementalOutcome::Decided(models) = self.decide_subset(state, &before, select) {
            for ModelKey { namespace, model_id } in models {
                tracing::info!(
                    namespace,
                    model_id,
                    "Model needs more replicas; deciding before the next cycle"
                );
            }
        }
    }

    /// Decides on the models that `select` returns for the new decisions and the publication `before`.
    pub(super) fn decide_subset(
        &self,
        state: &mut State,
        before: &Published,
        select: impl Fn(&[Decision], &Published) -> BTreeSet<ModelKey>,
    ) -> IncrementalOutcome {
        let at = Moment { now: Instant::now(), wall: Timestamp::now() };
        let _span = spans::cycle(&at.wall, "some").entered();
        // A copy: changes of other models must not be kept.
        let mut memory = state.deciding.memory.clone();
        let known = Snapshot {
            // New settings apply from the next cycle.
            config: before.snapshot.config.clone(),
            remembered: before.snapshot.remembered.clone(),
            // The next cycle counts these steps again.
            learned: state.deciding.learned.aged(at.now),
            ..Snapshot::default()
        };
        let mut pass = self.assemble_pass(&state.sampling, &mut memory, known, self.managed(), at);
        // Activity is kept for all models.
        std::mem::swap(&mut state.deciding.memory.evidence, &mut memory.evidence);
        let newest = std::mem::take(&mut pass.assembled.snapshot);
        let newest_decisions = decide(&newest).decisions;
        let models = select(&newest_decisions, before);
        if models.is_empty() {
            return IncrementalOutcome::Nothing;
        }
        let Some((snapshot, outcome)) = decide_models(newest, &newest_decisions, &models, before) else {
            return IncrementalOutcome::NeedsCycle;
        };
        pass.assembled.snapshot = snapshot;
        for decision in &outcome.decisions {
            state.deciding.memory.take_variant(&decision.key(), &mut memory);
        }
        self.publish(state, pass, outcome, Some(before));
        IncrementalOutcome::Decided(models)
    }
}

/// Decides from the snapshot of the last cycle with the newest data of these models; it replays to the published
/// decisions. `None` if the result differs from `newest_decisions`, or changes another model.
fn decide_models(
    newest: Snapshot,
    newest_decisions: &[Decision],
    models: &BTreeSet<ModelKey>,
    before: &Published,
) -> Option<(Snapshot, Outcome)> {
    let snapshot = replace_models(&before.snapshot, newest, models);
    // Observations are left to the next cycle.
    let mut outcome = decide(&snapshot);
    // With scarce GPUs, other models may lose what these gain. Only a cycle can decide that.
    let is_kept = |d: &Decision| is_unchanged(d, models, newest_decisions, before);
    if !outcome.decisions.iter().all(is_kept) {
        return None;
    }
    outcome.decisions.retain(|d| models.contains(&ModelKey::for_decision(d)));
    Some((snapshot, outcome))
}

/// The target exceeds the published one, and the last decision was not a scale-up.
fn models_to_grow(decisions: &[Decision], before: &Published) -> BTreeSet<ModelKey> {
    let last = |d: &Decision| before.variants.get(&d.key()).and_then(|v| v.decision.as_ref());
    let mut growing = BTreeSet::new();
    let mut grown = BTreeSet::new();
    for decision in decisions {
        let Some(last) = last(decision) else { continue };
        if last.is_growing() {
            grown.insert(ModelKey::for_decision(decision));
        } else if decision.grows() && decision.target() > last.target() {
            growing.insert(ModelKey::for_decision(decision));
        }
    }
    growing.retain(|model| !grown.contains(model));
    growing
}

/// Equal to the newest decision (for `growing`) or the published one.
fn is_unchanged(
    decision: &Decision,
    growing: &BTreeSet<ModelKey>,
    newest_decisions: &[Decision],
    before: &Published,
) -> bool {
    if growing.contains(&ModelKey::for_decision(decision)) {
        return newest_decisions.iter().any(|d| d.key() == decision.key() && d.target() == decision.target());
    }
    let published = before.variants.get(&decision.key()).and_then(|v| v.decision.as_ref());
    published.is_some_and(|published| published.steps == decision.steps)
}

fn replace_models(last: &Snapshot, new: Snapshot, which: &BTreeSet<ModelKey>) -> Snapshot {
    let key = |m: &Model| ModelKey::new(&m.namespace, &m.model_id);
    let newer: Vec<Model> = new.models.into_iter().filter(|m| which.contains(&key(m))).collect();
    // A variant may have served another model in the last cycle.
    let moved: BTreeSet<(&str, &str)> = newer
        .iter()
        .flat_map(|m| m.variants.iter().map(|v| (m.namespace.as_str(), v.name.as_str())))
        .collect();
    let mut snapshot = last.clone();
    let is_newer = |l: &ThroughputMemory| which.contains(&ModelKey::new(&l.namespace, &l.model_id));
    snapshot.learned.retain(|l| !is_newer(l));
    snapshot.learned.extend(new.learned.into_iter().filter(is_newer));
    snapshot.models.retain_mut(|m| {
        m.variants.retain(|v| !moved.contains(&(m.namespace.as_str(), v.name.as_str())));
        !m.variants.is_empty() && !which.contains(&key(m))
    });
    snapshot.models.extend(newer.iter().cloned());
    snapshot
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::fixture;

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

    fn growth(newest: Snapshot, before: &Published) -> Option<(Snapshot, Outcome)> {
        let newest_decisions = decide(&newest).decisions;
        let models = models_to_grow(&newest_decisions, before);
        if models.is_empty() { None } else { decide_models(newest, &newest_decisions, &models, before) }
    }

    fn published(snapshot: Snapshot) -> Published {
        let decisions = decide(&snapshot).decisions;
        let variants = decisions.into_iter().map(|d| (d.key(), Arc::new(fixture::published(d)))).collect();
        Published { snapshot: Arc::new(snapshot), variants, ..Published::default() }
    }

    #[test]
    fn an_early_decision_replays_from_its_snapshot() {
        let before = published(snapshot(&[("m", "a", 0.5), ("n", "b", 0.75)], 2));
        let (snapshot, outcome) = growth(snapshot(&[("m", "a", 0.79), ("n", "b", 0.1)], 2), &before).unwrap();
        let grown: Vec<_> = outcome.decisions.iter().map(|d| (d.variant.as_str(), d.target())).collect();
        assert_eq!(grown, [("a", 2)]);
        let again: Vec<_> = decide(&snapshot).decisions;
        assert_eq!(again[0], outcome.decisions[0]);
        assert_eq!(again[1].steps, before.variants[&again[1].key()].decision.as_ref().unwrap().steps);
    }

    #[test]
    fn a_gpu_given_to_another_model_is_not_given_again() {
        // `b` got the last GPU; `a` is more urgent now.
        let before = published(snapshot(&[("m", "a", 0.5), ("n", "b", 0.75)], 1));
        assert!(growth(snapshot(&[("m", "a", 0.79), ("n", "b", 0.75)], 1), &before).is_none());
        // A GPU that was free may be taken.
        let before = published(snapshot(&[("m", "a", 0.5)], 1));
        assert!(growth(snapshot(&[("m", "a", 0.79)], 0), &before).is_none());
    }

    #[test]
    fn a_variant_that_changed_its_model_appears_once() {
        let before = published(snapshot(&[("m", "a", 0.5)], 1));
        let (snapshot, _) = growth(snapshot(&[("other", "a", 0.79)], 1), &before).unwrap();
        let models: Vec<_> = snapshot.models.iter().map(|m| m.model_id.as_str()).collect();
        assert_eq!(models, ["other"]);
    }
}
