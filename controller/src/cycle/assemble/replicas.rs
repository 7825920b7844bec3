//! The replicas of a workload as rules see them: whose pod reports, what of it still counts, and where nobody knows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use wva_crds::GoDuration;
use wva_scaling::snapshot::{MetricsAge, Replica, Variant};
use wva_scaling::units::{Amount, Fraction, KvUsage, QueueLength};

use crate::collect::sample::{PodCache, PodLoad, Samples, TimedValue, smaller_cache};
use crate::collect::signals::{CacheConfig, PodModel, Query};
use crate::model::keys::{PodKey, WorkloadKey};
use crate::model::moment::{Moment, whole_millis};
use crate::observe::pods::{self, WorkloadPod};

/// The loads of a workload's pods, by pod.
pub(super) type Loads<'a> = BTreeMap<&'a str, OfPod<'a>>;

/// What is known of one pod.
#[derive(Default)]
pub(super) struct OfPod<'a> {
    /// Loads by `model_name`: one, as a rule, and a map has room for eleven.
    by_model: Vec<(&'a str, OfServer<'a>)>,
    cache: Option<TimedValue<CacheConfig>>,
}

/// What is known of the servers of one model in a pod: of one, or of several ranks.
struct OfServer<'a> {
    load: PodLoad,
    /// Whose counters are theirs.
    work: Vec<&'a PodModel>,
    /// When the pod was made.
    begin: Option<Instant>,
}

/// A pod of a variant, and what it reports of the variant's model.
pub(super) struct Reported<'a> {
    pub(super) pod: &'a str,
    server: &'a OfServer<'a>,
    cache: Option<TimedValue<CacheConfig>>,
}

/// By how much the clocks of the API server and of this process may differ.
const SKEW: Duration = Duration::from_secs(5);

/// When a pod was made, by the clock of samples. A StatefulSet makes pods anew under the same name, and what the last
/// one showed is nothing of this one.
fn begin(pod: &WorkloadPod, at: Moment) -> Option<Instant> {
    // One from the future has just been made.
    let age = Duration::try_from(at.wall.duration_since(pod.created?)).unwrap_or_default();
    at.now.checked_sub(age.saturating_add(SKEW))
}

/// Joins loads and caches with the pods they are of, and counts the pods that nobody knows. What is too old to count
/// is left out: a name that a server had once must not stand beside its present one.
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
        let begin = found.and_then(|(_, of)| begin(of, at));
        let load = begin.map_or(*load, |begin| load.since(begin));
        let Some(age) = load.newest().map(|at| now.saturating_duration_since(at)) else { continue };
        match found {
            // What a pod that is going away has spare is nobody's, nor what a worker says that serves nobody.
            Some((_, of)) if !of.takes_requests() => {}
            Some((pod, of)) if age <= ages.unavailable.get() => {
                let of_pod = loads.entry(&of.workload).or_default().entry(pod).or_default();
                let model: &str = &key.model_name;
                if let Some((_, other)) = of_pod.by_model.iter_mut().find(|(name, _)| *name == model) {
                    other.load = other.load.combine(load, oldest);
                    other.work.push(key);
                } else {
                    of_pod.by_model.push((model, OfServer { load, work: vec![key], begin }));
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
        if begin(of, at).is_some_and(|begin| cache.at < begin) {
            continue;
        }
        if let Some(of_pod) = loads.get_mut(&of.workload).and_then(|l| l.get_mut(pod)) {
            of_pod.cache = Some(of_pod.cache.map_or(cache, |other| smaller_cache(other, cache)));
        }
    }
    (loads, unmapped.len())
}

/// Of each pod the series of this model: by its name, or all there are when the server serves only one name.
pub(super) fn reporting<'a>(loads: &'a Loads<'a>, model_id: &str) -> Vec<Reported<'a>> {
    let of_pod = |(pod, of): (&&'a str, &'a OfPod<'a>)| {
        let named = of.by_model.iter().find(|(name, _)| *name == model_id);
        let only = of.by_model.first().filter(|_| of.by_model.len() == 1);
        let (_, server) = named.or(only)?;
        Some(Reported { pod, server, cache: of.cache })
    };
    loads.iter().filter_map(of_pod).collect()
}

/// By what the replicas of a model are judged.
pub(super) struct Judge<'a> {
    pub(super) samples: &'a Samples,
    pub(super) namespace: &'a str,
    pub(super) ages: MetricsAge,
    pub(super) now: Instant,
    /// The token analyzer reads them: without means and sizes of caches it would misjudge what a replica holds.
    pub(super) tokens: bool,
    /// So it does the queue of the endpoint picker, and that is old.
    pub(super) late_queue: bool,
}

impl Judge<'_> {
    /// Takes over what the replicas of a variant say, of which these are `ready`.
    pub(super) fn measure(&self, variant: &mut Variant, reported: &[Reported], ready: &BTreeSet<&str>) {
        variant.running = self.running(reported);
        variant.running_age = variant.running.and_then(|_| self.running_age(reported));
        // Room for no more than there are: there are as many of these as replicas in the cluster.
        variant.replicas = Vec::with_capacity(reported.len());
        variant.replicas.extend(reported.iter().filter_map(|r| self.replica(r)));
        show_gap(variant, ready, self.late().into());
    }

    /// Requests in flight; unknown unless every replica says.
    fn running(&self, reported: &[Reported]) -> Option<Amount> {
        let of = |r: &Reported| r.server.load.running.filter(|o| self.counts(o)).map(|o| o.value);
        let values: Vec<f64> = reported.iter().map(of).collect::<Option<_>>()?;
        if values.is_empty() { None } else { Amount::try_from(values.iter().sum::<f64>()).ok() }
    }

    /// The age of the oldest sample of them.
    fn running_age(&self, reported: &[Reported]) -> Option<GoDuration> {
        reported.iter().filter_map(|r| r.server.load.running).map(|o| whole_millis(o.age(self.now))).max()
    }

    /// The age of what counts and forbids scale-down. Where the settings leave no such age it is one that only forbids.
    fn late(&self) -> Duration {
        let not_fresh = self.ages.fresh.get().saturating_add(Duration::from_millis(1));
        self.ages.stale.get().max(not_fresh)
    }

    fn counts(&self, seen: &TimedValue) -> bool {
        seen.age(self.now) <= self.ages.unavailable.get()
    }

    /// A replica as rules see it. A signal that is missing is left out, and of the two main ones counts as 0; the older
    /// of the two that count says how old the sample is. Where a signal is not absent but unknown, for its query fails
    /// or its value is out of range, that 0 is no sign of idleness: the sample is then as old as one that still counts
    /// and forbids scale-down.
    fn replica(&self, reported: &Reported) -> Option<Replica> {
        let Reported { pod, server: OfServer { load, work, begin }, cache } = reported;
        let kv = self.read::<KvUsage>(load.kv, Query::KvUsage);
        let queue = self.read::<QueueLength>(load.queue(), Query::Queue);
        let mean_input = self.read::<Amount>(load.mean_input, Query::Tokens);
        let mean_output = self.read::<Amount>(load.mean_output, Query::Tokens);
        let no_cache = cache.is_none() && !self.samples.has_answer(Query::CacheConfig, self.namespace);
        let mut oldest = kv.age.max(queue.age)?;
        let for_tokens = mean_input.unknown || mean_output.unknown || no_cache || self.late_queue;
        if kv.unknown || queue.unknown || (self.tokens && for_tokens) {
            oldest = oldest.max(self.late());
        }
        let (work, ranks) = self.samples.counters().samples_of(work, *begin, self.now);
        let size = |of: fn(CacheConfig) -> u32| Amount::try_from(f64::from(of(cache.as_ref()?.value))).ok();
        Some(Replica {
            pod: (*pod).to_owned(),
            kv: kv.value,
            queue: queue.value,
            num_gpu_blocks: size(|c| c.num_gpu_blocks),
            block_size: size(|c| c.block_size),
            mean_input: mean_input.value,
            mean_output: mean_output.value,
            prefix_hit_rate: self.read::<Fraction>(load.prefix_hit_rate, Query::PrefixHitRate).value,
            age: whole_millis(oldest),
            work,
            ranks: u32::try_from(ranks).ok().filter(|ranks| *ranks > 1),
        })
    }

    /// What is seen of a signal. What is beyond the last age is gone, as it is to a leader that never saw it.
    fn read<T: TryFrom<f64>>(&self, seen: Option<TimedValue>, query: Query) -> Read<T> {
        let Some(seen) = seen.filter(|o| self.counts(o)) else {
            let unknown = !self.samples.has_answer(query, self.namespace);
            return Read { value: None, age: None, unknown };
        };
        match T::try_from(seen.value) {
            Ok(value) => Read { value: Some(value), age: Some(seen.age(self.now)), unknown: false },
            // Something is there, but nobody knows what.
            Err(_) => Read { value: None, age: None, unknown: true },
        }
    }
}

/// A signal of a replica.
struct Read<T> {
    value: Option<T>,
    age: Option<Duration>,
    /// That there is no value says nothing.
    unknown: bool,
}

/// A ready pod that does not report is a gap in the samples, which none that reports without being ready may fill: it
/// serves nobody. A rollout has more ready pods than replicas count; where as many as those report all the same, their
/// samples are as old as ones that still count and forbid scale-down.
fn show_gap(variant: &mut Variant, ready: &BTreeSet<&str>, late: GoDuration) {
    let replicas = &mut variant.replicas;
    // They are in order of their pods.
    let reports = |pod: &&str| replicas.binary_search_by(|r| r.pod.as_str().cmp(pod)).is_ok();
    if ready.iter().all(reports) {
        return;
    }
    replicas.retain(|r| ready.contains(r.pod.as_str()));
    let wanted = variant.ready.unwrap_or(variant.current).min(variant.current);
    if usize::try_from(wanted).is_ok_and(|wanted| replicas.len() >= wanted) {
        for replica in replicas {
            replica.age = replica.age.max(late);
        }
    }
}
