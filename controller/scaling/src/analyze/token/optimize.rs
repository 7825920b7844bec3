//! Optimize stage of the token analyzer: adds replicas where a token is cheapest, and removes the most expensive
//! replicas.

use super::TokenVerdict;
use crate::Stage;
use crate::analyze::growth::Growth;
use crate::analyze::step_limits::{acted_step_down, removable_replicas, shrink_obstacle, signal_obstacle};
use crate::draft::Draft;
use crate::limit::Ledger;
use crate::reason::Reason;
use crate::units::{below, to_u32};
use crate::view::ModelView;

pub(super) fn propose(
    verdict: &TokenVerdict,
    model: &ModelView,
    excluded: &[bool],
    ledger: &Ledger,
) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::with_capacity(model.variants.len());
    for (i, variant) in model.variants.iter().enumerate() {
        let mut draft = Draft::of(variant);
        let tokens = Some(Box::new(verdict.figures(model, i)));
        draft.note(Stage::Analyze, Reason::NoChange { load: None, tokens, flow: None });
        drafts.push(draft);
    }
    let order = by_cost_of_capacity(verdict, model);
    let growth = Growth { model, stage: Stage::Optimize, order, per_replica: &verdict.per_replica };
    // Replicas that are still there are needed for all that is known.
    let returned = match signal_obstacle(model) {
        Some(cause) => growth.suspend_scale_downs(&cause, &mut drafts),
        None => growth.revoke_scale_downs(verdict.lacking_for_scale_down(model), &mut drafts),
    };
    let missing = verdict.required(model) - returned;
    if below(0.0, missing) {
        let reason = |i| Reason::DemandAboveSupply { tokens: Box::new(verdict.figures(model, i)) };
        growth.grow(missing, excluded, ledger, reason, &mut drafts);
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

fn shrink(verdict: &TokenVerdict, model: &ModelView, drafts: &mut [Draft]) {
    let mut spare = verdict.spare_tokens(model);
    // By descending cost, then by name.
    let mut order: Vec<usize> = (0..model.variants.len()).collect();
    order.sort_by(|a, b| model.variants[*b].cost().total_cmp(&model.variants[*a].cost()));
    for i in order {
        let removed = shrink_variant(verdict, model, i, spare, drafts);
        if model.variants[i].is_auto() {
            spare -= f64::from(removed) * verdict.per_replica[i];
        }
    }
}

/// Returns the number of removed replicas that serve. Notes the obstacle if there is one.
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
    // Replicas that do not exist yet are not in the supply, and not needed.
    let spared = to_u32((spare / capacity + 1e-9).floor()).saturating_add(variant.arriving());
    let removed = spared.min(removable_replicas(model, i, drafts));
    if removed == 0 {
        return 0;
    }
    if let Some(reason) = shrink_obstacle(model, variant, removed) {
        drafts[i].note(Stage::Optimize, reason);
        return 0;
    }
    let removed = acted_step_down(variant, removed);
    let reason = Reason::SupplyAboveDemand { tokens: Box::new(verdict.figures(model, i)) };
    drafts[i].push(Stage::Optimize, variant.step_base() - removed, reason);
    removed.saturating_sub(variant.arriving())
}
