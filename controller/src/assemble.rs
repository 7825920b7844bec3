//! Builds the Snapshot of a cycle from watch caches, samples and memory. Whatever a rule needs to know goes in here,
//! or it cannot be a rule.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use wva_crds::GoDuration;
use wva_scaling::snapshot::{Config, GpuCount, Model, Replica, Variant};
use wva_scaling::units::{Amount, Fraction, KvUsage, QueueLength};
use wva_scaling::{Snapshot, VariantKey};

use crate::bounds::{self, Limits};
use crate::collect::sample::{Observed, PodLoad, Samples, lesser};
use crate::collect::signals::{CacheConfig, Signal};
use crate::inventory::{self, NoInventory, inventory};
use crate::memory::{Memory, Remembered};
use crate::pods::{self, PodOf, Standing};
use crate::template::Template;
use crate::variants::{Declared, Managed};
use crate::watches::Watches;
use crate::workloads::{self, Replicas, WorkloadKey};

/// A Snapshot and what was learnt while building it.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) snapshot: Snapshot,
    /// Replicas of every variant whose workload exists.
    pub(crate) workloads: BTreeMap<VariantKey, Replicas>,
    /// Pods that have series and belong to no known workload.
    pub(crate) unmapped: usize,
    /// Why nothing is limited, where something should be.
    pub(crate) unlimited: Option<NoInventory>,
}

/// The moment a Snapshot is taken at, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    pub(crate) wall: Timestamp,
}

/// One Snapshot of everything this controller manages.
pub(crate) fn assemble(
    watches: &Watches,
    managed: &[Managed],
    samples: &Samples,
    memory: &mut Memory,
    mut config: Config,
    at: Moment,
) -> Assembled {
    let pods = pods::pods(watches);
    let limits = bounds::limits(watches);
    let (loads, unmapped) = loads_by_workload(samples, &pods, &config, at.now);
    let standings = pods::standings(&pods, at.wall);
    let nothing = Standing::default();
    let mut models: BTreeMap<(String, String), Model> = BTreeMap::new();
    let mut present = BTreeMap::new();
    let mut takers: BTreeMap<&WorkloadKey, Taker> = BTreeMap::new();
    for m in managed {
        let remembered = memory.of(m, at.now, at.wall);
        let Ok(declared) = m.declared() else {
            // Its target is withdrawn, so that a later cycle must not take it up again.
            remembered.forget();
            continue;
        };
        let key = &declared.workload;
        let workload = workloads::workload(watches, key);
        remembered.observe(key, workload.is_some());
        let Some(workload) = workload else { continue };
        let replicas = workload.replicas;
        present.insert(m.key.clone(), replicas);
        let reported = loads.get(key).map(|l| reporting(l, &declared.model_id)).unwrap_or_default();
        let mut variant = declared_part(m, declared, limits.get(key));
        describe(&mut variant, workload.template.as_ref());
        takers.extend(Taker::of(&variant, replicas).map(|taker| (key, taker)));
        progress(&mut variant, remembered, replicas, standings.get(key).unwrap_or(&nothing), at);
        variant.running = running(&reported);
        variant.replicas =
            reported.iter().filter_map(|r| replica(r, &m.key.namespace, samples, &config, at.now)).collect();
        let id = (m.key.namespace.clone(), declared.model_id.clone());
        let model = models.entry(id).or_insert_with(|| Model {
            model_id: declared.model_id.clone(),
            namespace: m.key.namespace.clone(),
            scheduler_queue: samples.scheduler_queue(
                &m.key.namespace,
                &declared.model_id,
                config.metrics_age.unavailable.get(),
                at.now,
            ),
            ..Model::default()
        });
        model.variants.push(variant);
    }
    let unlimited = take_stock(&mut config, watches, &pods, &takers);
    let snapshot = Snapshot {
        now: Some(at.wall.to_string()),
        config,
        models: models.into_values().collect(),
        ..Snapshot::default()
    };
    Assembled { snapshot, workloads: present, unmapped, unlimited }
}

/// What the object and the autoscalers of its workload say.
fn declared_part(m: &Managed, declared: &Declared, limits: Option<&Limits>) -> Variant {
    let Declared { min, max, .. } = *declared;
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
    standing: &Standing,
    at: Moment,
) {
    let desired = remembered.desired(replicas.current, at.now);
    variant.current = replicas.current;
    variant.ready = Some(replicas.ready);
    variant.desired = desired.map(|d| d.0);
    variant.desired_age = desired.map(|d| d.1);
    variant.pending = Some(remembered.pending(replicas, standing, at));
    variant.remembered_capacity = remembered.capacity().and_then(|c| Amount::try_from(c).ok());
}

/// A workload that takes GPUs of an accelerator.
struct Taker {
    accelerator: String,
    /// What all its replicas take once they are there.
    gpus: u64,
}

impl Taker {
    /// `None` where nobody knows of which accelerator.
    fn of(variant: &Variant, replicas: Replicas) -> Option<Self> {
        let gpus = u64::from(replicas.current).saturating_mul(u64::from(variant.gpus_per_replica.0));
        Some(Self { accelerator: variant.accelerator.clone()?, gpus })
    }

    /// GPUs that will be taken and are on no node yet. Those of pods are known; a replica may have no pod so far, or not
    /// all of them: a quota is in the way, a ReplicaSet lags behind, workers come after their leader.
    fn asks<'a>(&self, pods: impl Iterator<Item = &'a PodOf>) -> u64 {
        let (mut there, mut waiting) = (0, 0);
        for pod in pods.filter(|pod| pod.stays()) {
            let gpus = u64::from(pod.gpus.total());
            there += gpus;
            waiting += if pod.placed { 0 } else { gpus };
        }
        self.gpus.saturating_sub(there).saturating_add(waiting)
    }
}

/// Takes the inventory where something is to be limited; says why there is none.
fn take_stock(
    config: &mut Config,
    watches: &Watches,
    pods: &BTreeMap<(String, String), PodOf>,
    takers: &BTreeMap<&WorkloadKey, Taker>,
) -> Option<NoInventory> {
    if !inventory::is_wanted(config) {
        return None;
    }
    let mut of_each: BTreeMap<&WorkloadKey, Vec<&PodOf>> = BTreeMap::new();
    for pod in pods.values() {
        of_each.entry(&pod.workload).or_default().push(pod);
    }
    let asked = takers.iter().map(|(key, taker)| {
        let pods = of_each.get(key).into_iter().flatten().copied();
        (taker.accelerator.as_str(), taker.asks(pods))
    });
    match inventory(watches, asked) {
        Ok(stock) => {
            config.inventory = Some(stock);
            None
        }
        Err(why) => Some(why),
    }
}

/// The loads of a workload's pods, by pod.
type Loads<'a> = BTreeMap<&'a str, OfPod<'a>>;

/// What is known of one pod.
#[derive(Default)]
struct OfPod<'a> {
    /// Loads by `model_name`.
    by_model: BTreeMap<&'a str, PodLoad>,
    cache: Option<Observed<CacheConfig>>,
}

/// A pod of a variant, and what it reports of the variant's model.
struct Reported<'a> {
    pod: &'a str,
    load: PodLoad,
    cache: Option<Observed<CacheConfig>>,
}

/// Joins loads and caches with the pods they are of, and counts the pods that nobody knows. What is too old to count
/// is left out: a name that a server had once must not stand beside its present one.
fn loads_by_workload<'a>(
    samples: &'a Samples,
    pods: &'a BTreeMap<(String, String), PodOf>,
    config: &Config,
    now: Instant,
) -> (BTreeMap<&'a WorkloadKey, Loads<'a>>, usize) {
    let ages = &config.metrics_age;
    let oldest = now.checked_sub(ages.stale.get()).unwrap_or(now);
    let mut loads: BTreeMap<&WorkloadKey, Loads> = BTreeMap::new();
    let mut unmapped = BTreeSet::new();
    for (key, load) in samples.iter() {
        let Some(age) = load.youngest().map(|at| now.saturating_duration_since(at)) else { continue };
        match pods::pod_named(pods, &key.namespace, &key.pod) {
            // What a pod that is going away has spare is nobody's, nor what a worker says that serves nobody.
            Some((_, of)) if !of.serves() => {}
            Some((pod, of)) if age <= ages.unavailable.get() => {
                let of_pod = loads.entry(&of.workload).or_default().entry(pod).or_default();
                let of_model = of_pod.by_model.entry(&key.model_name);
                of_model.and_modify(|other| *other = other.worse(*load, oldest)).or_insert(*load);
            }
            None if age <= ages.fresh.get() => {
                unmapped.insert((&key.namespace, &key.pod));
            }
            _ => {}
        }
    }
    for (namespace, pod, cache) in samples.caches().filter(|c| c.2.age(now) <= ages.unavailable.get()) {
        let Some((pod, of)) = pods::pod_named(pods, namespace, pod) else { continue };
        if let Some(of_pod) = loads.get_mut(&of.workload).and_then(|l| l.get_mut(pod)) {
            of_pod.cache = Some(of_pod.cache.map_or(cache, |other| lesser(other, cache)));
        }
    }
    (loads, unmapped.len())
}

/// Of each pod the series of this model: by its name, or all there are when the server serves only one name.
fn reporting<'a>(loads: &Loads<'a>, model_id: &str) -> Vec<Reported<'a>> {
    let of_model = |by_model: &BTreeMap<&str, PodLoad>| match by_model.get(model_id) {
        Some(load) => Some(*load),
        None if by_model.len() == 1 => by_model.values().next().copied(),
        None => None,
    };
    let of_pod = |(pod, of): (&&'a str, &OfPod<'a>)| {
        Some(Reported { pod, load: of_model(&of.by_model)?, cache: of.cache })
    };
    loads.iter().filter_map(of_pod).collect()
}

/// Requests in flight; unknown where no replica says.
fn running(reported: &[Reported]) -> Option<Amount> {
    let values: Vec<f64> = reported.iter().filter_map(|r| r.load.running.map(|o| o.value)).collect();
    if values.is_empty() { None } else { Amount::try_from(values.iter().sum::<f64>()).ok() }
}

/// A replica as rules see it. A signal that is missing (too old, or out of its range) is left out, and of the two main
/// ones counts as 0; the older of the two that count says how old the sample is. Where one of them is not absent but
/// unknown, for its query fails or its last value is too old, that 0 is no sign of idleness: the sample is then as old
/// as one that still counts and forbids scale-down.
fn replica(
    reported: &Reported,
    namespace: &str,
    samples: &Samples,
    config: &Config,
    now: Instant,
) -> Option<Replica> {
    let Reported { pod, load, cache } = reported;
    let counts = |o: &Observed| o.age(now) <= config.metrics_age.unavailable.get();
    let kv = load.kv.filter(counts).and_then(|o| Some((KvUsage::try_from(o.value).ok()?, o.age(now))));
    let queue =
        load.queue.filter(counts).and_then(|o| Some((QueueLength::try_from(o.value).ok()?, o.age(now))));
    let mut oldest = kv.map(|k| k.1).max(queue.map(|q| q.1))?;
    let unknown =
        |known: Option<Observed>, signal| known.map_or(!samples.answered(signal, namespace), |o| !counts(&o));
    if unknown(load.kv, Signal::KvUsage) || unknown(load.queue, Signal::Queue) {
        oldest = oldest.max(config.metrics_age.stale.get());
    }
    let amount = |known: Option<Observed>| known.filter(counts).and_then(|o| Amount::try_from(o.value).ok());
    let hit_rate = load.prefix_hit_rate.filter(counts).and_then(|o| Fraction::try_from(o.value).ok());
    let size = |of: fn(CacheConfig) -> u32| Amount::try_from(f64::from(of(cache.as_ref()?.value))).ok();
    Some(Replica {
        pod: (*pod).to_owned(),
        kv: kv.map(|k| k.0),
        queue: queue.map(|q| q.0),
        num_gpu_blocks: size(|c| c.num_gpu_blocks),
        block_size: size(|c| c.block_size),
        mean_input: amount(load.mean_input),
        mean_output: amount(load.mean_output),
        prefix_hit_rate: hit_rate,
        age: whole_millis(oldest),
    })
}

/// Nanoseconds in a snapshot file help nobody.
pub(crate) fn whole_millis(d: Duration) -> GoDuration {
    Duration::from_millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)).into()
}

#[cfg(test)]
mod tests;
