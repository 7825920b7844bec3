//! Throughput of a replica of each variant, from the learned step times.

use super::capacity::{self, ConcurrencyLimits, RequestShape};
use super::ceiling;
use super::demonstrated;
use super::learning::{self, Times};
use crate::snapshot::{Curve, Role, ThroughputMemory};
use crate::units::{count, to_finite};
use crate::view::{ModelView, Sample, VariantView};
use wva_objects::engine_args::EngineArgs;

/// Variants up to this share of the total throughput do not bound the concurrency of the others.
const SMALL_SHARE: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
pub(super) struct EngineSpeed {
    pub(super) times: Times,
    pub(super) samples: f64,
    pub(super) running: f64,
    /// Engine time of a request, seconds.
    pub(super) work: f64,
    /// Seconds.
    pub(super) token_gap: f64,
    /// Time to first token without queueing, seconds.
    pub(super) time_to_first_token: f64,
    /// The same of a single request.
    pub(super) least_first_token: f64,
    /// No number of replicas meets the objective for the inter-token latency.
    pub(super) itl_out_of_reach: bool,
    /// Limit of concurrent sequences that its engines show.
    pub(super) shown_limit: Option<f64>,
    /// Gap that bounds the concurrency without an objective, seconds.
    pub(super) assumed_gap: Option<f64>,
}

/// Plan of a variant before the smallest concurrency of the fleet applies.
struct Plan {
    times: Times,
    /// Concurrent sequences.
    running: f64,
    shown_limit: Option<f64>,
    assumed_gap: Option<f64>,
}

/// The smallest concurrency of the fleet applies to all variants, because requests are spread evenly. Variants with a
/// small share do not count: a small card says nothing about large ones.
pub(super) fn engine_speeds(
    model: &ModelView,
    memory: &ThroughputMemory,
    curves: &[usize],
    shape: RequestShape,
) -> Vec<EngineSpeed> {
    let itl = model.settings.throughput.itl_slo.map(|ms| ms / 1000.0);
    let each: Vec<Plan> = model
        .variants
        .iter()
        .zip(curves)
        .map(|(view, curve)| plan(view, &memory.curves[*curve], shape, itl))
        .collect();
    let throughput = |(engine, view): (&Plan, &VariantView)| {
        let Plan { times, running, .. } = *engine;
        f64::from(view.current) / work(view, times, shape, running).max(f64::MIN_POSITIVE)
    };
    let total: f64 = each.iter().zip(&model.variants).map(throughput).sum();
    let serving = each.iter().zip(&model.variants).filter(|engine| throughput(*engine) > SMALL_SHARE * total);
    let least = serving.map(|(plan, _)| plan.running).fold(f64::INFINITY, f64::min);
    let speed = |((plan, curve), view): ((Plan, &usize), &VariantView)| {
        let Plan { times, running, shown_limit, assumed_gap } = plan;
        let running = running.min(least);
        EngineSpeed {
            times,
            samples: memory.curves[*curve].samples.get(),
            running,
            work: work(view, times, shape, running),
            token_gap: capacity::token_gap(times, shape, running),
            time_to_first_token: capacity::time_to_first_token(times, shape, running),
            least_first_token: times.a + times.b + shape.computed * times.c,
            itl_out_of_reach: memory.curves[*curve].itl_out_of_reach,
            shown_limit,
            assumed_gap,
        }
    };
    each.into_iter().zip(curves).zip(&model.variants).map(speed).collect()
}

/// `objective`: for the gap between two tokens, seconds.
fn plan(view: &VariantView, curve: &Curve, shape: RequestShape, objective: Option<f64>) -> Plan {
    let fitted = learning::fitted_times(curve);
    let args = EngineArgs::on(view.accelerator(), &view.variant.engine_args);
    let shown_limit = ceiling::shown_limit(curve);
    let max_seqs = shown_limit.unwrap_or_else(|| ceiling::credible_limit(curve, &args));
    let itl = objective.filter(|_| !curve.itl_out_of_reach);
    let limits = ConcurrencyLimits { kv_tokens: kv_tokens(view, &args), max_seqs, itl };
    let times = match view.variant.role {
        Some(Role::Prefill) => {
            let running = capacity::prompts_at_once(shape, limits, args.batched_tokens());
            return Plan { times: fitted, running, shown_limit, assumed_gap: None };
        }
        // It computes no prompts.
        Some(Role::Decode) => Times { c: 0.0, ..fitted },
        None => fitted,
    };
    let running = capacity::concurrency(times, shape, limits);
    if objective.is_none() {
        let assumed = capacity::default_gap(times);
        let bounded = capacity::concurrency(times, shape, ConcurrencyLimits { itl: Some(assumed), ..limits });
        if bounded < running {
            return Plan { times, running: bounded, shown_limit, assumed_gap: Some(assumed) };
        }
    }
    Plan { times, running, shown_limit, assumed_gap: None }
}

/// Engine time of the part of a request that a variant serves, seconds.
fn work(view: &VariantView, times: Times, shape: RequestShape, running: f64) -> f64 {
    match view.variant.role {
        Some(Role::Prefill) => capacity::prompt_work(times, shape, running),
        _ => capacity::work(times, shape, running),
    }
}

/// The smallest that a replica reports, else that of the arguments.
fn kv_tokens(view: &VariantView, args: &EngineArgs) -> Option<f64> {
    let reported = |s: &Sample| Some(s.replica.num_gpu_blocks?.get() * s.replica.block_size?.get());
    let each = view.counted.iter().filter_map(reported).filter(|t| *t > 0.0 && t.is_finite());
    each.min_by(f64::total_cmp).or_else(|| args.kv_tokens())
}

#[derive(Clone, Copy)]
pub(super) struct LearnedEngines<'a> {
    pub(super) memory: &'a ThroughputMemory,
    pub(super) curves: &'a [usize],
    pub(super) engines: &'a [EngineSpeed],
    /// Variants with a learned curve, the cheapest first.
    pub(super) learned: &'a [usize],
}

/// Requests per second of a replica: `utilization * engines / work`, with the loosening of old curves, and no less than
/// what replicas demonstrably serve. A variant
/// without a learned curve is assumed proportional to its cost, relative to the cheapest of `learned`. While replicas
/// are saturated, the observed throughput bounds the fitted one, but not below half of it.
pub(super) fn replica_throughputs(
    model: &ModelView,
    known: &LearnedEngines<'_>,
    saturated: bool,
    shape: RequestShape,
    utilization: f64,
) -> Vec<f64> {
    let LearnedEngines { memory, curves, engines, learned } = *known;
    let fitted = |i: usize| {
        let curve = &memory.curves[curves[i]];
        let factor = learning::loosening(curve) * demonstrated::proven_factor(curve);
        let engine = utilization * factor / engines[i].work.max(f64::MIN_POSITIVE);
        let fitted = to_finite(engines_per_replica(&model.variants[i]) * engine);
        let observed = saturated.then(|| observed_throughput(&model.variants[i], memory, shape)).flatten();
        observed.map_or(fitted, |observed| fitted.min(observed.max(fitted / 2.0)))
    };
    let by_cost = |i: usize| {
        let cheapest = *learned.first()?;
        let ratio = model.variants[i].cost() / model.variants[cheapest].cost();
        Some(fitted(cheapest) * ratio).filter(|t| t.is_finite() && *t > 0.0)
    };
    let throughput =
        |i: usize| if learned.contains(&i) { fitted(i) } else { by_cost(i).unwrap_or_else(|| fitted(i)) };
    (0..model.variants.len()).map(|i| throughput(i).max(f64::MIN_POSITIVE)).collect()
}

/// Maximum: a replica reports fewer while some of them start.
pub(super) fn engines_per_replica(view: &VariantView) -> f64 {
    view.counted.iter().map(|s| s.replica.engines()).fold(1.0, f64::max)
}

/// Requests per second, from the generated tokens.
fn observed_throughput(view: &VariantView, memory: &ThroughputMemory, shape: RequestShape) -> Option<f64> {
    let rate = |s: &Sample| {
        let i = memory.pods.binary_search_by(|p| (*p.pod).cmp(&s.replica.pod)).ok()?;
        memory.pods.get(i).filter(|p| p.steps > 1).map(|p| p.token_rate.get())
    };
    let rates: Vec<f64> = view.counted.iter().filter_map(rate).collect();
    (!rates.is_empty()).then(|| to_finite(rates.iter().sum()) / count(rates.len()) / shape.output)
}
