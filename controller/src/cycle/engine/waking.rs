//! Wakes models at zero, or on their way there, with requests at their endpoint pickers.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use wva_scaling::control_loop::{InForce, models_to_wake};
use wva_scaling::{Decision, ModelKey, Snapshot};

use super::Engine;
use super::early::IncrementalOutcome;
use super::state::State;
use crate::cycle::memory::Memory;
use crate::model::moment::Moment;
use crate::model::published::Published;

impl Engine {
    pub(super) fn wake_models(&self, state: &mut State) {
        let waiting = self.sources.pickers.queues().borrow().waiting();
        let before = self.published.borrow().clone();
        // The first cycle waits for Prometheus; a wake does not.
        let before = before.unwrap_or_else(|| self.empty_publication(state));
        let select =
            |decisions: &[Decision], in_force: InForce<'_>| models_to_wake(decisions, in_force, &waiting);
        match self.decide_subset(state, &before, select) {
            IncrementalOutcome::Decided(models) => {
                for ModelKey { namespace, model_id } in models {
                    tracing::info!(
                        namespace,
                        model_id,
                        "Requests wait at the endpoint picker; deciding before the next cycle"
                    );
                }
            }
            // Other models are affected: run a cycle if there is a sample.
            IncrementalOutcome::NeedsCycle if state.sampling.last_round.is_some() => self.run_cycle(state),
            IncrementalOutcome::NeedsCycle | IncrementalOutcome::Nothing => {}
        }
    }

    /// Settings and GPU inventory without models, before the first cycle.
    fn empty_publication(&self, state: &mut State) -> Arc<Published> {
        let managed = self.managed();
        let config = self.rules_config(&mut state.deciding.settings, &managed);
        let at = Moment { now: Instant::now(), wall: Timestamp::now() };
        let known = Snapshot { config, ..Snapshot::default() };
        let pass = self.assemble_pass(&state.sampling, &mut Memory::default(), known, managed, at);
        let config = pass.assembled.snapshot.config;
        let snapshot = Arc::new(Snapshot { config, ..Snapshot::default() });
        Arc::new(Published { at: at.wall, snapshot, ..Published::default() })
    }
}
