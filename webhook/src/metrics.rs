//! How long reviews take and how they end. Every label value comes from a closed set: a client that makes up
//! operations or resources makes no new series.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// The two metrics of reviews.
#[derive(Debug)]
pub(crate) struct Metrics {
    duration: HistogramVec,
    total: IntCounterVec,
}

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        // A review is pure work on cached data; the last bucket is the apiserver's patience (timeoutSeconds: 5).
        let buckets = vec![0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0];
        let duration = HistogramVec::new(
            HistogramOpts::new(
                "wva_admission_review_duration_seconds",
                "Time from a review's headers to its answer.",
            )
            .buckets(buckets),
            &["resource", "operation"],
        )?;
        let total = IntCounterVec::new(
            Opts::new(
                "wva_admission_reviews_total",
                "Reviews by outcome; code is the HTTP code of the verdict.",
            ),
            &["resource", "operation", "allowed", "code"],
        )?;
        registry.register(Box::new(duration.clone()))?;
        registry.register(Box::new(total.clone()))?;
        Ok(Self { duration, total })
    }

    /// `code` is 200 for an admission, 422 for a refusal, else the HTTP code of a review that could not be judged.
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
