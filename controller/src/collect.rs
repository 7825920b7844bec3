//! Collects metrics from Prometheus and endpoint pickers.

pub(crate) mod filter;
pub(crate) mod histogram;
pub(crate) mod page;
pub(crate) mod picker;
pub(crate) mod pod_model;
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
use wva_runtime::prometheus::{ClientError, Prometheus, PrometheusConfig, QueryError, Session};
use wva_runtime::spans;

use self::filter::SeriesFilter;
use self::scope::Scope;
use self::signals::{Query, Rows};
use crate::collect::telemetry::Telemetry;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) query: Query,
    pub(crate) scope: Scope,
    /// Series, or why the query failed.
    pub(crate) rows: Result<Rows, QueryError>,
}

/// The Prometheus that has the metrics.
#[derive(Debug)]
pub struct PrometheusSource {
    pub(crate) client: Prometheus,
    pub(crate) extra_matchers: String,
}

impl PrometheusSource {
    /// Creates its client. `extra_matchers`: for every selector, such as `cluster="a"`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn new(config: PrometheusConfig, extra_matchers: &str) -> Result<Self, ClientError> {
        Ok(Self { client: Prometheus::new(config)?, extra_matchers: extra_matchers.to_owned() })
    }
}

/// Answers of one round, in any order.
pub(crate) type Answers = Vec<Answer>;

const CONCURRENCY: usize = 4;

/// Makes these queries for every scope, within `within` altogether.
pub(crate) async fn query_round(
    prometheus: &PrometheusSource,
    scopes: Vec<Scope>,
    queries: &[Query],
    filter: Arc<SeriesFilter>,
    telemetry: &Telemetry,
    within: Duration,
) -> Answers {
    let mut requests = Vec::new();
    for scope in scopes {
        requests.extend(queries.iter().map(|query| (*query, scope.clone())));
    }
    let span = spans::prometheus_round(requests.len());
    stream_answers(prometheus, requests, filter, telemetry, within).collect().instrument(span).await
}

/// Yields each answer as it arrives.
pub(crate) fn stream_answers<'a>(
    PrometheusSource { client, extra_matchers }: &'a PrometheusSource,
    mut requests: Vec<(Query, Scope)>,
    filter: Arc<SeriesFilter>,
    telemetry: &'a Telemetry,
    within: Duration,
) -> BoxStream<'a, Answer> {
    let deadline = tokio::time::Instant::now() + within;
    let session = async move {
        let session = tokio::time::timeout_at(deadline, client.session()).await;
        Arc::new(session.unwrap_or_else(|_| Err(client.out_of_time(within))))
    };
    let answer = move |session: Arc<Result<Session, QueryError>>,
                       filter: Arc<SeriesFilter>,
                       (query, scope): (Query, Scope)| async move {
        let (began, filter) = (Instant::now(), &filter);
        let result = async {
            let session = session.as_ref().as_ref().map_err(Clone::clone)?;
            let expression = query.expression(&scope.matcher(), extra_matchers);
            client.query_into(session, &expression, || Rows::new(query, filter.clone())).await
        };
        let answer = tokio::time::timeout_at(deadline, result).await;
        let answer = answer.unwrap_or_else(|_| Err(client.out_of_time(within)));
        telemetry.record_query(query, began.elapsed(), answer.is_ok());
        let rows = answer.map(|(mut rows, partial)| {
            if partial.is_some() {
                telemetry.record_partial_answer(query);
            }
            rows.partial = partial;
            rows
        });
        Answer { query, scope, rows }
    };
    let all = move |session: Arc<Result<Session, QueryError>>| {
        let requests = stream::iter(std::mem::take(&mut requests));
        let filter = filter.clone();
        requests
            .map(move |request| answer(session.clone(), filter.clone(), request))
            .buffer_unordered(CONCURRENCY)
    };
    stream::once(session).flat_map(all).boxed()
}
