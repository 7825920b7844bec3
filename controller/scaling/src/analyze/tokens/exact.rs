//! The optimize stage under `optimizer: exact`: of all ways to add what is lacking the cheapest, of all ways to take
//! what is spare the one that saves most. It honours all that the greedy rule (`fill.rs`) honours, and leaves to it
//! what cannot be met at all. Variants that a person holds back give and take nothing, so the search is over the others;
//! what they would do is told as the greedy rule tells it.

mod search;

use self::search::{Offer, cheapest};
use super::TokenVerdict;
use super::fill::{self, by_cost_of_capacity};
use crate::Stage;
use crate::analyze::steps::obstacle;
use crate::limit::{Ledger, is_limited};
use crate::reason::{Reason, Tokens};
use crate::snapshot::Optimizer;
use crate::view::{Draft, ModelView, VariantView};

/// What became of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// The drafts have its steps.
    Done,
    /// It is not asked for; or there is no way, or none that is better than to do nothing. The greedy rule acts, and
    /// says what is in the way.
    NoWay,
    /// It ended at its limit before it had found or proven anything: the greedy rule acts, and says so.
    CutShort,
}

/// Adds what is lacking at the least cost.
pub(super) fn grow(
    verdict: &TokenVerdict,
    model: &ModelView,
    barred: &[bool],
    ledger: &Ledger,
    drafts: &mut [Draft],
) -> Search {
    if model.settings.optimizer != Optimizer::Exact {
        return Search::NoWay;
    }
    let order = by_cost_of_capacity(verdict, model);
    let able = |i: &usize| !barred[*i] && verdict.per_replica[*i] > 0.0;
    let acts = |variant: &VariantView| variant.auto() && obstacle(variant).is_none();
    let free = |i: &usize| able(i) && acts(&model.variants[*i]);
    let free: Vec<usize> = order.iter().copied().filter(free).collect();
    let offers: Vec<Offer> = free.iter().map(|i| added(verdict, model, *i)).collect();
    let stock = if is_limited(model) { ledger.left_of_each() } else { &[] };
    let need = verdict.required(model);
    let found = cheapest(&offers, stock, need, 1e-9 * need);
    let Some(counts) = found.counts else {
        return if found.proven { Search::NoWay } else { Search::CutShort };
    };
    let mut grows = vec![0; drafts.len()];
    for (i, count) in free.into_iter().zip(counts) {
        grows[i] = count;
    }
    // What is in the way of a variant matters where a dearer one grows.
    let dearest = order.iter().rposition(|i| grows[*i] > 0).unwrap_or(0);
    let mut missing = need;
    for i in order.into_iter().take(dearest + 1).filter(able) {
        let variant = &model.variants[i];
        if let Some(reason) = obstacle(variant) {
            drafts[i].note(Stage::Optimize, reason);
            continue;
        }
        let asked = if variant.auto() { grows[i] } else { fill::asked(verdict, variant, i, missing) };
        if asked > 0 {
            // The first way that is tried is the greedy rule's, so what was found by then costs no more.
            let tokens = Box::new(Tokens { approximate: !found.proven, ..verdict.figures(model, i) });
            let after = variant.current.saturating_add(asked);
            drafts[i].push(Stage::Optimize, after, Reason::DemandAboveSupply { tokens });
        }
        missing -= f64::from(grows[i]) * verdict.per_replica[i];
    }
    Search::Done
}

/// Replicas that a variant may grow by.
fn added(verdict: &TokenVerdict, model: &ModelView, i: usize) -> Offer {
    let variant = &model.variants[i];
    Offer {
        size: verdict.per_replica[i],
        cost: variant.cost(),
        most: variant.room(),
        ignored: 1..variant.step_up(),
        gpus: variant.place.map(|place| (place, u64::from(variant.variant.gpus_per_replica.0))),
    }
}

/// Takes what is spare, so that what is left costs least. To choose what is kept is the same search: it has to hold the
/// tokens that are not spare.
pub(super) fn shrink(verdict: &TokenVerdict, model: &ModelView, drafts: &mut [Draft]) -> Search {
    if model.settings.optimizer != Optimizer::Exact || model.blind().is_some() {
        return Search::NoWay;
    }
    let order = by_cost_of_capacity(verdict, model);
    let (order, offers): (Vec<usize>, Vec<Offer>) =
        order.into_iter().filter_map(|i| Some((i, kept(verdict, model, i)?))).unzip();
    let total: f64 = offers.iter().map(|o| f64::from(o.most) * o.size).sum();
    let mut need = total - verdict.spare_tokens(model);
    if !serves_without(model, &order, &offers) {
        // One of them must stay, whatever its size.
        need = need.max(offers.iter().map(|o| o.size).fold(f64::INFINITY, f64::min));
    }
    let found = cheapest(&offers, &[], need, 1e-9 * total);
    if !found.proven {
        return Search::CutShort;
    }
    let mut takes = vec![0; drafts.len()];
    for ((i, offer), count) in order.into_iter().zip(&offers).zip(found.counts.unwrap_or_default()) {
        takes[i] = offer.most.saturating_sub(count);
    }
    if takes.iter().all(|taken| *taken == 0) {
        return Search::NoWay;
    }
    take(verdict, model, &takes, drafts);
    Search::Done
}

/// Writes down what is taken, and what those that are held back would give of the rest, in the greedy rule's order.
fn take(verdict: &TokenVerdict, model: &ModelView, takes: &[u32], drafts: &mut [Draft]) {
    let mut spare = verdict.spare_tokens(model);
    for i in fill::by_cost_descending(model) {
        let variant = &model.variants[i];
        if !variant.auto() {
            fill::take(verdict, model, i, spare, drafts);
        } else if takes[i] > 0 {
            let after = variant.current.saturating_sub(takes[i]);
            let tokens = Box::new(verdict.figures(model, i));
            drafts[i].push(Stage::Optimize, after, Reason::SupplyAboveDemand { tokens });
            spare -= f64::from(takes[i]) * verdict.per_replica[i];
        }
    }
}

/// Replicas of a variant that may be kept or taken; `None` where none may be taken. The supply is that of ready
/// replicas: one that still loads is not taken back. One that a person holds back gives none.
fn kept(verdict: &TokenVerdict, model: &ModelView, i: usize) -> Option<Offer> {
    let (variant, size) = (&model.variants[i], verdict.per_replica[i]);
    let most = variant.current.saturating_sub(variant.bounds.min).min(variant.ready);
    let step = variant.step_down();
    (variant.auto() && size > 0.0 && most >= step).then(|| Offer {
        size,
        cost: variant.cost(),
        most,
        ignored: most - step + 1..most,
        gpus: None,
    })
}

/// A replica serves that may not be taken, so that all the others may. What a person holds serves as far as it will be
/// there.
fn serves_without(model: &ModelView, order: &[usize], offers: &[Offer]) -> bool {
    let mut stays: Vec<u32> = model.variants.iter().map(|v| v.current).collect();
    for (i, offer) in order.iter().zip(offers) {
        stays[*i] -= offer.most;
    }
    model
        .variants
        .iter()
        .zip(stays)
        .any(|(variant, stays)| variant.replicas_after(stays).min(variant.ready) > 0)
}
