//! Shares free GPUs and quotas between the models of a cycle.

use std::collections::BTreeMap;
use std::sync::Arc;

use wva_crds::GoDuration;

use super::give_back::give_back;
use super::{ModelCase, propose_within};
use crate::decision::Stage;
use crate::limit::{
    Claim, KeptPart, Ledger, added_replicas, book_committed, book_undecided, fits_all, is_limited,
};
use crate::reason::BetterModel;
use crate::view::VariantView;

/// First to targets of earlier cycles, then by priority, then by urgency, then to what people ask for themselves. A model
/// that gets less than it needs keeps the rest of that budget from models that it is ranked before, so they cannot starve
/// it.
pub(super) fn share_budgets<'a>(cases: &mut [&mut ModelCase<'a>], mut ledger: Ledger) {
    let mut order: Vec<usize> = (0..cases.len()).collect();
    for case in cases.iter() {
        for (variant, draft) in case.view.variants.iter().zip(&case.drafts) {
            book_committed(&mut ledger, variant, draft);
        }
    }
    let keys: Vec<_> = cases.iter().map(|case| (case.rank, case.urgency())).collect();
    // The sort is stable, and the cases are sorted by namespace and model.
    order.sort_by(|a, b| {
        let ((rank, (spare, cost)), (other_rank, (other_spare, other_cost))) = (keys[*a], keys[*b]);
        rank.cmp_across(other_rank).then(spare.total_cmp(&other_spare)).then(cost.total_cmp(&other_cost))
    });
    sort_within_namespaces(cases, &mut order);
    let returned = returned_gpus(cases);
    for equals in order.chunk_by(|a, b| keys[*a].0.cmp_across(keys[*b].0).is_eq()) {
        // Other namespaces do not take what was given back for a model that has its turn after them.
        for returned in returned.iter().filter(|returned| equals.contains(&returned.taker)) {
            ledger.keep(returned.before_its_turn(cases[returned.taker]));
        }
        let mut served: BTreeMap<&'a str, Vec<usize>> = BTreeMap::new();
        for &i in equals {
            let (model, rank) = (cases[i].view.model, cases[i].rank);
            let served = served.entry(&model.namespace).or_default();
            for better in served.extract_if(.., |other| cases[*other].rank.cmp_within(rank).is_lt()) {
                reserve_refused(cases[better], &mut ledger);
            }
            limit_case(cases[i], &mut ledger);
            for returned in returned.iter().filter(|returned| returned.taker == i) {
                ledger.keep(returned.after_its_turn(cases[i]));
            }
            served.push(i);
        }
        for case in equals.iter().map(|i| &cases[*i]) {
            for (variant, draft) in case.view.variants.iter().zip(&case.drafts) {
                book_undecided(&mut ledger, variant, draft);
            }
        }
        for i in equals.iter().filter(|i| cases[**i].rank.is_bound()) {
            reserve_refused(cases[*i], &mut ledger);
        }
    }
    give_back(cases, &order);
}

/// The models of a namespace share the places that their urgency gives them, the best rank first.
fn sort_within_namespaces(cases: &[&mut ModelCase], order: &mut [usize]) {
    let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, &i) in order.iter().enumerate() {
        places.entry(&cases[i].view.model.namespace).or_default().push(place);
    }
    for places in places.into_values() {
        let mut models: Vec<usize> = places.iter().map(|place| order[*place]).collect();
        models.sort_by(|a, b| cases[*a].rank.cmp_within(cases[*b].rank));
        for (place, model) in places.into_iter().zip(models) {
            order[place] = model;
        }
    }
}

impl ModelCase<'_> {
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
    let one = |(giver, variant): (&ModelCase, &VariantView)| {
        let returned = variant.variant.returned.as_ref().filter(|returned| returned.is_kept())?;
        let (budget, per_replica) = variant.gpu_claim()?.gpus()?;
        let is_taker = |case: &&mut ModelCase| {
            let model = case.view.model;
            (&model.namespace, &model.model_id) == (&returned.namespace, &returned.model_id)
        };
        let taker = cases.iter().position(is_taker)?;
        let is_same_namespace = giver.view.model.namespace == returned.namespace;
        // The classes may have changed since.
        if !cases[taker].rank.is_better(giver.rank, is_same_namespace) {
            return None;
        }
        let gpus = per_replica.saturating_mul(returned.replicas.into());
        Some(ReturnedGpus { taker, budget, gpus, ago: returned.ago })
    };
    let of_case = |case: &'_ &mut ModelCase| -> Vec<ReturnedGpus> {
        case.view.variants.iter().filter_map(|variant| one((case, variant))).collect()
    };
    cases.iter().flat_map(of_case).collect()
}

impl ReturnedGpus {
    fn before_its_turn(&self, taker: &ModelCase) -> KeptPart {
        let better = Arc::new(taker.as_better());
        KeptPart { budget: self.budget, amount: self.gpus, better, is_against_all: false }
    }

    /// The GPUs stay those of the taker until it has taken them, also if it does not need them in this cycle.
    fn after_its_turn(&self, taker: &ModelCase) -> KeptPart {
        let mut amount = self.gpus;
        for (variant, draft) in taker.view.variants.iter().zip(&taker.drafts) {
            let Some((_, per_replica)) =
                variant.gpu_claim().and_then(Claim::gpus).filter(|(budget, _)| *budget == self.budget)
            else {
                continue;
            };
            if variant.variant.current_for.is_some_and(|age| age < self.ago) {
                amount = 0;
            }
            let growth = draft.target().saturating_sub(variant.current);
            amount = amount.saturating_sub(per_replica.saturating_mul(growth.into()));
        }
        KeptPart { amount, is_against_all: true, ..self.before_its_turn(taker) }
    }
}

/// A bound rank keeps the rest from all models that come later, another one from those of the namespace.
fn reserve_refused(case: &ModelCase, ledger: &mut Ledger) {
    let better = Arc::new(case.as_better());
    for (variant, draft) in case.view.variants.iter().zip(&case.drafts) {
        for step in draft.steps.iter().filter(|step| step.stage == Stage::Limit && variant.is_auto()) {
            ledger.reserve(variant, &step.reason, &better, case.rank.is_bound());
        }
    }
}
