//! The throughput analyzer: counts arriving requests, learns the throughput of a replica, and asks for the replicas that
//! the arrival rate needs, before queues and KV caches fill. Its memory is a part of the snapshot and of the outcome.

mod arrivals;
mod capacity;
mod engine_speed;
mod learning;
mod peaks;
mod proposals;
mod trend;

#[cfg(test)]
mod tests;

use wva_crds::entries::WarmSpare;
use wva_crds::names::UNRESOLVED_ACCELERATOR;

use self::arrivals::{EngineInterval, STEP};
use self::capacity::RequestShape;
use self::engine_speed::{EngineSpeed, engine_speeds, engines_per_replica, replica_throughputs};
use self::trend::ArrivalForecast;
use crate::reason::{MissingSignal, Reason};
use crate::snapshot::{Curve, Replica, SchedulerQueue, SpeedEstimate, StepTimes, ThroughputMemory, Variant};
use crate::units::{Amount, amount, count, finite, seconds, whole};
use crate::view::{ModelView, Sample, VariantView};

/// Cold start of a variant whose cold start is unknown, seconds.
const DEFAULT_COLD_START: f64 = 120.0;
/// Delay in addition to the cold start until a decision takes effect, seconds.
const REACTION: f64 = 45.0;
/// Cold start from which `warmSpare: auto` keeps a spare replica, seconds.
const LONG_COLD_START: f64 = 180.0;
/// A replica is saturated with this many waiting requests, or this share of its KV cache in use.
const SATURATED_WAITING: f64 = 3.0;
const SATURATED_KV: f64 = 0.85;
/// The model grows regardless of the learned throughput if more than this share of its replicas is saturated for so many
/// steps.
const SATURATED_SHARE: f64 = 0.6;
const SATURATED_STEPS: u32 = 4;
/// Before a curve is learned a replica is hot with this many waiting requests, or this share of its KV cache in use.
const HOT_WAITING: f64 = 2.0;
const HOT_KV: f64 = 0.6;
/// Growth factor of a hot model before a curve is learned, and its maximum.
const UNLEARNED_GROWTH: f64 = 1.5;
const MAX_UNLEARNED_GROWTH: f64 = 4.0;
/// Time for which the curve of hardware or arguments that no variant has is kept, seconds: a rollback within a day
/// finds it again.
const CURVE_RETENTION: f64 = 86_400.0;
/// Waiting requests of a replica that are not a backlog.
const NORMAL_QUEUE: f64 = 2.0;

/// Need of the model and throughput of its variants. Rates are in requests per second.
pub(super) struct ThroughputVerdict {
    forecast: ArrivalForecast,
    /// Throughput of a replica of each variant, in order of the view.
    per_replica: Vec<f64>,
    /// Throughput of all ready and pending replicas.
    supply: f64,
    /// Throughput that the model needs.
    demand: f64,
    /// Speed of the engine of each variant, in order of the view.
    engines: Vec<EngineSpeed>,
    /// Throughput to drain the queues.
    backlog: f64,
    /// Waiting time of a request at the end of the horizon with the current replicas, seconds.
    waiting_time: f64,
    /// Objective of the time to first token, milliseconds.
    ttft_slo: Option<f64>,
    /// Throughput of the warm spare replica. 0: none.
    warm_spare: f64,
    /// Throughput below which the model does not shrink. `None`: it does not shrink at all.
    held: Option<f64>,
    /// True if most replicas have been saturated for [`SATURATED_STEPS`].
    is_overloaded: bool,
    is_learned: bool,
}

/// Analyzes a model and updates its memory.
///
/// # Errors
/// `SignalsMissing` if the percentage analyzer can decide instead, `None` if no analyzer can.
pub(super) fn analyze(model: &ModelView) -> (Result<ThroughputVerdict, Option<Reason>>, ThroughputMemory) {
    let mut memory = model.learned.cloned().unwrap_or_else(|| ThroughputMemory {
        model_id: model.model.model_id.clone(),
        namespace: model.model.namespace.clone(),
        ..ThroughputMemory::default()
    });
    let (passed, intervals) = arrivals::update(model, &mut memory);
    let curves = update_curves(model, &mut memory, &intervals, passed);
    update_request_lengths(model, &mut memory);
    let is_saturated =
        |s: &Sample| waiting_requests(s).max(s.queue) >= SATURATED_WAITING || s.kv >= SATURATED_KV;
    let saturated = share_of_replicas(model, is_saturated) > SATURATED_SHARE;
    memory.saturated = match (saturated, memory.saturated) {
        (false, _) => 0,
        // The saturation began at an unknown moment of the last step.
        (true, 0) => 1,
        (true, before) => before.saturating_add(whole(passed / STEP)),
    };
    let verdict = check_signals(model, &memory)
        .and_then(|()| build_verdict(model, &mut memory, &curves, saturated).ok_or(None));
    (verdict.map_err(|missing| missing.map(|missing| Reason::SignalsMissing { missing })), memory)
}

/// Checks that the analyzer has its signals.
///
/// # Errors
/// The missing signal, or `None` if no replica reports.
fn check_signals(model: &ModelView, memory: &ThroughputMemory) -> Result<(), Option<MissingSignal>> {
    if model.variants.iter().all(|v| v.counted.is_empty()) {
        return Err(None);
    }
    if model.variants.iter().any(|v| v.variant.role.is_some()) {
        return Err(Some(MissingSignal::WholeRequests));
    }
    if memory.arrivals.is_empty() || !has_counters(model) {
        return Err(Some(MissingSignal::Counters));
    }
    let has_lengths = memory.output.is_some_and(|output| output.get() > 0.0);
    if has_lengths { Ok(()) } else { Err(Some(MissingSignal::Lengths)) }
}

/// True if the fallback must not scale down: a new leader does not know earlier peaks, and lost counters may come back
/// while the memory has their pods.
pub(super) fn blocks_fallback_scale_down(model: &ModelView, learned: &ThroughputMemory) -> bool {
    if has_counters(model) {
        learned.watched < model.settings.throughput.hold
    } else {
        !learned.pods.is_empty()
    }
}

/// Updates the curves with the work of the replicas. Returns the curve index of each variant.
fn update_curves(
    model: &ModelView,
    memory: &mut ThroughputMemory,
    intervals: &[EngineInterval],
    passed: f64,
) -> Vec<usize> {
    let matches = |c: &Curve, v: &VariantView| learning::matches(c, v.accelerator(), &v.variant.engine_args);
    memory
        .curves
        .retain(|c| seconds(c.quiet) <= CURVE_RETENTION || model.variants.iter().any(|v| matches(c, v)));
    let mut of_variant = Vec::with_capacity(model.variants.len());
    for view in &model.variants {
        let curve = memory.curves.iter().position(|c| matches(c, view)).unwrap_or_else(|| {
            let variant = view.variant;
            let new = learning::new_curve(view.accelerator(), &variant.engine_args, variant.speed_estimate);
            memory.curves.push(new);
            memory.curves.len() - 1
        });
        of_variant.push(curve);
    }
    for (i, curve) in memory.curves.iter_mut().enumerate() {
        learning::update(curve, intervals.iter().filter(|s| of_variant[s.variant] == i), passed);
    }
    of_variant
}

/// Learned step times of a variant. `None`: too few samples.
pub(crate) fn speed_estimate(learned: &ThroughputMemory, variant: &Variant) -> Option<SpeedEstimate> {
    let accelerator = variant.accelerator.as_deref().unwrap_or(UNRESOLVED_ACCELERATOR);
    let matches = |c: &&Curve| learning::matches(c, accelerator, &variant.engine_args);
    let curve = learned.curves.iter().find(matches).filter(|curve| learning::is_learned(curve))?;
    let [a, b, c] = learning::fitted_times(curve).to_array().map(amount);
    Some(SpeedEstimate { times: StepTimes { a, b, c }, samples: curve.samples })
}

/// Updates the mean request lengths, if replicas report both.
fn update_request_lengths(model: &ModelView, memory: &mut ThroughputMemory) {
    let samples = || model.variants.iter().flat_map(|v| &v.counted).map(|s| s.replica);
    let mean = |length: fn(&Replica) -> Option<Amount>| {
        let reported = || samples().filter_map(length).map(f64::from);
        let n = reported().count();
        (n > 0).then(|| amount(finite(reported().sum::<f64>()) / count(n)))
    };
    if let (Some(input), Some(output)) = (mean(|r| r.mean_input), mean(|r| r.mean_output)) {
        (memory.input, memory.output) = (Some(input), Some(output));
    }
}

/// Waiting requests of a replica in its newest scrape; without counters, the maximum of the last minute.
fn waiting_requests(sample: &Sample) -> f64 {
    let newest = sample.replica.work.iter().min_by_key(|w| w.age);
    newest.map_or(sample.queue, |w| w.waiting.get())
}

/// Share of the counted replicas that satisfy the predicate, 0 to 1.
fn share_of_replicas(model: &ModelView, predicate: impl Fn(&Sample) -> bool) -> f64 {
    let all = model.variants.iter().map(|v| v.counted.len()).sum();
    let matching = model.variants.iter().flat_map(|v| &v.counted).filter(|s| predicate(s)).count();
    if all == 0 { 0.0 } else { count(matching) / count(all) }
}

/// Cold start of a variant, seconds.
fn cold_start(variant: &VariantView) -> f64 {
    variant.variant.cold_start.map_or(DEFAULT_COLD_START, seconds)
}

/// Computes demand and supply. `None`: no arrivals are counted, or the model has no variant.
fn build_verdict(
    model: &ModelView,
    memory: &mut ThroughputMemory,
    curves: &[usize],
    saturated: bool,
) -> Option<ThroughputVerdict> {
    let start = model.variants.iter().map(cold_start).fold(0.0, f64::max);
    let forecast = trend::forecast_arrivals(&arrivals::per_step(memory), start + REACTION)?;
    let shape = RequestShape {
        input: memory.input.map_or(0.0, f64::from),
        output: memory.output.map(f64::from).filter(|o| *o > 0.0)?,
    };
    let engines = engine_speeds(model, memory, curves, shape);
    let reference = *model.by_cost().first()?;
    let has_replicas = |i: &usize| model.variants[*i].current > 0;
    let is_learned = |i: &usize| learning::is_learned(&memory.curves[curves[*i]]);
    let learned: Vec<usize> = model.by_cost().into_iter().filter(is_learned).collect();
    if !learned.iter().any(has_replicas) {
        return Some(unlearned_verdict(model, memory, forecast, engines));
    }
    let per_replica = replica_throughputs(model, memory, curves, &engines, &learned, saturated, shape);
    let settings = &model.settings.throughput;
    let backlog = backlog_rate(model, &engines, &per_replica, seconds(settings.drain));
    let unit = per_replica[reference];
    let peak = peaks::record(memory, finite(forecast.expected / unit), seconds(settings.hold));
    // Scale-down needs a full hold time of history, counters of every replica, and replicas that are not saturated.
    let may_shrink = memory.watched >= settings.hold && all_have_counters(model) && !saturated;
    let keeps_warm_spare = forecast.is_steep() && wants_warm_spare(settings.warm_spare, start);
    let warm_spare = if keeps_warm_spare { unit } else { 0.0 };
    let supply = total_throughput(model, &per_replica);
    Some(ThroughputVerdict {
        supply,
        waiting_time: waiting_time(model, forecast, supply / settings.planned_utilization()),
        ttft_slo: settings.ttft_slo,
        demand: finite(forecast.expected + backlog.min(forecast.expected) + warm_spare),
        warm_spare,
        // Growth for the backlog is bounded by the forecast, but scale-down waits for the whole backlog.
        held: may_shrink.then(|| finite((peak * unit).max(forecast.expected + backlog))),
        is_overloaded: memory.saturated >= SATURATED_STEPS && !has_pending(model),
        is_learned: true,
        backlog: backlog.min(forecast.expected),
        forecast,
        per_replica,
        engines,
    })
}

fn has_pending(model: &ModelView) -> bool {
    model.variants.iter().any(|v| v.pending > 0)
}

/// True if the setting keeps a warm spare replica at this cold start, in seconds.
fn wants_warm_spare(setting: WarmSpare, cold_start: f64) -> bool {
    match setting {
        WarmSpare::On => true,
        WarmSpare::Auto => cold_start > LONG_COLD_START,
        WarmSpare::Off => false,
    }
}

/// Throughput of all ready and pending replicas, requests per second.
fn total_throughput(model: &ModelView, per_replica: &[f64]) -> f64 {
    let each = model.variants.iter().zip(per_replica);
    finite(each.map(|(v, rate)| f64::from(v.ready.saturating_add(v.pending)) * rate).sum())
}

/// True if a replica has counters.
fn has_counters(model: &ModelView) -> bool {
    let stale = model.config.metrics_age.stale;
    let has_scrape = |s: &Sample| s.replica.work.iter().any(|w| w.age <= stale);
    model.variants.iter().flat_map(|v| &v.counted).any(has_scrape)
}

/// True if every counted replica has fresh counters.
fn all_have_counters(model: &ModelView) -> bool {
    let fresh = model.config.metrics_age.fresh;
    let has_scrape = |s: &Sample| s.replica.work.iter().any(|w| w.age <= fresh);
    model.variants.iter().flat_map(|v| &v.counted).all(has_scrape)
}

/// Throughput that drains the queues within `drain` seconds, requests per second. The queue of a replica adds at most the
/// throughput of one replica.
fn backlog_rate(model: &ModelView, engines: &[EngineSpeed], per_replica: &[f64], drain: f64) -> f64 {
    let mut sum = 0.0;
    for ((view, engine), rate) in model.variants.iter().zip(engines).zip(per_replica) {
        let work = engine.work / engines_per_replica(view);
        let replicas = |s: &Sample| ((waiting_requests(s) - NORMAL_QUEUE).max(0.0) * work / drain).min(1.0);
        sum += view.counted.iter().map(replicas).sum::<f64>() * rate;
    }
    if let SchedulerQueue::Known(queue) = model.model.scheduler_queue {
        sum += queue.size.get() / drain;
    }
    finite(sum)
}

/// Waiting time of a request at the end of the horizon, seconds: the present queues, plus arrivals beyond the full
/// throughput `full` until then.
fn waiting_time(model: &ModelView, forecast: ArrivalForecast, full: f64) -> f64 {
    let at_pods = model.variants.iter().flat_map(|v| &v.counted).map(waiting_requests).sum::<f64>();
    let at_picker = match model.model.scheduler_queue {
        SchedulerQueue::Known(queue) => queue.size.get(),
        SchedulerQueue::Absent | SchedulerQueue::Unknown => 0.0,
    };
    let queue = at_pods + at_picker + (forecast.expected - full) * forecast.horizon;
    finite(queue.max(0.0) / full.max(f64::MIN_POSITIVE))
}

/// Verdict before a curve is learned: if most replicas are hot, the model grows by the ratio of arrivals to completions,
/// or by half if nothing completes. Rates are in replicas instead of requests per second.
fn unlearned_verdict(
    model: &ModelView,
    memory: &ThroughputMemory,
    forecast: ArrivalForecast,
    engines: Vec<EngineSpeed>,
) -> ThroughputVerdict {
    let is_hot = |s: &Sample| waiting_requests(s).max(s.queue) >= HOT_WAITING || s.kv >= HOT_KV;
    let hot = share_of_replicas(model, is_hot) > 0.5;
    let ready = model.variants.iter().map(|v| f64::from(v.ready)).sum::<f64>();
    // Arrivals and completions come from the same scrapes, without assumed arrivals.
    let last = |steps: &[Amount]| steps.iter().rev().take(4).map(|n| n.get()).sum::<f64>();
    let completed = Some(last(&memory.completed)).filter(|completed| *completed > 0.0);
    let factor = completed.map_or(UNLEARNED_GROWTH, |completed| last(&memory.arrivals) / completed);
    let factor = factor.clamp(1.0, MAX_UNLEARNED_GROWTH);
    let per_replica = vec![1.0; model.variants.len()];
    ThroughputVerdict {
        supply: total_throughput(model, &per_replica),
        demand: if hot { ready * factor } else { 0.0 },
        forecast,
        per_replica,
        engines,
        backlog: 0.0,
        waiting_time: 0.0,
        ttft_slo: None,
        warm_spare: 0.0,
        held: None,
        is_overloaded: hot && memory.saturated >= SATURATED_STEPS && !has_pending(model),
        is_learned: false,
    }
}
