//! Steps of a decision while the stages make it.

use crate::decision::{Stage, Step};
use crate::reason::Reason;
use crate::replica_state::ReplicaState;
use crate::view::VariantView;

/// Steps so far, from the base on.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) base: u32,
    pub(crate) steps: Vec<Step>,
}

impl Draft {
    pub(crate) fn new(base: u32) -> Self {
        Self { base, steps: Vec::with_capacity(5) }
    }

    /// Draft of an analyzer, with what it has to know of the variant before its load.
    pub(crate) fn of(variant: &VariantView) -> Self {
        let mut draft = Self::new(variant.base.replicas);
        let stalled = variant.in_state(ReplicaState::Stalled).map(|sample| sample.replica.pod.clone());
        let pods: Vec<String> = stalled.collect();
        if !pods.is_empty() {
            draft.note(Stage::Analyze, Reason::NoProgress { pods });
        }
        if let Some(reason) = variant.base.note(variant.variant, variant.bounds) {
            draft.note(Stage::Analyze, reason);
        }
        draft
    }

    pub(crate) fn target(&self) -> u32 {
        self.steps.last().map_or(self.base, |s| s.after)
    }

    /// True if no step tells yet what the analyzer found in the load.
    pub(crate) fn is_unexplained(&self) -> bool {
        self.steps.iter().all(|step| step.reason.precedes_analysis())
    }

    pub(crate) fn push(&mut self, stage: Stage, after: u32, reason: Reason) {
        let before = self.target();
        self.steps.push(Step { stage, before, after, reason });
    }

    /// Keeps the target. A reason that the last step gave already is not repeated.
    pub(crate) fn note(&mut self, stage: Stage, reason: Reason) {
        if self.steps.last().is_none_or(|last| last.stage != stage || last.reason != reason) {
            self.push(stage, self.target(), reason);
        }
    }

    /// Keeps the base.
    pub(crate) fn prepend_note(&mut self, reason: Reason) {
        let step = Step { stage: Stage::Analyze, before: self.base, after: self.base, reason };
        self.steps.insert(0, step);
    }

    pub(crate) fn ensure_step(&mut self, stage: Stage) {
        if self.steps.iter().all(|s| s.stage != stage) {
            self.note(stage, Reason::NO_CHANGE);
        }
    }
}
