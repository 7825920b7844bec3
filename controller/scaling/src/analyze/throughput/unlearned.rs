//! The verdict before a curve is learned.

use super::arrivals::{self, STEP};
use super::engine_speed::EngineSpeed;
use super::trend::ArrivalForecast;
use super::{ThroughputVerdict, has_pending, share_of_replicas, total_throughput};
use crate::snapshot::ThroughputMemory;
use crate::units::{Amount, count};
use crate::view::{ModelView, Sample, VariantView};

/// A replica is hot from either on.
const HOT_WAITING: f64 = 2.0;
const HOT_KV: f64 = 0.6;
/// Growth factor of a hot model before a curve is learned, and its maximum.
const UNLEARNED_GROWTH: f64 = 1.5;
const MAX_UNLEARNED_GROWTH: f64 = 4.0;
/// Steps in which arrivals are compared with completions, and the ratio from which the difference is not chance.
const COMPARED_STEPS: usize = 4;
const NOTABLE_GROWTH: f64 = 1.05;

/// Verdict before a curve is learned: if most replicas are hot, the model grows by the ratio of arrivals to
/// completions, or by half if no request completes. Rates are in replicas.
pub(super) fn unlearned_verdict(
    model: &ModelView,
    memory: &ThroughputMemory,
    forecast: ArrivalForecast,
    engines: Vec<EngineSpeed>,
    is_overloaded: bool,
) -> ThroughputVerdict {
    let is_hot = |s: &Sample| s.waiting.max(s.queue) >= HOT_WAITING || s.kv >= HOT_KV;
    let hot = share_of_replicas(model, is_hot) > 0.5;
    // Surge pods beyond the base take a part of the load, and are no part of the need.
    let ready =
        model.variants.iter().map(|v| f64::from(v.ready.saturating_sub(v.asleep).min(v.kept()))).sum::<f64>();
    // The same scrapes for both, without assumed arrivals.
    let last = |steps: &[Amount]| steps.iter().rev().take(COMPARED_STEPS).map(|n| n.get()).sum::<f64>();
    let gone = arrivals::held_by_gone_pods(model, memory, count(COMPARED_STEPS) * STEP);
    let completed = Some(last(&memory.completed) + gone).filter(|completed| *completed > 0.0);
    let factor = completed.map_or(UNLEARNED_GROWTH, |completed| last(&memory.arrivals) / completed);
    let factor = if factor < NOTABLE_GROWTH { 1.0 } else { factor.min(MAX_UNLEARNED_GROWTH) };
    let per_replica = vec![1.0; model.variants.len()];
    ThroughputVerdict {
        supply: total_throughput(&per_replica, model.variants.iter().map(VariantView::planned)),
        serving: 0.0,
        demand: if hot { ready * factor } else { 0.0 },
        forecast,
        per_replica,
        engines,
        backlog: 0.0,
        bursts: 0.0,
        kept: None,
        waiting_time: 0.0,
        ttft_slo: None,
        itl_slo: None,
        warm_spare: 0.0,
        held: 0.0,
        may_shrink: false,
        is_overloaded: hot && is_overloaded && !has_pending(model),
        is_learned: false,
    }
}
