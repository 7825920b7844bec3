//! Optimize stage of the token analyzer: adds replicas where a token is cheapest, and removes the most expensive
//! replicas.

use super::TokenVerdict;
use crate::Stage;
use crate::analyze::step_limits::{growth_obstacle, shrink_obstacle};
use crate::limit::{Ledger, is_limited};
use crate::reason::Reason;
use crate::units::{below, to_u32};
use crate::view::{Draft, ModelView, VariantView};

pub(super) fn propose(
    verdict: &TokenVerdict,
    model: &ModelView,
    excluded: &[bool],
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
        grow(verdict, model, excluded, ledger, &mut drafts);
    } else if below(0.0, verdict.spare_tokens(model)) && !verdict.has_unsized_queue {
        shrink(verdict, model, &mut drafts);
    }
    drafts
}

/// Variants by ascending cost per token, then name. Variants without capacity come last.
pub(super) fn by_cost_of_capacity(verdict: &TokenVerdict, model: &ModelView) -> Vec<usize> {
    let price = |i: usize| {
        let capacity = verdict.per_replica[i];
        if capacity > 0.0 { model.variants[i].cost() / capacity } else { f64::INFINITY }
    };
    let mut order: Vec<usize> = (0..model.variants.len()).collect();
    order.sort_by(|a, b| price(*a).total_cmp(&price(*b)));
    order
}

fn grow(verdict: &TokenVerdict, model: &ModelView, excluded: &[bool], ledger: &Ledger, drafts: &mut [Draft]) {
    let mut missing = verdict.required(model);
    let mut ledger = ledger.clone();
    for i in by_cost_of_capacity(verdict, model) {
        let (variant, capacity) = (&model.variants[i], verdict.per_replica[i]);
        if !below(0.0, missing) || excluded[i] || capacity <= 0.0 {
            continue;
        }
        if let Some(reason) = growth_obstacle(variant) {
            drafts[i].note(Stage::Optimize, reason);
            continue;
        }
        let requested = replicas_for(verdict, variant, i, missing);
        let after = variant.current.saturating_add(requested);
        drafts[i].push(
            Stage::Optimize,
            after,
            Reason::DemandAboveSupply { tokens: Box::new(verdict.figures(model, i)) },
        );
        // Outside mode `auto` the variant adds no replica, so the next one grows too.
        if !variant.is_auto() {
            continue;
        }
        // Later stages cut the step; the next variant gets the rest.
        let mut granted = requested.min(variant.headroom());
        if is_limited(model) {
            granted = variant.grantable_replicas(granted, ledger.fitting_replicas(variant));
            ledger.book(variant, granted);
        }
        missing -= f64::from(granted) * capacity;
    }
}

/// At least the smallest step that the HPA acts on.
fn replicas_for(verdict: &TokenVerdict, variant: &VariantView, i: usize, missing: f64) -> u32 {
    // The tolerance keeps a quotient of 2.0000000001 at 2.
    to_u32((missing / verdict.per_replica[i] - 1e-9).ceil()).max(variant.min_step_up())
}

fn by_cost_descending(model: &ModelView) -> Vec<usize> {
    let mut order: Vec<usize> = (0..model.variants.len()).collect();
    order.sort_by(|a, b| model.variants[*b].cost().total_cmp(&model.variants[*a].cost()));
    order
}

fn shrink(verdict: &TokenVerdict, model: &ModelView, drafts: &mut [Draft]) {
    let mut spare = verdict.spare_tokens(model);
    for i in by_cost_descending(model) {
        let removed = shrink_variant(verdict, model, i, spare, drafts);
        if model.variants[i].is_auto() {
            spare -= f64::from(removed) * verdict.per_replica[i];
        }
    }
}

/// Returns the number of removed replicas. Notes the obstacle if there is one.
fn shrink_variant(
    verdict: &TokenVerdict,
    model: &ModelView,
    i: usize,
    spare: f64,
    drafts: &mut [Draft],
) -> u32 {
    let (variant, capacity) = (&model.variants[i], verdict.per_replica[i]);
    if capacity <= 0.0 {
        return 0;
    }
    // A starting replica serves no request, so it is not the remaining one.
    let serves = |(j, draft): (usize, &Draft)| {
        let other = &model.variants[j];
        j != i && other.replicas_after(draft.target()).min(other.ready) > 0
    };
    let is_last = !drafts.iter().enumerate().any(serves);
    let floor = variant.bounds.min.max(u32::from(is_last));
    // The supply counts ready replicas only, so starting ones stay.
    let removable = variant.current.saturating_sub(floor).min(variant.ready);
    let removed = to_u32((spare / capacity + 1e-9).floor()).min(removable);
    if removed == 0 {
        return 0;
    }
    if let Some(reason) = shrink_obstacle(model, variant, removed) {
        drafts[i].note(Stage::Optimize, reason);
        return 0;
    }
    let reason = Reason::SupplyAboveDemand { tokens: Box::new(verdict.figures(model, i)) };
    drafts[i].push(Stage::Optimize, variant.current - removed, reason);
    removed
}
