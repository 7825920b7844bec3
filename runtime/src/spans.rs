//! The spans that log lines belong to. Their names and fields stand here alone: people filter and search by them.

use std::fmt::Display;

use tracing::{Span, info_span};

/// One pass of decisions. `at`: its time, as `wva explain` shows it. `models`: `all`, or `some` between two cycles.
#[must_use]
pub fn cycle(at: &impl Display, models: &'static str) -> Span {
    info_span!("cycle", %at, models)
}

/// One round of queries. `queries`: how many.
#[must_use]
pub fn prometheus_round(queries: usize) -> Span {
    info_span!("prometheus_round", queries)
}

/// One step of a workload's replicas through the scale subresource.
#[must_use]
pub fn scale_step(namespace: &str, variant: &str, from: u32, to: u32) -> Span {
    info_span!("scale_step", namespace, variant, from, to)
}

/// One admission review. `uid`: what the API server calls it. `resource`: of what, as in URLs.
#[must_use]
pub fn review(uid: &str, resource: &'static str, operation: &'static str) -> Span {
    info_span!("review", uid, resource, operation)
}
