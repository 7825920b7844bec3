//! The throughput analyzer: counts arriving requests, learns the throughput of a replica, and adds the replicas for the
//! arrival rate before queues fill.

mod arrivals;
mod availability;
mod bursts;
mod capacity;
mod ceiling;
mod demonstrated;
mod engine_speed;
mod evidence;
mod learning;
mod peaks;
mod planned;
mod prompts;
mod proposals;
mod queueing;
mod queues;
mod reserve;
mod roles;
mod trend;
mod unlearned;

#[cfg(test)]
mod tests;

use wva_crds::entries::WarmSpare;

use self::arrivals::STEP;
use self::capacity::RequestShape;
use self::engine_speed::{EngineSpeed, LearnedEngines, engine_speeds, replica_throughputs};
use self::evidence::{CycleEvidence, is_curve_of, record_proven, update_curves};
pub(super) use self::planned::planned_requests;
use self::queues::{backlog_rate, waiting_time};
use self::reserve::ReservePlan;
use self::roles::RoleSubsets;
use self::trend::ArrivalForecast;
use self::unlearned::unlearned_verdict;
use super::Verdict;
use crate::reason::{MissingSignal, Reason};
use crate::snapshot::{Curve, ReserveEstimate, Role, SpeedEstimate, StepTimes, ThroughputMemory, Variant};
use crate::units::{amount, count, mean, seconds, to_finite, to_u32};
use crate::view::{ModelView, Sample, VariantView};

/// Assumed if the cold start is unknown, seconds.
const DEFAULT_COLD_START: f64 = 120.0;
/// Delay of a decision in addition to the cold start, seconds.
const REACTION: f64 = 45.0;
/// Cold start from which `warmSpare: auto` keeps a spare replica, seconds.
const LONG_COLD_START: f64 = 180.0;
/// A replica is saturated from either on: waiting requests, or share of KV cache in use.
const SATURATED_WAITING: f64 = 3.0;
const SATURATED_KV: f64 = 0.85;
/// Share of saturated replicas above which, for so many steps, the model grows regardless of the learned throughput.
const SATURATED_SHARE: f64 = 0.6;
const SATURATED_STEPS: u32 = 4;
/// A new leader does not shrink for this time in seconds, or for `hold` if shorter: it does not know earlier peaks.
const MIN_HISTORY: f64 = 300.0;

/// Need of the model and throughput of its variants, in requests per second.
pub(super) struct ThroughputVerdict {
    forecast: ArrivalForecast,
    /// Throughput of a replica of each variant.
    per_replica: Vec<f64>,
    /// Throughput of the replicas that serve once the last targets are carried out.
    supply: f64,
    /// Throughput of the replicas that serve now and stay.
    serving: f64,
    demand: f64,
    engines: Vec<EngineSpeed>,
    /// Throughput that drains the queues.
    backlog: f64,
    /// Throughput for recurring bursts; 0: none.
    bursts: f64,
    /// What is kept for `sloTarget`. `None`: it is not stated.
    kept: Option<ReservePlan>,
    /// Waiting time of a request at the end of the horizon with the current replicas, seconds.
    waiting_time: f64,
    /// Milliseconds.
    ttft_slo: Option<f64>,
    /// Milliseconds.
    itl_slo: Option<f64>,
    /// Throughput of the warm spare replica; 0: none.
    warm_spare: f64,
    /// Peak of the hold time and the whole backlog. Infinite while the replicas are saturated: what they are able to serve
    /// is in doubt.
    held: f64,
    may_shrink: bool,
    is_overloaded: bool,
    is_learned: bool,
}

struct Demand {
    forecast: ArrivalForecast,
    shape: RequestShape,
    /// Longest of its variants, seconds.
    cold_start: f64,
    /// Arrivals in each step, oldest first.
    per_step: Vec<f64>,
    has_burst_floor: bool,
    /// How many of them are new.
    new_steps: usize,
    /// Mean time between two scrapes, seconds.
    scrape_interval: f64,
}

/// Analyzes a model and updates its memory.
///
/// # Errors
/// `SignalsMissing` if the percentage analyzer can decide instead, else `None`.
pub(super) fn analyze(model: &ModelView) -> (Result<Box<dyn Verdict>, Option<Reason>>, ThroughputMemory) {
    let mut memory = model.learned.cloned().unwrap_or_else(|| ThroughputMemory {
        model_id: model.model.model_id.clone(),
        namespace: model.model.namespace.clone(),
        ..ThroughputMemory::default()
    });
    let counted = arrivals::update(model, &mut memory);
    let passed = counted.passed;
    prompts::record_share(model, &mut memory, &counted.intervals, passed);
    availability::record_interval(&mut memory, &counted.intervals);
    availability::record(model, &mut memory, passed);
    let evidence = update_curves(model, &mut memory, counted);
    update_request_lengths(model, &mut memory);
    let roles = RoleSubsets::new(model);
    let (saturated, decode_saturated) = match &roles {
        Some(roles) => (roles.prefill.is_saturated, roles.decode.is_saturated),
        None => (is_saturated(model), false),
    };
    let steps = to_u32(passed / STEP);
    memory.saturated = saturated_steps(saturated, memory.saturated, steps);
    memory.decode_saturated = saturated_steps(decode_saturated, memory.decode_saturated, steps);
    let verdict = check_signals(model, &memory, roles.as_ref())
        .and_then(|()| build_verdict(model, &mut memory, &evidence, saturated, roles).ok_or(None));
    let mut replicas = model.variants.iter().flat_map(|v| &v.counted);
    let server = replicas.next().map(|sample| sample.replica.server).unwrap_or_default();
    (verdict.map_err(|missing| missing.map(|missing| Reason::SignalsMissing { missing, server })), memory)
}

fn is_saturated(model: &ModelView) -> bool {
    let is_full = |s: &Sample| s.waiting.max(s.queue) >= SATURATED_WAITING || s.kv >= SATURATED_KV;
    share_of_replicas(model, is_full) > SATURATED_SHARE
}

/// `passed` steps after `before`.
fn saturated_steps(is_saturated: bool, before: u32, passed: u32) -> u32 {
    match (is_saturated, before) {
        (false, _) => 0,
        // The saturation began at an unknown moment of the last step.
        (true, 0) => 1,
        (true, before) => before.saturating_add(passed),
    }
}

/// Checks that the analyzer has its signals.
///
/// # Errors
/// The missing signal, or `None` if no replica reports.
fn check_signals(
    model: &ModelView,
    memory: &ThroughputMemory,
    roles: Option<&RoleSubsets<'_>>,
) -> Result<(), Option<MissingSignal>> {
    if model.variants.iter().all(|v| v.counted.is_empty()) {
        return Err(None);
    }
    if roles.is_none() && model.variants.iter().any(|v| v.variant.role.is_some()) {
        return Err(Some(MissingSignal::WholeRequests));
    }
    let all_roles_report = roles.is_none_or(RoleSubsets::all_report);
    if memory.arrivals.is_empty() || !has_counters(model) || !all_roles_report {
        return Err(Some(MissingSignal::Counters));
    }
    let has_lengths = memory.output.is_some_and(|output| output.get() > 0.0);
    if has_lengths { Ok(()) } else { Err(Some(MissingSignal::Lengths)) }
}

/// A new leader does not know earlier peaks, and lost counters may come back while the memory has their pods.
pub(super) fn blocks_fallback_scale_down(model: &ModelView, learned: &ThroughputMemory) -> bool {
    if has_counters(model) { !has_full_history(model, learned) } else { !learned.pods.is_empty() }
}

/// True if arrivals have been counted for long enough to scale down.
fn has_full_history(model: &ModelView, memory: &ThroughputMemory) -> bool {
    seconds(memory.watched) >= model.settings.throughput.hold_after(0.0).min(MIN_HISTORY)
}

impl ThroughputMemory {
    /// Learned reserve at a share in percent. `None`: no reserve was learned.
    #[must_use]
    pub fn reserve_estimate(&self, share: f64) -> Option<ReserveEstimate> {
        reserve::reserve_estimate(&self.reserve, share / 100.0)
    }

    /// Learned step times of a variant. `None`: too few samples.
    #[must_use]
    pub fn speed_estimate(&self, variant: &Variant) -> Option<SpeedEstimate> {
        let matches = |c: &&Curve| is_curve_of(c, variant);
        let curve = self.curves.iter().find(matches).filter(|curve| learning::is_learned(curve))?;
        let [a, b, c] = learning::fitted_times(curve).to_array().map(amount);
        Some(SpeedEstimate { times: StepTimes { a, b, c }, samples: curve.samples })
    }
}

/// True if replicas may be removed: the history is long enough, and every replica shows what it serves.
fn shows_enough(model: &ModelView, memory: &ThroughputMemory, kept: Option<ReservePlan>) -> bool {
    has_full_history(model, memory) && all_have_counters(model) && kept.is_none_or(ReservePlan::has_history)
}

/// Needs both lengths.
fn update_request_lengths(model: &ModelView, memory: &mut ThroughputMemory) {
    // A prefill pod generates one token of each request.
    let variants = || model.variants.iter().filter(|v| v.variant.role != Some(Role::Prefill));
    let samples = || variants().flat_map(|v| &v.counted).map(|s| s.replica);
    let input = mean(samples().filter_map(|r| r.mean_input).map(f64::from));
    let output = mean(samples().filter_map(|r| r.mean_output).map(f64::from));
    if let (Some(input), Some(output)) = (input, output) {
        (memory.input, memory.output) = (Some(amount(input)), Some(amount(output)));
    }
}

/// 0 to 1.
fn share_of_replicas(model: &ModelView, predicate: impl Fn(&Sample) -> bool) -> f64 {
    let all = model.variants.iter().map(|v| v.counted.len()).sum();
    let matching = model.variants.iter().flat_map(|v| &v.counted).filter(|s| predicate(s)).count();
    if all == 0 { 0.0 } else { count(matching) / count(all) }
}

/// Seconds.
fn cold_start(variant: &VariantView) -> f64 {
    variant.variant.cold_start.map_or(DEFAULT_COLD_START, seconds)
}

/// `None` before an output length is known.
fn request_shape(memory: &ThroughputMemory) -> Option<RequestShape> {
    let input = memory.input.map_or(0.0, f64::from);
    let output = memory.output.map(f64::from).filter(|output| *output > 0.0)?;
    Some(RequestShape { input, computed: input * prompts::computed_share(memory), output })
}

/// `None`: no arrivals are counted, or the model has no variant.
fn build_verdict(
    model: &ModelView,
    memory: &mut ThroughputMemory,
    evidence: &CycleEvidence,
    saturated: bool,
    roles: Option<RoleSubsets<'_>>,
) -> Option<Box<dyn Verdict>> {
    let cold_start = model.variants.iter().map(cold_start).fold(0.0, f64::max);
    let per_step = arrivals::per_step(memory);
    let forecast = trend::forecast_arrivals(&per_step, cold_start + REACTION)?;
    let shape = request_shape(memory)?;
    memory.has_burst_floor = bursts::has_burst_floor(model.model.lateness, memory.has_burst_floor);
    let demand = Demand {
        forecast,
        shape,
        cold_start,
        per_step,
        has_burst_floor: memory.has_burst_floor,
        new_steps: evidence.new_steps(),
        scrape_interval: memory.scrape_interval.get(),
    };
    Some(match roles {
        Some(roles) => Box::new(roles::build_verdicts(model, memory, &evidence.curves, roles, &demand)),
        None => Box::new(whole_verdict(model, memory, evidence, saturated, &demand)?),
    })
}

fn whole_verdict(
    model: &ModelView,
    memory: &mut ThroughputMemory,
    evidence: &CycleEvidence,
    saturated: bool,
    demand: &Demand,
) -> Option<ThroughputVerdict> {
    let Demand { forecast, shape, .. } = *demand;
    let curves = &evidence.curves;
    let engines = engine_speeds(model, memory, curves, shape);
    record_proven(model, memory, evidence, &engines, shape);
    let reference = *model.by_cost().first()?;
    let has_replicas = |i: &usize| model.variants[*i].current > 0;
    let is_learned = |i: &usize| learning::is_learned(&memory.curves[curves[*i]]);
    let learned: Vec<usize> = model.by_cost().into_iter().filter(is_learned).collect();
    if !learned.iter().any(has_replicas) {
        let is_overloaded = memory.saturated >= SATURATED_STEPS;
        return Some(unlearned_verdict(model, memory, forecast, engines, is_overloaded));
    }
    let settings = &model.settings.throughput;
    let utilization = settings.planned_utilization();
    let known = LearnedEngines { memory, curves, engines: &engines, learned: &learned };
    let per_replica =
        replica_throughputs(model, &known, saturated, shape, utilization * availability::factor(memory));
    let backlog = backlog_rate(model, &engines, &per_replica, seconds(settings.drain));
    let unit = per_replica[reference];
    let bursts = demand.burst_floor(occupancy(&engines[reference], shape));
    let kept = demand.keep(model, memory, unit, occupancy(&engines[reference], shape));
    let expected = forecast.expected.max(bursts);
    let peak =
        peaks::record(memory, to_finite(expected / unit), settings.hold_after(demand.cold_start + REACTION));
    let keeps_warm_spare = forecast.is_steep() && wants_warm_spare(settings.warm_spare, demand.cold_start);
    let warm_spare = if keeps_warm_spare { unit } else { 0.0 };
    let supply = total_throughput(&per_replica, model.variants.iter().map(VariantView::planned));
    Some(ThroughputVerdict {
        supply,
        serving: total_throughput(&per_replica, model.variants.iter().map(VariantView::serving)),
        waiting_time: waiting_time(model, forecast, supply / utilization),
        ttft_slo: settings.ttft_slo,
        itl_slo: settings.itl_slo,
        demand: to_finite(forecast.expected + backlog.min(forecast.expected) + warm_spare)
            .max(bursts)
            .max(reserve::rate(kept)),
        warm_spare,
        held: held(saturated, peak * unit, forecast.expected + backlog),
        // Scale-down needs a full hold time of history, counters of every replica, and unsaturated replicas.
        may_shrink: shows_enough(model, memory, kept) && !saturated,
        is_overloaded: memory.saturated >= SATURATED_STEPS && !has_pending(model),
        is_learned: true,
        backlog: backlog.min(forecast.expected),
        bursts,
        kept,
        forecast,
        per_replica,
        engines,
    })
}

/// The forecast bounds growth for the backlog, but scale-down waits for the whole backlog.
fn held(saturated: bool, peak: f64, with_backlog: f64) -> f64 {
    if saturated { f64::INFINITY } else { to_finite(peak.max(with_backlog)) }
}

fn occupancy(engine: &EngineSpeed, shape: RequestShape) -> bursts::Occupancy {
    let prompt_share = shape.input * engine.times.c / engine.work.max(f64::MIN_POSITIVE);
    bursts::Occupancy {
        decode_seconds: to_finite(shape.output * engine.token_gap),
        prompt_share: prompt_share.clamp(0.0, 1.0),
    }
}

/// The effect of the last growth does not show yet.
fn has_pending(model: &ModelView) -> bool {
    model.variants.iter().any(VariantView::has_unfinished_growth)
}

/// `cold_start` in seconds.
fn wants_warm_spare(setting: WarmSpare, cold_start: f64) -> bool {
    match setting {
        WarmSpare::On => true,
        WarmSpare::Auto => cold_start > LONG_COLD_START,
        WarmSpare::Off => false,
    }
}

/// Throughput of a number of replicas of each variant, requests per second.
fn total_throughput(per_replica: &[f64], replicas: impl Iterator<Item = u32>) -> f64 {
    to_finite(replicas.zip(per_replica).map(|(n, rate)| f64::from(n) * rate).sum())
}

fn has_counters(model: &ModelView) -> bool {
    let stale = model.config.metrics_age.stale;
    let has_scrape = |s: &Sample| s.replica.work.iter().any(|w| w.age <= stale);
    model.variants.iter().flat_map(|v| &v.counted).any(has_scrape)
}

/// Every counted replica has fresh counters.
fn all_have_counters(model: &ModelView) -> bool {
    let fresh = model.config.metrics_age.fresh;
    let has_scrape = |s: &Sample| s.replica.work.iter().any(|w| w.age <= fresh);
    model.variants.iter().flat_map(|v| &v.counted).all(has_scrape)
}
