//! Prometheus client: instant and range queries with a timeout, one retry and a limit on the answer. Errors and empty answers
//! differ: an outage must never look like a load of 0.

mod answer;
mod connection;
mod files;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::text::{causes, without_code};
use crate::tls::TlsFault;

use answer::Body;
use answer::Matrix;
pub use answer::{AnswerSummary, RangeSeries, RangeSink, ResultSink, Sample, Series, Sink, read};
use connection::Connection;
pub use connection::{Query, Session, TimeRange};
pub use files::ClientError;

/// Settings of the connection. Changed files are read again.
#[derive(Clone, Default)]
pub struct PrometheusConfig {
    /// `http` or `https` URL, with or without a path.
    pub base_url: String,
    /// The URL without its password, for messages.
    pub shown_url: String,
    /// Trust any certificate; only for tests.
    pub insecure_skip_verify: bool,
    /// CA file, in addition to the system's.
    pub ca_path: Option<String>,
    /// Client certificate.
    pub client_identity: Option<ClientIdentity>,
    /// DNS name to verify in place of the URL's host.
    pub server_name: Option<String>,
    /// Bearer token; takes precedence over `token_path`.
    pub bearer_token: Option<String>,
    /// File with the bearer token.
    pub token_path: Option<String>,
    /// Query by GET, without a proxy, and follow redirects.
    pub is_interactive: bool,
}

/// PEM files of a client certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientIdentity {
    /// Path of the certificate with its chain.
    pub cert: String,
    /// Path of the key.
    pub key: String,
}

impl std::fmt::Debug for PrometheusConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrometheusConfig")
            .field("shown_url", &self.shown_url)
            .field("insecure_skip_verify", &self.insecure_skip_verify)
            .field("ca_path", &self.ca_path)
            .field("client_identity", &self.client_identity)
            .field("server_name", &self.server_name)
            .field("bearer_token", &self.bearer_token.as_ref().map(|_| "..."))
            .field("token_path", &self.token_path)
            .field("is_interactive", &self.is_interactive)
            .finish_non_exhaustive()
    }
}

/// Includes answer and retry.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes: about 200,000 series.
const ANSWER_LIMIT: usize = 64 << 20;
/// Longest error answer that is read, bytes.
const ERROR_LIMIT: usize = 64 << 10;
/// Flow control of the connection holds back the rest.
const CHUNKS: usize = 4;
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// Random, in addition to the pause.
const PAUSE_JITTER: Duration = Duration::from_millis(400);

/// Why a query failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueryError {
    /// No connection, or no complete answer in time.
    #[error("Prometheus at {url} did not answer: {cause}; {}", remedy(fault.as_ref()))]
    Unreachable {
        /// The base URL.
        url: String,
        /// All causes, without the query.
        cause: String,
        /// What TLS says of it.
        fault: Option<TlsFault>,
        /// A part of the answer had arrived.
        has_begun: bool,
    },
    /// No complete answer to a query within its timeout.
    #[error(
        "Prometheus at {url} did not answer: it timed out after {after:?}; check PROMETHEUS_BASE_URL and that \
         Prometheus runs"
    )]
    TimedOut {
        /// The base URL.
        url: String,
        /// Timeout of the query.
        after: Duration,
    },
    /// An HTTP status other than 200.
    #[error("Prometheus at {url} answered {status}: {message}")]
    Refused {
        /// The base URL.
        url: String,
        /// HTTP status.
        status: u16,
        /// The first line of the answer, shortened.
        message: String,
    },
    /// The text is not an answer to an instant query.
    #[error("cannot read the answer of Prometheus at {url}: {problem}")]
    Unreadable {
        /// The base URL.
        url: String,
        /// Fault of the answer.
        problem: String,
        /// The part that was read is JSON.
        is_json: bool,
    },
    /// The answer is longer than the limit.
    #[error(
        "the answer of Prometheus at {url} is longer than {limit} bytes; the next queries are for fewer namespaces"
    )]
    TooLong {
        /// The base URL.
        url: String,
        /// Longest answer, in bytes.
        limit: usize,
    },
    /// The token file cannot be read.
    #[error(
        "cannot read the bearer token for Prometheus from {path}: {problem}; check PROMETHEUS_TOKEN_PATH"
    )]
    Token {
        /// The file.
        path: String,
        /// Cause.
        problem: String,
    },
}

/// Client of one Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    connection: Connection,
    shown_url: String,
    timeout: Duration,
    limit: usize,
}

impl Prometheus {
    /// Creates a client. Prometheus may be down.
    ///
    /// # Errors
    /// [`ClientError`]. A missing CA file only causes a warning.
    pub fn new(config: PrometheusConfig) -> Result<Self, ClientError> {
        let shown_url = config.shown_url.clone();
        let connection = Connection::new(config)?;
        Ok(Self { connection, shown_url, timeout: QUERY_TIMEOUT, limit: ANSWER_LIMIT })
    }

    /// Sets the timeout of a query.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets headers of each query, such as that of a tenant.
    #[must_use]
    pub fn with_headers(mut self, headers: reqwest::header::HeaderMap) -> Self {
        self.connection.headers = headers;
        self
    }

    /// Sets the length of the longest answer, bytes.
    #[must_use]
    pub fn with_limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Opens a session for one round; reads changed files.
    ///
    /// # Errors
    /// [`QueryError::Token`] if the token file was never readable.
    pub async fn session(&self) -> Result<Session, QueryError> {
        self.connection.session().await
    }

    /// Returns the series with all labels.
    ///
    /// # Errors
    /// [`QueryError`], within the timeout.
    pub async fn query(&self, expression: &str) -> Result<Vec<Series>, QueryError> {
        let session = self.session().await?;
        Ok(self.query_into(&session, expression, Vec::new).await?.0)
    }

    /// Returns the sink with the series, and the warning if some may be missing. `sink` creates a sink for each
    /// attempt.
    ///
    /// # Errors
    /// [`QueryError`], within the timeout.
    pub async fn query_into<S: Sink>(
        &self,
        session: &Session,
        expression: &str,
        sink: impl Fn() -> S,
    ) -> Result<(S, Option<String>), QueryError> {
        self.result_into(session, &Query::now(expression), sink).await
    }

    /// Runs a query like [`Self::query`], at the time of the query.
    ///
    /// # Errors
    /// [`QueryError`], within the timeout.
    pub async fn query_at(&self, query: &Query<'_>) -> Result<Vec<Series>, QueryError> {
        let session = self.session().await?;
        Ok(self.result_into(&session, query, Vec::new).await?.0)
    }

    /// Runs a query like [`Self::query_into`], for an answer with samples over time: of a range query, or of an instant
    /// query for the samples of a range (`up[1h]`).
    ///
    /// # Errors
    /// [`QueryError`], within the timeout.
    pub async fn samples_into<S: RangeSink>(
        &self,
        query: &Query<'_>,
        sink: impl Fn() -> S,
    ) -> Result<(S, Option<String>), QueryError> {
        let session = self.session().await?;
        let (Matrix(sink), partial) = self.result_into(&session, query, || Matrix(sink())).await?;
        Ok((sink, partial))
    }

    async fn result_into<S: ResultSink>(
        &self,
        session: &Session,
        query: &Query<'_>,
        sink: impl Fn() -> S,
    ) -> Result<(S, Option<String>), QueryError> {
        let attempts = async {
            match self.attempt(session, query, sink()).await {
                Err(QueryError::Unreachable { has_begun: false, .. }) => {
                    tokio::time::sleep(retry_pause()).await;
                    self.attempt(session, query, sink()).await
                }
                other => other,
            }
        };
        let answer = tokio::time::timeout(self.timeout, attempts).await;
        let timed_out = || QueryError::TimedOut { url: self.shown_url.clone(), after: self.timeout };
        answer.unwrap_or_else(|_| Err(timed_out()))
    }

    /// Error of a query before which its round ended.
    #[must_use]
    pub fn out_of_time(&self, after: Duration) -> QueryError {
        let cause = format!("the round of queries ended after {after:?}");
        QueryError::Unreachable { url: self.shown_url.clone(), cause, fault: None, has_begun: false }
    }

    fn unreachable(&self, error: reqwest::Error, has_begun: bool) -> QueryError {
        let fault = TlsFault::of(&error);
        let cause = causes(&error.without_url());
        QueryError::Unreachable { url: self.shown_url.clone(), cause, fault, has_begun }
    }

    async fn attempt<S: ResultSink>(
        &self,
        session: &Session,
        query: &Query<'_>,
        sink: S,
    ) -> Result<(S, Option<String>), QueryError> {
        let sent = session.query(query).send().await;
        let response = sent.map_err(|e| self.unreachable(e, false))?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(self.read_refusal(response).await.unwrap_or_else(|e| self.unreachable(e, true)));
        }
        self.read(response, sink).await
    }

    /// Reads while the answer arrives, on a blocking thread.
    async fn read<S: ResultSink>(
        &self,
        response: reqwest::Response,
        sink: S,
    ) -> Result<(S, Option<String>), QueryError> {
        let url = || self.shown_url.clone();
        let unreadable = |problem: String, is_json| QueryError::Unreadable { url: url(), problem, is_json };
        let (sender, chunks) = mpsc::channel(CHUNKS);
        // The reader ends when the sender is dropped.
        let reader = tokio::task::spawn_blocking(move || {
            let mut sink = sink;
            read(Body::new(chunks), &mut sink).map(|summary| (sink, summary))
        });
        let is_within_limit = forward(response, sender, self.limit).await;
        let read = reader.await.map_err(|e| unreadable(e.to_string(), false))?;
        // An interrupted answer is not invalid JSON.
        if !is_within_limit.map_err(|e| self.unreachable(e, true))? {
            return Err(QueryError::TooLong { url: url(), limit: self.limit });
        }
        let (sink, summary) = read.map_err(|e| unreadable(e.to_string(), e.is_data()))?;
        if summary.status != "success" || !summary.has_data {
            let error = first_line(summary.error.as_bytes());
            return Err(unreadable(format!("status {:?} without data {error}", summary.status), true));
        }
        Ok((sink, summary.partial.map(|text| first_line(text.as_bytes()))))
    }

    async fn read_refusal(&self, mut response: reqwest::Response) -> Result<QueryError, reqwest::Error> {
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            let room = ERROR_LIMIT.saturating_sub(body.len());
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if body.len() >= ERROR_LIMIT {
                break;
            }
        }
        let json: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        let error = json.as_ref().and_then(|json| json.get("error")?.as_str());
        let message = first_line(error.map_or(&*body, str::as_bytes));
        let message = without_code(status, &message).to_owned();
        Ok(QueryError::Refused { url: self.shown_url.clone(), status, message })
    }
}

/// Returns false if the body is too long.
async fn forward(
    mut response: reqwest::Response,
    sender: mpsc::Sender<tokio_util::bytes::Bytes>,
    limit: usize,
) -> Result<bool, reqwest::Error> {
    let mut left = limit;
    while let Some(chunk) = response.chunk().await? {
        let Some(rest) = left.checked_sub(chunk.len()) else { return Ok(false) };
        left = rest;
        if sender.send(chunk).await.is_err() {
            break;
        }
    }
    Ok(true)
}

/// What to do about a Prometheus that does not answer.
fn remedy(fault: Option<&TlsFault>) -> String {
    let text = match fault {
        None => "check PROMETHEUS_BASE_URL and that Prometheus runs",
        Some(TlsFault::UnknownIssuer) => {
            "PROMETHEUS_CA_CERT_PATH must name a file with the CA that signed Prometheus's certificate, or with that \
             certificate itself"
        }
        Some(TlsFault::OtherName(names)) if names.is_empty() => {
            "Prometheus's certificate has no subject alternative name: give it one, such as the host of \
             PROMETHEUS_BASE_URL"
        }
        Some(TlsFault::OtherName(names)) => {
            let names = names.join(", ");
            return format!("set PROMETHEUS_SERVER_NAME to a name in Prometheus's certificate: {names}");
        }
        Some(TlsFault::Dates) => {
            "renew Prometheus's certificate, and compare its dates with the clock of this node"
        }
        Some(TlsFault::Certificate) => "replace Prometheus's certificate",
        Some(TlsFault::NotTrustedByPeer | TlsFault::CertificateRequired) => {
            "Prometheus asks for a client certificate that it trusts: set PROMETHEUS_CLIENT_CERT_PATH and \
             PROMETHEUS_CLIENT_KEY_PATH"
        }
        Some(TlsFault::NotTls) => "the port does not speak TLS: check port and scheme of PROMETHEUS_BASE_URL",
        Some(TlsFault::Incompatible) => "Prometheus has to offer TLS 1.2 or 1.3",
    };
    text.to_owned()
}

/// Random, so that clients do not retry together.
fn retry_pause() -> Duration {
    let random = u16::try_from(RandomState::new().build_hasher().finish() & 0xffff).unwrap_or_default();
    SHORTEST_PAUSE + PAUSE_JITTER.mul_f64(f64::from(random) / 65536.0)
}

/// First line of the body, at most 200 bytes, for logs and statuses.
fn first_line(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
