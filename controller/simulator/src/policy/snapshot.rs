//! The snapshot that the controller would take of the simulated fleet.

use std::time::Duration;

use wva_crds::GoDuration;
use wva_scaling::snapshot::{
    Attainment, GpuCount, HpaTolerance, Lateness, Model, Pending, PendingState, QueueFigures, Replica, Role,
    SchedulerQueue, Variant, WorkSample,
};
use wva_scaling::units::{Amount, Cost, KvUsage, QueueLength};

use super::activity::Activity;
use super::hpa::Behavior;
use super::{FleetView, Peaks, PickerQueue, Pod};
use crate::fleet;
use crate::fleet::engine::real;
use crate::fleet::replica::Sample;

/// Names of the one model of a fleet.
pub(super) const MODEL: &str = "model";
/// See [`MODEL`].
pub(super) const NAMESPACE: &str = "simulated";

/// The last target of a variant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Desired {
    pub(super) target: u32,
    /// Time without progress towards it.
    pub(super) age: GoDuration,
}

/// State of a variant from the last cycle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    pub(super) desired: Option<Desired>,
    pub(super) capacity: Option<f64>,
    pub(super) woken: Option<f64>,
    pub(super) current_for: Option<f64>,
}

/// The model with all its variants.
pub(super) fn model(
    seen: &FleetView<'_>,
    memory: &[Memory],
    behavior: &Behavior,
    activity: &Activity,
    lateness: Option<Lateness>,
) -> Model {
    let queue = seen.queue().map_or(SchedulerQueue::Absent, |PickerQueue { requests, tokens }| {
        // Four bytes a token, as the analyzer reads it back.
        let (size, bytes) = (amount(real(requests as u64)), amount(4.0 * tokens));
        SchedulerQueue::Known(QueueFigures { size, bytes })
    });
    Model {
        model_id: MODEL.to_owned(),
        namespace: NAMESPACE.to_owned(),
        requests_in_retention: Some(amount(real(activity.completed()))),
        scheduler_queue: queue,
        wake_obstacle: None,
        tracked_for: Some(seconds(seen.now)),
        since_activity: Some(seconds(activity.idle(seen.now))),
        since_pod_start: seen.youngest().map(seconds),
        lateness,
        attainment: Attainment::default(),
        variants: memory.iter().enumerate().map(|(v, m)| variant(seen, v, *m, behavior)).collect(),
    }
}

fn variant(seen: &FleetView<'_>, v: usize, memory: Memory, behavior: &Behavior) -> Variant {
    let own = &seen.variants()[v];
    let tolerance = HpaTolerance { up: behavior.scale_up.tolerance, down: behavior.scale_down.tolerance };
    let running: usize = seen.pods(v).map(|p| p.newest().running).sum();
    Variant {
        name: own.name.clone(),
        accelerator: Some(own.accelerator.clone()),
        cost: Cost::try_from(own.cost).unwrap_or_default(),
        current: seen.current(v),
        ready: Some(seen.ready(v)),
        desired: memory.desired.map(|desired| desired.target),
        desired_age: memory.desired.map(|desired| desired.age),
        current_for: memory.current_for.map(seconds),
        min: Some(own.min),
        max: Some(own.max),
        hpa_tolerance: Some(tolerance),
        woken_ago: memory.woken.map(|at| seconds(seen.now - at)),
        remembered_capacity: memory.capacity.map(amount),
        pending: Some(seen.pending(v).map(pending).collect()),
        running: Some(amount(real(running as u64))),
        cold_start: seen.cold_start(v).map(seconds),
        gpus_per_replica: GpuCount(own.gpus),
        engine_args: own.engine_args.clone(),
        role: own.role.map(role),
        replicas: seen.pods(v).map(|p| replica(seen, v, p)).collect(),
        ..Variant::default()
    }
}

fn role(of: fleet::variant::Role) -> Role {
    match of {
        fleet::variant::Role::Prefill => Role::Prefill,
        fleet::variant::Role::Decode => Role::Decode,
    }
}

fn pending((age, unschedulable): (f64, bool)) -> Pending {
    let state = if unschedulable { PendingState::Unschedulable } else { PendingState::Starting };
    Pending { age: seconds(age), state }
}

fn replica(seen: &FleetView<'_>, v: usize, pod: Pod<'_>) -> Replica {
    let own = &seen.variants()[v];
    let Peaks { kv, waiting } = pod.peaks();
    let tokens = pod.mean_tokens();
    Replica {
        pod: format!("{}-{:06}", own.name, pod.serial()),
        kv: KvUsage::try_from(kv).ok(),
        queue: QueueLength::try_from(real(waiting as u64)).ok(),
        num_gpu_blocks: Some(amount(real(own.engine.kv_blocks))),
        block_size: Some(amount(real(own.engine.block_size))),
        mean_input: tokens.map(|tokens| amount(tokens.input)),
        mean_output: tokens.map(|tokens| amount(tokens.output)),
        prefix_hit_rate: None,
        age: seconds(pod.age()),
        work: pod.samples(WORK).map(|s| work(seen, &s)).collect(),
        ranks: None,
    }
}

/// Age of the oldest counter samples, in seconds: over two cycles.
const WORK: f64 = 150.0;

fn work(seen: &FleetView<'_>, sample: &Sample) -> WorkSample {
    let counters = sample.counters;
    let count = |n: u64| amount(real(n));
    WorkSample {
        age: seconds(seen.now - sample.at),
        completed: count(counters.requests),
        prompt_tokens: count(counters.prompt_tokens),
        generated_tokens: count(counters.generated),
        prefills: count(counters.requests),
        prefill_seconds: amount(counters.prefill_seconds),
        gaps: count(counters.gaps),
        gap_seconds: amount(counters.gap_seconds),
        running: count(sample.running as u64),
        waiting: count(sample.waiting as u64),
    }
}

fn amount(value: f64) -> Amount {
    Amount::try_from(value).unwrap_or_default()
}

/// A span, to the millisecond: more would be noise in a recorded snapshot.
pub(super) fn seconds(span: f64) -> GoDuration {
    Duration::from_millis(u64::from(super::hpa::whole((span * 1000.0).max(0.0)))).into()
}
