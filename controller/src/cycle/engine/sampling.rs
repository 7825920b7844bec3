//! Samples: when and for which namespaces they are fetched and dropped.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::completed_counts::DueCounts;
use super::state::{SamplingState, State};
use super::{Engine, TIMER_TOLERANCE};
use crate::collect::Answers;
use crate::collect::prometheus::QueryError;
use crate::collect::scope::{QueryOutcome, Scope};
use crate::collect::signals::Query;
use crate::collect::{self, Answer};
use crate::observe::{pods, workloads};

/// Texts of reasons may contain times.
const MAX_PARTIAL_REASONS: usize = 16;

pub(super) struct Round {
    began: Instant,
    part: Option<Scope>,
    pub(super) answers: Answers,
}

fn part_outcome(scope: &Scope, answers: &[Answer]) -> QueryOutcome {
    let own = || answers.iter().filter(|answer| answer.scope == *scope);
    if own().any(|answer| matches!(answer.rows, Err(QueryError::TooLong { .. }))) {
        QueryOutcome::TooLong
    } else if own().all(|answer| answer.rows.is_ok()) {
        QueryOutcome::Answered
    } else {
        QueryOutcome::Failed
    }
}

impl SamplingState {
    /// Once, and when there are none any more.
    fn log_partial_answers(&mut self) {
        let found = self.samples.partial_answers();
        if found.is_empty() && !self.partial_answers.is_empty() {
            tracing::info!("Prometheus returns complete results again");
            self.partial_answers.clear();
        }
        for why in found {
            if self.partial_answers.len() < MAX_PARTIAL_REASONS && !self.partial_answers.contains(why) {
                tracing::warn!(
                    warning = why,
                    "Prometheus returned partial results; affected models do not scale to zero. Check the stores of Prometheus"
                );
                self.partial_answers.insert(why.to_owned());
            }
        }
    }
}

impl Engine {
    /// Recent enough not to be fetched again, `allowance` from now.
    pub(super) fn is_sample_recent(&self, state: &State, allowance: Duration) -> bool {
        state.sampling.last_round.is_some_and(|began| began.elapsed() + allowance <= self.config().cache_ttl)
    }

    /// If the sample is recent, only what steps to zero wait for is queried.
    pub(super) fn due_round(&self, state: &mut State) -> Option<BoxFuture<'_, Round>> {
        if self.is_sample_recent(state, TIMER_TOLERANCE) {
            self.needs_recheck(state).then(|| self.fetch_activity(state))
        } else {
            Some(self.fetch(state))
        }
    }

    pub(super) fn fetch(&self, state: &mut State) -> BoxFuture<'_, Round> {
        let scopes = match &self.sources.namespace {
            Some(namespace) => vec![Scope::one(namespace)],
            None => state.sampling.split.next_round(&self.expected_pods()),
        };
        state.sampling.counts.request(DueCounts::All);
        let work = Query::WORK.into_iter().filter(|_| state.sampling.needs_counters);
        self.start_round(scopes, Query::ALL.into_iter().chain(work).collect(), None)
    }

    /// Starts a round of only the queries that steps to zero wait for.
    pub(super) fn fetch_activity(&self, state: &mut State) -> BoxFuture<'_, Round> {
        state.sampling.counts.request(DueCounts::ScalingToZero);
        let scope = Scope::for_namespaces(state.steps.namespaces());
        self.start_round(vec![scope.clone()], Query::ACTIVITY.to_vec(), Some(scope))
    }

    fn start_round(
        &self,
        scopes: Vec<Scope>,
        queries: Vec<Query>,
        part: Option<Scope>,
    ) -> BoxFuture<'_, Round> {
        let began = Instant::now();
        let within = self.config().longest_round();
        async move {
            let answers = collect::query_round(
                &self.sources.prometheus, scopes, &queries, &self.metrics.telemetry, within,
            );
            Round { began, part, answers: answers.await }
        }
        .boxed()
    }

    /// Number of managed pods that report metrics, by namespace.
    pub(super) fn expected_pods(&self) -> BTreeMap<String, usize> {
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

    pub(super) fn apply_round(&self, state: &mut State, round: Round) {
        let Round { began, part, answers } = round;
        // Counts are queried with each round, so the pause accounts for them too.
        state.sampling.round_took = began.elapsed().max(state.sampling.counts.took);
        state.sampling.has_new_samples = true;
        let had_error = state.sampling.samples.last_error().is_some();
        // Ages are relative to the time of the query.
        if let Some(scope) = part {
            state.sampling.samples.add_partial_round(began, scope, answers);
        } else {
            state.sampling.last_round = Some(began);
            state.sampling.split.finish_round(|scope| part_outcome(scope, &answers));
            state.sampling.samples.add_round(began, answers);
        }
        match state.sampling.samples.last_error() {
            Some(error) if !had_error => {
                tracing::warn!(
                    error,
                    "Prometheus queries failed; their signals keep the last values until these expire"
                );
            }
            None if had_error => tracing::info!("All Prometheus queries succeed again"),
            _ => {}
        }
        state.sampling.log_partial_answers();
        self.drop_old_samples(state, Instant::now());
    }

    /// Runs at the cleanup interval.
    pub(super) fn drop_old_samples(&self, state: &mut State, now: Instant) {
        let config = self.config();
        let last = *state.sampling.cleaned.get_or_insert(now);
        if now.saturating_duration_since(last) < config.cleanup_interval {
            return;
        }
        state.sampling.cleaned = Some(now);
        let pods = pods::workload_pods(&self.sources.watches);
        let known = |namespace: &str, pod: &str| pods::find_pod(&pods, namespace, pod).is_some();
        // A pod without a workload may get one soon; a pod outside the cache is gone.
        state.sampling.samples.remove_expired(now, (config.fresh, config.unavailable), known);
    }
}
