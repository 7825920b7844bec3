//! Builds the Snapshot of a cycle from watch caches, samples and memory. Whatever a rule needs to know goes in here,
//! or it cannot be a rule.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use wva_crds::GoDuration;
use wva_scaling::snapshot::{Config, GpuCount, Model, Replica, Variant};
use wva_scaling::units::{Amount, KvUsage, QueueLength};
use wva_scaling::{Snapshot, VariantKey};

use crate::bounds::{self, Limits};
use crate::collect::sample::{Observed, PodLoad, Samples};
use crate::collect::signals::Signal;
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
    let oldest = at.now.checked_sub(config.metrics_age.stale.get()).unwrap_or(at.now);
    let (loads, unmapped) = loads_by_workload(samples, &pods, oldest);
    let standings = pods::standings(&pods);
    let nothing = Standing::default();
    let mut models: BTreeMap<(String, String), Model> = BTreeMap::new();
    let mut present = BTreeMap::new();
    let mut accelerators: BTreeMap<&WorkloadKey, String> = BTreeMap::new();
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
        accelerators.extend(variant.accelerator.clone().map(|accelerator| (key, accelerator)));
        progress(&mut variant, remembered, replicas, standings.get(key).unwrap_or(&nothing), at);
        variant.running = running(&reported);
        variant.replicas =
            reported.iter().filter_map(|(pod, load)| replica(pod, load, samples, &config, at.now)).collect();
        let id = (m.key.namespace.clone(), declared.model_id.clone());
        let model = models.entry(id).or_insert_with(|| Model {
            model_id: declared.model_id.clone(),
            namespace: m.key.namespace.clone(),
            ..Model::default()
        });
        model.variants.push(variant);
    }
    let unlimited = take_stock(&mut config, watches, &pods, &accelerators);
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
}

/// Takes the inventory where something is to be limited; says why there is none.
fn take_stock(
    config: &mut Config,
    watches: &Watches,
    pods: &BTreeMap<(String, String), PodOf>,
    accelerators: &BTreeMap<&WorkloadKey, String>,
) -> Option<NoInventory> {
    if !inventory::is_wanted(config) {
        return None;
    }
    // The pods of our own variants that have no node yet.
    let waiting = |pod: &PodOf| Some((accelerators.get(&pod.workload)?.as_str(), pod.waits_for?));
    match inventory(watches, pods.values().filter_map(waiting)) {
        Ok(stock) => {
            config.inventory = Some(stock);
            None
        }
        Err(why) => Some(why),
    }
}

/// The loads of a workload's pods, by pod and `model_name`.
type Loads<'a> = BTreeMap<String, BTreeMap<&'a str, PodLoad>>;

fn loads_by_workload<'a>(
    samples: &'a Samples,
    pods: &BTreeMap<(String, String), PodOf>,
    oldest: Instant,
) -> (BTreeMap<WorkloadKey, Loads<'a>>, usize) {
    let mut loads: BTreeMap<WorkloadKey, Loads> = BTreeMap::new();
    let mut unmapped = BTreeSet::new();
    for (key, load) in samples.iter() {
        match pods::pod_named(pods, &key.namespace, &key.pod) {
            // What a pod that is going away has spare is nobody's, nor what a worker says that serves nobody.
            Some((_, of)) if !of.serves() => {}
            Some((pod, of)) => {
                let of_workload = loads.entry(of.workload.clone()).or_default();
                of_workload
                    .entry(pod.to_owned())
                    .or_default()
                    .entry(key.model_name.as_str())
                    .and_modify(|other| *other = other.worse(*load, oldest))
                    .or_insert(*load);
            }
            None => {
                unmapped.insert((&key.namespace, &key.pod));
            }
        }
    }
    (loads, unmapped.len())
}

/// Of each pod the series of this model: by its name, or all there are when the server serves only one name.
fn reporting(loads: &Loads<'_>, model_id: &str) -> Vec<(String, PodLoad)> {
    let of_pod = |by_model: &BTreeMap<&str, PodLoad>| match by_model.get(model_id) {
        Some(load) => Some(*load),
        None if by_model.len() == 1 => by_model.values().next().copied(),
        None => None,
    };
    loads.iter().filter_map(|(pod, by_model)| Some((pod.clone(), of_pod(by_model)?))).collect()
}

/// Requests in flight; unknown where no replica says.
fn running(reported: &[(String, PodLoad)]) -> Option<Amount> {
    let values: Vec<f64> = reported.iter().filter_map(|(_, l)| l.running.map(|o| o.value)).collect();
    if values.is_empty() { None } else { Amount::try_from(values.iter().sum::<f64>()).ok() }
}

/// A replica as rules see it. A signal that is missing (too old, or out of its range) is left out, and counts as 0;
/// the older of the two that count says how old the sample is. Where a signal is not absent but unknown, for its query
/// fails or its last value is too old, that 0 is no sign of idleness: the sample is then as old as one that still
/// counts and forbids scale-down.
fn replica(pod: &str, load: &PodLoad, samples: &Samples, config: &Config, now: Instant) -> Option<Replica> {
    let age = |o: &Observed| now.saturating_duration_since(o.at);
    let counts = |o: &Observed| age(o) <= config.metrics_age.unavailable.get();
    let kv = load.kv.filter(counts).and_then(|o| Some((KvUsage::try_from(o.value).ok()?, age(&o))));
    let queue = load.queue.filter(counts).and_then(|o| Some((QueueLength::try_from(o.value).ok()?, age(&o))));
    let mut oldest = kv.map(|k| k.1).max(queue.map(|q| q.1))?;
    let unknown = |known: Option<Observed>, signal| known.map_or(!samples.answered(signal), |o| !counts(&o));
    if unknown(load.kv, Signal::KvUsage) || unknown(load.queue, Signal::Queue) {
        oldest = oldest.max(config.metrics_age.stale.get());
    }
    Some(Replica {
        pod: pod.to_owned(),
        kv: kv.map(|k| k.0),
        queue: queue.map(|q| q.0),
        age: whole_millis(oldest),
        ..Replica::default()
    })
}

/// Nanoseconds in a snapshot file help nobody.
pub(crate) fn whole_millis(d: Duration) -> GoDuration {
    Duration::from_millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)).into()
}

#[cfg(test)]
mod tests;
