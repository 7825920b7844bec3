//! One client for Prometheus: instant queries with a time-out and a bound on the answer. An error, an empty answer and
//! a value are three different things here, because an outage must never look like an idle model.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use wva_crds::settings::without_password;

/// Where Prometheus is and how to speak to it.
#[derive(Clone, Default)]
pub struct PrometheusConfig {
    /// `http` or `https` URL, with or without a path.
    pub base_url: String,
    /// Trust any certificate; for tests alone.
    pub insecure_skip_verify: bool,
    /// File with CA certificates to trust besides the system's.
    pub ca_path: Option<String>,
    /// Bearer token; wins over `token_path`.
    pub bearer_token: Option<String>,
    /// File with the bearer token, read at each query so that a rotated token is used.
    pub token_path: Option<String>,
}

impl std::fmt::Debug for PrometheusConfig {
    /// Without the secrets, which have no place in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrometheusConfig")
            .field("base_url", &without_password(&self.base_url))
            .field("insecure_skip_verify", &self.insecure_skip_verify)
            .field("ca_path", &self.ca_path)
            .field("bearer_token", &self.bearer_token.as_ref().map(|_| "..."))
            .field("token_path", &self.token_path)
            .finish()
    }
}

/// Longest time one query may take, answer included.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer that is read: about 200,000 series.
const ANSWER_LIMIT: usize = 64 << 20;

/// Why a query gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// No connection, no answer in time, or a broken one.
    #[error(
        "Prometheus at {url} did not answer: {cause}; check PROMETHEUS_BASE_URL and that Prometheus runs"
    )]
    Unreachable {
        /// The base URL.
        url: String,
        /// What the HTTP client says, down to the first cause, without the query.
        cause: String,
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
    /// Something that is no answer of Prometheus.
    #[error("Prometheus at {url} gave an answer that cannot be read: {problem}")]
    Unreadable {
        /// The base URL.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The token file cannot be read.
    #[error("cannot read the bearer token for Prometheus from {}: {source}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The CA file holds no certificate that can be read.
    #[error("PROMETHEUS_CA_CERT_PATH {path}: {problem}; it must hold PEM certificates")]
    Ca {
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// The HTTP client could not be made.
    #[error("cannot make the HTTP client for Prometheus")]
    Http(#[source] reqwest::Error),
}

/// One series of an instant vector: its labels and its value, which may be NaN or infinite.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Labels of the series.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

/// A client that asks one Prometheus.
#[derive(Clone, Debug)]
pub struct Prometheus {
    http: reqwest::Client,
    config: PrometheusConfig,
    /// The base URL without the password that may be in it.
    shown: String,
    timeout: Duration,
}

#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<Data>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

impl Prometheus {
    /// A client for the configured address. Nothing is asked yet: a Prometheus that is down at the start is no error.
    ///
    /// # Errors
    /// [`ClientError`] where the CA file is not usable. One that does not exist is only warned of, as documented.
    pub fn new(config: PrometheusConfig) -> Result<Self, ClientError> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .redirect(reqwest::redirect::Policy::none())
            .tls_danger_accept_invalid_certs(config.insecure_skip_verify);
        if let Some(path) = &config.ca_path {
            match std::fs::read(path) {
                Ok(pem) => {
                    let unusable = |problem: String| ClientError::Ca { path: path.clone(), problem };
                    let certs =
                        reqwest::Certificate::from_pem_bundle(&pem).map_err(|e| unusable(e.to_string()))?;
                    if certs.is_empty() {
                        return Err(unusable("no certificate in it".to_owned()));
                    }
                    builder = builder.tls_certs_merge(certs);
                }
                Err(e) => {
                    tracing::warn!(path, error = %e, "The CA file for Prometheus cannot be read: the system's roots are used");
                }
            }
        }
        let http = builder.build().map_err(ClientError::Http)?;
        Ok(Self { http, shown: without_password(&config.base_url), config, timeout: QUERY_TIMEOUT })
    }

    /// The same with another time-out; for tests, which do not wait for [`QUERY_TIMEOUT`].
    #[cfg(test)]
    pub(crate) fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The instant vector of a query. An empty vector is an answer, not an error.
    ///
    /// # Errors
    /// [`QueryError`], after at most [`QUERY_TIMEOUT`].
    pub async fn query(&self, expression: &str) -> Result<Vec<Series>, QueryError> {
        let url = || self.shown.clone();
        let endpoint = format!("{}/api/v1/query", self.config.base_url.trim_end_matches('/'));
        // POST, because the expression of a large install outgrows a URL.
        let mut request = self.http.post(endpoint).form(&[("query", expression)]).timeout(self.timeout);
        if let Some(token) = self.token()? {
            request = request.bearer_auth(token);
        }
        let unreachable =
            |e: reqwest::Error| QueryError::Unreachable { url: url(), cause: causes(&e.without_url()) };
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if chunk.len() > ANSWER_LIMIT.saturating_sub(body.len()) {
                return Err(QueryError::Unreadable {
                    url: url(),
                    problem: format!("it is longer than {ANSWER_LIMIT} bytes"),
                });
            }
            body.extend_from_slice(&chunk);
        }
        let answer: Result<Answer, _> = serde_json::from_slice(&body);
        if status != 200 {
            let message = answer.map_or_else(|_| first_line(&body), |a| first_line(a.error.as_bytes()));
            return Err(QueryError::Refused { url: url(), status, message });
        }
        let unreadable = |problem: String| QueryError::Unreadable { url: url(), problem };
        let answer = answer.map_err(|e| unreadable(e.to_string()))?;
        let without_data =
            || format!("status {:?} without data {}", answer.status, first_line(answer.error.as_bytes()));
        let data =
            answer.data.filter(|_| answer.status == "success").ok_or_else(|| unreadable(without_data()))?;
        if data.result_type != "vector" {
            return Err(unreadable(format!("its type is {:?}, not vector", data.result_type)));
        }
        let series = |s: Sample| {
            Ok(Series {
                labels: s.metric,
                value: s.value.1.parse().map_err(|_| unreadable(format!("{:?} is no number", s.value.1)))?,
            })
        };
        data.result.into_iter().map(series).collect()
    }

    fn token(&self) -> Result<Option<String>, QueryError> {
        if let Some(token) = &self.config.bearer_token {
            return Ok(Some(token.clone()));
        }
        let Some(path) = &self.config.token_path else { return Ok(None) };
        match std::fs::read_to_string(path) {
            Ok(token) => Ok(Some(token.trim().to_owned())),
            Err(source) => Err(QueryError::Token { path: path.into(), source }),
        }
    }
}

/// At most 200 bytes of the first line; what a server answers ends up in logs and in statuses.
fn first_line(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
    text.lines().next().unwrap_or_default().to_owned()
}

/// An error and what caused it, in one line: "error sending request" alone helps nobody.
fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |e| e.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
pub(crate) mod tests;
