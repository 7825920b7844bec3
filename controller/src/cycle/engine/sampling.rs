//! Samples: when and for which namespaces they are fetched and dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use wva_objects::WorkloadKey;
use wva_runtime::prometheus::QueryError;

use super::completed_counts::DueCounts;
use super::series::{managed_workloads, model_filter};
use super::state::{SamplingState, State};
use super::{Engine, TIMER_TOLERANCE};
use crate::collect::filter::SeriesFilter;
use crate::collect::scope::{QueryOutcome, Scope};
use crate::collect::signals::Query;
use crate::collect::{self, Answer, Answers};
use crate::observe::variants::ManagedVariant;
use crate::observe::{pods, workloads};

/// Texts of reasons may contain times.
const MAX_INCOMPLETE: usize = 16;

pub(super) struct Round {
    began: Instant,
    extent: Extent,
    pub(super) answers: Answers,
}

/// What a round reads.
enum Extent {
    /// All signals of these workloads.
    Full(BTreeSet<WorkloadKey>),
    /// The activity in these namespaces.
    Activity(Scope),
}

/// The worst outcome of the queries of a scope.
fn scope_outcome(scope: &Scope, answers: &[Answer]) -> QueryOutcome {
    let own = answers.iter().filter(|answer| answer.scope == *scope);
    own.map(|answer| outcome(answer.rows.as_ref().err())).max().unwrap_or(QueryOutcome::Failed)
}

fn outcome(error: Option<&QueryError>) -> QueryOutcome {
    match error {
        None => QueryOutcome::Answered,
        // Of its own timeout, Prometheus says 503, and proxies say 504.
        Some(QueryError::TimedOut { .. } | QueryError::Refused { status: 503 | 504, .. }) => {
            QueryOutcome::TimedOut
        }
        // Too many samples, a too long query, or series of one pod with which the query has no result.
        Some(QueryError::TooLong { .. } | QueryError::Refused { status: 400 | 413 | 414 | 422, .. }) => {
            QueryOutcome::Refused
        }
        Some(_) => QueryOutcome::Failed,
    }
}

impl SamplingState {
    /// Once, and when there are none any more.
    fn log_incomplete_answers(&mut self) {
        let found = self.samples.incomplete_answers();
        if found.is_empty() && !self.incomplete_answers.is_empty() {
            tracing::info!("The results of Prometheus are complete again");
            self.incomplete_answers.clear();
        }
        for why in found {
            if self.incomplete_answers.len() < MAX_INCOMPLETE && !self.incomplete_answers.contains(why) {
                tracing::warn!("{why}; affected models do not scale to zero: {}", why.remedy());
                self.incomplete_answers.insert(why.clone());
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
        let managed = self.managed();
        let scopes = state.sampling.split.next_round(&self.expected_pods(&managed));
        state.sampling.counts.request(DueCounts::All);
        let read = Extent::Full(managed_workloads(&managed).cloned().collect());
        let work = Query::WORK.into_iter().filter(|_| state.sampling.needs_counters);
        self.start_round(scopes, Query::ALL.into_iter().chain(work).collect(), &managed, read)
    }

    /// Starts a round of only the queries that steps to zero wait for.
    pub(super) fn fetch_activity(&self, state: &mut State) -> BoxFuture<'_, Round> {
        state.sampling.counts.request(DueCounts::ScalingToZero);
        let scope = Scope::new(state.steps.namespaces());
        let scopes = Scope::split(scope.names());
        self.start_round(scopes, Query::ACTIVITY.to_vec(), &self.managed(), Extent::Activity(scope))
    }

    fn start_round(
        &self,
        scopes: Vec<Scope>,
        queries: Vec<Query>,
        managed: &[ManagedVariant],
        extent: Extent,
    ) -> BoxFuture<'_, Round> {
        let (began, within) = (Instant::now(), self.config().longest_round());
        let filter = Arc::new(self.pod_filter(managed));
        async move {
            let reads = (filter, &self.metrics.telemetry);
            let answers = collect::query_round(&self.sources.prometheus, scopes, &queries, reads, within);
            Round { began, extent, answers: answers.await }
        }
        .boxed()
    }

    /// Whether the newest round read the series of all managed workloads. It has not of a new variant.
    pub(super) fn has_read_all(&self, state: &State) -> bool {
        state.sampling.last_round.is_some()
            && managed_workloads(&self.managed()).all(|workload| state.sampling.read.contains(workload))
    }

    /// Series of the managed models and of the pods of their variants.
    fn pod_filter(&self, managed: &[ManagedVariant]) -> SeriesFilter {
        let mut filter = model_filter(managed);
        let workloads: BTreeSet<&WorkloadKey> = managed_workloads(managed).collect();
        for (key, pod) in &pods::workload_pods(&self.sources.watches) {
            filter.add_pod(&key.namespace, &key.name, workloads.contains(&pod.workload));
        }
        filter
    }

    /// Number of managed pods that report metrics, by namespace.
    pub(super) fn expected_pods(&self, managed: &[ManagedVariant]) -> BTreeMap<String, usize> {
        let mut pods: BTreeMap<String, usize> = BTreeMap::new();
        for m in managed {
            let found =
                m.spec().ok().and_then(|d| workloads::find_workload(&self.sources.watches, &d.workload));
            let expected = found.map_or(0, |w| usize::try_from(w.replicas.current).unwrap_or(usize::MAX));
            let of_namespace = pods.entry(m.key.namespace.clone()).or_default();
            *of_namespace = of_namespace.saturating_add(expected);
        }
        pods
    }

    pub(super) fn apply_round(&self, state: &mut State, round: Round) {
        let Round { began, extent, answers } = round;
        // Counts are queried with each round, so the pause accounts for them too.
        state.sampling.round_took = began.elapsed().max(state.sampling.counts.took);
        state.sampling.has_new_samples = true;
        let had_error = state.sampling.samples.last_error().is_some();
        // Ages are relative to the time of the query.
        match extent {
            Extent::Activity(scope) => state.sampling.samples.add_partial_round(began, scope, answers),
            Extent::Full(workloads) => {
                state.sampling.last_round = Some(began);
                state.sampling.read = workloads;
                let has_answers = answers.iter().any(|answer| answer.rows.is_ok());
                state.sampling.split.finish_round(has_answers, |scope| scope_outcome(scope, &answers));
                state.sampling.samples.add_round(began, answers);
            }
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
        state.sampling.log_incomplete_answers();
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
