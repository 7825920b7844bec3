//! What a replica of each variant does: by what is learnt of its engine, and of several variants together.

use super::arrivals;
use super::capacity::{self, Room, Shape};
use super::learning::{self, Times};
use crate::analyze::engine::EngineArgs;
use crate::snapshot::Learned;
use crate::units::{count, finite};
use crate::view::{ModelView, Sample, VariantView};

/// Share of what all replicas do up to which those of a variant do not bound the others.
const SMALL: f64 = 0.1;

/// How a variant's engine works.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ability {
    pub(super) times: Times,
    pub(super) samples: f64,
    /// Sequences at once.
    pub(super) running: f64,
    /// Seconds of the engine a request takes.
    pub(super) work: f64,
    /// Seconds between two tokens.
    pub(super) gap: f64,
    /// Seconds to the first token where nothing waits.
    pub(super) first_token: f64,
}

/// What is known of each variant's engine. In a mixed fleet the least number of sequences at once holds for all: requests
/// are spread alike. But for variants that do next to nothing of the whole: a small card is no measure of large ones.
pub(super) fn abilities(model: &ModelView, memory: &Learned, curves: &[usize], shape: Shape) -> Vec<Ability> {
    let itl = model.settings.throughput.itl_slo.map(|ms| ms / 1000.0);
    let each: Vec<(Times, f64)> = model
        .variants
        .iter()
        .zip(curves)
        .map(|(view, curve)| {
            let times = learning::times(&memory.curves[*curve]);
            let engine = EngineArgs::parse(&view.variant.engine_args);
            let room = Room { kv_tokens: kv_tokens(view, &engine), max_seqs: engine.max_seqs, itl };
            (times, capacity::running(times, shape, room))
        })
        .collect();
    let does = |(engine, view): (&(Times, f64), &VariantView)| {
        let (times, running) = *engine;
        f64::from(view.current) / capacity::work(times, shape, running).max(f64::MIN_POSITIVE)
    };
    let all: f64 = each.iter().zip(&model.variants).map(does).sum();
    let serving = each.iter().zip(&model.variants).filter(|of| does(*of) > SMALL * all);
    let least = serving.map(|((_, running), _)| *running).fold(f64::INFINITY, f64::min);
    let ability = |((times, running), curve): ((Times, f64), &usize)| {
        let running = running.min(least);
        Ability {
            times,
            samples: memory.curves[*curve].samples.get(),
            running,
            work: capacity::work(times, shape, running),
            gap: capacity::gap(times, shape, running),
            first_token: capacity::first_token(times, shape, running),
        }
    };
    each.into_iter().zip(curves).map(ability).collect()
}

/// Tokens of KV cache of a replica: the least of those that report it, else as its arguments set it.
fn kv_tokens(view: &VariantView, engine: &EngineArgs) -> Option<f64> {
    let reported = |s: &Sample| Some(s.replica.num_gpu_blocks?.get() * s.replica.block_size?.get());
    let of_each = view.counted.iter().filter_map(reported).filter(|t| *t > 0.0 && t.is_finite());
    of_each.min_by(f64::total_cmp).or_else(|| engine.kv_tokens())
}

/// Requests a second of a replica of each variant. One that is not learnt is as fast as its cost says, by the cheapest
/// that is.
pub(super) fn speeds(
    model: &ModelView,
    memory: &Learned,
    curves: &[usize],
    abilities: &[Ability],
    known: &[usize],
    saturated: bool,
    shape: Shape,
) -> Vec<f64> {
    let own = |i: usize| {
        let loosened = learning::loosened(&memory.curves[curves[i]]);
        let engine = model.settings.throughput.planned_utilization() * loosened
            / abilities[i].work.max(f64::MIN_POSITIVE);
        let believed = finite(ranks(&model.variants[i]) * engine);
        let seen = saturated.then(|| seen(&model.variants[i], memory, shape)).flatten();
        seen.map_or(believed, |seen| believed.min(seen.max(believed / 2.0)))
    };
    let by_cost = |i: usize| {
        let cheapest = *known.first()?;
        let ratio = model.variants[i].cost() / model.variants[cheapest].cost();
        Some(own(cheapest) * ratio).filter(|t| t.is_finite() && *t > 0.0)
    };
    let speed = |i: usize| if known.contains(&i) { own(i) } else { by_cost(i).unwrap_or_else(|| own(i)) };
    (0..model.variants.len()).map(|i| speed(i).max(f64::MIN_POSITIVE)).collect()
}

/// Engines of a replica of a variant. Fewer are seen only while some of them start.
pub(super) fn ranks(view: &VariantView) -> f64 {
    view.counted.iter().map(|s| arrivals::ranks(s.replica)).fold(1.0, f64::max)
}

/// Requests a second that a replica of a variant is seen to do, by the tokens it generates.
fn seen(view: &VariantView, memory: &Learned, shape: Shape) -> Option<f64> {
    let rate = |s: &Sample| {
        let i = memory.pods.binary_search_by(|p| p.pod.as_str().cmp(&s.replica.pod)).ok()?;
        memory.pods.get(i).filter(|p| p.steps > 1).map(|p| p.token_rate.get())
    };
    let rates: Vec<f64> = view.counted.iter().filter_map(rate).collect();
    (!rates.is_empty()).then(|| finite(rates.iter().sum()) / count(rates.len()) / shape.output)
}
