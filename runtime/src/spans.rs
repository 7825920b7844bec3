//! Spans of log lines. Their names and fields are defined only here, because people filter and search by them.

use std::fmt::Display;

use tracing::{Span, info_span};

/// One decision cycle. `at`: its time, as in `wva explain`. `models`: `all`, or `some` for a partial cycle.
#[must_use]
pub fn cycle(at: &impl Display, models: &'static str) -> Span {
    info_span!("cycle", %at, models)
}

/// One round of Prometheus queries. `queries`: number of queries.
#[must_use]
pub fn prometheus_round(queries: usize) -> Span {
    info_span!("prometheus_round", queries)
}

/// One change of a workload's replicas through the scale subresource.
#[must_use]
pub fn scale_step(namespace: &str, variant: &str, from: u32, to: u32) -> Span {
    info_span!("scale_step", namespace, variant, from, to)
}

/// One admission review. `uid`: its id in the API server. `resource`: plural name as in URLs.
#[must_use]
pub fn review(uid: &str, resource: &'static str, operation: &'static str) -> Span {
    info_span!("review", uid, resource, operation)
}
