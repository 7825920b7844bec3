//! Limits scale-ups to the free GPUs and to what ResourceQuotas leave. Earlier decisions book first, then the model with
//! the best priority, then the most saturated one. What people ask for themselves, such as a fixed number, has its turn after
//! the models of the same priority. A step that does not fit is cut to whole replicas, or dropped if the HPA would ignore
//! it.

mod budget;

use crate::decision::{Stage, Step};
use crate::draft::Draft;
use crate::reason::Reason;
use crate::snapshot::{Config, ReturnedReplicas};
use crate::view::{ModelView, VariantView};

pub(crate) use budget::{BudgetIndex, Claim, KeptPart, Ledger};

pub(crate) fn is_limited(model: &ModelView) -> bool {
    has_budgets(model.config) && (model.config.limited_mode || model.settings.enable_limiter)
}

pub(crate) fn has_budgets(config: &Config) -> bool {
    config.inventory.is_some() || !config.quotas.is_empty()
}

/// True if the limit changes no draft.
pub(crate) fn fits_all(model: &ModelView, ledger: &Ledger, drafts: &[Draft]) -> bool {
    let mut ledger = ledger.clone();
    model.variants.iter().zip(drafts).all(|(variant, draft)| {
        let requested = added_replicas(variant, draft);
        let fits = requested <= ledger.fitting_replicas(variant);
        ledger.book(variant, requested);
        fits
    })
}

/// Appends the steps of the limit stage. Returns the variants that get nothing, so that others get their need. Variants
/// outside mode `auto` book nothing and come last.
pub(crate) fn limit(
    model: &ModelView,
    mut order: Vec<usize>,
    ledger: &Ledger,
    drafts: &mut [Draft],
) -> Vec<usize> {
    let mut refused = Vec::new();
    if !is_limited(model) {
        return refused;
    }
    let mut ledger = ledger.clone();
    order.sort_by_key(|i| !model.variants[*i].is_auto());
    for i in order {
        let (variant, draft) = (&model.variants[i], &mut drafts[i]);
        let requested = added_replicas(variant, draft);
        if requested == 0 {
            continue;
        }
        let granted = variant.grantable_replicas(requested, ledger.fitting_replicas(variant));
        let reason = ledger.scarcest(variant).map(|claim| ledger.reason(claim));
        if variant.is_auto() {
            ledger.book(variant, granted);
        }
        let Some(reason) = reason.filter(|_| granted < requested) else { continue };
        // Replicas that `book_committed` has booked stay.
        // What its autoscaler does not take stays asked for, and takes nothing.
        let after = (draft.target() - requested + granted).max(draft.base.min(draft.target()));
        if after < draft.target() {
            draft.push(Stage::Limit, after, reason);
        }
        if granted == 0 {
            refused.push(i);
        }
    }
    refused
}

/// Replicas beyond those that an earlier cycle asked for, or that exist and were not given back.
pub(crate) fn added_replicas(variant: &VariantView, draft: &Draft) -> u32 {
    let is_given_back = variant.variant.returned.as_ref().is_some_and(ReturnedReplicas::is_kept);
    let own = if is_given_back { variant.current.min(variant.bounds.min) } else { variant.current };
    draft.target().saturating_sub(committed_target(variant, draft).max(own))
}

/// Target of an earlier cycle that still holds: the base, or what a stage keeps. It was limited then.
fn committed_target(variant: &VariantView, draft: &Draft) -> u32 {
    if variant.is_auto() && variant.base.is_obstructed {
        return variant.current.min(draft.target());
    }
    let is_kept = |step: &&Step| matches!(step.reason, Reason::SafetyNet { .. } | Reason::WakeHold { .. });
    let kept = draft.steps.iter().filter(is_kept).map(|step| step.after);
    kept.fold(draft.base, u32::max).min(draft.target())
}

/// Books replicas without pods that an earlier cycle decided.
pub(crate) fn book_committed(ledger: &mut Ledger, variant: &VariantView, draft: &Draft) {
    if variant.is_auto() {
        ledger.book(variant, committed_target(variant, draft).saturating_sub(variant.current));
    }
}

/// Books replicas without GPUs that wva did not decide, as many as fit: no number takes the GPUs of others.
pub(crate) fn book_undecided(ledger: &mut Ledger, variant: &VariantView, draft: &Draft) {
    let after = if variant.is_auto() { 0 } else { variant.replicas_after(draft.target()) };
    let wanted = after.saturating_sub(variant.current).saturating_add(variant.variant.unplaced);
    ledger.book(variant, wanted.min(ledger.fitting_replicas(variant)));
}
