//! Samples: the newest value of each signal with its time. A signal that is missing in the newest answer keeps its last
//! value and ages.

mod load;
mod queues;
mod router;
mod update;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wva_scaling::snapshot::{MetricsAge, RouterLoad, SchedulerQueue};

use super::scope::Scope;
use super::signals::{
    CachePod, CacheRow, CompletedRow, EngineCaches, PodModel, Query, QueueRow, Retention, Rows,
};
use super::work::CounterHistory;
use super::{Answer, Answers};

use queues::QueueMap;
use router::RouterLoads;
use update::LoadUpdate;

pub(crate) use load::{EngineSleep, PodLoad};
pub(crate) use queues::QueueState;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TimedValue<T = f64> {
    pub value: T,
    /// Time of the scrape, by the clock of this process.
    pub at: Instant,
}

impl<T> TimedValue<T> {
    #[must_use]
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

/// Then the endpoint picker of a queue no longer exists.
const QUEUE_EXPIRY: Duration = Duration::from_hours(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct PodCache<'a> {
    pub namespace: &'a str,
    /// It may have a rank suffix.
    pub pod: &'a str,
    pub cache: TimedValue<EngineCaches>,
}

#[derive(Debug, Default)]
pub(crate) struct Samples {
    loads: BTreeMap<PodModel, PodLoad>,
    caches: BTreeMap<CachePod, TimedValue<EngineCaches>>,
    queues: QueueMap,
    /// All queues of a picker, by namespace and InferencePool.
    pool_queues: QueueMap,
    routers: RouterLoads,
    /// Keys: namespace and model; for each window the count and the time of the query.
    completed: BTreeMap<(Arc<str>, Arc<str>), BTreeMap<Retention, TimedValue>>,
    /// Windows whose newest answer may lack series.
    partial_windows: BTreeMap<Retention, (Scope, String)>,
    /// Work counters, if an entry selects the throughput analyzer.
    counters: CounterHistory,
    /// Start of the newest full round with an answer about loads.
    last_round: Option<Instant>,
    /// First failed query of the newest round.
    last_error: Option<(Query, String)>,
    full: Option<Round>,
    /// A later round for some namespaces and queries.
    part: Option<Round>,
}

#[derive(Debug)]
struct Round {
    began: Instant,
    scope: Scope,
    has_loads: bool,
    /// Scopes with a complete, possibly empty, answer.
    answered: BTreeMap<Query, Vec<Scope>>,
    /// Scopes whose answer may lack series, and why.
    partial: Vec<(Query, Scope, String)>,
}

impl Round {
    fn new(began: Instant, scope: Scope) -> Self {
        Self { began, scope, has_loads: false, answered: BTreeMap::new(), partial: Vec::new() }
    }
}

impl Samples {
    /// A full round, made at `now`. Failed queries change no value.
    pub(crate) fn add_round(&mut self, now: Instant, answers: Answers) {
        self.last_error = None;
        self.part = None;
        let round = self.add_answers(Round::new(now, Scope::All), answers);
        if round.has_loads {
            self.last_round = Some(now);
        }
        self.full = Some(round);
    }

    /// A round for some namespaces and queries.
    pub(crate) fn add_partial_round(&mut self, now: Instant, scope: Scope, answers: Answers) {
        let round = self.add_answers(Round::new(now, scope), answers);
        self.part = Some(round);
    }

    fn add_answers(&mut self, mut round: Round, answers: Answers) -> Round {
        let mut update = LoadUpdate::default();
        let (mut queues, mut routers) = (Vec::new(), Vec::new());
        for Answer { query, scope, rows } in answers {
            let answered = round.answered.entry(query).or_default();
            match rows {
                Ok(rows) => {
                    let Rows { pods, servers, caches, work, partial, .. } = rows;
                    queues.extend(rows.queues);
                    routers.extend(rows.routers);
                    update.add(pods, servers);
                    self.counters.add(round.began, work);
                    match partial {
                        Some(why) => round.partial.push((query, scope, why)),
                        None => answered.push(scope),
                    }
                    round.has_loads |= matches!(query, Query::KvUsage | Query::Queue);
                    self.add_caches(round.began, caches);
                }
                // Answers arrive in any order, but the same failures must give the same text.
                Err(error) if self.last_error.as_ref().is_none_or(|(first, _)| query < *first) => {
                    self.last_error = Some((query, error.to_string()));
                }
                Err(_) => {}
            }
        }
        update.apply(round.began, &mut self.loads);
        self.add_queues(round.began, &queues);
        self.routers.add(round.began, routers, &queues);
        round
    }

    fn add_caches(&mut self, now: Instant, caches: Vec<CacheRow>) {
        for (pod, value) in EngineCaches::by_pod(caches) {
            self.caches.insert(pod, TimedValue { value, at: now });
        }
    }

    /// One window. An answer that may lack series is not used: they may have had requests.
    pub(crate) fn add_completed(&mut self, now: Instant, Answer { query, scope, rows }: Answer) {
        let Query::Completed(within) = query else { return };
        for (_, windows) in self.completed.iter_mut().filter(|((namespace, _), _)| scope.contains(namespace))
        {
            windows.remove(&within);
        }
        self.partial_windows.remove(&within);
        match rows {
            Ok(Rows { partial: Some(why), .. }) => {
                self.partial_windows.insert(within, (scope, why));
            }
            Ok(rows) => {
                for CompletedRow { namespace, model, requests } in rows.completed {
                    let windows = self.completed.entry((namespace, model)).or_default();
                    let sample = windows.entry(within).or_insert(TimedValue { value: requests, at: now });
                    sample.value = sample.value.max(requests);
                }
            }
            Err(_) => {}
        }
    }

    pub(crate) fn remove_windows(&mut self, is_queried: impl Fn(Retention) -> bool) {
        self.completed.retain(|_, windows| {
            windows.retain(|window, _| is_queried(*window));
            !windows.is_empty()
        });
        self.partial_windows.retain(|window, _| is_queried(*window));
    }

    fn add_queues(&mut self, now: Instant, rows: &[QueueRow]) {
        queues::add(&mut self.queues, now, rows, |row| Some(&row.model));
        queues::add(&mut self.pool_queues, now, rows, |row| row.pool.as_ref());
    }

    pub(crate) fn last_round(&self) -> Option<Instant> {
        self.last_round
    }

    /// Start of the newest round, full or partial, with loads of a namespace.
    pub(crate) fn last_round_for(&self, namespace: &str) -> Option<Instant> {
        let part = self.part.as_ref().filter(|part| part.has_loads && part.scope.contains(namespace));
        part.map(|part| part.began).or(self.last_round)
    }

    fn rounds(&self, namespace: &str) -> impl Iterator<Item = &Round> {
        let rounds = [&self.part, &self.full].into_iter().flatten();
        rounds.filter(move |round| round.scope.contains(namespace))
    }

    #[must_use]
    pub(crate) fn last_error(&self) -> Option<&str> {
        self.last_error.as_ref().map(|(_, error)| error.as_str())
    }

    /// Why the newest round lacks loads of this namespace.
    #[must_use]
    pub(crate) fn load_error(&self, namespace: &str) -> Option<&str> {
        let is_complete =
            [Query::KvUsage, Query::Queue].iter().all(|query| self.has_answer(*query, namespace));
        self.last_error().filter(|_| !is_complete)
    }

    /// Whether the newest query has a complete answer. If not, missing signals are unknown.
    #[must_use]
    pub(crate) fn has_answer(&self, query: Query, namespace: &str) -> bool {
        let newest = self.rounds(namespace).find_map(|round| round.answered.get(&query));
        newest.into_iter().flatten().any(|scope| scope.contains(namespace))
    }

    /// False: a queue that was there is missing now, and may hold requests.
    pub(crate) fn shows_queue(&self, namespace: &str, model: &str) -> bool {
        let newest = self.rounds(namespace).map(|round| round.began).max();
        let sample = self.queues.get(&(namespace.into(), model.into()));
        sample.is_none_or(|sample| newest.is_none_or(|newest| sample.at >= newest))
    }

    /// Within the period, or the next longer window. `None`: unknown.
    #[must_use]
    pub(crate) fn completed(&self, namespace: &str, model: &str, within: Retention) -> Option<TimedValue> {
        let of_model = self.completed.get(&(namespace.into(), model.into()))?;
        of_model.range(within..).next().map(|(_, value)| *value)
    }

    /// Warning that series of a namespace may be missing.
    #[must_use]
    pub(crate) fn partial_answer(&self, namespace: &str) -> Option<&str> {
        let of_loads = self.rounds(namespace).next().into_iter().flat_map(|round| &round.partial);
        let of_loads =
            of_loads.filter(|(_, scope, _)| scope.contains(namespace)).min_by_key(|(query, _, _)| *query);
        let mut of_windows = self.partial_windows.values();
        of_loads
            .map(|(_, _, why)| why.as_str())
            .or_else(|| of_windows.find(|(scope, _)| scope.contains(namespace)).map(|(_, why)| why.as_str()))
    }

    /// All warnings that series may be missing.
    pub(crate) fn partial_answers(&self) -> BTreeSet<&str> {
        let rounds = [&self.part, &self.full].into_iter().flatten();
        let of_loads = rounds.flat_map(|round| &round.partial).map(|(_, _, why)| why.as_str());
        of_loads.chain(self.partial_windows.values().map(|(_, why)| why.as_str())).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PodModel, &PodLoad)> {
        self.loads.iter()
    }

    pub(crate) fn counters(&self) -> &CounterHistory {
        &self.counters
    }

    pub(crate) fn caches(&self) -> impl Iterator<Item = PodCache<'_>> {
        self.caches.iter().map(|((namespace, pod), cache)| PodCache { namespace, pod, cache: *cache })
    }

    /// A queue that is no longer reported, or whose query failed, is unknown.
    #[must_use]
    pub(crate) fn scheduler_queue(
        &self,
        namespace: &str,
        model: &str,
        ages: &MetricsAge,
        now: Instant,
    ) -> QueueState {
        let Some(sample) = self.queues.get(&(namespace.into(), model.into())) else {
            let answered = self.has_answer(Query::SchedulerQueue, namespace);
            let queue = if answered { SchedulerQueue::Absent } else { SchedulerQueue::Unknown };
            return QueueState { queue, is_late: false };
        };
        queues::state(sample, ages, now)
    }

    /// Sum of all queues of an InferencePool. `Absent`: the series have no pool label.
    #[must_use]
    pub(crate) fn pool_queue(
        &self,
        namespace: &str,
        pool: &str,
        ages: &MetricsAge,
        now: Instant,
    ) -> SchedulerQueue {
        let sample = self.pool_queues.get(&(namespace.into(), pool.into()));
        sample.map_or(SchedulerQueue::Absent, |sample| queues::state(sample, ages, now).queue)
    }

    /// Load of a model at its router.
    pub(crate) fn router_load(
        &self,
        namespace: &str,
        model: &str,
        ages: &MetricsAge,
        now: Instant,
    ) -> Option<RouterLoad> {
        self.routers.get(namespace, model, ages, now)
    }

    /// Removes deleted pods after `deleted`, existing pods after `existing`.
    pub(crate) fn remove_expired(
        &mut self,
        now: Instant,
        (deleted, existing): (Duration, Duration),
        exists: impl Fn(&str, &str) -> bool,
    ) {
        let limit = |namespace: &str, pod: &str| if exists(namespace, pod) { existing } else { deleted };
        self.loads.retain(|key, load| {
            let age = load.newest().map(|at| now.saturating_duration_since(at));
            age.is_some_and(|age| age <= limit(&key.namespace, &key.pod))
        });
        self.caches.retain(|(namespace, pod), cache| cache.age(now) <= limit(namespace, pod));
        self.counters.remove_expired(now, |key| limit(&key.namespace, &key.pod));
        for queues in [&mut self.queues, &mut self.pool_queues] {
            queues.retain(|_, queue| queue.age(now) <= QUEUE_EXPIRY);
        }
        self.routers.remove_expired(now, QUEUE_EXPIRY);
    }
}

#[cfg(test)]
pub(crate) mod tests;
