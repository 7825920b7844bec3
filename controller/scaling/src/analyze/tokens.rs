//! The token analyzer: counts the tokens that are in use or wait against those the replicas hold, and takes as many
//! steps at once as are lacking or spare. It knows hardware of different size.

mod fill;

use super::engine::EngineArgs;
use super::{Learnt, Observation, Verdict};
use crate::limit::Ledger;
use crate::reason::{AnalysisError, Tokens};
use crate::snapshot::{OutputBucket, SchedulerQueue};
use crate::units::{at_least, count, finite};
use crate::view::{Draft, ModelView, Sample, VariantView};

/// Observations that count, of each kind.
pub(crate) const OBSERVATIONS: usize = 10;

/// A model's tokens, and the capacity of each of its variants.
pub(super) struct TokenVerdict {
    demand: f64,
    supply: f64,
    anticipated: f64,
    /// Tokens a replica of each variant holds, in order of the view.
    per_replica: Vec<f64>,
    /// Something waits, or may wait, whose size nothing tells, so no replica is taken.
    unsized_queue: bool,
    learnt: Learnt,
}

/// Reads the signals of a model.
pub(super) fn analyze(model: &ModelView) -> Result<TokenVerdict, AnalysisError> {
    let samples = || model.variants.iter().flat_map(|v| &v.counted);
    if samples().next().is_none() {
        let ready = model.variants.iter().map(|v| v.ready).fold(0, u32::saturating_add);
        return Err(AnalysisError::NoMetrics { ready });
    }
    let input = mean(samples().filter_map(|s| s.replica.mean_input).map(f64::from));
    let output = mean(samples().filter_map(|s| s.replica.mean_output).map(f64::from));
    let hit_rate = mean(samples().filter_map(|s| s.replica.prefix_hit_rate).map(f64::from)).unwrap_or(0.0);
    let mut learnt = Learnt::default();
    let mut demand: f64 = 0.0;
    let engines: Vec<_> = model.variants.iter().map(|v| EngineArgs::parse(&v.variant.engine_args)).collect();
    for (variant, engine) in model.variants.iter().zip(&engines) {
        let mut capacities = Vec::with_capacity(variant.counted.len());
        for sample in &variant.counted {
            let shape = Shape {
                capacity: capacity(variant, sample, engine)?,
                // Its own, else the mean over the replicas that have it, which are all others.
                input: sample.replica.mean_input.map(f64::from).or(input),
                output: sample.replica.mean_output.map(f64::from).or(output),
            };
            let in_use = (sample.kv * shape.capacity).round();
            demand = finite(demand + in_use + sample.queue * shape.input.unwrap_or(0.0));
            capacities.push(effective(model, variant, sample, engine, shape, in_use, &mut learnt.observed));
        }
        // What is measured before any replica is ready tells less than what ready ones showed.
        let remembered = variant.variant.remembered_capacity.map(f64::from).filter(|_| variant.ready == 0);
        learnt.capacities.push(remembered.or_else(|| median(capacities)));
    }
    if let SchedulerQueue::Known(queue) = model.model.scheduler_queue {
        let prompts = finite((queue.bytes.get() / 4.0).max(queue.size.get() * input.unwrap_or(0.0)));
        demand = finite(demand + prompts * (1.0 - hit_rate) + queue.size.get() * output.unwrap_or(0.0));
    }
    let per_replica: Vec<f64> =
        (0..model.variants.len()).map(|i| per_replica(model, &learnt, &engines, i)).collect();
    let sum = |replicas: fn(&VariantView) -> u32| -> f64 {
        finite(model.variants.iter().zip(&per_replica).map(|(v, per)| f64::from(replicas(v)) * per).sum())
    };
    let unknown = model.model.scheduler_queue == SchedulerQueue::Unknown;
    let waits = model.model.scheduler_queue.holds_requests() || samples().any(|s| s.queue > 0.0);
    Ok(TokenVerdict {
        demand,
        supply: sum(|v| v.ready),
        anticipated: sum(|v| v.ready.saturating_add(v.pending)),
        unsized_queue: unknown || (input.is_none() && waits),
        per_replica,
        learnt,
    })
}

/// The size of a replica and of its requests, in tokens.
#[derive(Clone, Copy)]
struct Shape {
    capacity: f64,
    input: Option<f64>,
    output: Option<f64>,
}

/// Tokens of KV cache of one replica: its own figure, else the median of its variant's others, else its arguments'.
fn capacity(variant: &VariantView, sample: &Sample, engine: &EngineArgs) -> Result<f64, AnalysisError> {
    let reported = |s: &Sample| {
        Some(s.replica.num_gpu_blocks?.get() * s.replica.block_size?.get())
            .filter(|c| *c > 0.0 && c.is_finite())
    };
    reported(sample)
        .or_else(|| median(variant.counted.iter().filter_map(reported).collect()))
        .or_else(|| engine.kv_tokens())
        .ok_or_else(|| AnalysisError::NoCapacity { pod: sample.replica.pod.clone() })
}

/// What a replica can really hold: the lesser of the memory's bound and the compute's.
fn effective(
    model: &ModelView,
    variant: &VariantView,
    sample: &Sample,
    engine: &EngineArgs,
    shape: Shape,
    in_use: f64,
    observed: &mut Vec<Observation>,
) -> f64 {
    let k1 = shape.capacity * model.settings.kv_cache_threshold;
    let bucket = shape.output.map(bucket);
    // Of one that is not known nobody can say what else is like it.
    let accelerator = variant.variant.accelerator.as_deref();
    let full = at_least(sample.queue, model.settings.queue_length_threshold) && in_use > 0.0;
    let k2 = if full {
        let kind = accelerator.zip(bucket);
        observed.extend(kind.map(|(accelerator, output)| Observation {
            accelerator: accelerator.to_owned(),
            output,
            k2: in_use,
        }));
        in_use
    } else {
        let remembered =
            accelerator.zip(bucket).and_then(|(accelerator, output)| remembered(model, accelerator, output));
        remembered.or_else(|| derived(engine, shape)).unwrap_or(k1)
    };
    k1.min(k2)
}

/// The mean of the last observations of earlier cycles.
fn remembered(model: &ModelView, accelerator: &str, output: OutputBucket) -> Option<f64> {
    let of_kind = model.remembered.iter().find(|r| r.accelerator == accelerator && r.output == output)?;
    let last = of_kind.k2.len().saturating_sub(OBSERVATIONS);
    mean(of_kind.k2[last..].iter().map(|k2| k2.get()))
}

/// The compute bound as the arguments and the requests' shape tell it.
fn derived(engine: &EngineArgs, shape: Shape) -> Option<f64> {
    let (input, output) = (shape.input.unwrap_or(0.0), shape.output?);
    if input + output <= 0.0 {
        return None;
    }
    let running = (engine.batched_tokens() * output / (input + output)).min(engine.max_seqs);
    // Requests that generate nothing have no bound of this kind.
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

/// Tokens a replica of a variant holds: as measured now or before, else as a compatible variant's, else as bounded by
/// its arguments.
fn per_replica(model: &ModelView, learnt: &Learnt, engines: &[EngineArgs], i: usize) -> f64 {
    let known = |i: usize| {
        learnt.capacities[i].or_else(|| model.variants[i].variant.remembered_capacity.map(f64::from))
    };
    let own = model.variants[i].variant;
    let compatible = || {
        (0..model.variants.len()).filter(|j| *j != i).find_map(|j| {
            let other = model.variants[j].variant;
            let alike = own.accelerator.is_some()
                && own.accelerator == other.accelerator
                && own.gpus_per_replica == other.gpus_per_replica
                && engines[i] == engines[j];
            known(j).filter(|_| alike)
        })
    };
    known(i).or_else(compatible).unwrap_or_else(|| engines[i].batched_tokens())
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (n, sum) = values.fold((0, 0.0), |(n, sum), value| (n + 1, sum + value));
    (n > 0).then(|| finite(sum) / count(n))
}

/// The middle value; of an even number, the mean of the middle two.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        return values.get(middle).copied();
    }
    Some(f64::midpoint(*values.get(middle.checked_sub(1)?)?, *values.get(middle)?))
}

impl TokenVerdict {
    /// Tokens that are lacking.
    fn required(&self, model: &ModelView) -> f64 {
        (finite(self.demand / model.settings.scale_up_threshold) - self.anticipated).max(0.0)
    }

    /// Tokens that are spare.
    fn spare_tokens(&self, model: &ModelView) -> f64 {
        (self.supply - finite(self.demand / model.settings.scale_down_boundary)).max(0.0)
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
        if self.supply > 0.0 {
            (self.supply - self.demand) / self.supply
        } else if self.demand > 0.0 {
            f64::NEG_INFINITY
        } else {
            0.0
        }
    }

    fn propose(&self, model: &ModelView, barred: &[bool], ledger: &Ledger) -> Vec<Draft> {
        fill::propose(self, model, barred, ledger)
    }

    fn order(&self, model: &ModelView) -> Vec<usize> {
        fill::by_cost_of_capacity(self, model)
    }

    fn into_learnt(self: Box<Self>) -> Learnt {
        self.learnt
    }
}
