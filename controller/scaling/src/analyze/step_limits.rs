//! Sizes of steps and obstacles to them, shared by the analyzers.

use crate::limit::{Ledger, is_limited};
use crate::reason::Reason;
use crate::units::to_u32;
use crate::view::{Draft, MetricsGap, ModelView, VariantView};

/// Share of the supply that the demand leaves.
pub(super) fn spare_share(supply: f64, demand: f64) -> f64 {
    if supply > 0.0 {
        (supply - demand) / supply
    } else if demand > 0.0 {
        f64::NEG_INFINITY
    } else {
        0.0
    }
}

/// Replicas that supply what is missing, at least the smallest step that the HPA acts on.
pub(super) fn requested_replicas(variant: &VariantView, missing: f64, per_replica: f64) -> u32 {
    // The tolerance keeps a quotient of 2.0000000001 at 2.
    to_u32((missing / per_replica - 1e-9).ceil()).max(variant.min_step_up())
}

/// Replicas of a step up that remain after later stages cut it to the maximum and to the free GPUs, which it books.
pub(super) fn book_granted(
    model: &ModelView,
    variant: &VariantView,
    requested: u32,
    ledger: &mut Ledger,
) -> u32 {
    let within_maximum = requested.min(variant.headroom());
    if !is_limited(model) {
        return within_maximum;
    }
    let granted = variant.grantable_replicas(within_maximum, ledger.fitting_replicas(variant));
    ledger.book(variant, granted);
    granted
}

/// Replicas of the variant `i` above its minimum, without its last one if no other variant serves.
pub(super) fn removable_replicas(model: &ModelView, i: usize, drafts: &[Draft]) -> u32 {
    let variant = &model.variants[i];
    // A starting replica serves no request, so it does not count as the remaining one.
    let serves = |(j, draft): (usize, &Draft)| {
        let other = &model.variants[j];
        j != i && other.replicas_after(draft.target()).min(other.ready) > 0
    };
    let is_last = !drafts.iter().enumerate().any(serves);
    let floor = variant.bounds.min.max(u32::from(is_last));
    // The supply counts ready replicas only, so starting ones are not removed.
    variant.current.saturating_sub(floor).min(variant.ready)
}

pub(super) fn growth_obstacle(variant: &VariantView) -> Option<Reason> {
    if let Some(reason) = variant.blocked_reason().or_else(|| variant.refusal()) {
        return Some(reason);
    }
    let max = variant.bounds.max.filter(|_| variant.headroom() < variant.min_step_up());
    max.map(|max| Reason::AtMaximum { max })
}

pub(super) fn shrink_obstacle(model: &ModelView, variant: &VariantView, step: u32) -> Option<Reason> {
    match model.metrics_gap() {
        Some(MetricsGap::MissingPods { ready, reporting }) => Some(Reason::ScrapeGap { ready, reporting }),
        Some(MetricsGap::Stale { stale }) => Some(Reason::MetricsStale { stale }),
        None if step < variant.min_step_down() => {
            let tolerance = variant.variant.hpa_tolerance.map_or(0.0, |t| t.down.get());
            Some(Reason::WithinTolerance { step, tolerance })
        }
        None => None,
    }
}
