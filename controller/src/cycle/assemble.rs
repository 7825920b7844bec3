//! Builds the Snapshot of a cycle from watch caches, samples and memory. Whatever a rule needs to know goes in here,
//! or it cannot be a rule.

mod replicas;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use wva_runtime::age;
use wva_scaling::resolve::Entries;
use wva_scaling::snapshot::{
    AnalyzerName, Config, GpuCount, MetricsAge, Model, QueueFigures, SchedulerQueue, Variant, WakeObstacle,
};
use wva_scaling::units::Amount;
use wva_scaling::{Snapshot, VariantKey};

use self::replicas::{Judge, Loads, loads_by_workload, reporting};
use crate::collect::picker::{OVERFLOW, Pickers};
use crate::collect::sample::Samples;
use crate::cycle::evidence::Evidence;
use crate::cycle::inventory::{self, NoInventory, inventory};
use crate::cycle::memory::{Memory, Remembered};
use crate::model::keys::{ModelKey, PodKey, Replicas, WorkloadKey};
use crate::model::limits::Limits;
use crate::model::moment::{Moment, whole_millis};
use crate::observe::pods::{self, UnreadyPods, WorkloadPod};
use crate::observe::template::Template;
use crate::observe::variants::ManagedVariant;
use crate::observe::watches::variant::ParsedSpec;
use crate::observe::watches::{Watches, Workload};
use crate::observe::{bounds, workloads};

/// Time for the first metrics of a ready pod: a scrape or two, a round of queries, and a restart of Prometheus' discovery.
const FIRST_METRICS: SignedDuration = SignedDuration::from_mins(3);

/// A Snapshot and what was learnt while building it.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) snapshot: Snapshot,
    /// Replicas of every variant whose workload exists.
    pub(crate) workloads: BTreeMap<VariantKey, Replicas>,
    /// Ready replicas of variants of which the newest became ready a moment ago: it may not have reported yet.
    pub(crate) newly_ready: BTreeMap<VariantKey, u32>,
    /// Pods that have series and belong to no known workload.
    pub(crate) unmapped: usize,
    /// Why nothing is limited, where something should be.
    pub(crate) unlimited: Option<NoInventory>,
    /// What autoscalers allow, by the workload they scale.
    pub(crate) limits: BTreeMap<WorkloadKey, Limits>,
}

/// One Snapshot of everything this controller manages.
pub(crate) fn assemble(
    watches: &Watches,
    managed: &[ManagedVariant],
    (samples, pickers): (&Samples, &Pickers),
    memory: &mut Memory,
    mut config: Config,
    at: Moment,
) -> Assembled {
    let queues = pickers.queues().borrow().clone();
    let pods = pods::workload_pods(watches);
    let limits = bounds::autoscaler_limits(watches);
    let (inputs, unmapped) = CycleInputs::new(watches, (samples, pickers), &pods, &limits, &config, at);
    let mut models: BTreeMap<ModelKey, ModelInputs> = BTreeMap::new();
    let (mut present, mut newly_ready) = (BTreeMap::new(), BTreeMap::new());
    let mut consumers: BTreeMap<&WorkloadKey, GpuConsumer> = BTreeMap::new();
    for m in managed {
        let refused_ago = memory.refusals.since(&m.key, at.now).map(whole_millis);
        let remembered = memory.of(m, at.now, at.wall);
        let Ok(declared) = m.spec() else {
            // Its target is withdrawn, so that a later cycle must not take it up again.
            remembered.forget();
            continue;
        };
        let key = &declared.workload;
        let workload = workloads::find_workload(watches, key);
        remembered.observe(key, workload.is_some());
        let Some(workload) = workload else { continue };
        present.insert(m.key.clone(), workload.replicas);
        if inputs.is_newly_ready(key) {
            newly_ready.insert(m.key.clone(), workload.replicas.ready);
        }
        let id = ModelKey::new(&m.key.namespace, &declared.model_id);
        let queue = samples.scheduler_queue(&id.namespace, &id.model_id, &inputs.ages, at.now);
        let variant = inputs.variant((m, declared), &workload, remembered, queue.is_late);
        consumers.extend(GpuConsumer::of(&variant, workload.replicas).map(|consumer| (key, consumer)));
        let of_model = models
            .entry(id)
            .or_insert_with_key(|id| ModelInputs::new(id, queues.max_with(id, queue.queue, at.now)));
        of_model.add(Variant { refused_ago, ..variant }, key, &inputs);
    }
    memory.evidence.retain(|id| models.contains_key(id));
    let complete = |of_model| inputs.complete(of_model, &mut memory.evidence);
    let models = models.into_values().map(complete).collect();
    let unlimited = take_stock(&mut config, watches, &pods, &consumers);
    let snapshot = Snapshot { now: Some(at.wall.to_string()), config, models, ..Snapshot::default() };
    Assembled { snapshot, workloads: present, newly_ready, unmapped, unlimited, limits }
}

/// A model and the workloads of its variants.
struct ModelInputs<'a> {
    model: Model,
    workloads: Vec<&'a WorkloadKey>,
}

impl<'a> ModelInputs<'a> {
    /// A model without variants.
    fn new(id: &ModelKey, scheduler_queue: SchedulerQueue) -> Self {
        let model = Model {
            model_id: id.model_id.clone(),
            namespace: id.namespace.clone(),
            scheduler_queue,
            // Most models have one: room for four, with which a vector begins, is most of a large snapshot.
            variants: Vec::with_capacity(1),
            ..Model::default()
        };
        Self { model, workloads: Vec::new() }
    }

    fn add(&mut self, variant: Variant, workload: &'a WorkloadKey, inputs: &CycleInputs) {
        let queue = &mut self.model.scheduler_queue;
        // A picker shows no queue before requests wait for the first time.
        if *queue == SchedulerQueue::Absent && inputs.pickers.has_picker(inputs.watches, workload) {
            *queue = SchedulerQueue::Known(QueueFigures::default());
        }
        self.model.variants.push(variant);
        self.workloads.push(workload);
    }
}

/// What all pods show and all autoscalers allow, joined once for every variant.
struct CycleInputs<'a> {
    watches: &'a Watches,
    samples: &'a Samples,
    pickers: &'a Pickers,
    loads: BTreeMap<&'a WorkloadKey, Loads<'a>>,
    limits: &'a BTreeMap<WorkloadKey, Limits>,
    standings: BTreeMap<&'a WorkloadKey, UnreadyPods>,
    ready: BTreeMap<&'a WorkloadKey, BTreeSet<&'a str>>,
    cold_starts: BTreeMap<&'a WorkloadKey, Duration>,
    newest_pod_created: BTreeMap<&'a WorkloadKey, Timestamp>,
    entries: Entries<'a>,
    ages: MetricsAge,
    at: Moment,
}

impl<'a> CycleInputs<'a> {
    /// Counts the pods that have series and belong to no known workload as well.
    fn new(
        watches: &'a Watches,
        (samples, pickers): (&'a Samples, &'a Pickers),
        pods: &'a BTreeMap<PodKey, WorkloadPod>,
        limits: &'a BTreeMap<WorkloadKey, Limits>,
        config: &'a Config,
        at: Moment,
    ) -> (Self, usize) {
        let (loads, unmapped) = loads_by_workload(samples, pods, &config.metrics_age, at);
        let inputs = Self {
            watches,
            samples,
            pickers,
            loads,
            limits,
            standings: pods::unready_pods(pods, at.wall),
            ready: pods::ready_pods(pods),
            cold_starts: pods::median_cold_starts(pods),
            newest_pod_created: pods::newest_pod_created(pods),
            entries: Entries::of(config),
            ages: config.metrics_age,
            at,
        };
        (inputs, unmapped)
    }

    /// Whether a replica of a workload became ready within [`FIRST_METRICS`].
    fn is_newly_ready(&self, key: &WorkloadKey) -> bool {
        let since = self.standings.get(key).and_then(|standing| standing.last_ready);
        since.is_some_and(|since| age(since, self.at.wall) <= FIRST_METRICS)
    }

    /// A variant as rules see it.
    fn variant(
        &self,
        (m, declared): (&ManagedVariant, &ParsedSpec),
        workload: &Workload,
        remembered: &mut Remembered,
        late_queue: bool,
    ) -> Variant {
        let key = &declared.workload;
        let mut variant = declared_part(m, declared, self.limits.get(key));
        variant.known = m.status.learned;
        variant.role = workloads::role_of_labels(&workload.pod_labels);
        variant.cold_start = self.cold_starts.get(key).copied().map(whole_millis);
        describe(&mut variant, workload.template.as_ref());
        let nothing = UnreadyPods::default();
        let standing = self.standings.get(key).unwrap_or(&nothing);
        progress(&mut variant, remembered, workload.replicas, standing, self.at);
        let judge = Judge {
            samples: self.samples,
            namespace: &m.key.namespace,
            ages: self.ages,
            now: self.at.now,
            tokens: reads_tokens(&self.entries, &m.key.namespace, &declared.model_id),
            late_queue,
        };
        let reported = self.loads.get(key).map(|l| reporting(l, &declared.model_id)).unwrap_or_default();
        let none = BTreeSet::new();
        judge.measure(&mut variant, &reported, self.ready.get(key).unwrap_or(&none));
        variant
    }

    /// A model with what its workloads show together: whether requests would wake it from 0, and evidence of requests.
    fn complete(&self, of_model: ModelInputs, evidence: &mut Evidence) -> Model {
        let ModelInputs { mut model, workloads } = of_model;
        let to_zero = self.entries.scale_to_zero(&model.namespace, &model.model_id);
        if to_zero.enabled {
            self.look_for_wake(&mut model, &workloads);
        }
        let born = workloads.into_iter().filter_map(|key| self.newest_pod_created.get(key)).max();
        evidence.complete(&mut model, to_zero, born.copied(), self.samples, (&self.ages, self.at));
        model
    }

    /// Notes whether requests would wake a model from 0. Queues of an InferencePool that serves this model alone are the
    /// model's, whatever name they carry.
    fn look_for_wake(&self, model: &mut Model, workloads: &[&WorkloadKey]) {
        let Self { watches, samples, pickers, ages, at, .. } = self;
        let (namespace, model_id) = (model.namespace.clone(), model.model_id.clone());
        let queue = |model_id: &str| samples.scheduler_queue(&namespace, model_id, ages, at.now).queue;
        let shown = |model_id: &str| matches!(queue(model_id), SchedulerQueue::Known(_));
        let pools = pickers.pools_of(watches, workloads, &model_id);
        if pools.is_empty() && queue(&model_id) == SchedulerQueue::Unknown {
            // A queue of which nothing is known keeps the model up by itself.
            return;
        }
        let mut obstacles = vec![(!shown(&model_id)).then_some(WakeObstacle::NoPool)];
        for pool in pools {
            let mut obstacle = pool.obstacle;
            if let SchedulerQueue::Known(all) = samples.pool_queue(&namespace, &pool.name, ages, at.now) {
                let is_sole = pickers.serves_only(watches, &pool, workloads);
                if is_sole {
                    model.scheduler_queue = model.scheduler_queue.at_least(all);
                }
                // What the picker itself shows is newer.
                if obstacle != Some(WakeObstacle::NoFlowControl) && (is_sole || !shown(OVERFLOW)) {
                    obstacle = None;
                }
            }
            obstacles.push(obstacle);
        }
        // One way to wake it is enough, unless requests may come by a picker that holds none back. Of several obstacles
        // the one that is known best counts.
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

/// Whether a model is analyzed by its tokens.
fn reads_tokens(entries: &Entries, namespace: &str, model_id: &str) -> bool {
    entries.saturation(namespace, model_id).0.analyzer == AnalyzerName::Token
}

/// What the object and the autoscalers of its workload say.
fn declared_part(m: &ManagedVariant, declared: &ParsedSpec, limits: Option<&Limits>) -> Variant {
    let ParsedSpec { min, max, .. } = *declared;
    // The narrower of two bounds holds.
    Variant {
        name: m.key.name.clone(),
        accelerator: m.accelerator.clone(),
        cost: declared.cost,
        mode: declared.mode,
        min: min.max(limits.map(|l| l.min)),
        max: [max, limits.map(|l| l.max)].into_iter().flatten().min(),
        min_forbids_zero: min.is_some_and(|m| m > 0) || limits.is_some_and(|l| l.min_forbids_zero),
        hpa_tolerance: limits.and_then(|l| l.tolerance),
        ..Variant::default()
    }
}

/// What the template of the workload says.
fn describe(variant: &mut Variant, template: Option<&Template>) {
    let Some(template) = template else { return };
    if variant.accelerator.is_none() {
        variant.accelerator = template.accelerator.as_deref().map(str::to_owned);
    }
    variant.gpus_per_replica = GpuCount(template.gpus);
    variant.engine_args = template.engine_args();
}

/// How far the workload is from the last target.
fn progress(
    variant: &mut Variant,
    remembered: &mut Remembered,
    replicas: Replicas,
    standing: &UnreadyPods,
    at: Moment,
) {
    let desired = remembered.desired(replicas.current, at.now);
    variant.current = replicas.current;
    variant.current_for = remembered.current_for(replicas.current, at.now);
    variant.ready = Some(replicas.ready);
    variant.desired = desired.map(|d| d.target);
    variant.desired_age = desired.map(|d| d.age);
    variant.pending = Some(remembered.pending(replicas, standing, at));
    variant.woken_ago = remembered.woken_ago(at.now);
    variant.remembered_capacity = remembered.capacity().and_then(|c| Amount::try_from(c).ok());
}

/// A workload that takes GPUs of an accelerator.
struct GpuConsumer {
    accelerator: String,
    /// What all its replicas take once they are there.
    gpus: u64,
}

impl GpuConsumer {
    /// `None` where nobody knows of which accelerator.
    fn of(variant: &Variant, replicas: Replicas) -> Option<Self> {
        let gpus = u64::from(replicas.current).saturating_mul(u64::from(variant.gpus_per_replica.0));
        Some(Self { accelerator: variant.accelerator.clone()?, gpus })
    }

    /// GPUs that will be taken and are on no node yet. Those of pods are known; a replica may have no pod so far, or not
    /// all of them: a quota is in the way, a ReplicaSet lags behind, workers come after their leader.
    fn asks<'a>(&self, pods: impl Iterator<Item = &'a WorkloadPod>) -> u64 {
        let (mut there, mut waiting) = (0, 0);
        for pod in pods.filter(|pod| pod.is_active()) {
            let gpus = u64::from(pod.gpus.total());
            there += gpus;
            waiting += if pod.is_placed { 0 } else { gpus };
        }
        self.gpus.saturating_sub(there).saturating_add(waiting)
    }
}

/// Takes the inventory where something is to be limited; says why there is none.
fn take_stock(
    config: &mut Config,
    watches: &Watches,
    pods: &BTreeMap<PodKey, WorkloadPod>,
    consumers: &BTreeMap<&WorkloadKey, GpuConsumer>,
) -> Option<NoInventory> {
    if !inventory::is_wanted(config) {
        return None;
    }
    let mut of_each: BTreeMap<&WorkloadKey, Vec<&WorkloadPod>> = BTreeMap::new();
    for pod in pods.values() {
        of_each.entry(&pod.workload).or_default().push(pod);
    }
    let asked = consumers.iter().map(|(key, consumer)| {
        let pods = of_each.get(key).into_iter().flatten().copied();
        (consumer.accelerator.as_str(), consumer.asks(pods))
    });
    match inventory(watches, asked) {
        Ok(stock) => {
            config.inventory = Some(stock);
            None
        }
        Err(why) => Some(why),
    }
}

#[cfg(test)]
mod tests;
