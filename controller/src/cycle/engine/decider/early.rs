//! Decisions between two cycles.

use std::collections::BTreeSet;
use std::sync::Arc;

use wva_scaling::control_loop::{Early, EarlyDecisions, EarlyTrigger, InForce, decide_early};
use wva_scaling::{ModelKey, Snapshot, VariantKey};

use super::{Decided, Decider};
use crate::cycle::engine::inputs::Inputs;
use crate::cycle::engine::sampler::Sampler;
use crate::model::moment::Moment;
use crate::model::published::Published;

pub(in crate::cycle::engine) enum EarlyResult {
    Nothing,
    /// Decisions, and the models that were decided. Other models keep their decisions.
    Decided(Box<Decided>, BTreeSet<ModelKey>),
    NeedsCycle,
}

impl Decider {
    /// Decides the models that cannot wait for the next cycle. What the pass observes of the others is kept, too: a request
    /// that came and went between two cycles counts as activity.
    pub(in crate::cycle::engine) fn decide_early(
        &mut self,
        inputs: Inputs<'_>,
        sampler: &Sampler,
        before: &Published,
        trigger: EarlyTrigger<'_>,
        at: Moment,
    ) -> EarlyResult {
        let known = self.control_loop.begin_early(&before.snapshot, at.now);
        let mut pass = self.assemble(inputs, sampler, known, inputs.managed(), at);
        let newest = std::mem::take(&mut pass.assembled.snapshot);
        let decision = |key: &VariantKey| before.variants.get(key)?.decision.as_ref();
        let in_force = InForce { snapshot: &before.snapshot, decision: &decision };
        let decided = match decide_early(newest, in_force, trigger) {
            Early::Nothing => return EarlyResult::Nothing,
            Early::NeedsCycle => return EarlyResult::NeedsCycle,
            Early::Decided(decided) => *decided,
        };
        let EarlyDecisions { models, snapshot, outcome } = decided;
        pass.assembled.snapshot = snapshot;
        let keys: BTreeSet<VariantKey> =
            outcome.decisions.iter().map(|decision| decision.key.clone()).collect();
        let managed = pass.managed.iter().filter(|m| keys.contains(&m.key));
        let changed = self.update_variants(inputs, sampler, managed, &pass, outcome, Some(before));
        let mut variants = before.variants.clone();
        variants.extend(changed);
        EarlyResult::Decided(Box::new(Decided { pass, variants }), models)
    }

    /// Settings and GPU inventory without models, before the first cycle.
    pub(in crate::cycle::engine) fn empty_publication(
        &mut self,
        inputs: Inputs<'_>,
        sampler: &Sampler,
    ) -> Arc<Published> {
        let managed = inputs.managed();
        let config = self.resolve(inputs, &managed);
        let at = Moment::current();
        let known = Snapshot { config, ..Snapshot::default() };
        let config = self.assemble(inputs, sampler, known, managed, at).assembled.snapshot.config;
        let snapshot = Arc::new(Snapshot { config, ..Snapshot::default() });
        Arc::new(Published { at: at.wall, snapshot, ..Published::default() })
    }
}
