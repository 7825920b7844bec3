//! What keeps a variant from a step of several replicas, whichever analyzer asks for it.

use crate::reason::Reason;
use crate::view::{MetricsGap, ModelView, VariantView};

/// What keeps a variant from growing.
pub(super) fn obstacle(variant: &VariantView) -> Option<Reason> {
    if variant.stuck > 0 {
        return Some(Reason::Stuck { stuck: variant.stuck });
    }
    if let Some(refusal) = variant.refusal() {
        return Some(refusal);
    }
    variant.bounds.max.filter(|_| variant.room() < variant.step_up()).map(|max| Reason::AtMaximum { max })
}

/// Why a step down is not taken, if so.
pub(super) fn withheld(model: &ModelView, variant: &VariantView, step: u32) -> Option<Reason> {
    match model.metrics_gap() {
        Some(MetricsGap::MissingPods { ready, reporting }) => Some(Reason::ScrapeGap { ready, reporting }),
        Some(MetricsGap::Stale { stale }) => Some(Reason::MetricsStale { stale }),
        None if step < variant.step_down() => {
            let tolerance = variant.variant.hpa_tolerance.map_or(0.0, |t| t.down.get());
            Some(Reason::WithinTolerance { step, tolerance })
        }
        None => None,
    }
}
