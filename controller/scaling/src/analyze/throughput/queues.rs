//! Waiting requests, at the replicas and at the endpoint picker.

use super::engine_speed::{EngineSpeed, engines_per_replica};
use super::trend::ArrivalForecast;
use crate::snapshot::SchedulerQueue;
use crate::units::to_finite;
use crate::view::{ModelView, Sample};

const NORMAL_QUEUE: f64 = 2.0;

/// Requests per second that drain the queues within `drain` seconds. The queue of a replica adds at most the throughput
/// of one.
pub(super) fn backlog_rate(
    model: &ModelView,
    engines: &[EngineSpeed],
    per_replica: &[f64],
    drain: f64,
) -> f64 {
    to_finite(pod_backlog_rate(model, engines, per_replica, drain) + queue_drain_rate(model, drain))
}

/// Rate that empties the endpoint picker's queue, requests per second.
pub(super) fn queue_drain_rate(model: &ModelView, drain: f64) -> f64 {
    to_finite(picker_queue(model) / drain)
}

/// Requests that wait at the endpoint picker, as far as known.
fn picker_queue(model: &ModelView) -> f64 {
    match model.model.scheduler_queue {
        SchedulerQueue::Known(queue) => queue.size.get(),
        SchedulerQueue::Absent | SchedulerQueue::Unknown => 0.0,
    }
}

/// Rate that empties the queues of the replicas, requests per second.
pub(super) fn pod_backlog_rate(
    model: &ModelView,
    engines: &[EngineSpeed],
    per_replica: &[f64],
    drain: f64,
) -> f64 {
    let mut sum = 0.0;
    for ((view, engine), rate) in model.variants.iter().zip(engines).zip(per_replica) {
        let work = engine.work / engines_per_replica(view);
        let replicas = |s: &Sample| ((s.waiting - NORMAL_QUEUE).max(0.0) * work / drain).min(1.0);
        sum += view.counted.iter().map(replicas).sum::<f64>() * rate;
    }
    to_finite(sum)
}

/// Waiting time of a request at the end of the horizon, seconds: the present queues, plus arrivals beyond the full
/// throughput `full` until then.
pub(super) fn waiting_time(model: &ModelView, forecast: ArrivalForecast, full: f64) -> f64 {
    let at_pods = model.variants.iter().flat_map(|v| &v.counted).map(|s| s.waiting).sum::<f64>();
    let queue = at_pods + picker_queue(model) + (forecast.expected - full) * forecast.horizon;
    to_finite(queue.max(0.0) / full.max(f64::MIN_POSITIVE))
}
