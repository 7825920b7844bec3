//! Replicas of the Snapshot: which pods report, and which of their signals count or are unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use wva_crds::GoDuration;
use wva_scaling::snapshot::{MetricsAge, Replica, Variant};
use wva_scaling::units::{Amount, Fraction, KvUsage, QueueLength};

use crate::collect::sample::{PodCache, PodLoad, Samples, TimedValue, smaller_cache};
use crate::collect::signals::{CacheConfig, PodModel, Query};
use crate::model::keys::{PodKey, WorkloadKey};
use crate::model::moment::{Moment, truncate_to_millis};
use crate::observe::pods::{self, WorkloadPod};

/// Series by pod.
pub(super) type Loads<'a> = BTreeMap<&'a str, PodSeries<'a>>;

#[derive(Default)]
pub(super) struct PodSeries<'a> {
    /// Loads by `model_name`. A vector, because most pods have one; a map reserves room for eleven.
    by_model: Vec<(&'a str, ServerSeries<'a>)>,
    cache: Option<TimedValue<CacheConfig>>,
}

/// One server, or several ranks.
struct ServerSeries<'a> {
    load: PodLoad,
    /// Keys of their counters.
    work: Vec<&'a PodModel>,
    /// Less [`SKEW`].
    pod_start: Option<Instant>,
}

/// A pod with series of the variant's model.
pub(super) struct ReportingPod<'a> {
    pub(super) pod: &'a str,
    server: &'a ServerSeries<'a>,
    cache: Option<TimedValue<CacheConfig>>,
}

/// Assumed difference between the clocks of the API server and of this process.
const SKEW: Duration = Duration::from_secs(5);

/// Measured by the clock of samples. A StatefulSet reuses pod names, and older samples belong to an earlier pod.
fn pod_start(pod: &WorkloadPod, at: Moment) -> Option<Instant> {
    // A creation time in the future counts as now.
    let age = Duration::try_from(at.wall.duration_since(pod.created?)).unwrap_or_default();
    at.now.checked_sub(age.saturating_add(SKEW))
}

/// Joins loads and caches with their pods, and counts pods of no known workload. Samples that are too old are left
/// out: a former model name of a server must not count next to the present one.
pub(super) fn loads_by_workload<'a>(
    samples: &'a Samples,
    pods: &'a BTreeMap<PodKey, WorkloadPod>,
    ages: &MetricsAge,
    at: Moment,
) -> (BTreeMap<&'a WorkloadKey, Loads<'a>>, usize) {
    let now = at.now;
    let oldest = now.checked_sub(ages.stale.get()).unwrap_or(now);
    let mut loads: BTreeMap<&WorkloadKey, Loads> = BTreeMap::new();
    let mut unmapped = BTreeSet::new();
    for (key, load) in samples.iter() {
        let found = pods::find_pod(pods, &key.namespace, &key.pod);
        let start = found.and_then(|(_, of)| pod_start(of, at));
        let load = start.map_or(*load, |start| load.since(start));
        let Some(age) = load.newest().map(|at| now.saturating_duration_since(at)) else { continue };
        match found {
            // Ignore terminating pods and LeaderWorkerSet workers: neither takes new requests.
            Some((_, of)) if !of.takes_requests() => {}
            Some((pod, of)) if age <= ages.unavailable.get() => {
                let of_pod = loads.entry(&of.workload).or_default().entry(pod).or_default();
                let model: &str = &key.model_name;
                if let Some((_, other)) = of_pod.by_model.iter_mut().find(|(name, _)| *name == model) {
                    other.load = other.load.combine(load, oldest);
                    other.work.push(key);
                } else {
                    of_pod.by_model.push((model, ServerSeries { load, work: vec![key], pod_start: start }));
                }
            }
            None if age <= ages.fresh.get() => {
                unmapped.insert((&key.namespace, &key.pod));
            }
            _ => {}
        }
    }
    for PodCache { namespace, pod, cache } in samples.caches() {
        if cache.age(now) > ages.unavailable.get() {
            continue;
        }
        let Some((pod, of)) = pods::find_pod(pods, namespace, pod) else { continue };
        if pod_start(of, at).is_some_and(|start| cache.at < start) {
            continue;
        }
        if let Some(of_pod) = loads.get_mut(&of.workload).and_then(|l| l.get_mut(pod)) {
            of_pod.cache = Some(of_pod.cache.map_or(cache, |other| smaller_cache(other, cache)));
        }
    }
    (loads, unmapped.len())
}

/// Pods with series of the model's name, or of any name if the server has only one.
pub(super) fn reporting_pods<'a>(loads: &'a Loads<'a>, model_id: &str) -> Vec<ReportingPod<'a>> {
    let of_pod = |(pod, series): (&&'a str, &'a PodSeries<'a>)| {
        let named = series.by_model.iter().find(|(name, _)| *name == model_id);
        let only = series.by_model.first().filter(|_| series.by_model.len() == 1);
        let (_, server) = named.or(only)?;
        Some(ReportingPod { pod, server, cache: series.cache })
    };
    loads.iter().filter_map(of_pod).collect()
}

pub(super) struct ReplicaReader<'a> {
    pub(super) samples: &'a Samples,
    pub(super) namespace: &'a str,
    pub(super) ages: MetricsAge,
    pub(super) now: Instant,
    /// Whether the token analyzer decides. Without token means and cache sizes it would misjudge capacity.
    pub(super) uses_tokens: bool,
    pub(super) is_queue_late: bool,
}

impl ReplicaReader<'_> {
    /// `ready`: names of its ready pods.
    pub(super) fn add_replicas(
        &self,
        variant: &mut Variant,
        reporting: &[ReportingPod],
        ready: &BTreeSet<&str>,
    ) {
        variant.running = self.running(reporting);
        variant.running_age = variant.running.and_then(|_| self.running_age(reporting));
        // Exactly: there is one entry for every replica in the cluster.
        variant.replicas = Vec::with_capacity(reporting.len());
        variant.replicas.extend(reporting.iter().filter_map(|r| self.replica(r)));
        mark_gap(variant, ready, self.blocking_age().into());
    }

    fn running(&self, reporting: &[ReportingPod]) -> Option<Amount> {
        let of = |r: &ReportingPod| r.server.load.running.filter(|o| self.is_usable(o)).map(|o| o.value);
        let values: Vec<f64> = reporting.iter().map(of).collect::<Option<_>>()?;
        if values.is_empty() { None } else { Amount::try_from(values.iter().sum::<f64>()).ok() }
    }

    fn running_age(&self, reporting: &[ReportingPod]) -> Option<GoDuration> {
        let samples = reporting.iter().filter_map(|r| r.server.load.running);
        samples.map(|o| truncate_to_millis(o.age(self.now))).max()
    }

    /// Age at which a sample counts but forbids scale-down.
    fn blocking_age(&self) -> Duration {
        let not_fresh = self.ages.fresh.get().saturating_add(Duration::from_millis(1));
        self.ages.stale.get().max(not_fresh)
    }

    fn is_usable(&self, seen: &TimedValue) -> bool {
        seen.age(self.now) <= self.ages.unavailable.get()
    }

    /// Absent signals are omitted; absent KV usage or queue length counts as 0. If a signal is unknown (query failed,
    /// value out of range), that 0 does not mean idle: the age forbids scale-down. Otherwise the older main signal sets
    /// the age.
    fn replica(&self, reporting: &ReportingPod) -> Option<Replica> {
        let ReportingPod { pod, server: ServerSeries { load, work, pod_start }, cache } = reporting;
        let kv = self.signal::<KvUsage>(load.kv, Query::KvUsage);
        let queue = self.signal::<QueueLength>(load.queue(), Query::Queue);
        let mean_input = self.signal::<Amount>(load.mean_input, Query::Tokens);
        let mean_output = self.signal::<Amount>(load.mean_output, Query::Tokens);
        let is_cache_unknown =
            cache.is_none() && !self.samples.has_answer(Query::CacheConfig, self.namespace);
        let mut oldest = kv.age.max(queue.age)?;
        let tokens_unknown =
            mean_input.is_unknown || mean_output.is_unknown || is_cache_unknown || self.is_queue_late;
        if kv.is_unknown || queue.is_unknown || (self.uses_tokens && tokens_unknown) {
            oldest = oldest.max(self.blocking_age());
        }
        let (work, ranks) = self.samples.counters().samples_of(work, *pod_start, self.now);
        let size = |of: fn(CacheConfig) -> u32| Amount::try_from(f64::from(of(cache.as_ref()?.value))).ok();
        Some(Replica {
            pod: (*pod).to_owned(),
            server: load.server,
            kv: kv.value,
            queue: queue.value,
            num_gpu_blocks: size(|c| c.num_gpu_blocks),
            block_size: size(|c| c.block_size),
            mean_input: mean_input.value,
            mean_output: mean_output.value,
            prefix_hit_rate: self.signal::<Fraction>(load.prefix_hit_rate, Query::PrefixHitRate).value,
            age: truncate_to_millis(oldest),
            work,
            ranks: u32::try_from(ranks).ok().filter(|ranks| *ranks > 1),
        })
    }

    /// Ignores values beyond the maximum age, as a new leader would not have them.
    fn signal<T: TryFrom<f64>>(&self, seen: Option<TimedValue>, query: Query) -> Signal<T> {
        let Some(seen) = seen.filter(|o| self.is_usable(o)) else {
            let is_unknown = !self.samples.has_answer(query, self.namespace);
            return Signal { value: None, age: None, is_unknown };
        };
        match T::try_from(seen.value) {
            Ok(value) => Signal { value: Some(value), age: Some(seen.age(self.now)), is_unknown: false },
            // Out of range.
            Err(_) => Signal { value: None, age: None, is_unknown: true },
        }
    }
}

struct Signal<T> {
    value: Option<T>,
    age: Option<Duration>,
    /// Unknown rather than absent.
    is_unknown: bool,
}

/// Accounts for ready pods that do not report. Pods that report without being ready cannot fill the gap, so they are
/// dropped. If enough replicas report all the same, their age forbids scale-down.
fn mark_gap(variant: &mut Variant, ready: &BTreeSet<&str>, blocking_age: GoDuration) {
    let replicas = &mut variant.replicas;
    // Sorted by pod name.
    let reports = |pod: &&str| replicas.binary_search_by(|r| r.pod.as_str().cmp(pod)).is_ok();
    if ready.iter().all(reports) {
        return;
    }
    replicas.retain(|r| ready.contains(r.pod.as_str()));
    let wanted = variant.ready.unwrap_or(variant.current).min(variant.current);
    if usize::try_from(wanted).is_ok_and(|wanted| replicas.len() >= wanted) {
        for replica in replicas {
            replica.age = replica.age.max(blocking_age);
        }
    }
}
