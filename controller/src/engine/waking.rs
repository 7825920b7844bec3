//! A cycle for models that requests wait for at an endpoint picker while no replica serves them: they are decided on at
//! once, on the last cycle's snapshot with what is known of them now.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use wva_scaling::{Decision, Snapshot, Warning};

use super::early::{Between, model_of};
use super::{Engine, State};
use crate::picker::ModelKey;
use crate::published::Published;
use crate::variants::Managed;

impl Engine {
    /// Decides on the models that requests wait for, where one of their variants is to be woken and is not yet.
    pub(super) fn wake(&self, state: &mut State) {
        let waiting = self.pickers.queues().borrow().waiting();
        let before = self.published.borrow().clone();
        // Before the first cycle, which waits for Prometheus, nothing else is decided.
        let before = before.unwrap_or_else(|| self.nothing_yet(state));
        let woken = |decisions: &[Decision], before: &Published| woken(decisions, before, &waiting);
        match self.between(state, &before, woken) {
            Between::Decided(models) => {
                for (namespace, model_id) in models {
                    tracing::info!(
                        namespace,
                        model_id,
                        "Requests wait for this model, which no replica serves"
                    );
                }
            }
            // Others have to be decided on as well.
            Between::TakesACycle => self.cycle(state),
            Between::Nothing => {}
        }
    }

    /// Forgets the warnings that nothing could wake a model, where a pool holds pods of it: the rules see queues alone,
    /// and a picker shows none before requests wait for the first time.
    pub(super) fn forget_woken_by_pools(&self, managed: &[Managed], warnings: &mut Vec<Warning>) {
        if !warnings.iter().any(|warning| matches!(warning, Warning::NothingWakesIt { .. })) {
            return;
        }
        let declared = managed.iter().filter_map(|m| m.declared().ok());
        let served: BTreeSet<ModelKey> = declared
            .filter(|d| self.pickers.has_one(&self.watches, &d.workload))
            .map(|d| (d.workload.namespace.clone(), d.model_id.clone()))
            .collect();
        warnings.retain(|warning| unwoken(warning).is_none_or(|model| !served.contains(&model)));
    }

    fn nothing_yet(&self, state: &mut State) -> Arc<Published> {
        let config = self.rules_config(&mut state.settings, &self.managed());
        let snapshot = Arc::new(Snapshot { config, ..Snapshot::default() });
        Arc::new(Published { at: Timestamp::now(), snapshot, ..Published::default() })
    }
}

/// The models that nothing could wake.
pub(super) fn unwakeable(warnings: &[Warning]) -> BTreeSet<ModelKey> {
    warnings.iter().filter_map(unwoken).collect()
}

fn unwoken(warning: &Warning) -> Option<ModelKey> {
    match warning {
        Warning::NothingWakesIt { namespace, model_id } => Some((namespace.clone(), model_id.clone())),
        _ => None,
    }
}

/// The models with a variant that is lifted from 0 and was not by the decision before.
fn woken(decisions: &[Decision], before: &Published, waiting: &BTreeSet<ModelKey>) -> BTreeSet<ModelKey> {
    let lifts = |d: &Decision| d.current == 0 && d.target() > 0;
    let last = |d: &Decision| before.variants.get(&d.key()).and_then(|v| v.decision.as_ref());
    let new = |d: &&Decision| lifts(d) && !last(d).is_some_and(lifts) && waiting.contains(&model_of(d));
    decisions.iter().filter(new).map(model_of).collect()
}
