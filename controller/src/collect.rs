//! From Prometheus to values: a few queries for all models, and what is known of each pod, with its age.

pub(crate) mod page;
pub(crate) mod picker;
pub(crate) mod prometheus;
pub(crate) mod sample;
pub(crate) mod scope;
pub(crate) mod signals;
pub(crate) mod telemetry;
mod totals;
pub(crate) mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tracing::Instrument;
use wva_runtime::spans;

use self::prometheus::{Prometheus, QueryError, Session};
use self::scope::Scope;
use self::signals::{Query, Rows};
use crate::collect::telemetry::Telemetry;

/// What was answered to one query.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The query.
    pub(crate) query: Query,
    /// The namespaces it was for.
    pub(crate) scope: Scope,
    /// Its series, or why there are none.
    pub(crate) rows: Result<Rows, QueryError>,
}

/// The answers of one round, in any order.
pub(crate) type Answers = Vec<Answer>;

/// Queries under way at once: enough to keep Prometheus busy, and not so many that it is kept from all else.
const CONCURRENCY: usize = 4;

/// Asks these queries for every scope. Takes at most as long as `within`: what has no answer by then has failed.
pub(crate) async fn fetch(
    prometheus: &Prometheus,
    scopes: Vec<Scope>,
    queries: &[Query],
    telemetry: &Telemetry,
    within: Duration,
) -> Answers {
    let mut asks = Vec::new();
    for scope in scopes {
        asks.extend(queries.iter().map(|query| (*query, scope.clone())));
    }
    let span = spans::prometheus_round(asks.len());
    stream_answers(prometheus, asks, telemetry, within).collect().instrument(span).await
}

/// The same, with each answer as soon as it is there.
pub(crate) fn stream_answers<'a>(
    prometheus: &'a Prometheus,
    mut asks: Vec<(Query, Scope)>,
    telemetry: &'a Telemetry,
    within: Duration,
) -> BoxStream<'a, Answer> {
    let deadline = tokio::time::Instant::now() + within;
    let session = async move {
        let session = tokio::time::timeout_at(deadline, prometheus.session()).await;
        Arc::new(session.unwrap_or_else(|_| Err(prometheus.out_of_time(within))))
    };
    let answer = move |session: Arc<Result<Session, QueryError>>, (query, scope): (Query, Scope)| async move {
        let began = Instant::now();
        let asked = async {
            let session = session.as_ref().as_ref().map_err(Clone::clone)?;
            let expression = query.expression(&scope, prometheus.extra_matchers());
            prometheus.ask(session, &expression, || Rows::of(query)).await
        };
        let answer = tokio::time::timeout_at(deadline, asked).await;
        let answer = answer.unwrap_or_else(|_| Err(prometheus.out_of_time(within)));
        telemetry.query(query, began.elapsed(), answer.is_ok());
        let rows = answer.map(|(mut rows, partial)| {
            if partial.is_some() {
                telemetry.partial_answer(query);
            }
            rows.partial = partial;
            rows
        });
        Answer { query, scope, rows }
    };
    let all = move |session: Arc<Result<Session, QueryError>>| {
        let asks = stream::iter(std::mem::take(&mut asks));
        asks.map(move |ask| answer(session.clone(), ask)).buffer_unordered(CONCURRENCY)
    };
    stream::once(session).flat_map(all).boxed()
}
