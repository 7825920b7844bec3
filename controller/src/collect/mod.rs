//! From Prometheus to values: one query a signal for all models, and what is known of each pod, with its age.

pub(crate) mod prometheus;
pub(crate) mod sample;
pub(crate) mod signals;

use std::time::Instant;

use futures::future::join_all;

use prometheus::{Prometheus, Series};
use signals::Signal;

/// What was answered to each signal's query.
pub(crate) type Answers = Vec<(Signal, Result<Vec<Series>, String>)>;

/// Asks for every signal at once.
pub(crate) async fn fetch(
    prometheus: &Prometheus,
    namespace: Option<&str>,
    metrics: &crate::telemetry::Telemetry,
) -> Answers {
    join_all(Signal::ALL.map(|signal| async move {
        let began = Instant::now();
        let answer = prometheus.query(&signal.query(namespace)).await;
        metrics.query(signal, began.elapsed(), answer.is_ok());
        (signal, answer.map_err(|e| e.to_string()))
    }))
    .await
}
