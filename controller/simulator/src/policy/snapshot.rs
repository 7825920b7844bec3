//! Snapshot of the simulated fleet.

use std::time::Duration;

use wva_crds::GoDuration;
use wva_scaling::control_loop::DecidedMemory;
use wva_scaling::snapshot::{
    Attainment, GpuCount, HpaTolerance, Lateness, Model, ModelSettings, Pending, PendingState, QueueFigures,
    Replica, SchedulerQueue, Variant, WorkSample,
};
use wva_scaling::units::{Amount, Cost, KvUsage, QueueLength};

use super::activity::{Activity, Seconds};
use super::hpa::Behavior;
use super::{FleetView, Peaks, PickerQueue, Pod};
use crate::fleet::engine::to_f64;
use crate::fleet::replica::Sample;
use crate::fleet::variant::Variant as FleetVariant;

/// Name of the one model.
pub(super) const MODEL: &str = "model";
/// See [`MODEL`].
pub(super) const NAMESPACE: &str = "simulated";

pub(super) fn model<'m>(
    view: &FleetView<'_>,
    settings: &ModelSettings,
    memory: impl Iterator<Item = &'m DecidedMemory<Seconds>>,
    behavior: &Behavior,
    activity: &Activity,
    lateness: [Option<Lateness>; 2],
) -> Model {
    let queue = view.queue().map_or(SchedulerQueue::Absent, |PickerQueue { requests, tokens }| {
        // Four bytes a token, as the analyzer reads it back.
        let (size, bytes) = (amount(to_f64(requests as u64)), amount(4.0 * tokens));
        SchedulerQueue::Known(QueueFigures { size, bytes, ..QueueFigures::default() })
    });
    Model {
        model_id: MODEL.to_owned(),
        namespace: NAMESPACE.to_owned(),
        settings: settings.clone(),
        requests_in_retention: Some(amount(to_f64(activity.completed()))),
        scheduler_queue: queue,
        wake_obstacle: None,
        tracked_for: Some(activity.idleness.tracked_for(Seconds(view.now)).into()),
        since_activity: Some(activity.idleness.idle_for(Seconds(view.now)).into()),
        since_pod_start: view.newest_pod_age().map(seconds),
        lateness: lateness[0],
        itl_lateness: lateness[1],
        attainment: Attainment::default(),
        router: None,
        variants: memory.enumerate().map(|(v, m)| variant(view, v, m, behavior)).collect(),
    }
}

fn variant(view: &FleetView<'_>, v: usize, memory: &DecidedMemory<Seconds>, behavior: &Behavior) -> Variant {
    let fleet_variant = &view.variants()[v];
    let tolerance = HpaTolerance { up: behavior.scale_up.tolerance, down: behavior.scale_down.tolerance };
    let running: usize = view.pods(v).map(|p| p.newest().running).sum();
    let mut variant = Variant {
        name: fleet_variant.name.clone(),
        accelerator: Some(fleet_variant.accelerator.clone()),
        cost: Cost::try_from(fleet_variant.cost).unwrap_or_default(),
        current: view.current(v),
        ready: Some(view.ready(v)),
        min: Some(fleet_variant.min),
        max: Some(fleet_variant.max),
        hpa_tolerance: Some(tolerance),
        pending: Some(view.pending(v).map(|(age, unschedulable)| pending(age, unschedulable)).collect()),
        running: Some(amount(to_f64(running as u64))),
        cold_start: view.cold_start(v).map(seconds),
        gpus_per_replica: GpuCount(fleet_variant.gpus),
        engine_args: engine_args(fleet_variant),
        role: fleet_variant.role,
        replicas: view.pods(v).map(|p| replica(view, v, p)).collect(),
        ..Variant::default()
    };
    memory.complete(&mut variant, Seconds(view.now));
    variant
}

/// What its server is started with, before the arguments of the scenario.
fn engine_args(variant: &FleetVariant) -> Vec<String> {
    let engine = &variant.engine;
    let own = [
        format!("--max-num-seqs={}", engine.max_seqs),
        format!("--max-num-batched-tokens={}", engine.max_batched_tokens),
    ];
    own.into_iter().chain(variant.engine_args.iter().cloned()).collect()
}

fn pending(age: f64, unschedulable: bool) -> Pending {
    let state = if unschedulable { PendingState::Unschedulable } else { PendingState::Starting };
    Pending { age: seconds(age), state }
}

fn replica(view: &FleetView<'_>, v: usize, pod: Pod<'_>) -> Replica {
    let fleet_variant = &view.variants()[v];
    let Peaks { kv, waiting, running } = pod.peaks();
    let tokens = pod.mean_tokens();
    Replica {
        pod: format!("{}-{:06}", fleet_variant.name, pod.serial()),
        kv: KvUsage::try_from(kv).ok(),
        queue: QueueLength::try_from(to_f64(waiting as u64)).ok(),
        running: Some(amount(to_f64(running as u64))),
        num_gpu_blocks: Some(amount(to_f64(fleet_variant.engine.kv_blocks))),
        block_size: Some(amount(to_f64(fleet_variant.engine.block_size))),
        mean_input: tokens.map(|tokens| amount(tokens.input)),
        mean_output: tokens.map(|tokens| amount(tokens.output)),
        prefix_hit_rate: None,
        age: seconds(pod.age()),
        work: pod.samples(WORK).map(|s| work(view, &s)).collect(),
        ..Replica::default()
    }
}

/// Seconds: over two cycles.
const WORK: f64 = 150.0;

fn work(view: &FleetView<'_>, sample: &Sample) -> WorkSample {
    let counters = sample.counters;
    let count = |n: u64| amount(to_f64(n));
    WorkSample {
        age: seconds(view.now - sample.at),
        completed: count(counters.requests),
        // No client cancels a request.
        first_tokens: Amount::default(),
        prompt_tokens: count(counters.prompt_tokens),
        cached_tokens: count(counters.cached_tokens),
        // No server has a limit of its queue.
        refused: Amount::default(),
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

/// Milliseconds: more would be noise in a recorded snapshot.
pub(super) fn seconds(span: f64) -> GoDuration {
    Duration::from_millis(u64::from(super::hpa::to_u32((span * 1000.0).max(0.0)))).into()
}
