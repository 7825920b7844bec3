//! Requests in flight at the router decide upwards while most replicas report nothing.

use super::growth::Growth;
use super::throughput;
use crate::Stage;
use crate::draft::Draft;
use crate::limit::Ledger;
use crate::reason::Reason;
use crate::snapshot::ThroughputMemory;
use crate::units::below;
use crate::view::{ModelView, VariantView};

/// The router's figures double the replicas at most: its requests may wait at one slow replica.
const MOST_GROWTH: f64 = 2.0;

/// What the replicas have to run.
pub(super) struct LoadAtRouter {
    /// Requests in flight, at most as many as twice the ready replicas run.
    needed: f64,
    /// Requests in flight at the router.
    in_flight: f64,
    /// Requests that a replica of each variant is planned to run at once.
    per_replica: Vec<f64>,
}

impl LoadAtRouter {
    /// `None` while the replicas report enough, if the router reports no figure, or before step times are learned.
    pub(super) fn of(model: &ModelView, learned: &ThroughputMemory) -> Option<Self> {
        let in_flight = model.model.router?.running?.get();
        let ready: u64 = model.variants.iter().map(|v| u64::from(v.ready)).sum();
        let reporting: u64 = model.variants.iter().map(|v| u64::from(v.reporting())).sum();
        if ready == 0 || 2 * reporting >= ready {
            return None;
        }
        let per_replica = throughput::planned_requests(model, learned)?;
        let runs = |(view, requests): (&VariantView, &f64)| f64::from(view.ready) * requests;
        let runs: f64 = model.variants.iter().zip(&per_replica).map(runs).sum();
        Some(Self { needed: in_flight.min(MOST_GROWTH * runs), in_flight, per_replica })
    }

    /// Adds replicas to the targets of the analyzer if these run too few requests.
    pub(super) fn grow(
        &self,
        model: &ModelView,
        order: Vec<usize>,
        excluded: &[bool],
        ledger: &Ledger,
        drafts: &mut [Draft],
    ) {
        let planned: f64 = (model.variants.iter().zip(drafts.iter()).zip(&self.per_replica))
            .map(|((view, draft), requests)| f64::from(replicas(view, draft)) * requests)
            .sum();
        let missing = self.needed - planned;
        if below(0.0, missing) {
            let growth = Growth { model, stage: Stage::Analyze, order, per_replica: &self.per_replica };
            let reason = |i: usize| Reason::RouterAboveCapacity {
                in_flight: self.in_flight,
                per_replica: self.per_replica[i],
            };
            growth.grow(missing, excluded, ledger, reason, drafts);
        }
    }
}

/// Replicas of a target within the maximum and the mode, which later stages enforce. A target that the autoscaler does not
/// carry out serves nothing.
fn replicas(view: &VariantView, draft: &Draft) -> u32 {
    let target = if view.base.is_obstructed { draft.target().min(view.current) } else { draft.target() };
    view.replicas_after(view.bounds.max.map_or(target, |max| target.min(max)))
}
