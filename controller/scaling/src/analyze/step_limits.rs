//! Sizes of steps and obstacles to them, shared by the analyzers.

use crate::Stage;
use crate::base::Progress;
use crate::draft::Draft;
use crate::reason::Reason;
use crate::view::{MetricsGap, ModelView, VariantView};

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
    // The supply counts serving replicas only, so starting ones are not removed. Those that do not exist yet are.
    let removable = variant.serving().saturating_add(variant.arriving());
    variant.step_base().saturating_sub(floor).min(removable)
}

/// The part of a step down that the HPA acts on, or that drops replicas which do not exist yet. 0: it would ignore all of it.
pub(super) fn acted_step_down(variant: &VariantView, step: u32) -> u32 {
    let base = variant.step_base();
    base - variant.acted_target(base.saturating_sub(step)).min(base)
}

/// Notes why a variant grows last. A target that is not carried out has its note already.
pub(super) fn note_obstruction(variant: &VariantView, stage: Stage, draft: &mut Draft) {
    let cause = variant.variant.obstacles.up.as_ref().filter(|_| variant.base.is_obstructed);
    if let (Some(cause), Progress::Reached) = (cause, variant.base.progress) {
        draft.note(stage, Reason::CannotGrow { cause: cause.clone() });
    }
}

pub(super) fn shrink_obstacle(model: &ModelView, variant: &VariantView, step: u32) -> Option<Reason> {
    signal_obstacle(model).or_else(|| {
        let tolerance = variant.variant.hpa_tolerance.map_or(0.0, |t| t.down.get());
        (acted_step_down(variant, step) == 0).then_some(Reason::WithinTolerance { step, tolerance })
    })
}

/// What the signals lack for any scale-down of the model.
pub(super) fn signal_obstacle(model: &ModelView) -> Option<Reason> {
    Some(match model.metrics_gap()? {
        MetricsGap::MissingPods { ready, reporting } => Reason::ScrapeGap { ready, reporting },
        MetricsGap::Stale { stale } => Reason::MetricsStale { stale },
        MetricsGap::Unknown { replicas } => Reason::SignalUnknown { replicas },
        MetricsGap::Stalled { pods } => Reason::NoProgress { pods },
    })
}
