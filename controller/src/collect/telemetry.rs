//! Metrics of the controller itself. Label values come from closed sets.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry};

use crate::collect::signals::{COMPLETED, Query};

/// Results of a cycle.
const RESULTS: [&str; 2] = ["ok", "degraded"];

/// Handles of the controller's own metrics.
#[derive(Clone, Debug)]
pub struct Telemetry {
    cycle_seconds: HistogramVec,
    cycles: IntCounterVec,
    query_seconds: HistogramVec,
    query_errors: IntCounterVec,
    partial_answers: IntCounterVec,
    unmapped: IntGauge,
}

impl Telemetry {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If a name is already registered.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str, label: &str| {
            register(registry, IntCounterVec::new(Opts::new(name, help), &[label])?)
        };
        let histogram = |name: &str, help: &str, labels: &[&str]| {
            register(registry, HistogramVec::new(HistogramOpts::new(name, help), labels)?)
        };
        let telemetry = Self {
            cycle_seconds: histogram(
                "wva_engine_cycle_duration_seconds",
                "Duration of a decision cycle.",
                &[],
            )?,
            cycles: counter(
                "wva_engine_cycles_total",
                "Decision cycles, by result: ok, or degraded if the analysis of a model failed.",
                "result",
            )?,
            query_seconds: histogram(
                "wva_prometheus_query_duration_seconds",
                "Duration of a Prometheus query.",
                &["query"],
            )?,
            query_errors: counter(
                "wva_prometheus_query_errors_total", "Failed Prometheus queries.", "query",
            )?,
            partial_answers: counter(
                "wva_prometheus_partial_answers_total",
                "Prometheus answers that report missing series in a warning.",
                "query",
            )?,
            unmapped: register(
                registry,
                IntGauge::new(
                    "wva_unmapped_pods",
                    "Pods with series in the newest sample that belong to no known workload.",
                )?,
            )?,
        };
        // Alerts need series that exist from the start.
        let queries = Query::ALL.into_iter().chain(Query::WORK).chain(Query::LATENCY);
        let queries = queries.map(Query::name).chain([COMPLETED]);
        for query in queries {
            telemetry.query_errors.with_label_values(&[query]).inc_by(0);
            telemetry.partial_answers.with_label_values(&[query]).inc_by(0);
        }
        for result in RESULTS {
            telemetry.cycles.with_label_values(&[result]).inc_by(0);
        }
        Ok(telemetry)
    }

    /// Records one Prometheus query.
    pub fn record_query(&self, query: Query, duration: Duration, answered: bool) {
        self.query_seconds.with_label_values(&[query.name()]).observe(duration.as_secs_f64());
        if !answered {
            self.query_errors.with_label_values(&[query.name()]).inc();
        }
    }

    /// Records one answer that may lack series.
    pub fn record_partial_answer(&self, query: Query) {
        self.partial_answers.with_label_values(&[query.name()]).inc();
    }

    /// Records one cycle.
    pub fn record_cycle(&self, duration: Duration, all_analyzed: bool, unmapped: usize) {
        let no_labels: [&str; 0] = [];
        self.cycle_seconds.with_label_values(&no_labels).observe(duration.as_secs_f64());
        let [ok, degraded] = RESULTS;
        self.cycles.with_label_values(&[if all_analyzed { ok } else { degraded }]).inc();
        self.unmapped.set(i64::try_from(unmapped).unwrap_or(i64::MAX));
    }
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> Result<C, prometheus::Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
