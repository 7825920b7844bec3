//! Models give GPUs back to models with a better service class priority.

use std::collections::BTreeMap;

use super::ModelCase;
use crate::base::Progress;
use crate::decision::Stage;
use crate::draft::Draft;
use crate::limit::{Claim, is_limited};
use crate::reason::Reason;
use crate::view::VariantView;

/// A model lacks GPUs of one accelerator.
struct Shortage {
    budget: usize,
    gpus: u64,
}

/// A variant that can give a replica back.
struct Giver {
    case: usize,
    variant: usize,
    /// Replicas: the smallest step that the HPA acts on.
    step: u32,
    gpus: u64,
}

/// Lets the model with the worst priority give a replica back while a model lacks more GPUs than become free anyway.
/// Each model gives at most once in a cycle. `order`: by priority, then urgency.
pub(super) fn give_back(cases: &mut [&mut ModelCase], order: &[usize]) {
    let mut freed = freed_gpus(cases);
    let mut has_given = vec![false; cases.len()];
    for &taker in order.iter().filter(|i| cases[**i].rank.has_class()).collect::<Vec<_>>() {
        // One accelerator is enough: all its variants serve the same load.
        for Shortage { budget, gpus } in shortages(cases[taker]) {
            let available = freed.entry(budget).or_default();
            let (mut missing, mut is_served) = (gpus.saturating_sub(*available), *available > 0);
            *available = available.saturating_sub(gpus);
            while missing > 0
                && let Some(giver) = find_giver(cases, order, &has_given, taker, budget)
            {
                take(cases, taker, &giver);
                has_given[giver.case] = true;
                is_served = true;
                *freed.entry(budget).or_default() += giver.gpus.saturating_sub(missing);
                missing = missing.saturating_sub(giver.gpus);
            }
            if is_served {
                break;
            }
        }
    }
}

/// GPUs by budget that pods hold only until they end.
fn freed_gpus(cases: &[&mut ModelCase]) -> BTreeMap<usize, u64> {
    let mut freed: BTreeMap<usize, u64> = BTreeMap::new();
    for case in cases {
        for (variant, draft) in case.view.variants.iter().zip(&case.drafts) {
            let Some((budget, gpus)) = variant.gpu_claim().and_then(Claim::gpus) else { continue };
            let removed = variant.current.saturating_sub(variant.replicas_after(draft.target()));
            let ending = u64::from(removed.saturating_add(variant.variant.terminating));
            let all = freed.entry(budget).or_default();
            *all = all.saturating_add(ending.saturating_mul(gpus));
        }
    }
    freed
}

/// Empty while a variant of the model grows: its capacity comes soon.
fn shortages(case: &ModelCase) -> Vec<Shortage> {
    let variants = || case.view.variants.iter().zip(&case.drafts).filter(|(variant, _)| variant.is_auto());
    if variants().any(|(variant, draft)| draft.target() > variant.base.replicas) {
        return Vec::new();
    }
    let refused = |(variant, draft): (&VariantView, &Draft)| {
        let (budget, gpus) = variant.gpu_claim()?.gpus()?;
        let is_refused = |reason: &Reason| matches!(reason, Reason::LimitedBy { .. });
        let step = draft.steps.iter().find(|s| s.stage == Stage::Limit && is_refused(&s.reason))?;
        let replicas = u64::from(step.before.saturating_sub(step.after));
        Some(Shortage { budget, gpus: replicas.saturating_mul(gpus) })
    };
    variants().filter_map(refused).collect()
}

/// The last model in the order that has a worse priority than the taker and can give GPUs of the budget.
fn find_giver(
    cases: &[&mut ModelCase],
    order: &[usize],
    has_given: &[bool],
    taker: usize,
    budget: usize,
) -> Option<Giver> {
    let ModelCase { view, rank, .. } = &*cases[taker];
    let namespace = &view.model.namespace;
    let is_worse = |i: usize| {
        let other = &cases[i];
        rank.is_better(other.rank, other.view.model.namespace == *namespace) && is_limited(&other.view)
    };
    // With a gap its load is unknown.
    let may_give = |i: usize| !has_given[i] && cases[i].view.metrics_gap().is_none();
    let candidates = order.iter().rev().copied().filter(|i| is_worse(*i) && may_give(*i));
    candidates.into_iter().find_map(|case| {
        let view = &cases[case].view;
        // The most expensive variant first.
        view.by_cost().into_iter().rev().find_map(|variant| {
            let (step, gpus) = spare_step(&view.variants[variant], &cases[case].drafts[variant], budget)?;
            Some(Giver { case, variant, step, gpus })
        })
    })
}

/// Replicas and GPUs that a variant can give back: never its last replica, nor one below its minimum.
fn spare_step(variant: &VariantView, draft: &Draft, budget: usize) -> Option<(u32, u64)> {
    let (_, gpus) = variant.gpu_claim()?.gpus().filter(|(of, _)| *of == budget)?;
    // Without metrics its load is unknown.
    let is_held = |reason: &Reason| matches!(reason, Reason::SafetyNet { .. } | Reason::WakeHold { .. });
    if !variant.is_auto()
        || draft.target() != variant.base.replicas
        || variant.base.progress != Progress::Reached
        || draft.steps.iter().any(|s| is_held(&s.reason))
    {
        return None;
    }
    let step = variant.min_step_down();
    let fits =
        variant.base.replicas.checked_sub(step).is_some_and(|after| after >= variant.bounds.min.max(1));
    fits.then(|| (step, u64::from(step).saturating_mul(gpus)))
}

fn take(cases: &mut [&mut ModelCase], taker: usize, giver: &Giver) {
    let better = cases[taker].as_better();
    let ModelCase { view, drafts, .. } = &mut *cases[giver.case];
    let (variant, draft) = (&view.variants[giver.variant], &mut drafts[giver.variant]);
    if let Some(claim) = variant.gpu_claim() {
        draft.push(Stage::Limit, variant.base.replicas.saturating_sub(giver.step), claim.yielded(&better));
    }
}
