//! Spans of log lines. People search by their names and fields.

use std::fmt::Display;

use tracing::{Span, info_span};

/// `at`: its time, as in `wva explain`. `models`: `all`, or `some` for a partial cycle.
#[must_use]
pub fn cycle(at: &impl Display, models: &'static str) -> Span {
    info_span!("cycle", %at, models)
}

/// One round of Prometheus queries.
#[must_use]
pub fn prometheus_round(queries: usize) -> Span {
    info_span!("prometheus_round", queries)
}

/// One change through the scale subresource.
#[must_use]
pub fn scale_step(namespace: &str, variant: &str, from: u32, to: u32) -> Span {
    info_span!("scale_step", namespace, variant, from, to)
}

/// `uid`: its id in the API server. `resource`: plural name.
#[must_use]
pub fn review(uid: &str, resource: &'static str, operation: &'static str) -> Span {
    info_span!("review", uid, resource, operation)
}
