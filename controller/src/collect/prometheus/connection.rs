//! The connection to Prometheus. Before each round a thread of its own reads the files, for a bounded time: a volume that
//! hangs only delays their changes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HOST;
use reqwest::{Client, RequestBuilder, Url};
use rustls::pki_types::DnsName;
use tokio::sync::Mutex as AsyncMutex;

use super::files::{ClientError, Files};
use super::{PrometheusConfig, QueryError};

/// Longest wait for the files. After it their last contents serve this round.
const LONGEST_READING: Duration = Duration::from_secs(2);

/// Client and token for the queries of one round.
pub(crate) struct Session {
    http: Client,
    token: Option<String>,
    endpoint: Url,
    /// The host of the URL, where the endpoint has the server name instead.
    host: Option<String>,
    is_interactive: bool,
}

impl Session {
    /// The request that makes a query. By POST, unless a person's command asks: the expression of a large install is too
    /// long for a URL.
    pub(super) fn query(&self, expression: &str) -> RequestBuilder {
        let (endpoint, query) = (self.endpoint.clone(), [("query", expression)]);
        let mut request = if self.is_interactive {
            self.http.get(endpoint).query(&query)
        } else {
            self.http.post(endpoint).form(&query)
        };
        if let Some(host) = &self.host {
            request = request.header(HOST, host);
        }
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }
}

/// Opens sessions.
pub(super) struct Connection {
    config: PrometheusConfig,
    endpoint: Url,
    /// Host of the URL with its port, where the endpoint has the server name instead.
    host: Option<String>,
    /// Locked while they are read.
    pub(super) files: Arc<AsyncMutex<Files>>,
    /// Result of the last reading.
    current: Arc<Mutex<Current>>,
}

/// Client and token.
type Current = Result<(Client, Option<String>), QueryError>;

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(config: PrometheusConfig) -> Result<Self, ClientError> {
        let (endpoint, host) = endpoint(&config)?;
        let files = Files::read(config.clone())?;
        // Prometheus would refuse a query without the token, and its error would not name the file.
        let current = match (&config.bearer_token, &config.token_path) {
            (None, Some(path)) => {
                let problem = "it was not read yet".to_owned();
                Err(QueryError::Token { path: path.clone(), problem })
            }
            (token, _) => Ok((files.http.clone(), token.clone())),
        };
        let (files, current) = (Arc::new(AsyncMutex::new(files)), Arc::new(Mutex::new(current)));
        Ok(Self { config, endpoint, host, files, current })
    }

    /// Reads the files and opens a session with their last good contents.
    pub(super) async fn session(&self) -> Result<Session, QueryError> {
        // Reading may block for long on a network volume; only one reading is under way.
        if let Ok(mut files) = self.files.clone().try_lock_owned() {
            let current = self.current.clone();
            let reading = tokio::task::spawn_blocking(move || {
                let found = files.reread();
                *current.lock().unwrap_or_else(PoisonError::into_inner) = found;
            });
            // If it failed or is late, the result of the last one counts.
            let _ = tokio::time::timeout(LONGEST_READING, reading).await;
        }
        let (http, token) = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let (endpoint, host) = (self.endpoint.clone(), self.host.clone());
        Ok(Session { http, token, endpoint, host, is_interactive: self.config.is_interactive })
    }
}

/// The URL of queries, and the host to name where the URL has the server name instead.
fn endpoint(config: &PrometheusConfig) -> Result<(Url, Option<String>), ClientError> {
    let text = format!("{}/api/v1/query", config.base_url.trim_end_matches('/'));
    let unusable = |problem: String| ClientError::Url {
        url: wva_crds::settings::without_password(&config.base_url),
        problem,
    };
    let mut url = Url::parse(&text).map_err(|e| unusable(e.to_string()))?;
    let Some(host) = url.host_str().map(str::to_owned) else {
        return Err(unusable("it has no host".to_owned()));
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

/// Resolves the server name to the URL's host, so that the handshake asks for that name and verifies it.
pub(super) struct ServerName {
    name: String,
    pub(super) host: String,
}

impl ServerName {
    /// `None` where no server name is set.
    pub(super) fn of(config: &PrometheusConfig) -> Option<Self> {
        let url = Url::parse(&config.base_url).ok().filter(|url| url.scheme() == "https")?;
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        Some(Self { name: config.server_name.clone()?, host })
    }
}

impl Resolve for ServerName {
    fn resolve(&self, asked: Name) -> Resolving {
        let same = asked.as_str().eq_ignore_ascii_case(&self.name);
        let host = if same { self.host.clone() } else { asked.as_str().to_owned() };
        Box::pin(async move {
            // The port of the URL counts.
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
