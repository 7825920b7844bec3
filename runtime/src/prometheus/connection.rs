//! Sessions with Prometheus. A blocking thread reads the files for a bounded time: a hanging volume only delays
//! changes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HOST, HeaderMap};
use reqwest::{Client, RequestBuilder, Url};
use rustls::pki_types::DnsName;
use tokio::sync::Mutex as AsyncMutex;

use super::files::{ClientError, Files};
use super::{PrometheusConfig, QueryError};

/// Longest time for the files to be read. After it, their last contents serve this round.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// A query, and the time that it is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Query<'a> {
    /// Expression in PromQL.
    pub expression: &'a str,
    /// Time of an instant query, seconds since the epoch. Default: now.
    pub at: Option<f64>,
    /// Times of a range query.
    pub range: Option<TimeRange>,
    /// Ask Thanos for raw samples and answers of all stores; other servers ignore both.
    pub is_raw: bool,
}

/// Times of a range query, seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeRange {
    /// First time.
    pub from: f64,
    /// Last time.
    pub to: f64,
    /// Distance between two times, above 0.
    pub step: f64,
}

impl<'a> Query<'a> {
    /// An instant query, now.
    #[must_use]
    pub fn now(expression: &'a str) -> Self {
        Self { expression, at: None, range: None, is_raw: false }
    }

    fn parameters(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![("query", self.expression.to_owned())];
        all.extend(self.at.map(|at| ("time", format!("{at:.3}"))));
        if let Some(TimeRange { from, to, step }) = self.range {
            all.push(("start", format!("{from:.3}")));
            all.push(("end", format!("{to:.3}")));
            all.push(("step", format!("{step:.3}")));
        }
        if self.is_raw {
            all.push(("max_source_resolution", "0s".to_owned()));
            all.push(("partial_response", "false".to_owned()));
        }
        all
    }
}

/// Connection for the queries of one round.
pub struct Session {
    http: Client,
    token: Option<String>,
    endpoint: Url,
    /// Host, if the endpoint has the server name in place of it.
    host: Option<String>,
    headers: HeaderMap,
    is_interactive: bool,
}

impl Session {
    /// The controller uses POST: the expression of a large install is too long for a URL.
    pub(super) fn query(&self, query: &Query<'_>) -> RequestBuilder {
        let mut endpoint = self.endpoint.clone();
        if query.range.is_some() {
            endpoint.set_path(&format!("{}_range", self.endpoint.path()));
        }
        let query = query.parameters();
        let mut request = if self.is_interactive {
            self.http.get(endpoint).query(&query)
        } else {
            self.http.post(endpoint).form(&query)
        };
        request = request.headers(self.headers.clone());
        if let Some(host) = &self.host {
            request = request.header(HOST, host);
        }
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }
}

pub(super) struct Connection {
    config: PrometheusConfig,
    endpoint: Url,
    host: Option<String>,
    /// Headers of each query, in addition.
    pub(super) headers: HeaderMap,
    /// Locked during a read.
    pub(super) files: Arc<AsyncMutex<Files>>,
    current: Arc<Mutex<ClientAndToken>>,
}

/// A client and its token, or why the token is missing.
type ClientAndToken = Result<(Client, Option<String>), QueryError>;

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(config: PrometheusConfig) -> Result<Self, ClientError> {
        let (endpoint, host) = endpoint(&config)?;
        let files = Files::read(config.clone())?;
        // Without the token Prometheus would refuse with an error that does not name the file.
        let current = match (&config.bearer_token, &config.token_path) {
            (None, Some(path)) => {
                let problem = "not read yet".to_owned();
                Err(QueryError::Token { path: path.clone(), problem })
            }
            (token, _) => Ok((files.http.clone(), token.clone())),
        };
        let (files, current) = (Arc::new(AsyncMutex::new(files)), Arc::new(Mutex::new(current)));
        Ok(Self { config, endpoint, host, headers: HeaderMap::new(), files, current })
    }

    pub(super) async fn session(&self) -> Result<Session, QueryError> {
        // A read may block for long. Only one runs at a time.
        if let Ok(mut files) = self.files.clone().try_lock_owned() {
            let current = self.current.clone();
            let reading = tokio::task::spawn_blocking(move || {
                let found = files.reread();
                *current.lock().unwrap_or_else(PoisonError::into_inner) = found;
            });
            // After a failed or late read the last result counts.
            let _ = tokio::time::timeout(READ_TIMEOUT, reading).await;
        }
        let (http, token) = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let (endpoint, host) = (self.endpoint.clone(), self.host.clone());
        let (headers, is_interactive) = (self.headers.clone(), self.config.is_interactive);
        Ok(Session { http, token, endpoint, host, headers, is_interactive })
    }
}

/// URL of queries, and the Host header if the URL has the server name.
fn endpoint(config: &PrometheusConfig) -> Result<(Url, Option<String>), ClientError> {
    let text = format!("{}/api/v1/query", config.base_url.trim_end_matches('/'));
    let unusable = |problem: String| ClientError::Url { url: config.shown_url.clone(), problem };
    let mut url = Url::parse(&text).map_err(|e| unusable(e.to_string()))?;
    let token = config.bearer_token.as_ref().map(|_| "PROMETHEUS_BEARER_TOKEN");
    let token = token.or_else(|| config.token_path.as_ref().map(|_| "PROMETHEUS_TOKEN_PATH"));
    if let Some(setting) = token.filter(|_| !url.username().is_empty() || url.password().is_some()) {
        let url = config.shown_url.clone();
        return Err(ClientError::Credentials { url, setting });
    }
    if let Some(path) =
        config.token_path.as_ref().filter(|_| config.bearer_token.is_none() && url.scheme() == "http")
    {
        let url = config.shown_url.clone();
        return Err(ClientError::TokenOverHttp { url, path: path.clone() });
    }
    let Some(host) = url.host_str().map(str::to_owned) else {
        return Err(unusable("the URL has no host".to_owned()));
    };
    let Some(name) = config.server_name.as_ref().filter(|_| url.scheme() == "https") else {
        return Ok((url, None));
    };
    if DnsName::try_from(name.as_str()).is_err() || name.parse::<std::net::IpAddr>().is_ok() {
        return Err(ClientError::ServerName { found: name.clone() });
    }
    let host = url.port().map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
    url.set_host(Some(name)).map_err(|e| unusable(e.to_string()))?;
    Ok((url, Some(host)))
}

/// Resolves the server name to the URL's host, so that TLS verifies the server name.
pub(super) struct ServerName {
    name: String,
    pub(super) host: String,
}

impl ServerName {
    /// `None` without a server name or TLS.
    pub(super) fn from_config(config: &PrometheusConfig) -> Option<Self> {
        let url = Url::parse(&config.base_url).ok().filter(|url| url.scheme() == "https")?;
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        Some(Self { name: config.server_name.clone()?, host })
    }
}

impl Resolve for ServerName {
    fn resolve(&self, name: Name) -> Resolving {
        let is_server_name = name.as_str().eq_ignore_ascii_case(&self.name);
        let host = if is_server_name { self.host.clone() } else { name.as_str().to_owned() };
        Box::pin(async move {
            // The URL sets the port.
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
