//! Decisions between two cycles.

use std::collections::BTreeSet;
use std::time::Instant;

use jiff::Timestamp;
use wva_runtime::spans;
use wva_scaling::control_loop::{Early, EarlyDecisions, InForce, decide_early, models_to_grow};
use wva_scaling::{Decision, ModelKey, VariantKey};

use super::Engine;
use super::state::State;
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
        let select = |decisions: &[Decision], in_force: InForce<'_>| {
            if self.config().early_scale_up { models_to_grow(decisions, in_force) } else { BTreeSet::new() }
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

    /// Decides on the models that `select` returns for the new decisions and those in force.
    pub(super) fn decide_subset(
        &self,
        state: &mut State,
        before: &Published,
        select: impl Fn(&[Decision], InForce<'_>) -> BTreeSet<ModelKey>,
    ) -> IncrementalOutcome {
        let at = Moment { now: Instant::now(), wall: Timestamp::now() };
        let _span = spans::cycle(&at.wall, "some").entered();
        // A copy: changes of other models must not be kept.
        let mut memory = state.deciding.memory.clone();
        let known = state.deciding.control_loop.begin_early(&before.snapshot, at.now);
        let mut pass = self.assemble_pass(&state.sampling, &mut memory, known, self.managed(), at);
        // Activity is kept for all models.
        std::mem::swap(&mut state.deciding.memory.evidence, &mut memory.evidence);
        let newest = std::mem::take(&mut pass.assembled.snapshot);
        let decision = |key: &VariantKey| before.variants.get(key)?.decision.as_ref();
        let in_force = InForce { snapshot: &before.snapshot, decision: &decision };
        match decide_early(newest, in_force, select) {
            Early::Nothing => IncrementalOutcome::Nothing,
            Early::NeedsCycle => IncrementalOutcome::NeedsCycle,
            Early::Decided(decided) => {
                let EarlyDecisions { models, snapshot, outcome } = *decided;
                pass.assembled.snapshot = snapshot;
                for decision in &outcome.decisions {
                    state.deciding.memory.take_variant(&decision.key(), &mut memory);
                }
                self.publish(state, pass, outcome, Some(before));
                IncrementalOutcome::Decided(models)
            }
        }
    }
}
