//! A cycle for models that requests wait for at an endpoint picker while no replica serves them, or is going to: they are
//! decided on at once, on the last cycle's snapshot with what is known of them now.

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
    /// Decides on the models that requests wait for, where one of their variants is to be woken and is not yet.
    pub(super) fn wake(&self, state: &mut State) {
        let waiting = self.sources.pickers.queues().borrow().waiting();
        let before = self.published.borrow().clone();
        // Before the first cycle, which waits for Prometheus, nothing else is decided.
        let before = before.unwrap_or_else(|| self.nothing_yet(state));
        let woken = |decisions: &[Decision], before: &Published| woken(decisions, before, &waiting);
        match self.decide_subset(state, &before, woken) {
            IncrementalOutcome::Decided(models) => {
                for ModelKey { namespace, model_id } in models {
                    tracing::info!(
                        namespace,
                        model_id,
                        "Requests wait at the endpoint picker of this model: it is decided on now"
                    );
                }
            }
            // Others have to be decided on as well: at once, where there was a sample to decide on.
            IncrementalOutcome::TakesACycle if state.sampling.last_round.is_some() => self.cycle(state),
            IncrementalOutcome::TakesACycle | IncrementalOutcome::Nothing => {}
        }
    }

    /// What stands in for a first cycle: the settings and the GPUs that are left, and no model.
    fn nothing_yet(&self, state: &mut State) -> Arc<Published> {
        let managed = self.managed();
        let config = self.rules_config(&mut state.deciding.settings, &managed);
        let at = Moment { now: Instant::now(), wall: Timestamp::now() };
        let known = Snapshot { config, ..Snapshot::default() };
        let pass = self.look(&state.sampling, &mut Memory::default(), known, managed, at);
        let config = pass.assembled.snapshot.config;
        let snapshot = Arc::new(Snapshot { config, ..Snapshot::default() });
        Arc::new(Published { at: at.wall, snapshot, ..Published::default() })
    }
}

/// The models with a variant that is lifted from 0, or kept from it, and was not by the decision before.
fn woken(decisions: &[Decision], before: &Published, waiting: &BTreeSet<ModelKey>) -> BTreeSet<ModelKey> {
    let lifts = |d: &Decision| d.current == 0 && d.target() > 0 && d.lifts();
    let last = |d: &Decision| before.variants.get(&d.key()).and_then(|v| v.decision.as_ref());
    let kept = |d: &Decision| d.target() > 0 && last(d).is_some_and(|l| l.current > 0 && l.target() == 0);
    let new = |d: &&Decision| {
        (kept(d) || lifts(d) && !last(d).is_some_and(lifts)) && waiting.contains(&ModelKey::of(d))
    };
    decisions.iter().filter(new).map(ModelKey::of).collect()
}
