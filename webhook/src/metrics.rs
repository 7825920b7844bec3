//! Metrics of reviews. Label values come from closed sets: no client can create series.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::review::Phase;

#[derive(Debug)]
pub(crate) struct Metrics {
    duration: HistogramVec,
    total: IntCounterVec,
}

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        // Reviews work on cached data only. The last bucket is `timeoutSeconds`.
        let buckets = vec![0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0];
        let duration = HistogramVec::new(
            HistogramOpts::new(
                "wva_admission_review_duration_seconds",
                "Time from the request headers of a review to its answer, in seconds.",
            )
            .buckets(buckets),
            &["resource", "operation"],
        )?;
        let total = IntCounterVec::new(
            Opts::new(
                "wva_admission_reviews_total",
                "Reviews by outcome. code: 200 admitted, 422 denied, else the HTTP status of an invalid review.",
            ),
            &["resource", "operation", "allowed", "code"],
        )?;
        registry.register(Box::new(duration.clone()))?;
        registry.register(Box::new(total.clone()))?;
        // The first review of each kind is an increase, too.
        for resource in [Phase::Validate, Phase::ConfigMap].map(Phase::resource) {
            for operation in ["CREATE", "UPDATE"] {
                for (allowed, code) in [("true", "200"), ("false", "422")] {
                    total.with_label_values(&[resource, operation, allowed, code]).inc_by(0);
                }
            }
        }
        Ok(Self { duration, total })
    }

    /// `code`: 200 admitted, 422 denied, else the HTTP status without a verdict.
    pub(crate) fn observe(
        &self,
        resource: &'static str,
        operation: &'static str,
        allowed: bool,
        code: u16,
        took: Duration,
    ) {
        let allowed = if allowed { "true" } else { "false" };
        self.duration.with_label_values(&[resource, operation]).observe(took.as_secs_f64());
        self.total.with_label_values(&[resource, operation, allowed, code.to_string().as_str()]).inc();
    }
}
