//! The optimize stage of the token analyzer: lacking tokens go to the variants whose capacity costs least, spare ones
//! are taken from the dearest. Every cycle counts from the current replicas.

use super::TokenVerdict;
use crate::Stage;
use crate::analyze::steps::{obstacle, withheld};
use crate::limit::{Ledger, is_limited};
use crate::reason::Reason;
use crate::units::{below, whole};
use crate::view::{Draft, ModelView, VariantView};

/// Steps of the stages analyze and optimize.
pub(super) fn propose(
    verdict: &TokenVerdict,
    model: &ModelView,
    barred: &[bool],
    ledger: &Ledger,
) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::with_capacity(model.variants.len());
    for (i, variant) in model.variants.iter().enumerate() {
        let mut draft = Draft::new(variant.current);
        let tokens = Some(Box::new(verdict.figures(model, i)));
        draft.note(Stage::Analyze, Reason::NoChange { load: None, tokens, flow: None });
        drafts.push(draft);
    }
    if below(0.0, verdict.required(model)) {
        grow(verdict, model, barred, ledger, &mut drafts);
    } else if below(0.0, verdict.spare_tokens(model)) && !verdict.unsized_queue {
        shrink(verdict, model, &mut drafts);
    }
    drafts
}

/// Indices of the variants by the cost of a token they hold, equal ones by name; those that hold none come last.
pub(super) fn by_cost_of_capacity(verdict: &TokenVerdict, model: &ModelView) -> Vec<usize> {
    let price = |i: usize| {
        let capacity = verdict.per_replica[i];
        if capacity > 0.0 { model.variants[i].cost() / capacity } else { f64::INFINITY }
    };
    let mut order: Vec<usize> = (0..model.variants.len()).collect();
    order.sort_by(|a, b| price(*a).total_cmp(&price(*b)));
    order
}

fn grow(verdict: &TokenVerdict, model: &ModelView, barred: &[bool], ledger: &Ledger, drafts: &mut [Draft]) {
    let mut missing = verdict.required(model);
    let mut ledger = ledger.clone();
    for i in by_cost_of_capacity(verdict, model) {
        let (variant, capacity) = (&model.variants[i], verdict.per_replica[i]);
        if !below(0.0, missing) || barred[i] || capacity <= 0.0 {
            continue;
        }
        if let Some(reason) = obstacle(variant) {
            drafts[i].note(Stage::Optimize, reason);
            continue;
        }
        let asked = asked(verdict, variant, i, missing);
        let after = variant.current.saturating_add(asked);
        drafts[i].push(
            Stage::Optimize,
            after,
            Reason::DemandAboveSupply { tokens: Box::new(verdict.figures(model, i)) },
        );
        // One that a person holds back gives nothing, so the next one is asked as well.
        if !variant.auto() {
            continue;
        }
        // The stages behind cut it to the maximum and to what is left; the next variant gets what is cut.
        let mut given = asked.min(variant.room());
        if is_limited(model) {
            given = variant.granted(given, ledger.fits(variant));
            ledger.book(variant, given);
        }
        missing -= f64::from(given) * capacity;
    }
}

/// Replicas that would hold the missing tokens, at least as many as the HPA acts on.
fn asked(verdict: &TokenVerdict, variant: &VariantView, i: usize, missing: f64) -> u32 {
    // The allowance keeps a quotient of 2.0000000001 at 2.
    whole((missing / verdict.per_replica[i] - 1e-9).ceil()).max(variant.step_up())
}

/// Indices of the variants from the dearest to the cheapest, equal ones by name.
fn by_cost_descending(model: &ModelView) -> Vec<usize> {
    let mut order: Vec<usize> = (0..model.variants.len()).collect();
    order.sort_by(|a, b| model.variants[*b].cost().total_cmp(&model.variants[*a].cost()));
    order
}

fn shrink(verdict: &TokenVerdict, model: &ModelView, drafts: &mut [Draft]) {
    let mut spare = verdict.spare_tokens(model);
    for i in by_cost_descending(model) {
        let taken = take(verdict, model, i, spare, drafts);
        if model.variants[i].auto() {
            spare -= f64::from(taken) * verdict.per_replica[i];
        }
    }
}

/// Takes of a variant what is spare, or says why not. Returns the replicas taken.
fn take(verdict: &TokenVerdict, model: &ModelView, i: usize, spare: f64, drafts: &mut [Draft]) -> u32 {
    let (variant, capacity) = (&model.variants[i], verdict.per_replica[i]);
    if capacity <= 0.0 {
        return 0;
    }
    // What still loads serves nobody, so it does not count as the replica that is left.
    let serves = |(j, draft): (usize, &Draft)| {
        let other = &model.variants[j];
        j != i && other.replicas_after(draft.target()).min(other.ready) > 0
    };
    let last = !drafts.iter().enumerate().any(serves);
    let floor = variant.bounds.min.max(u32::from(last));
    // The supply is that of ready replicas; one that still loads is not taken back.
    let most = variant.current.saturating_sub(floor).min(variant.ready);
    let taken = whole((spare / capacity + 1e-9).floor()).min(most);
    if taken == 0 {
        return 0;
    }
    if let Some(reason) = withheld(model, variant, taken) {
        drafts[i].note(Stage::Optimize, reason);
        return 0;
    }
    let reason = Reason::SupplyAboveDemand { tokens: Box::new(verdict.figures(model, i)) };
    drafts[i].push(Stage::Optimize, variant.current - taken, reason);
    taken
}
