//! The engine's samples: when they are fetched, for which namespaces, and what becomes of answers and of what is old.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::state::{Sampling, State};
use super::windows::DueCounts;
use super::{Engine, TIMER_ERROR};
use crate::collect::Answers;
use crate::collect::prometheus::QueryError;
use crate::collect::scope::{QueryOutcome, Scope};
use crate::collect::signals::Query;
use crate::collect::{self, Answer};
use crate::observe::{pods, workloads};

/// Reasons for partial answers that are logged until they are over. Their texts may hold times.
const MOST_PARTIAL: usize = 16;

/// One round of queries.
pub(super) struct Fetched {
    began: Instant,
    /// The namespaces it was for, where it was not for all of them.
    part: Option<Scope>,
    pub(super) answers: Answers,
}

/// What became of one part of a round.
fn query_outcome(scope: &Scope, answers: &[Answer]) -> QueryOutcome {
    let own = || answers.iter().filter(|answer| answer.scope == *scope);
    if own().any(|answer| matches!(answer.rows, Err(QueryError::TooLong { .. }))) {
        QueryOutcome::TooLong
    } else if own().all(|answer| answer.rows.is_ok()) {
        QueryOutcome::Answered
    } else {
        QueryOutcome::Failed
    }
}

impl Sampling {
    /// Logs each reason why answers may lack series once, and when that is over.
    fn log_partial_answers(&mut self) {
        let found = self.samples.partial_answers();
        if found.is_empty() && !self.partial_answers.is_empty() {
            tracing::info!("Prometheus answers in full again");
            self.partial_answers.clear();
        }
        for why in found {
            if self.partial_answers.len() < MOST_PARTIAL && !self.partial_answers.contains(why) {
                tracing::warn!(
                    warning = why,
                    "Prometheus answers in part: models concerned do not go to zero; check its stores"
                );
                self.partial_answers.insert(why.to_owned());
            }
        }
    }
}

impl Engine {
    /// Whether the newest sample is not to be fetched again, be it by `allowance` older than it is.
    pub(super) fn is_young(&self, state: &State, allowance: Duration) -> bool {
        state.sampling.last_round.is_some_and(|began| began.elapsed() + allowance <= self.config().cache_ttl)
    }

    /// The round of queries whose time has come, if any: of a sample that is young enough only what a step to zero waits
    /// for is asked again.
    pub(super) fn round(&self, state: &mut State) -> Option<BoxFuture<'_, Fetched>> {
        if self.is_young(state, TIMER_ERROR) {
            self.looks_again(state).then(|| self.fetch_activity(state))
        } else {
            Some(self.fetch(state))
        }
    }

    /// A whole round.
    pub(super) fn fetch(&self, state: &mut State) -> BoxFuture<'_, Fetched> {
        let scopes = match &self.sources.namespace {
            Some(namespace) => vec![Scope::one(namespace)],
            None => state.sampling.split.next_round(&self.expected_pods()),
        };
        state.sampling.counts.request(DueCounts::All);
        let work = Query::WORK.into_iter().filter(|_| state.sampling.reads_work);
        self.ask(scopes, Query::ALL.into_iter().chain(work).collect(), None)
    }

    /// A round of what steps to zero wait for, and of that alone: it comes again and again until they are taken.
    pub(super) fn fetch_activity(&self, state: &mut State) -> BoxFuture<'_, Fetched> {
        state.sampling.counts.request(DueCounts::Leaving);
        let scope = Scope::for_namespaces(state.steps.namespaces());
        self.ask(vec![scope.clone()], Query::ACTIVITY.to_vec(), Some(scope))
    }

    fn ask(&self, scopes: Vec<Scope>, queries: Vec<Query>, part: Option<Scope>) -> BoxFuture<'_, Fetched> {
        let began = Instant::now();
        let within = self.config().longest_round();
        async move {
            let answers = collect::query_round(
                &self.sources.prometheus, scopes, &queries, &self.metrics.telemetry, within,
            );
            Fetched { began, part, answers: answers.await }
        }
        .boxed()
    }

    /// How many pods of ours report metrics, by namespace.
    fn expected_pods(&self) -> BTreeMap<String, usize> {
        let mut pods: BTreeMap<String, usize> = BTreeMap::new();
        for m in self.managed() {
            let found =
                m.spec().ok().and_then(|d| workloads::find_workload(&self.sources.watches, &d.workload));
            let expected = found.map_or(0, |w| usize::try_from(w.replicas.current).unwrap_or(usize::MAX));
            let of_namespace = pods.entry(m.key.namespace.clone()).or_default();
            *of_namespace = of_namespace.saturating_add(expected);
        }
        pods
    }

    pub(super) fn take_in(&self, state: &mut State, fetched: Fetched) {
        let Fetched { began, part, answers } = fetched;
        // Counts are paced by it, too: they are asked for with each round.
        state.sampling.round_took = began.elapsed().max(state.sampling.counts.took);
        state.sampling.has_news = true;
        let had_error = state.sampling.samples.last_error().is_some();
        // Ages are told as of the query, not of an answer that may have taken its time.
        if let Some(scope) = part {
            state.sampling.samples.add_partial_round(began, scope, answers);
        } else {
            state.sampling.last_round = Some(began);
            state.sampling.split.finish_round(|scope| query_outcome(scope, &answers));
            state.sampling.samples.add_round(began, answers);
        }
        match state.sampling.samples.last_error() {
            Some(error) if !had_error => {
                tracing::warn!(
                    error,
                    "Prometheus did not answer every query: signals without an answer keep their last value, which grows old"
                );
            }
            None if had_error => tracing::info!("Prometheus answers every query again"),
            _ => {}
        }
        state.sampling.log_partial_answers();
        self.clean(state, Instant::now());
    }

    /// Forgets, from time to time, what no rule reads any more.
    pub(super) fn clean(&self, state: &mut State, now: Instant) {
        let config = self.config();
        let last = *state.sampling.cleaned.get_or_insert(now);
        if now.saturating_duration_since(last) < config.cleanup_interval {
            return;
        }
        state.sampling.cleaned = Some(now);
        let pods = pods::workload_pods(&self.sources.watches);
        let known = |namespace: &str, pod: &str| pods::find_pod(&pods, namespace, pod).is_some();
        // A pod that is not mapped yet may be so in a moment; one that no cache knows is gone.
        state.sampling.samples.remove_expired(now, (config.fresh, config.unavailable), known);
    }
}
