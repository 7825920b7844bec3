//! Builds the Snapshot of a cycle: everything rules may read.

mod gpus;
mod quotas;
mod replicas;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use wva_objects::WorkloadKey;
use wva_objects::autoscaler::Direction;
use wva_objects::limits::Limits;
use wva_objects::signal::declared_obstacle;
use wva_runtime::age;
use wva_scaling::control_loop::truncate_to_millis;
use wva_scaling::resolve::FleetSettings;
use wva_scaling::snapshot::{
    AnalyzerName, Config, MetricsAge, Model, ModelSettings, Pending, PendingState, QueueFigures,
    ScaleObstacles, SchedulerQueue, Variant, WakeObstacle,
};
use wva_scaling::{Snapshot, VariantKey};

use self::gpus::GpuInputs;
pub(crate) use self::gpus::InventoryGaps;
use self::quotas::{QuotaBooks, podless_state};
use self::replicas::{Loads, ReplicaReader, loads_by_workload};
use crate::collect::picker::{OVERFLOW, Pickers};
use crate::collect::sample::Samples;
use crate::cycle::evidence::Evidence;
use crate::cycle::follow::FollowState;
use crate::cycle::memory::{Memory, VariantMemory};
use crate::model::keys::{PodKey, Replicas};
use crate::model::moment::Moment;
use crate::observe::autoscaler_index::AutoscalerIndex;
use crate::observe::pods::{self, UnreadyPods, WorkloadPod};
use crate::observe::variants::ManagedVariant;
use crate::observe::watches::variant::ParsedSpec;
use crate::observe::watches::{Watches, Workload};
use crate::observe::{bounds, workloads};
use wva_scaling::ModelKey;

/// Time for some scrapes, a round of queries, and Prometheus service discovery.
const FIRST_METRICS: SignedDuration = SignedDuration::from_mins(3);

#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) snapshot: Snapshot,
    pub(crate) workloads: BTreeMap<VariantKey, Replicas>,
    /// Ready replicas of variants whose newest one may not report yet.
    pub(crate) newly_ready: BTreeMap<VariantKey, u32>,
    pub(crate) gaps: InventoryGaps,
    pub(crate) limits: BTreeMap<WorkloadKey, Limits>,
    pub(crate) autoscalers: AutoscalerIndex,
}

/// What Prometheus and the endpoint pickers answered.
#[derive(Clone, Copy)]
pub(crate) struct CollectedSignals<'a> {
    pub(crate) samples: &'a Samples,
    pub(crate) pickers: &'a Pickers,
}

pub(crate) fn assemble(
    watches: &Watches,
    managed: &[ManagedVariant],
    signals: CollectedSignals<'_>,
    memory: &mut Memory,
    mut config: Config,
    fleet: &FleetSettings,
    at: Moment,
) -> Assembled {
    let CollectedSignals { samples, pickers } = signals;
    let queues = pickers.queues().borrow().clone();
    let pods = pods::workload_pods(watches);
    let autoscalers = AutoscalerIndex::new(watches);
    let limits = bounds::autoscaler_limits(&autoscalers);
    let is_limited = config.limited_mode || fleet.all().any(|settings| settings.saturation().enable_limiter);
    let mut gpus = GpuInputs::new(watches, &pods, is_limited);
    let scaled_by = ScaledBy { limits: &limits, autoscalers: &autoscalers };
    let inputs = CycleInputs::new(watches, signals, &pods, scaled_by, &config, at);
    let mut models: BTreeMap<ModelKey, ModelInputs> = BTreeMap::new();
    let (mut present, mut newly_ready) = (BTreeMap::new(), BTreeMap::new());
    let mut quotas = QuotaBooks::new(watches, &pods, is_limited);
    for m in managed {
        let refused_ago = memory.refusals.since(&m.key, at.now).map(truncate_to_millis);
        let remembered = memory.entry(m, at.now, at.wall);
        let Ok(declared) = m.spec() else {
            // Its target is withdrawn, so a later cycle must not resume it.
            remembered.clear_target();
            continue;
        };
        let key = &declared.workload;
        let workload = workloads::find_workload(watches, key);
        remembered.update_workload(key, workload.is_some());
        let Some(workload) = workload else { continue };
        present.insert(m.key.clone(), workload.replicas);
        if inputs.is_newly_ready(key) {
            newly_ready.insert(m.key.clone(), workload.replicas.ready);
        }
        let id = ModelKey::new(&m.key.namespace, &declared.model_id);
        let queue = samples.scheduler_queue(&id.namespace, &id.model_id, &inputs.ages, at.now);
        let settings = fleet.of(&id);
        let mut variant = inputs.variant(m, declared, &workload, remembered, settings, queue.is_late);
        gpus.add_template(&mut variant, key, workload.template.as_ref());
        quotas.add(&mut variant, key, &workload);
        gpus.add_unplaced(&mut variant, key, workload.replicas.current);
        let inputs_of_model = models.entry(id).or_insert_with_key(|id| {
            ModelInputs::new(id, settings, queues.max_with(id, queue.queue, at.now))
        });
        inputs_of_model.add(Variant { refused_ago, ..variant }, key, &inputs);
    }
    memory.evidence.retain(|id| models.contains_key(id));
    let complete = |model_inputs| inputs.complete(model_inputs, &mut memory.evidence);
    let models = models.into_values().map(complete).collect();
    quotas.finish(&mut config);
    let gaps = gpus.add_inventory(&mut config, watches);
    let snapshot = Snapshot { now: Some(at.wall.to_string()), config, models, ..Snapshot::default() };
    Assembled { snapshot, workloads: present, newly_ready, gaps, limits, autoscalers }
}

struct ModelInputs<'a> {
    model: Model,
    workloads: Vec<&'a WorkloadKey>,
}

impl<'a> ModelInputs<'a> {
    fn new(id: &ModelKey, settings: &ModelSettings, scheduler_queue: SchedulerQueue) -> Self {
        let model = Model {
            model_id: id.model_id.clone(),
            namespace: id.namespace.clone(),
            settings: settings.clone(),
            scheduler_queue,
            // Most models have one variant; the default of four would dominate large snapshots.
            variants: Vec::with_capacity(1),
            ..Model::default()
        };
        Self { model, workloads: Vec::new() }
    }

    fn add(&mut self, variant: Variant, workload: &'a WorkloadKey, inputs: &CycleInputs) {
        let queue = &mut self.model.scheduler_queue;
        // The picker has no queue series before the first request waits.
        if *queue == SchedulerQueue::Absent
            && inputs.pickers.has_picker(inputs.watches, workload, &self.model.model_id)
        {
            *queue = SchedulerQueue::Known(QueueFigures::default());
        }
        self.model.variants.push(variant);
        self.workloads.push(workload);
    }
}

/// Autoscalers of the workloads.
#[derive(Clone, Copy)]
struct ScaledBy<'a> {
    limits: &'a BTreeMap<WorkloadKey, Limits>,
    autoscalers: &'a AutoscalerIndex,
}

impl ScaledBy<'_> {
    /// What the objects declare counts first, then what the condition `SignalFollowed` found.
    fn obstacles(&self, key: &WorkloadKey, current: u32, follow: &FollowState, at: Moment) -> ScaleObstacles {
        // The controller takes the step from 0 itself, unless KEDA does.
        if current == 0 && !self.limits.get(key).is_some_and(|limits| limits.scales_to_zero) {
            return ScaleObstacles::default();
        }
        let autoscalers = self.autoscalers.of(key);
        let declared = |direction| declared_obstacle(&autoscalers, direction, at.wall);
        let judged = follow.obstacles();
        ScaleObstacles {
            up: declared(Direction::Up).or(judged.up),
            down: declared(Direction::Down).or(judged.down),
        }
    }
}

/// Inputs that are joined once for all variants.
struct CycleInputs<'a> {
    watches: &'a Watches,
    samples: &'a Samples,
    pickers: &'a Pickers,
    loads: BTreeMap<&'a WorkloadKey, Loads<'a>>,
    scaled_by: ScaledBy<'a>,
    unready: BTreeMap<&'a WorkloadKey, UnreadyPods>,
    ready: BTreeMap<&'a WorkloadKey, BTreeSet<&'a str>>,
    cold_starts: BTreeMap<&'a WorkloadKey, Duration>,
    newest_pod_created: BTreeMap<&'a WorkloadKey, Timestamp>,
    ages: MetricsAge,
    scale_to_zero_default: bool,
    at: Moment,
}

impl<'a> CycleInputs<'a> {
    fn new(
        watches: &'a Watches,
        CollectedSignals { samples, pickers }: CollectedSignals<'a>,
        pods: &'a BTreeMap<PodKey, WorkloadPod>,
        scaled_by: ScaledBy<'a>,
        config: &Config,
        at: Moment,
    ) -> Self {
        let loads = loads_by_workload(samples, pods, &config.metrics_age, at);
        let replicas = pods::replicas(pods, at.wall);
        Self {
            watches,
            samples,
            pickers,
            loads,
            scaled_by,
            unready: pods::unready_pods(&replicas),
            ready: pods::ready_pods(&replicas),
            cold_starts: pods::median_cold_starts(&replicas),
            newest_pod_created: pods::newest_pod_created(pods),
            ages: config.metrics_age,
            scale_to_zero_default: config.scale_to_zero_default,
            at,
        }
    }

    /// Whether a replica became ready within [`FIRST_METRICS`].
    fn is_newly_ready(&self, key: &WorkloadKey) -> bool {
        let since = self.unready.get(key).and_then(|unready| unready.last_ready);
        since.is_some_and(|since| age(since, self.at.wall) <= FIRST_METRICS)
    }

    fn variant(
        &self,
        m: &ManagedVariant,
        declared: &ParsedSpec,
        workload: &Workload,
        remembered: &mut VariantMemory,
        settings: &ModelSettings,
        is_queue_late: bool,
    ) -> Variant {
        let key = &declared.workload;
        let mut variant = declared_variant(m, declared, self.scaled_by.limits.get(key));
        let current = workload.replicas.current;
        variant.obstacles = self.scaled_by.obstacles(key, current, &remembered.follow, self.at);
        variant.speed_estimate = m.status.learned;
        variant.reserve_estimate = m.status.reserve;
        variant.role = workloads::role_of_labels(&workload.pod_labels);
        let cold_start = remembered.cold_start.update(self.cold_starts.get(key).copied());
        variant.cold_start = cold_start.map(truncate_to_millis);
        variant.group = workload.group;
        let none_unready = UnreadyPods::default();
        let unready = self.unready.get(key).unwrap_or(&none_unready);
        let (podless, quota_wait) = podless_state(self.watches, &key.namespace, workload, unready);
        add_progress(&mut variant, remembered, workload.replicas, unready, podless, self.at);
        let waits = |p: &Pending| p.state == PendingState::WaitingForQuota;
        variant.quota_wait = quota_wait.filter(|_| variant.pending.iter().flatten().any(waits));
        let reader = ReplicaReader {
            samples: self.samples,
            namespace: &m.key.namespace,
            ages: self.ages,
            now: self.at.now,
            uses_tokens: settings.saturation().analyzer == AnalyzerName::Token,
            is_queue_late,
        };
        let of_workload = self.loads.get(key);
        let reporting =
            of_workload.map(|l| reader.reporting_replicas(l, &declared.model_id)).unwrap_or_default();
        let none = BTreeSet::new();
        reader.add_replicas(&mut variant, &reporting, self.ready.get(key).unwrap_or(&none));
        variant
    }

    /// Adds wake obstacle and evidence of idleness.
    fn complete(&self, model_inputs: ModelInputs, evidence: &mut Evidence) -> Model {
        let ModelInputs { mut model, workloads } = model_inputs;
        let to_zero = model.settings.scale_to_zero(self.scale_to_zero_default);
        if to_zero.enabled || model.variants.iter().all(|variant| variant.current == 0) {
            self.check_wake(&mut model, &workloads, to_zero.allow_failed_requests);
        }
        model.router = self.samples.router_load(&model.namespace, &model.model_id, &self.ages, self.at.now);
        let created = workloads.into_iter().filter_map(|key| self.newest_pod_created.get(key)).max();
        evidence.complete(&mut model, to_zero, created.copied(), self.samples, &self.ages, self.at);
        model
    }

    /// Sets the wake obstacle. All queues of an InferencePool that serves only this model count as the model's.
    fn check_wake(&self, model: &mut Model, workloads: &[&WorkloadKey], may_fail: bool) {
        let Self { watches, samples, pickers, ages, at, .. } = self;
        let (namespace, model_id) = (model.namespace.clone(), model.model_id.clone());
        let queue = |model_id: &str| samples.scheduler_queue(&namespace, model_id, ages, at.now).queue;
        let is_shown = |model_id: &str| matches!(queue(model_id), SchedulerQueue::Known(_));
        let pools = pickers.pools_of(watches, workloads, &model_id, may_fail);
        if pools.is_empty() && queue(&model_id) == SchedulerQueue::Unknown {
            // An unknown queue already keeps the model from 0.
            return;
        }
        let mut obstacles = vec![(!is_shown(&model_id)).then_some(WakeObstacle::NoPool)];
        for pool in pools {
            let mut obstacle = pool.obstacle;
            if let SchedulerQueue::Known(all) = samples.pool_queue(&namespace, &pool.name, ages, at.now) {
                let is_sole = pickers.serves_only(watches, &pool, &model_id, workloads);
                if is_sole {
                    model.scheduler_queue = model.scheduler_queue.raised_to(all);
                }
                // The picker's own report is newer.
                if obstacle != Some(WakeObstacle::NoFlowControl) && (is_sole || !is_shown(OVERFLOW)) {
                    obstacle = None;
                }
            }
            obstacles.push(obstacle);
        }
        // One way to wake the model is enough, unless a picker without flow control also serves it. Of several
        // obstacles, the most specific one is reported.
        let no_flow_control = Some(WakeObstacle::NoFlowControl);
        model.wake_obstacle = if obstacles.contains(&no_flow_control) {
            no_flow_control
        } else if obstacles.contains(&None) {
            None
        } else {
            obstacles.into_iter().flatten().max()
        };
    }
}

/// A variant with what the object and its autoscalers declare.
fn declared_variant(m: &ManagedVariant, declared: &ParsedSpec, limits: Option<&Limits>) -> Variant {
    let ParsedSpec { min, max, .. } = *declared;
    // The narrower of two bounds applies.
    Variant {
        name: m.key.name.clone(),
        accelerator: m.accelerator.clone(),
        cost: declared.cost,
        mode: declared.mode,
        min: min.max(limits.map(|l| l.min)),
        max: [max, limits.map(|l| l.max)].into_iter().flatten().min(),
        min_forbids_zero: min.is_some_and(|m| m > 0) || limits.is_some_and(|l| l.min_forbids_zero),
        idles_at_zero: limits.is_some_and(|l| l.idles_at_zero),
        hpa_tolerance: limits.and_then(|l| l.tolerance),
        ..Variant::default()
    }
}

fn add_progress(
    variant: &mut Variant,
    remembered: &mut VariantMemory,
    replicas: Replicas,
    unready: &UnreadyPods,
    podless: PendingState,
    at: Moment,
) {
    variant.current = replicas.current;
    variant.ready = Some(replicas.ready);
    variant.pending = Some(remembered.pending(replicas, unready, podless, at));
    remembered.decided.observe(replicas.current, at.now);
    remembered.decided.complete(variant, at.now);
}

#[cfg(test)]
mod tests;
