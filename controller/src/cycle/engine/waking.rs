//! Wakes models at zero, or on their way there, with requests at their endpoint pickers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use wva_scaling::{Decision, Snapshot};

use super::Engine;
use super::early::IncrementalOutcome;
use super::state::State;
use crate::cycle::memory::Memory;
use crate::model::keys::ModelKey;
use crate::model::moment::Moment;
use crate::model::published::Published;

impl Engine {
    pub(super) fn wake_models(&self, state: &mut State) {
        let waiting = self.sources.pickers.queues().borrow().waiting();
        let before = self.published.borrow().clone();
        // The first cycle waits for Prometheus; a wake does not.
        let before = before.unwrap_or_else(|| self.empty_publication(state));
        let select = |decisions: &[Decision], before: &Published| models_to_wake(decisions, before, &waiting);
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

/// A variant is to leave 0 replicas, or no longer to go there.
fn models_to_wake(
    decisions: &[Decision],
    before: &Published,
    waiting: &BTreeSet<ModelKey>,
) -> BTreeSet<ModelKey> {
    let lifts = |d: &Decision| d.current == 0 && d.target() > 0 && d.wants_more();
    let last = |d: &Decision| before.variants.get(&d.key()).and_then(|v| v.decision.as_ref());
    let kept = |d: &Decision| d.target() > 0 && last(d).is_some_and(|l| l.current > 0 && l.target() == 0);
    let new = |d: &&Decision| {
        (kept(d) || lifts(d) && !last(d).is_some_and(lifts)) && waiting.contains(&ModelKey::for_decision(d))
    };
    decisions.iter().filter(new).map(ModelKey::for_decision).collect()
}
