//! Samples of every pod's load and KV cache, and of every model's queue at an endpoint picker: the newest value of each
//! signal and when it was observed. A signal that the newest answer lacks, or whose query failed, keeps its last value and
//! ages. Only the engine writes them.

mod load;
mod queues;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wva_scaling::snapshot::{MetricsAge, SchedulerQueue};

use super::scope::Scope;
use super::signals::{
    CacheConfig, CacheRow, CompletedRow, PodModel, Query, QueueRow, Retention, Rows, Signal,
};
use super::work::CounterHistory;
use super::{Answer, Answers};

use queues::QueueMap;

pub(crate) use load::{PodLoad, lesser};
pub(crate) use queues::SeenQueue;

/// A value with the time of its scrape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Observed<T = f64> {
    /// The value; a number is finite.
    pub value: T,
    /// When it was scraped, by the clock of this process.
    pub at: Instant,
}

impl<T> Observed<T> {
    /// How old it is.
    #[must_use]
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

/// Age of a value whose age was not reported: `max_over_time(..[1m])` can be that old.
const WINDOW: Duration = Duration::from_mins(1);
/// After this time without a value, the endpoint picker of a queue is gone.
const QUEUE_GONE: Duration = Duration::from_hours(1);

/// The KV cache of a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodCache<'a> {
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Pod name as the series has it; it may carry a rank suffix.
    pub pod: &'a str,
    /// Size of its cache.
    pub cache: Observed<CacheConfig>,
}

/// The newest samples of all pods and queues.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    loads: BTreeMap<PodModel, PodLoad>,
    /// By namespace and pod.
    caches: BTreeMap<(Arc<str>, Arc<str>), Observed<CacheConfig>>,
    /// By namespace and model.
    queues: QueueMap,
    /// All queues of a picker together, by namespace and InferencePool.
    pool_queues: QueueMap,
    /// By namespace and model: the completed requests within each window, and when the query was made.
    completed: BTreeMap<(Arc<str>, Arc<str>), BTreeMap<Retention, Observed>>,
    /// Windows whose newest answer may lack series, with its namespaces and the reason.
    partial_windows: BTreeMap<Retention, (Scope, String)>,
    /// Counters, where an entry asks for the throughput analyzer.
    works: CounterHistory,
    /// Begin of the newest round with an answer about loads.
    taken: Option<Instant>,
    /// The first query of the newest round that failed, and why.
    last_error: Option<(Query, String)>,
    /// The newest round.
    whole: Option<Round>,
    /// A round after it, for some namespaces and queries only.
    part: Option<Round>,
}

/// Outcome of a round of queries.
#[derive(Debug)]
struct Round {
    began: Instant,
    /// The namespaces it was for.
    scope: Scope,
    /// It has an answer about loads.
    loaded: bool,
    /// Where each query has a whole answer, which may be empty.
    answered: BTreeMap<Query, Vec<Scope>>,
    /// Where each query has an answer that may lack series, and why.
    partial: Vec<(Query, Scope, String)>,
}

impl Round {
    fn new(began: Instant, scope: Scope) -> Self {
        Self { began, scope, loaded: false, answered: BTreeMap::new(), partial: Vec::new() }
    }
}

impl Samples {
    /// Adds the answers of one round of queries, made at `now`. Failed queries change no value.
    pub(crate) fn take_in(&mut self, now: Instant, answers: Answers) {
        self.last_error = None;
        self.part = None;
        let round = self.take_answers(Round::new(now, Scope::All), answers);
        if round.loaded {
            self.taken = Some(now);
        }
        self.whole = Some(round);
    }

    /// Adds the answers of a round for these namespaces only, with some of the queries. Other samples stay as they are.
    pub(crate) fn take_in_part(&mut self, now: Instant, scope: Scope, answers: Answers) {
        let round = self.take_answers(Round::new(now, scope), answers);
        self.part = Some(round);
    }

    fn take_answers(&mut self, mut round: Round, answers: Answers) -> Round {
        let mut ages = HashMap::new();
        let mut values = Vec::new();
        let mut queues = Vec::new();
        for Answer { query, scope, rows } in answers {
            let answered = round.answered.entry(query).or_default();
            match rows {
                Ok(rows) => {
                    let Rows { pods, caches, queues: waiting, work, partial, .. } = rows;
                    self.works.take_in(round.began, work);
                    match partial {
                        Some(why) => round.partial.push((query, scope, why)),
                        None => answered.push(scope),
                    }
                    round.loaded |= matches!(query, Query::KvUsage | Query::Queue);
                    self.take_caches(round.began, caches);
                    queues.extend(waiting);
                    for (signal, key, value) in pods {
                        if signal.is_age() {
                            ages.insert((signal, key), value);
                        } else {
                            values.push((signal, key, value));
                        }
                    }
                }
                // Answers come in any order; the same failure must give the same text each time.
                Err(error) if self.last_error.as_ref().is_none_or(|(first, _)| query < *first) => {
                    self.last_error = Some((query, error.to_string()));
                }
                Err(_) => {}
            }
        }
        self.take_loads(round.began, values, &ages);
        self.take_queues(round.began, &queues);
        round
    }

    fn take_loads(
        &mut self,
        now: Instant,
        values: Vec<(Signal, PodModel, f64)>,
        ages: &HashMap<(Signal, PodModel), f64>,
    ) {
        // A value of unknown age is as old as the one before, since the series may have ended, but not older than the
        // window that it is in.
        let oldest = now.checked_sub(WINDOW).unwrap_or(now);
        for (signal, key, value) in values {
            let reported = match signal.age() {
                Some(age) => ages.get(&(age, key.clone())),
                None => Some(&0.0),
            };
            let reported = reported.and_then(|age| Duration::try_from_secs_f64(age.max(0.0)).ok());
            let Some(slot) = self.loads.entry(key).or_default().slot(signal) else { continue };
            let at = match (reported, &slot) {
                (Some(age), _) => now.checked_sub(age).unwrap_or(now),
                (None, Some(before)) => before.at.max(oldest),
                (None, None) => oldest,
            };
            *slot = Some(Observed { value, at });
        }
    }

    /// The smallest cache of the engines in a pod counts.
    fn take_caches(&mut self, now: Instant, caches: Vec<CacheRow>) {
        for CacheRow { namespace, pod, cache } in caches {
            let new = Observed { value: cache, at: now };
            self.caches
                .entry((namespace, pod))
                .and_modify(|old| *old = if old.at == now { lesser(*old, new) } else { new })
                .or_insert(new);
        }
    }

    /// Adds the answer to the query of one window, made at `now`. An answer that may lack series is left out: the lacking
    /// ones may have been busy.
    pub(crate) fn take_completed(&mut self, now: Instant, Answer { query, scope, rows }: Answer) {
        let Query::Completed(within) = query else { return };
        for (_, windows) in self.completed.iter_mut().filter(|((namespace, _), _)| scope.holds(namespace)) {
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
                    windows.insert(within, Observed { value: requests, at: now });
                }
            }
            Err(_) => {}
        }
    }

    /// Forgets windows that no query asks for any more.
    pub(crate) fn forget_windows(&mut self, is_asked: impl Fn(Retention) -> bool) {
        self.completed.retain(|_, windows| {
            windows.retain(|window, _| is_asked(*window));
            !windows.is_empty()
        });
        self.partial_windows.retain(|window, _| is_asked(*window));
    }

    fn take_queues(&mut self, now: Instant, rows: &[QueueRow]) {
        queues::add(&mut self.queues, now, rows, |row| Some(&row.model));
        queues::add(&mut self.pool_queues, now, rows, |row| row.pool.as_ref());
    }

    /// Begin of the newest whole round with an answer about loads.
    pub(crate) fn taken(&self) -> Option<Instant> {
        self.taken
    }

    /// The same for one namespace, partial rounds included.
    pub(crate) fn taken_in(&self, namespace: &str) -> Option<Instant> {
        let part = self.part.as_ref().filter(|part| part.loaded && part.scope.holds(namespace));
        part.map(|part| part.began).or(self.taken)
    }

    /// The rounds that asked for a namespace, the newest first.
    fn rounds(&self, namespace: &str) -> impl Iterator<Item = &Round> {
        let rounds = [&self.part, &self.whole].into_iter().flatten();
        rounds.filter(move |round| round.scope.holds(namespace))
    }

    /// Why the newest round lacks a signal.
    #[must_use]
    pub(crate) fn last_error(&self) -> Option<&str> {
        self.last_error.as_ref().map(|(_, error)| error.as_str())
    }

    /// Why the newest round lacks the load of this namespace's pods, where it does.
    #[must_use]
    pub(crate) fn load_error(&self, namespace: &str) -> Option<&str> {
        let whole = [Query::KvUsage, Query::Queue].iter().all(|query| self.answered(*query, namespace));
        self.last_error().filter(|_| !whole)
    }

    /// Whether the newest query for this namespace has a whole answer. If so, pods without the signal have none; otherwise
    /// the signal is unknown.
    #[must_use]
    pub(crate) fn answered(&self, query: Query, namespace: &str) -> bool {
        let newest = self.rounds(namespace).find_map(|round| round.answered.get(&query));
        newest.into_iter().flatten().any(|scope| scope.holds(namespace))
    }

    /// Whether the newest round shows a model's queue, or none ever did. A queue that is no longer shown may hold unseen
    /// requests.
    pub(crate) fn shows_queue(&self, namespace: &str, model: &str) -> bool {
        let newest = self.rounds(namespace).map(|round| round.began).max();
        let seen = self.queues.get(&(namespace.into(), model.into()));
        seen.is_none_or(|seen| newest.is_none_or(|newest| seen.at >= newest))
    }

    /// Requests of a model that completed within a period, or within the shortest longer window of its namespace. `None`
    /// where the newest attempt failed, which is not 0.
    #[must_use]
    pub(crate) fn completed(&self, namespace: &str, model: &str, within: Retention) -> Option<Observed> {
        let of_model = self.completed.get(&(namespace.into(), model.into()))?;
        of_model.range(within..).next().map(|(_, value)| *value)
    }

    /// Why the newest answers for a namespace may lack series, where they report it.
    #[must_use]
    pub(crate) fn partial_answer(&self, namespace: &str) -> Option<&str> {
        let of_loads = self.rounds(namespace).next().into_iter().flat_map(|round| &round.partial);
        let of_loads =
            of_loads.filter(|(_, scope, _)| scope.holds(namespace)).min_by_key(|(query, _, _)| *query);
        let mut of_windows = self.partial_windows.values();
        of_loads
            .map(|(_, _, why)| why.as_str())
            .or_else(|| of_windows.find(|(scope, _)| scope.holds(namespace)).map(|(_, why)| why.as_str()))
    }

    /// Why any of the newest answers may lack series.
    pub(crate) fn partial_answers(&self) -> BTreeSet<&str> {
        let rounds = [&self.part, &self.whole].into_iter().flatten();
        let of_loads = rounds.flat_map(|round| &round.partial).map(|(_, _, why)| why.as_str());
        of_loads.chain(self.partial_windows.values().map(|(_, why)| why.as_str())).collect()
    }

    /// All loads, in order of namespace, pod and model.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PodModel, &PodLoad)> {
        self.loads.iter()
    }

    /// The scrapes of the pods' counters.
    pub(crate) fn works(&self) -> &CounterHistory {
        &self.works
    }

    /// KV caches, in order of namespace and pod.
    pub(crate) fn caches(&self) -> impl Iterator<Item = PodCache<'_>> {
        self.caches.iter().map(|((namespace, pod), cache)| PodCache { namespace, pod, cache: *cache })
    }

    /// A model's queue. A queue that is no longer shown, or whose query failed, is unknown, which is not empty.
    #[must_use]
    pub(crate) fn scheduler_queue(
        &self,
        namespace: &str,
        model: &str,
        ages: &MetricsAge,
        now: Instant,
    ) -> SeenQueue {
        let Some(seen) = self.queues.get(&(namespace.into(), model.into())) else {
            let answered = self.answered(Query::SchedulerQueue, namespace);
            let queue = if answered { SchedulerQueue::Absent } else { SchedulerQueue::Unknown };
            return SeenQueue { queue, late: false };
        };
        queues::judge(seen, ages, now)
    }

    /// All queues at the pickers of an InferencePool. `Absent`: Prometheus does not show them by pool.
    #[must_use]
    pub(crate) fn pool_queue(
        &self,
        namespace: &str,
        pool: &str,
        ages: &MetricsAge,
        now: Instant,
    ) -> SchedulerQueue {
        let seen = self.pool_queues.get(&(namespace.into(), pool.into()));
        seen.map_or(SchedulerQueue::Absent, |seen| queues::judge(seen, ages, now).queue)
    }

    /// Forgets old samples: of pods that no longer exist after `gone`, of others after `missing`.
    pub(crate) fn clean(
        &mut self,
        now: Instant,
        (gone, missing): (Duration, Duration),
        exists: impl Fn(&str, &str) -> bool,
    ) {
        let limit = |namespace: &str, pod: &str| if exists(namespace, pod) { missing } else { gone };
        self.loads.retain(|key, load| {
            let age = load.youngest().map(|at| now.saturating_duration_since(at));
            age.is_some_and(|age| age <= limit(&key.namespace, &key.pod))
        });
        self.caches.retain(|(namespace, pod), cache| cache.age(now) <= limit(namespace, pod));
        self.works.clean(now, |key| limit(&key.namespace, &key.pod));
        for queues in [&mut self.queues, &mut self.pool_queues] {
            queues.retain(|_, queue| queue.age(now) <= QUEUE_GONE);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
