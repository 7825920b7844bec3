//! The HTTP client and what it is made from: a CA, a client certificate and a token, which others renew in their files.
//! They are looked at before each round. Whatever is bad is said once, and what was good stays in use.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HOST;
use reqwest::{Certificate, Client, ClientBuilder, Identity, RequestBuilder, Url};
use rustls::pki_types::DnsName;

use super::{PrometheusConfig, QueryError, causes};

/// CA of the cluster, as every pod has it.
const SERVICE_ACCOUNT_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
/// Longest file that is read: a bundle of the whole web is a fifth of it.
const LONGEST: u64 = 1 << 20;
/// Longest time to a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A file cannot be read.
    #[error("{setting} {path}: {problem}; check that the volume is mounted there")]
    File {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: String,
        /// What the system says.
        problem: String,
    },
    /// The CA file holds no certificate that can be read.
    #[error("PROMETHEUS_CA_CERT_PATH {path}: {problem}; it must hold PEM certificates")]
    Ca {
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// Client certificate and key are no pair.
    #[error(
        "PROMETHEUS_CLIENT_CERT_PATH {cert} and PROMETHEUS_CLIENT_KEY_PATH {key}: {problem}; they must hold a PEM \
         certificate and its key"
    )]
    Identity {
        /// The certificate's file.
        cert: String,
        /// The key's file.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// A server name that no certificate is verified for.
    #[error(
        "PROMETHEUS_SERVER_NAME {found:?} is no DNS name; write the name that the certificate of Prometheus carries \
         (an address belongs into PROMETHEUS_BASE_URL)"
    )]
    ServerName {
        /// What was found.
        found: String,
    },
    /// The URL has no host.
    #[error("PROMETHEUS_BASE_URL {url} cannot be used: {problem}")]
    Url {
        /// The URL, without a password.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// The HTTP client could not be made.
    #[error("cannot make the HTTP client for Prometheus: {problem}")]
    Http {
        /// What the client's library says.
        problem: String,
    },
}

/// What the files held at one moment. `None` where a file is not there, or none is named.
#[derive(Clone, Default, PartialEq, Eq)]
struct Contents {
    ca: Option<Vec<u8>>,
    /// Read where the CA file is named and is not there.
    service_account_ca: Option<Vec<u8>>,
    identity: Option<Vec<u8>>,
}

/// A client, and the files it was made from.
struct InUse {
    http: Client,
    contents: Contents,
    token: Option<String>,
    /// What was wrong at the last look, so that it is said once.
    said: Vec<String>,
}

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
    in_use: Arc<Mutex<InUse>>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(config: PrometheusConfig) -> Result<Self, ClientError> {
        let (endpoint, host) = endpoint(&config)?;
        let contents = contents(&config, None)?;
        if let (Some(path), None) = (&config.ca_path, &contents.ca) {
            tracing::warn!(
                path,
                "The CA file for Prometheus does not exist: the system's roots and the service account's CA are used"
            );
        }
        let http = client(&config, &contents)?;
        let in_use = InUse { http, contents, token: None, said: Vec::new() };
        Ok(Self { config, endpoint, host, in_use: Arc::new(Mutex::new(in_use)) })
    }

    /// What was wrong with the files at the last look.
    #[cfg(test)]
    pub(super) fn said(&self) -> Vec<String> {
        self.in_use.lock().unwrap().said.clone()
    }

    /// Looks at the files and makes a session from what is good.
    pub(super) async fn session(&self) -> Result<Session, QueryError> {
        let (config, in_use) = (self.config.clone(), self.in_use.clone());
        // Reading may block for long on a network volume.
        let looked = tokio::task::spawn_blocking(move || {
            let mut in_use = in_use.lock().unwrap_or_else(PoisonError::into_inner);
            let token = in_use.look(&config);
            token.map(|token| (in_use.http.clone(), token))
        });
        let (http, token) = looked.await.unwrap_or_else(|error| {
            Err(QueryError::Unreachable { url: self.config.base_url.clone(), cause: error.to_string() })
        })?;
        Ok(Session { http, token, endpoint: self.endpoint.clone(), host: self.host.clone() })
    }
}

impl InUse {
    /// Puts what has changed to use; the token.
    fn look(&mut self, config: &PrometheusConfig) -> Result<Option<String>, QueryError> {
        let mut faults = Vec::new();
        if let Err(fault) = self.renew(config) {
            faults.push(fault.to_string());
        }
        let token = self.token(config);
        if let (Err(fault), Some(_)) = (&token, &self.token) {
            faults.push(fault.to_string());
        }
        for fault in faults.iter().filter(|fault| !self.said.contains(fault)) {
            tracing::warn!(fault, "A file for Prometheus is not right; what was in it before stays in use");
        }
        self.said = faults;
        token.or_else(|fault| self.token.clone().map(Some).ok_or(fault))
    }

    fn renew(&mut self, config: &PrometheusConfig) -> Result<(), ClientError> {
        let contents = contents(config, Some(&self.contents))?;
        if contents == self.contents {
            return Ok(());
        }
        self.http = client(config, &contents)?;
        self.contents = contents;
        tracing::info!("The certificate files for Prometheus have changed and are in use");
        Ok(())
    }

    fn token(&mut self, config: &PrometheusConfig) -> Result<Option<String>, QueryError> {
        if let Some(token) = &config.bearer_token {
            return Ok(Some(token.clone()));
        }
        let Some(path) = &config.token_path else { return Ok(None) };
        let unusable = |problem: String| QueryError::Token { path: path.clone(), problem };
        let bytes = read(path).map_err(|e| unusable(e.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| unusable("it is no text".to_owned()))?;
        let token = text.trim();
        // What no header can carry would fail every query with words that name no file.
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(unusable("it holds no token".to_owned()));
        }
        self.token = Some(token.to_owned());
        Ok(self.token.clone())
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

/// Reads the files. One that was there `before` and is gone now is a fault, and no wish to do without it.
fn contents(config: &PrometheusConfig, before: Option<&Contents>) -> Result<Contents, ClientError> {
    let fault = |setting, path: &String| {
        let path = path.clone();
        move |e: io::Error| ClientError::File { setting, path, problem: e.to_string() }
    };
    let mut contents = Contents::default();
    if let Some(path) = &config.ca_path {
        let had = before.is_some_and(|before| before.ca.is_some());
        match read(path) {
            Ok(pem) => contents.ca = Some(pem),
            Err(e) if e.kind() == io::ErrorKind::NotFound && !had => {
                contents.service_account_ca = read(SERVICE_ACCOUNT_CA).ok();
            }
            Err(e) => return Err(fault("PROMETHEUS_CA_CERT_PATH", path)(e)),
        }
    }
    if let Some((cert, key)) = &config.client_identity {
        let mut pem = read(cert).map_err(fault("PROMETHEUS_CLIENT_CERT_PATH", cert))?;
        pem.push(b'\n');
        pem.extend(read(key).map_err(fault("PROMETHEUS_CLIENT_KEY_PATH", key))?);
        contents.identity = Some(pem);
    }
    Ok(contents)
}

fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    // To open a pipe would be to wait for who writes it.
    if !std::fs::metadata(&path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(&path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it is longer than {LONGEST} bytes")));
    }
    Ok(bytes)
}

fn client(config: &PrometheusConfig, contents: &Contents) -> Result<Client, ClientError> {
    let mut builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .tls_danger_accept_invalid_certs(config.insecure_skip_verify);
    builder = with_roots(builder, config, contents)?;
    let no_pair = |e: reqwest::Error| {
        let (cert, key) = config.client_identity.clone().unwrap_or_default();
        ClientError::Identity { cert, key, problem: causes(&e) }
    };
    if let Some(pem) = &contents.identity {
        builder = builder.identity(Identity::from_pem(pem).map_err(no_pair)?);
    }
    if let Some((name, host)) = renamed(config) {
        // A proxy would be told the name of the certificate, and would go there.
        builder = builder.no_proxy().dns_resolver(Renamed { name, host });
    }
    // All that is left to fail is the pair, where there is one.
    builder.build().map_err(|e| match contents.identity {
        Some(_) => no_pair(e),
        None => ClientError::Http { problem: causes(&e) },
    })
}

/// Who is trusted: the system's roots and what the files hold.
fn with_roots(
    builder: ClientBuilder,
    config: &PrometheusConfig,
    contents: &Contents,
) -> Result<ClientBuilder, ClientError> {
    if !config.base_url.starts_with("https:") {
        // Nothing is verified, and an image without roots is good enough.
        return Ok(builder.tls_certs_only([]));
    }
    let mut roots = Vec::new();
    if let Some(pem) = &contents.ca {
        let unusable =
            |problem| ClientError::Ca { path: config.ca_path.clone().unwrap_or_default(), problem };
        roots = Certificate::from_pem_bundle(pem).map_err(|e| unusable(causes(&e)))?;
        if roots.is_empty() {
            return Err(unusable("no certificate in it".to_owned()));
        }
    }
    if let Some(pem) = &contents.service_account_ca {
        match Certificate::from_pem_bundle(pem) {
            Ok(more) => roots.extend(more),
            Err(e) => tracing::warn!(path = SERVICE_ACCOUNT_CA, error = causes(&e), "This CA cannot be read"),
        }
    }
    Ok(builder.tls_certs_merge(roots))
}

/// The server name and the host behind it, where there is one.
pub(super) fn renamed(config: &PrometheusConfig) -> Option<(String, String)> {
    let url = Url::parse(&config.base_url).ok().filter(|url| url.scheme() == "https")?;
    let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
    Some((config.server_name.clone()?, host))
}

/// Finds the URL's host under the name of its certificate: so the handshake asks for that name and verifies it.
struct Renamed {
    name: String,
    host: String,
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
