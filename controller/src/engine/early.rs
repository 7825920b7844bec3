//! A cycle for one model between two cycles: load that came up just after a cycle should not wait for the next. Only a
//! model that asked for nothing more in its last decision, and now does, is decided on; all else stays as it was.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use wva_scaling::{Action, Decision, Snapshot, VariantKey, decide};

use super::{Engine, State};
use crate::assemble::{Moment, assemble};
use crate::published::Published;

/// Namespace and `modelID`.
type ModelKey = (String, String);

impl Engine {
    /// Decides on the models for which the newest sample shows that they need more replicas, if there are any.
    pub(super) fn early(&self, state: &mut State) {
        let Some(before) = self.published.borrow().clone() else { return };
        let at = Moment { now: Instant::now(), wall: Timestamp::now() };
        let managed = self.managed();
        // On a copy: of what this sample would change elsewhere, nothing may stay.
        let mut memory = state.memory.clone();
        // A change of settings is a cycle's to take in.
        let config = before.snapshot.config.clone();
        let mut assembled = assemble(&self.watches, &managed, &state.samples, &mut memory, config, at);
        assembled.snapshot.remembered.clone_from(&before.snapshot.remembered);
        let growing = growing(&decide(&assembled.snapshot).decisions, &before);
        if growing.is_empty() {
            return;
        }
        // Decided from what is published with it, so that whoever decides it again finds the same. What is observed on
        // the way is not remembered: that is a cycle's, too.
        let all = std::mem::take(&mut assembled.snapshot);
        assembled.snapshot = with_models(&before.snapshot, all, &growing);
        let mut outcome = decide(&assembled.snapshot);
        for (namespace, model_id) in &growing {
            tracing::info!(
                namespace,
                model_id,
                "A sample shows that this model needs more replicas: it is decided on now"
            );
        }
        outcome.decisions.retain(|d| growing.contains(&model_of(d)));
        let keys: BTreeSet<VariantKey> = outcome.decisions.iter().map(Decision::key).collect();
        for key in &keys {
            state.memory.adopt(key, &mut memory);
        }
        let ours = managed.iter().filter(|m| keys.contains(&m.key));
        let mut variants = before.variants.clone();
        variants.extend(self.publish(state, ours, &assembled, outcome, at));
        self.published.send_replace(Some(Arc::new(Published {
            at: at.wall,
            snapshot: Arc::new(assembled.snapshot),
            variants,
            scalings: state.scalings.clone(),
        })));
    }
}

/// The models with a target above the one that is published, of which no decision published last went up.
fn growing(decisions: &[Decision], before: &Published) -> BTreeSet<ModelKey> {
    let last = |d: &Decision| before.variants.get(&d.key()).and_then(|v| v.decision.as_ref());
    let mut growing = BTreeSet::new();
    let mut grown = BTreeSet::new();
    for decision in decisions {
        let Some(last) = last(decision) else { continue };
        if last.action() == Action::Up {
            grown.insert(model_of(decision));
        } else if decision.action() == Action::Up && decision.target() > last.target() {
            growing.insert(model_of(decision));
        }
    }
    growing.retain(|model| !grown.contains(model));
    growing
}

fn model_of(decision: &Decision) -> ModelKey {
    (decision.namespace.clone(), decision.model_id.clone())
}

/// The snapshot of the last cycle, in which these models are as they were decided on since.
fn with_models(last: &Snapshot, new: Snapshot, which: &BTreeSet<ModelKey>) -> Snapshot {
    let mut snapshot = last.clone();
    for model in new.models {
        let key = (model.namespace.clone(), model.model_id.clone());
        if which.contains(&key) {
            snapshot.models.retain(|m| (&m.namespace, &m.model_id) != (&key.0, &key.1));
            snapshot.models.push(model);
        }
    }
    snapshot
}
