//! Obstacles to steps of several replicas.

use crate::reason::Reason;
use crate::view::{MetricsGap, ModelView, VariantView};

pub(super) fn growth_obstacle(variant: &VariantView) -> Option<Reason> {
    if variant.stuck > 0 {
        return Some(Reason::Stuck { stuck: variant.stuck });
    }
    if let Some(refusal) = variant.refusal() {
        return Some(refusal);
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
