//! Samples: the newest value of each signal with its time. A signal that is missing in the newest answer keeps its last
//! value and ages.

mod expiry;
mod load;
mod queues;
mod router;
mod update;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wva_runtime::prometheus::QueryError;
use wva_scaling::snapshot::{MetricsAge, RouterLoad, SchedulerQueue};

use super::filter::PodName;
use super::pod_model::PodModel;
use super::scope::Scope;
use super::signals::{CachePod, CacheRow, CompletedRow, EngineCaches, Query, QueueKey, Retention, Rows};
use super::work::CounterHistory;
use super::{Answer, Answers};

use queues::QueueMap;
use router::RouterLoads;
use update::LoadUpdate;

pub(crate) use expiry::SampleExpiry;
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

/// Age at which a queue is forgotten: its endpoint picker no longer exists.
const QUEUE_EXPIRY: Duration = Duration::from_hours(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct PodCache<'a> {
    pub namespace: &'a str,
    /// Name of the pod, perhaps with the suffix of a rank.
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
    incomplete_windows: BTreeMap<Retention, (Scope, Incomplete)>,
    /// Work counters, if an entry selects the throughput analyzer.
    counters: CounterHistory,
    /// Start of the newest full round with an answer about loads.
    last_round: Option<Instant>,
    /// First failed query of the newest round.
    last_error: Option<(Query, String)>,
    /// Failures of namespaces that are queried apart. Not every round has queries for them.
    failing: BTreeMap<Box<str>, TimedValue<String>>,
    full: Option<Round>,
    /// A later round for some namespaces and queries.
    part: Option<Round>,
}

/// Why an answer may lack series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Incomplete {
    /// Warning of Prometheus.
    Warning(String),
    /// A pod or model has more series than wva reads.
    TooMany(String),
}

impl Incomplete {
    pub(crate) const fn remedy(&self) -> &'static str {
        match self {
            Self::Warning(_) => "check the stores of Prometheus",
            Self::TooMany(_) => "check what it exports",
        }
    }
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Warning(why) => write!(f, "Prometheus returned partial results ({why})"),
            Self::TooMany(what) => write!(f, "{what}, which wva does not read"),
        }
    }
}

#[derive(Debug)]
struct Round {
    began: Instant,
    scope: Scope,
    has_loads: bool,
    /// Scopes with an answer, possibly empty.
    answered: BTreeMap<Query, Vec<Scope>>,
    /// Scopes whose answer may lack series, and why.
    incomplete: Vec<(Query, Scope, Incomplete)>,
    /// Pods of no known workload.
    unmapped: HashSet<PodName>,
}

impl Round {
    fn new(began: Instant, scope: Scope) -> Self {
        let (answered, incomplete, unmapped) = Default::default();
        Self { began, scope, has_loads: false, answered, incomplete, unmapped }
    }

    /// Whether a query has an answer for this namespace that lacks nothing.
    fn is_complete(&self, query: Query, namespace: &str) -> bool {
        let answered = self.answered.get(&query).into_iter().flatten();
        let mut incomplete = self.incomplete.iter().filter(|(other, _, _)| *other == query);
        answered.into_iter().any(|scope| scope.contains(namespace))
            && !incomplete.any(|(_, scope, _)| scope.contains(namespace))
    }
}

impl Samples {
    /// A full round, made at `now`. Failed queries change no value.
    pub(crate) fn add_round(&mut self, now: Instant, answers: Answers) {
        self.last_error = None;
        self.part = None;
        let scope = Scope::union(answers.iter().map(|answer| &answer.scope));
        let round = self.add_answers(Round::new(now, scope), answers);
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
        let (mut queues, mut routers) = (BTreeMap::new(), Vec::new());
        for Answer { query, scope, rows } in answers {
            let answered = round.answered.entry(query).or_default();
            if query == Query::KvUsage {
                self.note_failing(round.began, &scope, rows.as_ref().err());
            }
            match rows {
                Ok(rows) => {
                    let Rows { names, pods, servers, caches, work, partial, .. } = rows;
                    queues.extend(rows.queues);
                    routers.extend(rows.routers);
                    update.add(pods, servers);
                    self.counters.add(round.began, work);
                    let (unmapped, reached) = names.into_parts();
                    round.unmapped.extend(unmapped);
                    let reached = reached.into_iter().map(|limit| {
                        let scope = Scope::new([&*limit.namespace]);
                        (query, scope, Incomplete::TooMany(limit.to_string()))
                    });
                    let partial = partial.map(|why| (query, scope.clone(), Incomplete::Warning(why)));
                    round.incomplete.extend(partial.into_iter().chain(reached));
                    answered.push(scope);
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
        self.incomplete_windows.remove(&within);
        match rows {
            Ok(Rows { partial: Some(why), .. }) => {
                self.incomplete_windows.insert(within, (scope, Incomplete::Warning(why)));
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
        self.incomplete_windows.retain(|window, _| is_queried(*window));
    }

    fn add_queues(&mut self, now: Instant, rows: &BTreeMap<QueueKey, f64>) {
        queues::add(&mut self.queues, now, rows, |row| row.model.as_ref());
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

    /// Failure of the newest round, else of a namespace that is queried apart.
    #[must_use]
    pub(crate) fn last_error(&self) -> Option<&str> {
        self.round_error().or_else(|| self.failing.values().next().map(|failure| failure.value.as_str()))
    }

    fn round_error(&self) -> Option<&str> {
        self.last_error.as_ref().map(|(_, error)| error.as_str())
    }

    /// Why the newest round lacks loads of this namespace.
    #[must_use]
    pub(crate) fn load_error(&self, namespace: &str) -> Option<&str> {
        let is_complete =
            [Query::KvUsage, Query::Queue].iter().all(|query| self.has_answer(*query, namespace));
        let own = self.failing.get(namespace).map(|failure| failure.value.as_str());
        own.or(self.round_error()).filter(|_| !is_complete)
    }

    fn note_failing(&mut self, at: Instant, scope: &Scope, error: Option<&QueryError>) {
        let mut names = scope.names();
        self.failing.retain(|namespace, _| !scope.contains(namespace));
        if let (Some(error), Some(only), None) = (error, names.next(), names.next()) {
            self.failing.insert(only.into(), TimedValue { value: error.to_string(), at });
        }
    }

    /// Whether the newest query has a complete answer. If not, missing signals are unknown.
    #[must_use]
    pub(crate) fn has_answer(&self, query: Query, namespace: &str) -> bool {
        let newest = self.rounds(namespace).find(|round| round.answered.contains_key(&query));
        newest.is_some_and(|round| round.is_complete(query, namespace))
    }

    /// False: a queue that was there is missing now, and may hold requests.
    pub(crate) fn shows_queue(&self, namespace: &str, model: &str) -> bool {
        let newest = self.rounds(namespace).map(|round| round.began).max();
        let sample = self.queues.get(&(namespace.into(), model.into()));
        sample.is_none_or(|sample| newest.is_none_or(|newest| sample.at >= newest))
    }

    /// Completed requests within the period, or the next longer window. `None`: unknown.
    #[must_use]
    pub(crate) fn completed(&self, namespace: &str, model: &str, within: Retention) -> Option<TimedValue> {
        let of_model = self.completed.get(&(namespace.into(), model.into()))?;
        of_model.range(within..).next().map(|(_, value)| *value)
    }

    /// Why series of a namespace may be missing.
    #[must_use]
    pub(crate) fn incomplete_answer(&self, namespace: &str) -> Option<&Incomplete> {
        let of_loads = self.rounds(namespace).next().into_iter().flat_map(|round| &round.incomplete);
        let of_loads =
            of_loads.filter(|(_, scope, _)| scope.contains(namespace)).min_by_key(|(query, _, _)| *query);
        let of_windows = || self.incomplete_windows.values().find(|(scope, _)| scope.contains(namespace));
        of_loads.map(|(_, _, why)| why).or_else(|| of_windows().map(|(_, why)| why))
    }

    /// All reasons for which series may be missing.
    pub(crate) fn incomplete_answers(&self) -> BTreeSet<&Incomplete> {
        let rounds = [&self.part, &self.full].into_iter().flatten();
        let of_loads = rounds.flat_map(|round| &round.incomplete).map(|(_, _, why)| why);
        of_loads.chain(self.incomplete_windows.values().map(|(_, why)| why)).collect()
    }

    /// Pods in the newest full round that belong to no known workload.
    pub(crate) fn unmapped(&self) -> usize {
        self.full.as_ref().map_or(0, |round| round.unmapped.len())
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
}

#[cfg(test)]
pub(crate) mod tests;
