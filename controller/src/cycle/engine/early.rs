//! A cycle for one model between two cycles: load that came up just after a cycle should not wait for the next. Only a
//! model that asked for nothing more in its last decision, and now does, is decided on; all else stays as it was.

use std::collections::BTreeSet;
use std::time::Instant;

use jiff::Timestamp;
use wva_runtime::spans;
use wva_scaling::snapshot::{Learned, Model};
use wva_scaling::{Action, Decision, Outcome, Snapshot, decide};

use super::Engine;
use super::state::State;
use crate::model::keys::ModelKey;
use crate::model::moment::Moment;
use crate::model::published::Published;

/// What came of looking at some models between two cycles.
pub(super) enum IncrementalOutcome {
    /// There was nothing to decide.
    Nothing,
    /// These were decided on.
    Decided(BTreeSet<ModelKey>),
    /// What these get, others may lack: nothing was decided.
    TakesACycle,
}

impl Engine {
    /// Decides on the models for which the newest sample shows that they need more replicas, if there are any. Where
    /// others would have to be decided on as well it waits for the next cycle.
    pub(super) fn early(&self, state: &mut State) {
        state.sampling.has_news = false;
        let Some(before) = self.published.borrow().clone() else { return };
        let growing = |decisions: &[Decision], before: &Published| {
            if self.config().early_scale_up { growing(decisions, before) } else { BTreeSet::new() }
        };
        if let IncrementalOutcome::Decided(models) = self.decide_subset(state, &before, growing) {
            for ModelKey { namespace, model_id } in models {
                tracing::info!(
                    namespace,
                    model_id,
                    "A sample shows that this model needs more replicas: it is decided on now"
                );
            }
        }
    }

    /// Decides on the models that `which` names, of what all would be decided now and what was published `before`.
    pub(super) fn decide_subset(
        &self,
        state: &mut State,
        before: &Published,
        which: impl Fn(&[Decision], &Published) -> BTreeSet<ModelKey>,
    ) -> IncrementalOutcome {
        let at = Moment { now: Instant::now(), wall: Timestamp::now() };
        let _span = spans::cycle(&at.wall, "some").entered();
        // On a copy: of what this sample would change elsewhere, nothing may stay.
        let mut memory = state.deciding.memory.clone();
        let known = Snapshot {
            // A change of settings is a cycle's to take in.
            config: before.snapshot.config.clone(),
            remembered: before.snapshot.remembered.clone(),
            // What it counts on the way is not remembered either: the next cycle counts the same steps.
            learned: state.deciding.learned.aged(at.now),
            ..Snapshot::default()
        };
        let mut pass = self.look(&state.sampling, &mut memory, known, self.managed(), at);
        // But for activity: a model in which something was seen to run is not idle.
        std::mem::swap(&mut state.deciding.memory.evidence, &mut memory.evidence);
        let newest = std::mem::take(&mut pass.assembled.snapshot);
        let seen = decide(&newest).decisions;
        let models = which(&seen, before);
        if models.is_empty() {
            return IncrementalOutcome::Nothing;
        }
        let Some((snapshot, outcome)) = decided(newest, &seen, &models, before) else {
            return IncrementalOutcome::TakesACycle;
        };
        pass.assembled.snapshot = snapshot;
        for decision in &outcome.decisions {
            state.deciding.memory.adopt(&decision.key(), &mut memory);
        }
        self.publish(state, pass, outcome, Some(before));
        IncrementalOutcome::Decided(models)
    }
}

/// What is decided on these models, and the snapshot that it is decided from: that of the last cycle, but for them.
/// Whoever decides it again finds what is published. `None` where it is not what was `seen` to be decided now, or others
/// would be decided on otherwise as well.
fn decided(
    newest: Snapshot,
    seen: &[Decision],
    models: &BTreeSet<ModelKey>,
    before: &Published,
) -> Option<(Snapshot, Outcome)> {
    let snapshot = with_models(&before.snapshot, newest, models);
    // What is observed on the way is not remembered: that is a cycle's, too.
    let mut outcome = decide(&snapshot);
    // Where GPUs are scarce, what one model gets another may lack: that takes a cycle of all of them.
    if !outcome.decisions.iter().all(|d| stands(d, models, seen, before)) {
        return None;
    }
    outcome.decisions.retain(|d| models.contains(&ModelKey::of(d)));
    Some((snapshot, outcome))
}

/// The models with a target above the one that is published, of which no decision published last went up.
fn growing(decisions: &[Decision], before: &Published) -> BTreeSet<ModelKey> {
    let last = |d: &Decision| before.variants.get(&d.key()).and_then(|v| v.decision.as_ref());
    let mut growing = BTreeSet::new();
    let mut grown = BTreeSet::new();
    for decision in decisions {
        let Some(last) = last(decision) else { continue };
        if last.action() == Action::Up {
            grown.insert(ModelKey::of(decision));
        } else if decision.action() == Action::Up && decision.target() > last.target() {
            growing.insert(ModelKey::of(decision));
        }
    }
    growing.retain(|model| !grown.contains(model));
    growing
}

/// Whether a decision is what the newest sample asks for, or what is published, where its model is none that grows.
fn stands(decision: &Decision, growing: &BTreeSet<ModelKey>, seen: &[Decision], before: &Published) -> bool {
    if growing.contains(&ModelKey::of(decision)) {
        return seen.iter().any(|s| s.key() == decision.key() && s.target() == decision.target());
    }
    let published = before.variants.get(&decision.key()).and_then(|v| v.decision.as_ref());
    published.is_some_and(|published| published.steps == decision.steps)
}

/// The snapshot of the last cycle, in which these models are as they were decided on since.
fn with_models(last: &Snapshot, new: Snapshot, which: &BTreeSet<ModelKey>) -> Snapshot {
    let key = |m: &Model| ModelKey::new(&m.namespace, &m.model_id);
    let newer: Vec<Model> = new.models.into_iter().filter(|m| which.contains(&key(m))).collect();
    // A variant may have been another model's in the last cycle.
    let moved: BTreeSet<(&str, &str)> = newer
        .iter()
        .flat_map(|m| m.variants.iter().map(|v| (m.namespace.as_str(), v.name.as_str())))
        .collect();
    let mut snapshot = last.clone();
    let is_newer = |l: &Learned| which.contains(&ModelKey::new(&l.namespace, &l.model_id));
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

    /// Variants of one replica each, as (model, name, KV cache use), and H100s that are left.
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

    /// What is decided on the models that grow.
    fn growth(newest: Snapshot, before: &Published) -> Option<(Snapshot, Outcome)> {
        let seen = decide(&newest).decisions;
        let models = growing(&seen, before);
        if models.is_empty() { None } else { decided(newest, &seen, &models, before) }
    }

    fn published(snapshot: Snapshot) -> Published {
        let decisions = decide(&snapshot).decisions;
        let variants = decisions.into_iter().map(|d| (d.key(), Arc::new(fixture::published(d)))).collect();
        Published { snapshot: Arc::new(snapshot), variants, ..Published::default() }
    }

    #[test]
    fn what_is_published_early_is_decided_again_from_its_snapshot() {
        let before = published(snapshot(&[("m", "a", 0.5), ("n", "b", 0.75)], 2));
        let (snapshot, outcome) = growth(snapshot(&[("m", "a", 0.79), ("n", "b", 0.1)], 2), &before).unwrap();
        let grown: Vec<_> = outcome.decisions.iter().map(|d| (d.variant.as_str(), d.target())).collect();
        assert_eq!(grown, [("a", 2)]);
        let again: Vec<_> = decide(&snapshot).decisions;
        assert_eq!(again[0], outcome.decisions[0]);
        assert_eq!(again[1].steps, before.variants[&again[1].key()].decision.as_ref().unwrap().steps);
    }

    #[test]
    fn a_gpu_that_another_model_was_given_is_not_given_again() {
        // `b` was told to take the last one; `a` is the more urgent now.
        let before = published(snapshot(&[("m", "a", 0.5), ("n", "b", 0.75)], 1));
        assert!(growth(snapshot(&[("m", "a", 0.79), ("n", "b", 0.75)], 1), &before).is_none());
        // And what was left then may have gone to others.
        let before = published(snapshot(&[("m", "a", 0.5)], 1));
        assert!(growth(snapshot(&[("m", "a", 0.79)], 0), &before).is_none());
    }

    #[test]
    fn a_variant_that_serves_another_model_now_stands_in_one_alone() {
        let before = published(snapshot(&[("m", "a", 0.5)], 1));
        let (snapshot, _) = growth(snapshot(&[("other", "a", 0.79)], 1), &before).unwrap();
        let models: Vec<_> = snapshot.models.iter().map(|m| m.model_id.as_str()).collect();
        assert_eq!(models, ["other"]);
    }
}
