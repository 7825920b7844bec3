//! Replicas of the Snapshot: which pods report, and which of their signals count or are unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use wva_crds::GoDuration;
use wva_objects::WorkloadKey;
use wva_scaling::control_loop::truncate_to_millis;
use wva_scaling::snapshot::{MetricsAge, Replica, Variant};
use wva_scaling::units::{Amount, Fraction, KvUsage, QueueLength};

use crate::collect::pod_model::PodModel;
use crate::collect::sample::{EngineSleep, PodCache, PodLoad, Samples, TimedValue};
use crate::collect::signals::{CacheConfig, EngineCaches, Query};
use crate::model::keys::PodKey;
use crate::model::moment::Moment;
use crate::observe::pods::{self, WorkloadPod};

/// Series by replica: a pod, or the leader of a group.
pub(super) type Loads<'a> = BTreeMap<&'a str, ReplicaSeries<'a>>;

#[derive(Default)]
pub(super) struct ReplicaSeries<'a> {
    servers: Vec<ServerSeries<'a>>,
    /// Caches by the pod in the series.
    caches: Vec<(&'a str, TimedValue<EngineCaches>)>,
    /// Pods that take its requests.
    serving: u32,
}

/// A server, or a rank, under one `model_name`.
struct ServerSeries<'a> {
    /// Key of the server's series and counters.
    key: &'a PodModel,
    pod: &'a str,
    load: PodLoad,
    /// Start of the pod, less [`SKEW`].
    pod_start: Option<Instant>,
}

/// A replica with series of the variant's model.
pub(super) struct ReportingReplica<'a> {
    /// Name of its pod, or of its leader.
    pod: &'a str,
    load: PodLoad,
    /// Keys of the counters of its servers.
    work: Vec<&'a PodModel>,
    /// Start of its newest pod.
    start: Option<Instant>,
    cache: Option<TimedValue<EngineCaches>>,
    /// Some of its serving pods do not report.
    is_partial: bool,
}

/// Assumed difference between the clocks of the API server and of this process.
const SKEW: Duration = Duration::from_secs(5);

/// Measured by the clock of samples. A StatefulSet reuses pod names, and older samples belong to an earlier pod.
fn pod_start(pod: &WorkloadPod, at: Moment) -> Option<Instant> {
    // A creation time in the future counts as now.
    let age = Duration::try_from(at.wall.duration_since(pod.created?)).unwrap_or_default();
    at.now.checked_sub(age.saturating_add(SKEW))
}

/// Joins loads and caches with their pods. Samples that are too old are left
/// out: a former model name of a server must not count next to the present one.
pub(super) fn loads_by_workload<'a>(
    samples: &'a Samples,
    pods: &'a BTreeMap<PodKey, WorkloadPod>,
    ages: &MetricsAge,
    at: Moment,
) -> BTreeMap<&'a WorkloadKey, Loads<'a>> {
    let now = at.now;
    let mut loads: BTreeMap<&WorkloadKey, Loads> = BTreeMap::new();
    for (key, load) in samples.iter() {
        let Some((pod, of)) = pods::find_pod(pods, &key.namespace, &key.pod) else { continue };
        let start = pod_start(of, at);
        let load = start.map_or(*load, |start| load.since(start));
        let Some(age) = load.newest().map(|at| now.saturating_duration_since(at)) else { continue };
        // Terminating pods, and workers of groups whose leader serves, take no new requests.
        if of.takes_requests() && age <= ages.unavailable.get() {
            let replica = loads.entry(&of.workload).or_default().entry(of.replica(pod)).or_default();
            replica.serving = of.serving_pods();
            replica.servers.push(ServerSeries { key, pod, load, pod_start: start });
        }
    }
    for PodCache { namespace, pod: label, cache } in samples.caches() {
        if cache.age(now) > ages.unavailable.get() {
            continue;
        }
        let Some((pod, of)) = pods::find_pod(pods, namespace, label) else { continue };
        if pod_start(of, at).is_some_and(|start| cache.at < start) {
            continue;
        }
        let replicas = loads.get_mut(&of.workload).filter(|_| of.takes_requests());
        if let Some(replica) = replicas.and_then(|all| all.get_mut(of.replica(pod))) {
            replica.caches.push((label, cache));
        }
    }
    loads
}

impl<'a> ReplicaSeries<'a> {
    /// `servers`: its servers of the model. `oldest`: time of the oldest sample that counts as current.
    fn report(
        &'a self,
        pod: &'a str,
        servers: &[&'a ServerSeries<'a>],
        oldest: Instant,
    ) -> ReportingReplica<'a> {
        let cache_of = |server: &ServerSeries| {
            let own = self.caches.iter().find(|(pod, _)| *pod == &*server.key.pod);
            own.map(|(_, TimedValue { value: EngineCaches { smallest, engines }, .. })| {
                smallest.tokens() * f64::from(*engines)
            })
        };
        // Servers weigh the same unless the cache of each is known.
        let weights: Option<Vec<f64>> = servers.iter().map(|server| cache_of(server)).collect();
        let weights = weights.unwrap_or_else(|| vec![1.0; servers.len()]);
        let loads: Vec<(PodLoad, f64)> = servers.iter().map(|server| server.load).zip(weights).collect();
        let is_current = |server: &&&ServerSeries| server.load.newest().is_some_and(|at| at >= oldest);
        let pods: BTreeSet<&str> = servers.iter().filter(is_current).map(|server| server.pod).collect();
        let join = |a: TimedValue<EngineCaches>, b: TimedValue<EngineCaches>| TimedValue {
            value: a.value.join(b.value),
            at: a.at.min(b.at),
        };
        ReportingReplica {
            pod,
            load: PodLoad::combine(&loads, oldest),
            work: servers.iter().map(|server| server.key).collect(),
            start: servers.iter().filter_map(|server| server.pod_start).max(),
            cache: self.caches.iter().map(|(_, cache)| *cache).reduce(join),
            is_partial: self.serving > 1 && u32::try_from(pods.len()).is_ok_and(|pods| pods < self.serving),
        }
    }
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
    /// Replicas with series of the model's name, or of any name if their servers have only one.
    pub(super) fn reporting_replicas<'b>(
        &self,
        loads: &'b Loads<'b>,
        model_id: &str,
    ) -> Vec<ReportingReplica<'b>> {
        let oldest = self.now.checked_sub(self.ages.stale.get()).unwrap_or(self.now);
        let of_replica = |(pod, series): (&&'b str, &'b ReplicaSeries<'b>)| {
            let name_of = |server: &ServerSeries<'b>| &*server.key.model_name;
            let has_name = series.servers.iter().any(|server| name_of(server) == model_id);
            let first = series.servers.first().map(name_of)?;
            let is_only = series.servers.iter().all(|server| name_of(server) == first);
            let name = if has_name { model_id } else { Some(first).filter(|_| is_only)? };
            let servers = series.servers.iter().filter(|server| name_of(server) == name);
            Some(series.report(pod, &servers.collect::<Vec<_>>(), oldest))
        };
        loads.iter().filter_map(of_replica).collect()
    }

    /// `ready`: names of its ready replicas.
    pub(super) fn add_replicas(
        &self,
        variant: &mut Variant,
        reporting: &[ReportingReplica],
        ready: &BTreeSet<&str>,
    ) {
        variant.running = self.running(reporting);
        variant.running_age = variant.running.and_then(|_| self.running_age(reporting));
        // Exactly: there is one entry for every replica in the cluster.
        variant.replicas = Vec::with_capacity(reporting.len());
        variant.replicas.extend(reporting.iter().filter_map(|r| self.replica(r)));
        mark_gap(variant, ready, self.blocking_age().into());
    }

    /// Unknown without one of the serving pods.
    fn running(&self, reporting: &[ReportingReplica]) -> Option<Amount> {
        let of = |r: &ReportingReplica| {
            let running = r.load.running.filter(|o| !r.is_partial && self.is_usable(o));
            running.map(|o| o.value)
        };
        let values: Vec<f64> = reporting.iter().map(of).collect::<Option<_>>()?;
        if values.is_empty() { None } else { Amount::try_from(values.iter().sum::<f64>()).ok() }
    }

    fn running_age(&self, reporting: &[ReportingReplica]) -> Option<GoDuration> {
        let samples = reporting.iter().filter_map(|r| r.load.running);
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
    /// value out of range), or a serving pod of a group does not report, that 0 does not mean idle: the age forbids
    /// scale-down. So does an engine that sleeps next to others, whose means it lowers. Otherwise the older main signal
    /// sets the age.
    fn replica(&self, reporting: &ReportingReplica) -> Option<Replica> {
        let ReportingReplica { pod, load, work, start, cache, is_partial } = reporting;
        let kv = self.signal::<KvUsage>(load.kv, Query::KvUsage);
        let queue = self.signal::<QueueLength>(load.queue(), Query::Queue);
        let mean_input = self.signal::<Amount>(load.mean_input, Query::Tokens);
        let mean_output = self.signal::<Amount>(load.mean_output, Query::Tokens);
        let is_cache_unknown =
            cache.is_none() && !self.samples.has_answer(Query::CacheConfig, self.namespace);
        let mut oldest = kv.age.max(queue.age)?;
        let tokens_unknown =
            mean_input.is_unknown || mean_output.is_unknown || is_cache_unknown || self.is_queue_late;
        let hides_load = *is_partial || load.sleep == EngineSleep::Some;
        if hides_load || kv.is_unknown || queue.is_unknown || (self.uses_tokens && tokens_unknown) {
            oldest = oldest.max(self.blocking_age());
        }
        let (work, ranks) = self.samples.counters().samples_of(work, *start, self.now);
        let engines = cache.map_or(0, |cache| cache.value.engines);
        let ranks = u32::try_from(ranks).unwrap_or(u32::MAX).max(engines);
        let size =
            |of: fn(CacheConfig) -> u32| Amount::try_from(f64::from(of(cache.as_ref()?.value.smallest))).ok();
        Some(Replica {
            pod: (*pod).to_owned(),
            server: load.server,
            kv: kv.value,
            queue: queue.value,
            running: self.signal::<Amount>(load.peak_running, Query::Queue).value.filter(|_| !is_partial),
            asleep: load.sleep == EngineSleep::All,
            stalled_for: load.stalled_for().map(truncate_to_millis),
            num_gpu_blocks: size(|c| c.num_gpu_blocks),
            block_size: size(|c| c.block_size),
            mean_input: mean_input.value,
            mean_output: mean_output.value,
            prefix_hit_rate: self.signal::<Fraction>(load.prefix_hit_rate, Query::PrefixHitRate).value,
            age: truncate_to_millis(oldest),
            work,
            ranks: Some(ranks).filter(|ranks| *ranks > 1),
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
