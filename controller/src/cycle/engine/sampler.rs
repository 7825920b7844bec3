//! Samples: when and for which namespaces they are fetched and dropped.

mod counts;
mod latencies;
mod series;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use wva_objects::WorkloadKey;
use wva_runtime::prometheus::QueryError;
use wva_scaling::resolve::FleetSettings;
use wva_scaling::snapshot::{AnalyzerName, Config, ModelSettings};

pub(super) use self::counts::{COUNT_WAIT, WindowAnswer};
use self::counts::{CompletedCounts, DueCounts};
pub(super) use self::latencies::LatencyRound;
use self::latencies::LatencyState;
use self::series::{managed_workloads, model_filter};
use super::inputs::Inputs;
use super::{EngineConfig, TIMER_TOLERANCE};
use crate::collect::filter::SeriesFilter;
use crate::collect::sample::{Incomplete, SampleExpiry, Samples};
use crate::collect::scope::{QueryOutcome, Scope, ScopeSplitter};
use crate::collect::signals::Query;
use crate::collect::{self, Answer, Answers};
use crate::observe::pods;
use crate::observe::variants::ManagedVariant;

/// Texts of reasons may contain times.
const MAX_INCOMPLETE: usize = 16;

/// What Prometheus answered, and what is asked next.
#[derive(Default)]
pub(super) struct Sampler {
    pub(super) samples: Samples,
    pub(super) rounds: Rounds,
    pub(super) counts: CompletedCounts,
    /// Measured latencies of models with an objective.
    pub(super) latencies: LatencyState,
    incomplete_answers: BTreeSet<Incomplete>,
    pub(super) cleaned: Option<Instant>,
}

#[derive(Default)]
pub(super) struct Rounds {
    /// Start of the last whole round that ended, with or without success.
    pub(super) last: Option<Instant>,
    took: Duration,
    split: ScopeSplitter,
    /// Workloads whose series the newest full round read.
    read: BTreeSet<WorkloadKey>,
    /// True if an entry has the throughput analyzer.
    needs_counters: bool,
}

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

impl Sampler {
    /// Whether the last whole round is recent enough not to be repeated, `allowance` from now.
    pub(super) fn is_recent(&self, config: EngineConfig, allowance: Duration) -> bool {
        self.rounds.last.is_some_and(|began| began.elapsed() + allowance <= config.cache_ttl)
    }

    pub(super) fn has_sample(&self) -> bool {
        self.rounds.last.is_some()
    }

    pub(super) fn round_took(&self) -> Duration {
        self.rounds.took
    }

    /// Whether the newest round read the series of all managed workloads. It has not of a new variant.
    pub(super) fn has_read_all(&self, inputs: Inputs<'_>) -> bool {
        self.has_sample()
            && managed_workloads(&inputs.managed()).all(|workload| self.rounds.read.contains(workload))
    }

    /// Adapts the queries to the settings of a cycle, and the settings to what can be queried.
    pub(super) fn adapt_to(
        &mut self,
        config: &Config,
        fleet: &mut FleetSettings,
        managed: &[ManagedVariant],
        inputs: Inputs<'_>,
    ) {
        self.counts.cap_retention(fleet, inputs.config.max_retention);
        self.update_windows(config, fleet, managed, inputs);
        self.rounds.needs_counters = uses_throughput(fleet);
    }

    /// Starts the round of queries that is due. If the sample is recent, it queries only what steps `to_zero` wait for.
    pub(super) fn due_round<'e>(
        &mut self,
        inputs: Inputs<'e>,
        to_zero: Option<Scope>,
    ) -> Option<BoxFuture<'e, Round>> {
        if self.is_recent(inputs.config, TIMER_TOLERANCE) {
            to_zero.map(|scope| self.activity_round(inputs, scope))
        } else {
            Some(self.full_round(inputs))
        }
    }

    pub(super) fn full_round<'e>(&mut self, inputs: Inputs<'e>) -> BoxFuture<'e, Round> {
        let managed = inputs.managed();
        let scopes = self.rounds.split.next_round(&inputs.expected_pods(&managed));
        self.counts.request(DueCounts::All);
        let read = Extent::Full(managed_workloads(&managed).cloned().collect());
        let work = Query::WORK.into_iter().filter(|_| self.rounds.needs_counters);
        start_round(inputs, scopes, Query::ALL.into_iter().chain(work).collect(), &managed, read)
    }

    /// Starts a round of only the queries that steps to zero in these namespaces wait for.
    pub(super) fn activity_round<'e>(&mut self, inputs: Inputs<'e>, scope: Scope) -> BoxFuture<'e, Round> {
        self.counts.request(DueCounts::ScalingToZero);
        let scopes = Scope::split(scope.names());
        start_round(inputs, scopes, Query::ACTIVITY.to_vec(), &inputs.managed(), Extent::Activity(scope))
    }

    pub(super) fn add_round(&mut self, inputs: Inputs<'_>, round: Round) {
        let Round { began, extent, answers } = round;
        // Counts are queried with each round, so the pause accounts for them too.
        self.rounds.took = began.elapsed().max(self.counts.took);
        let had_error = self.samples.last_error().is_some();
        // Ages are relative to the time of the query.
        match extent {
            Extent::Activity(scope) => self.samples.add_partial_round(began, scope, answers),
            Extent::Full(workloads) => {
                self.rounds.last = Some(began);
                self.rounds.read = workloads;
                let has_answers = answers.iter().any(|answer| answer.rows.is_ok());
                self.rounds.split.finish_round(has_answers, |scope| scope_outcome(scope, &answers));
                self.samples.add_round(began, answers);
            }
        }
        match self.samples.last_error() {
            Some(error) if !had_error => {
                tracing::warn!(
                    error,
                    "Prometheus queries failed; their signals keep the last values until these expire"
                );
            }
            None if had_error => tracing::info!("All Prometheus queries succeed again"),
            _ => {}
        }
        self.log_incomplete_answers();
        self.drop_old_samples(inputs, Instant::now());
    }

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

    /// Runs at the cleanup interval.
    pub(super) fn drop_old_samples(&mut self, Inputs { sources, config, .. }: Inputs<'_>, now: Instant) {
        let last = *self.cleaned.get_or_insert(now);
        if now.saturating_duration_since(last) < config.cleanup_interval {
            return;
        }
        self.cleaned = Some(now);
        let pods = pods::workload_pods(&sources.watches);
        let known = |namespace: &str, pod: &str| pods::find_pod(&pods, namespace, pod).is_some();
        // A pod without a workload may get one soon; a pod outside the cache is gone.
        let expiry = SampleExpiry { deleted: config.fresh, existing: config.unavailable };
        self.samples.remove_expired(now, expiry, known);
    }
}

fn start_round<'e>(
    inputs: Inputs<'e>,
    scopes: Vec<Scope>,
    queries: Vec<Query>,
    managed: &[ManagedVariant],
    extent: Extent,
) -> BoxFuture<'e, Round> {
    let Inputs { sources, metrics, config } = inputs;
    let (began, within) = (Instant::now(), config.longest_round());
    let filter = Arc::new(pod_filter(inputs, managed));
    async move {
        let (prometheus, telemetry) = (&sources.prometheus, &metrics.telemetry);
        let answers = collect::query_round(prometheus, scopes, &queries, filter, telemetry, within).await;
        Round { began, extent, answers }
    }
    .boxed()
}

/// Series of the managed models and of the pods of their variants.
fn pod_filter(inputs: Inputs<'_>, managed: &[ManagedVariant]) -> SeriesFilter {
    let mut filter = model_filter(managed);
    let workloads: BTreeSet<&WorkloadKey> = managed_workloads(managed).collect();
    for (key, pod) in &pods::workload_pods(&inputs.sources.watches) {
        filter.add_pod(&key.namespace, &key.name, workloads.contains(&pod.workload));
    }
    filter
}

/// Whether the throughput analyzer decides on any model, or is its shadow analyzer.
fn uses_throughput(fleet: &FleetSettings) -> bool {
    let mut all = fleet.all().map(ModelSettings::saturation);
    all.any(|s| s.analyzer == AnalyzerName::Throughput || s.shadow == Some(AnalyzerName::Throughput))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_throughput_analyzer_may_decide_or_be_a_shadow() {
        let is_used = |entry: serde_json::Value| {
            let default = serde_json::from_value(json!({"saturation": entry})).unwrap();
            uses_throughput(&FleetSettings { default, ..FleetSettings::default() })
        };
        assert!(is_used(json!({"analyzerName": "throughput"})));
        assert!(is_used(json!({"analyzerName": "", "shadowAnalyzer": "throughput"})));
        assert!(!is_used(json!({"analyzerName": "", "shadowAnalyzer": "saturation"})));
    }
}
