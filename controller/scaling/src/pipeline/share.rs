//! Shares free GPUs and quotas between the models of a cycle.

use std::sync::Arc;

use wva_crds::GoDuration;

use super::give_back::give_back;
use super::{ModelCase, propose_within};
use crate::decision::Stage;
use crate::limit::{Claim, Ledger, added_replicas, book_committed, fits_all, is_limited};
use crate::reason::BetterModel;
use crate::snapshot::Priority;
use crate::view::VariantView;

/// First to targets of earlier cycles, then by priority, then by urgency. A model that gets less than it needs keeps the
/// rest of that budget from models with a worse priority, so they cannot starve it.
pub(super) fn share_budgets(cases: &mut [&mut ModelCase], mut ledger: Ledger) {
    let mut order: Vec<usize> = (0..cases.len()).collect();
    for case in cases.iter() {
        for (variant, draft) in case.view.variants.iter().zip(&case.drafts) {
            book_committed(&mut ledger, variant, draft);
        }
    }
    let keys: Vec<_> = cases.iter().map(|case| (case.rank(), case.urgency())).collect();
    // The sort is stable, and the cases are sorted by namespace and model.
    order.sort_by(|a, b| {
        let ((rank, (spare, cost)), (other_rank, (other_spare, other_cost))) = (keys[*a], keys[*b]);
        rank.cmp(&other_rank).then(spare.total_cmp(&other_spare)).then(cost.total_cmp(&other_cost))
    });
    let returned = returned_gpus(cases);
    for equals in order.chunk_by(|a, b| keys[*a].0 == keys[*b].0) {
        for i in equals {
            limit_case(cases[*i], &mut ledger);
        }
        for i in equals {
            reserve_refused(cases[*i], &mut ledger);
        }
        for returned in returned.iter().filter(|returned| equals.contains(&returned.taker)) {
            keep_returned(cases[returned.taker], returned, &mut ledger);
        }
    }
    give_back(cases, &order);
}

impl ModelCase<'_> {
    /// Best priority first. Models without a service class come last.
    pub(super) fn rank(&self) -> (bool, Option<Priority>) {
        (self.priority.is_none(), self.priority)
    }

    pub(super) fn as_better(&self) -> BetterModel {
        let model = self.view.model;
        BetterModel { namespace: model.namespace.clone(), model_id: model.model_id.clone() }
    }
}

fn limit_case(case: &mut ModelCase, ledger: &mut Ledger) {
    if is_limited(&case.view) && !fits_all(&case.view, ledger, &case.drafts) {
        case.drafts = propose_within(case, ledger);
    }
    for (variant, draft) in case.view.variants.iter().zip(&case.drafts) {
        if variant.is_auto() {
            ledger.book(variant, added_replicas(variant, draft));
        }
    }
}

/// GPUs that a worse model gave back to the taker.
struct ReturnedGpus {
    taker: usize,
    budget: usize,
    gpus: u64,
    ago: GoDuration,
}

fn returned_gpus(cases: &[&mut ModelCase]) -> Vec<ReturnedGpus> {
    let one = |variant: &VariantView| {
        let returned = variant.variant.returned.as_ref().filter(|returned| returned.is_kept())?;
        let (budget, per_replica) = variant.gpu_claim()?.gpus()?;
        let is_taker = |case: &&mut ModelCase| {
            let model = case.view.model;
            (&model.namespace, &model.model_id) == (&returned.namespace, &returned.model_id)
        };
        let taker = cases.iter().position(is_taker)?;
        let gpus = per_replica.saturating_mul(returned.replicas.into());
        Some(ReturnedGpus { taker, budget, gpus, ago: returned.ago })
    };
    cases.iter().flat_map(|case| &case.view.variants).filter_map(one).collect()
}

/// The GPUs stay those of the taker until it has taken them, also if it does not need them in this cycle.
fn keep_returned(taker: &ModelCase, returned: &ReturnedGpus, ledger: &mut Ledger) {
    let mut gpus = returned.gpus;
    for (variant, draft) in taker.view.variants.iter().zip(&taker.drafts) {
        let Some((_, per_replica)) =
            variant.gpu_claim().and_then(Claim::gpus).filter(|(budget, _)| *budget == returned.budget)
        else {
            continue;
        };
        if variant.variant.current_for.is_some_and(|age| age < returned.ago) {
            return;
        }
        let growth = draft.target().saturating_sub(variant.current);
        gpus = gpus.saturating_sub(per_replica.saturating_mul(growth.into()));
    }
    ledger.keep(returned.budget, gpus, &Arc::new(taker.as_better()));
}

/// Without effect on models of the same rank, which come before this call, and on models without a service class.
fn reserve_refused(case: &ModelCase, ledger: &mut Ledger) {
    if case.priority.is_none() {
        return;
    }
    let better = Arc::new(case.as_better());
    for (variant, draft) in case.view.variants.iter().zip(&case.drafts) {
        for step in draft.steps.iter().filter(|step| step.stage == Stage::Limit && variant.is_auto()) {
            ledger.reserve(variant, &step.reason, &better);
        }
    }
}
