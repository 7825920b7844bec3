//! The token analyzer: compares the tokens in use or waiting with the capacity of the replicas. It adds or removes
//! several replicas at once, and supports hardware of different sizes.

mod optimize;

use super::step_limits::spare_share;
use super::{AnalyzerState, Observation, Verdict};
use crate::draft::Draft;
use crate::limit::Ledger;
use crate::reason::{AnalysisError, Tokens};
use crate::snapshot::{OutputBucket, SchedulerQueue};
use crate::units::{at_least, mean, to_finite};
use crate::view::{ModelView, Sample, VariantView};
use wva_objects::engine_args::EngineArgs;

/// Observations of each kind that count.
pub(crate) const OBSERVATIONS: usize = 10;

pub(super) struct TokenVerdict {
    demand: f64,
    supply: f64,
    anticipated: f64,
    /// Tokens.
    per_replica: Vec<f64>,
    /// Requests of unknown size wait, or may wait: no scale-down.
    has_unsized_queue: bool,
    state: AnalyzerState,
}

/// Analyzes the signals of a model.
///
/// # Errors
/// `NoMetrics` if no replica reports, `NoCapacity` if the capacity of a replica is unknown.
pub(super) fn analyze(model: &ModelView) -> Result<TokenVerdict, AnalysisError> {
    let samples = || model.variants.iter().flat_map(|v| &v.counted);
    if samples().next().is_none() {
        let ready = model.variants.iter().map(|v| v.ready).fold(0, u32::saturating_add);
        return Err(AnalysisError::NoMetrics { ready });
    }
    let input = mean(samples().filter_map(|s| s.replica.mean_input).map(f64::from));
    let output = mean(samples().filter_map(|s| s.replica.mean_output).map(f64::from));
    let hit_rate = mean(samples().filter_map(|s| s.replica.prefix_hit_rate).map(f64::from)).unwrap_or(0.0);
    let mut state = AnalyzerState::default();
    let mut demand: f64 = 0.0;
    let arguments = |v: &VariantView| EngineArgs::on(v.accelerator(), &v.variant.engine_args);
    let engines: Vec<_> = model.variants.iter().map(arguments).collect();
    for (variant, engine) in model.variants.iter().zip(&engines) {
        let mut capacities = Vec::with_capacity(variant.counted.len());
        for sample in &variant.counted {
            let shape = ReplicaShape {
                capacity: capacity(variant, sample, engine)?,
                // A replica without its own mean uses that of the others.
                input: sample.replica.mean_input.map(f64::from).or(input),
                output: sample.replica.mean_output.map(f64::from).or(output),
            };
            let in_use = (sample.kv * shape.capacity).round();
            demand = to_finite(demand + in_use + sample.queue * shape.input.unwrap_or(0.0));
            let observed = &mut state.observed;
            capacities.push(effective_capacity(model, variant, sample, engine, shape, in_use, observed));
        }
        // Measurements before any replica is ready are less reliable.
        let remembered = variant.variant.remembered_capacity.map(f64::from).filter(|_| variant.ready == 0);
        state.capacities.push(remembered.or_else(|| median(capacities)));
    }
    if let SchedulerQueue::Known(queue) = model.model.scheduler_queue {
        let prompts = to_finite((queue.bytes.get() / 4.0).max(queue.size.get() * input.unwrap_or(0.0)));
        demand = to_finite(demand + prompts * (1.0 - hit_rate) + queue.size.get() * output.unwrap_or(0.0));
    }
    let per_replica: Vec<f64> =
        (0..model.variants.len()).map(|i| per_replica(model, &state, &engines, i)).collect();
    let sum = |replicas: Vec<u32>| -> f64 {
        to_finite(replicas.iter().zip(&per_replica).map(|(n, per)| f64::from(*n) * per).sum())
    };
    let (serving, planned) = model.variants.iter().map(|v| (v.serving(), v.planned())).unzip();
    let is_unknown = model.model.scheduler_queue == SchedulerQueue::Unknown;
    let has_waiting = model.model.scheduler_queue.holds_requests() || samples().any(|s| s.queue > 0.0);
    Ok(TokenVerdict {
        demand,
        supply: sum(serving),
        anticipated: sum(planned),
        has_unsized_queue: is_unknown || (input.is_none() && has_waiting),
        per_replica,
        state,
    })
}

/// KV cache size, and mean input and output, in tokens.
#[derive(Clone, Copy)]
struct ReplicaShape {
    capacity: f64,
    input: Option<f64>,
    output: Option<f64>,
}

/// Tokens of all engines: their own metric, else the median of the variant, else the arguments.
fn capacity(variant: &VariantView, sample: &Sample, engine: &EngineArgs) -> Result<f64, AnalysisError> {
    let reported = |s: &Sample| {
        let of_engine = s.replica.num_gpu_blocks?.get() * s.replica.block_size?.get();
        Some(of_engine * s.replica.engines()).filter(|c| *c > 0.0 && c.is_finite())
    };
    reported(sample)
        .or_else(|| median(variant.counted.iter().filter_map(reported).collect()))
        .or_else(|| engine.kv_tokens().map(|of_engine| of_engine * sample.replica.engines()))
        .ok_or_else(|| AnalysisError::NoCapacity {
            pod: sample.replica.pod.clone(),
            server: sample.replica.server,
        })
}

/// Tokens: `min(k1, k2)`.
///
/// - `k1`, the memory bound: KV cache size times `kvCacheThreshold`.
/// - `k2`, the compute bound: tokens in use at a full queue, else the mean of earlier observations, else
///   [`derived_compute_bound`], else `k1`.
fn effective_capacity(
    model: &ModelView,
    variant: &VariantView,
    sample: &Sample,
    engine: &EngineArgs,
    shape: ReplicaShape,
    in_use: f64,
    observed: &mut Vec<Observation>,
) -> f64 {
    let k1 = shape.capacity * model.settings.kv_cache_threshold;
    let bucket = shape.output.map(bucket);
    // Not remembered for an unresolved accelerator, which may be different hardware.
    let accelerator = variant.variant.accelerator.as_deref();
    let is_full = at_least(sample.queue, model.settings.queue_length_threshold) && in_use > 0.0;
    let k2 = if is_full {
        let kind = accelerator.zip(bucket);
        observed.extend(kind.map(|(accelerator, output)| Observation {
            accelerator: accelerator.to_owned(),
            output,
            k2: in_use,
        }));
        in_use
    } else {
        let remembered = accelerator
            .zip(bucket)
            .and_then(|(accelerator, output)| mean_observed(model, accelerator, output));
        let derived = || Some(derived_compute_bound(engine, shape)? * sample.replica.engines());
        remembered.or_else(derived).unwrap_or(k1)
    };
    k1.min(k2)
}

/// Mean bound of earlier cycles, in tokens.
fn mean_observed(model: &ModelView, accelerator: &str, output: OutputBucket) -> Option<f64> {
    let bounds = model.remembered.iter().find(|r| r.accelerator == accelerator && r.output == output)?;
    let first = bounds.k2.len().saturating_sub(OBSERVATIONS);
    mean(bounds.k2[first..].iter().map(|k2| k2.get()))
}

/// Tokens of an engine: `k2 = n * (I + O / 2)` with `n = min(B * O / (I + O), S)`. `I` and `O` are the mean input and output tokens,
/// `B` is `--max-num-batched-tokens` and `S` is `--max-num-seqs`.
fn derived_compute_bound(engine: &EngineArgs, shape: ReplicaShape) -> Option<f64> {
    let (input, output) = (shape.input.unwrap_or(0.0), shape.output?);
    if input + output <= 0.0 {
        return None;
    }
    let running = (engine.batched_tokens() * output / (input + output)).min(engine.max_seqs());
    // Requests without output have no such bound.
    Some(running * (input + output / 2.0)).filter(|k2| *k2 > 0.0)
}

fn bucket(output: f64) -> OutputBucket {
    if output < 100.0 {
        OutputBucket::Short
    } else if output < 500.0 {
        OutputBucket::Medium
    } else {
        OutputBucket::Long
    }
}

/// Tokens: measured now or before, else that of a compatible variant, else `--max-num-batched-tokens`.
fn per_replica(model: &ModelView, state: &AnalyzerState, engines: &[EngineArgs], i: usize) -> f64 {
    let known = |i: usize| {
        state.capacities[i].or_else(|| model.variants[i].variant.remembered_capacity.map(f64::from))
    };
    let own = model.variants[i].variant;
    let compatible = || {
        (0..model.variants.len()).filter(|j| *j != i).find_map(|j| {
            let other = model.variants[j].variant;
            let is_compatible = own.accelerator.is_some()
                && own.accelerator == other.accelerator
                && own.gpus_per_replica == other.gpus_per_replica
                && engines[i] == engines[j];
            known(j).filter(|_| is_compatible)
        })
    };
    known(i).or_else(compatible).unwrap_or_else(|| engines[i].batched_tokens())
}

/// Median; of an even number of values, the mean of the middle two.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        return values.get(middle).copied();
    }
    Some(f64::midpoint(*values.get(middle.checked_sub(1)?)?, *values.get(middle)?))
}

impl TokenVerdict {
    /// Missing tokens: `demand / scaleUpThreshold - anticipated`, at least 0.
    fn required(&self, model: &ModelView) -> f64 {
        (to_finite(self.demand / model.settings.scale_up_threshold) - self.anticipated).max(0.0)
    }

    /// Spare tokens: `supply - demand / scaleDownBoundary`, at least 0.
    fn spare_tokens(&self, model: &ModelView) -> f64 {
        (self.supply - to_finite(self.demand / model.settings.scale_down_boundary)).max(0.0)
    }

    /// Tokens that are missing for the targets of earlier scale-downs: `demand / scaleDownBoundary - supply`. As for a new
    /// scale-down, starting replicas do not count.
    fn lacking_for_scale_down(&self, model: &ModelView) -> f64 {
        to_finite(self.demand / model.settings.scale_down_boundary) - self.supply
    }

    fn figures(&self, model: &ModelView, i: usize) -> Tokens {
        Tokens {
            demand: self.demand,
            supply: self.supply,
            anticipated: self.anticipated,
            required: self.required(model),
            spare: self.spare_tokens(model),
            per_replica: self.per_replica[i],
        }
    }
}

impl Verdict for TokenVerdict {
    fn spare(&self) -> f64 {
        spare_share(self.supply, self.demand)
    }

    fn propose(&self, model: &ModelView, excluded: &[bool], ledger: &Ledger) -> Vec<Draft> {
        optimize::propose(self, model, excluded, ledger)
    }

    fn order(&self, model: &ModelView) -> Vec<usize> {
        optimize::by_cost_of_capacity(self, model)
    }

    fn into_state(self: Box<Self>) -> AnalyzerState {
        self.state
    }
}
