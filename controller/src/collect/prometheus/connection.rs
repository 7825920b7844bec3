//! What queries are made with. Files are looked at before each round, on a thread of their own and for a bounded time:
//! a volume that hangs costs no more than that its news is late.

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

/// Longest wait for the files. What they held before is good enough for this round.
const LOOK: Duration = Duration::from_secs(2);

/// What queries are made with, until the next look at the files.
pub(crate) struct Session {
    http: Client,
    token: Option<String>,
    endpoint: Url,
    /// The host of the URL, where another name stands in the endpoint.
    host: Option<String>,
}

impl Session {
    /// The request that makes a query. By POST, because the expression of a large install outgrows a URL.
    pub(super) fn query(&self, expression: &str) -> RequestBuilder {
        let mut request = self.http.post(self.endpoint.clone()).form(&[("query", expression)]);
        if let Some(host) = &self.host {
            request = request.header(HOST, host);
        }
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }
}

/// Makes sessions.
pub(super) struct Connection {
    config: PrometheusConfig,
    endpoint: Url,
    /// Host of the URL with its port, where the endpoint has the server name instead.
    host: Option<String>,
    /// Locked while somebody looks.
    pub(super) files: Arc<AsyncMutex<Files>>,
    /// What the last look found.
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
        // A query without the token that is wanted would be refused, with words that name no file.
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

    /// Looks at the files and makes a session from what is good.
    pub(super) async fn session(&self) -> Result<Session, QueryError> {
        // Reading may block for long on a network volume; then the look under way is the only one.
        if let Ok(mut files) = self.files.clone().try_lock_owned() {
            let current = self.current.clone();
            let look = tokio::task::spawn_blocking(move || {
                let found = files.look();
                *current.lock().unwrap_or_else(PoisonError::into_inner) = found;
            });
            // Whatever became of it, the last good look counts.
            let _ = tokio::time::timeout(LOOK, look).await;
        }
        let (http, token) = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Ok(Session { http, token, endpoint: self.endpoint.clone(), host: self.host.clone() })
    }
}

/// Where queries go, and the host to name where that is another than the certificate's.
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

/// The server name and the host behind it, where there is one.
pub(super) fn renamed(config: &PrometheusConfig) -> Option<(String, String)> {
    let url = Url::parse(&config.base_url).ok().filter(|url| url.scheme() == "https")?;
    let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
    Some((config.server_name.clone()?, host))
}

/// Finds the URL's host under the name of its certificate: so the handshake asks for that name and verifies it.
pub(super) struct Renamed {
    pub(super) name: String,
    pub(super) host: String,
}

impl Resolve for Renamed {
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
