//! Files of the connection, which other programs renew. An invalid file is logged once, and its last valid contents
//! stay in use.

use std::io;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};

use super::connection::ServerName;
use super::{ClientIdentity, PrometheusConfig, QueryError};
use crate::client::is_loopback;
use crate::pem;
use crate::text::causes;
use crate::tls::{self, Trust, certificates, client_config};

const SERVICE_ACCOUNT_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why no client could be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A file cannot be read.
    #[error("{setting} {path}: {problem}; check that the volume is mounted there")]
    File {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: String,
        /// Cause.
        problem: String,
    },
    /// The CA file has no valid certificate.
    #[error("PROMETHEUS_CA_CERT_PATH {path}: {problem}; it must hold PEM certificates")]
    Ca {
        /// The file.
        path: String,
        /// Cause.
        problem: String,
    },
    /// Client certificate and key are not a valid pair.
    #[error(
        "PROMETHEUS_CLIENT_CERT_PATH {cert} and PROMETHEUS_CLIENT_KEY_PATH {key}: {problem}; they must hold a PEM \
         certificate and its key"
    )]
    Identity {
        /// The certificate's file.
        cert: String,
        /// The key's file.
        key: String,
        /// Cause.
        problem: String,
    },
    /// The server name is not a DNS name.
    #[error(
        "PROMETHEUS_SERVER_NAME {found:?} is not a DNS name; use a name in the certificate of Prometheus (an IP address \
         belongs in PROMETHEUS_BASE_URL)"
    )]
    ServerName {
        /// Value of the setting.
        found: String,
    },
    /// The URL has no host.
    #[error(
        "PROMETHEUS_BASE_URL {url} is not usable: {problem}; use a URL such as https://prometheus.monitoring:9090"
    )]
    Url {
        /// The URL without its password.
        url: String,
        /// Cause.
        problem: String,
    },
    /// The URL has a user, and there is a token.
    #[error(
        "PROMETHEUS_BASE_URL {url} has a user, and {setting} a token: a request has only one of them; remove the user, or set \
         {setting} to \"\""
    )]
    Credentials {
        /// The URL without its password.
        url: String,
        /// The setting with the token.
        setting: &'static str,
    },
    /// The token of a file would be sent in the clear.
    #[error(
        "PROMETHEUS_BASE_URL {url} is not https, and PROMETHEUS_TOKEN_PATH {path} has a token, which anyone on the way \
         could read; use an https URL, or set PROMETHEUS_TOKEN_PATH to \"\" if Prometheus asks for no token"
    )]
    TokenOverHttp {
        /// The URL without its password.
        url: String,
        /// The file with the token.
        path: String,
    },
    /// The HTTP client could not be created.
    #[error("cannot create the HTTP client for Prometheus: {problem}")]
    Http {
        /// Cause.
        problem: String,
    },
}

/// `None`: the file does not exist or is not configured.
#[derive(Clone, Default, PartialEq, Eq)]
struct Contents {
    ca: Option<Vec<u8>>,
    /// Read if the configured CA file does not exist.
    service_account_ca: Option<Vec<u8>>,
    identity: Option<Vec<u8>>,
}

pub(super) struct Files {
    config: PrometheusConfig,
    pub(super) http: Client,
    contents: Contents,
    token: Option<String>,
    /// Each fault is logged once.
    pub(super) faults: Vec<String>,
}

impl Files {
    pub(super) fn read(config: PrometheusConfig) -> Result<Self, ClientError> {
        let contents = read_contents(&config, None)?;
        let uses_tls = config.base_url.starts_with("https:");
        if let (Some(path), None, true) = (&config.ca_path, &contents.ca, uses_tls) {
            tracing::warn!(
                path,
                "The CA file for Prometheus does not exist; using the system roots and the service account CA"
            );
        }
        let http = create_client(&config, &contents)?;
        Ok(Self { config, http, contents, token: None, faults: Vec::new() })
    }

    pub(super) fn reread(&mut self) -> Result<(Client, Option<String>), QueryError> {
        let mut faults = Vec::new();
        if let Err(fault) = self.renew() {
            faults.push(fault.to_string());
        }
        let token = self.read_token();
        if let (Err(fault), Some(_)) = (&token, &self.token) {
            faults.push(fault.to_string());
        }
        for fault in faults.iter().filter(|fault| !self.faults.contains(fault)) {
            tracing::warn!(fault, "Invalid file for Prometheus; keeping its last valid contents");
        }
        self.faults = faults;
        let token = token.or_else(|fault| self.token.clone().map(Some).ok_or(fault))?;
        Ok((self.http.clone(), token))
    }

    fn renew(&mut self) -> Result<(), ClientError> {
        let contents = read_contents(&self.config, Some(&self.contents))?;
        if contents == self.contents {
            return Ok(());
        }
        self.http = create_client(&self.config, &contents)?;
        self.contents = contents;
        tracing::info!("Reloaded the certificate files for Prometheus");
        Ok(())
    }

    fn read_token(&mut self) -> Result<Option<String>, QueryError> {
        if let Some(token) = &self.config.bearer_token {
            return Ok(Some(token.clone()));
        }
        let Some(path) = &self.config.token_path else { return Ok(None) };
        let unusable = |problem: String| QueryError::Token { path: path.clone(), problem };
        let bytes = pem::read(path).map_err(|e| unusable(e.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| unusable("the file is not UTF-8 text".to_owned()))?;
        let token = text.trim();
        // An invalid header value would fail every query with an error that does not name the file.
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(unusable("the file has no valid token".to_owned()));
        }
        self.token = Some(token.to_owned());
        Ok(self.token.clone())
    }
}

/// A missing file that existed `before` is an error.
fn read_contents(config: &PrometheusConfig, before: Option<&Contents>) -> Result<Contents, ClientError> {
    let fault = |setting, path: &String| {
        let path = path.clone();
        move |e: io::Error| ClientError::File { setting, path, problem: e.to_string() }
    };
    let mut contents = Contents::default();
    if let Some(path) = &config.ca_path {
        let had = before.is_some_and(|before| before.ca.is_some());
        match pem::read(path) {
            Ok(pem) => contents.ca = Some(pem),
            Err(e) if e.kind() == io::ErrorKind::NotFound && !had => {
                contents.service_account_ca = pem::read(SERVICE_ACCOUNT_CA).ok();
            }
            Err(e) => return Err(fault("PROMETHEUS_CA_CERT_PATH", path)(e)),
        }
    }
    if let Some(ClientIdentity { cert, key }) = &config.client_identity {
        let cert = pem::read(cert).map_err(fault("PROMETHEUS_CLIENT_CERT_PATH", cert))?;
        let key = pem::read(key).map_err(fault("PROMETHEUS_CLIENT_KEY_PATH", key))?;
        contents.identity = Some(pem::join(cert, key));
    }
    Ok(contents)
}

fn create_client(config: &PrometheusConfig, contents: &Contents) -> Result<Client, ClientError> {
    let mut builder = Client::builder().connect_timeout(CONNECT_TIMEOUT);
    if !config.is_interactive {
        builder = builder.redirect(Policy::none());
    }
    builder = with_tls(builder, config, contents)?;
    if Url::parse(&config.base_url).is_ok_and(|url| url.host_str().is_some_and(is_loopback)) {
        // As Go does: a proxy has another loopback.
        builder = builder.no_proxy();
    }
    if let Some(server_name) = ServerName::from_config(config) {
        // A proxy would connect to the server name.
        builder = builder.no_proxy().dns_resolver(server_name);
    }
    builder.build().map_err(|e| ClientError::Http { problem: causes(&e) })
}

fn with_tls(
    builder: ClientBuilder,
    config: &PrometheusConfig,
    contents: &Contents,
) -> Result<ClientBuilder, ClientError> {
    if !config.base_url.starts_with("https:") && !config.is_interactive {
        // Without TLS no roots are needed.
        return Ok(builder.tls_certs_only([]));
    }
    let mut roots = Vec::new();
    if let Some(pem) = &contents.ca {
        let unusable =
            |problem| ClientError::Ca { path: config.ca_path.clone().unwrap_or_default(), problem };
        roots = certificates(pem).map_err(unusable)?;
    }
    if let Some(pem) = &contents.service_account_ca {
        match certificates(pem) {
            Ok(more) => roots.extend(more),
            Err(error) => {
                tracing::warn!(path = SERVICE_ACCOUNT_CA, error, "Cannot read the service account CA");
            }
        }
    }
    let invalid_pair = |problem: String| {
        let ClientIdentity { cert, key } = config.client_identity.clone().unwrap_or_default();
        ClientError::Identity { cert, key, problem }
    };
    let identity = contents.identity.as_ref().map(|pem| tls::ClientIdentity::from_pem(pem)).transpose();
    let identity = identity.map_err(invalid_pair)?;
    let has_identity = identity.is_some();
    let trust = if config.insecure_skip_verify { Trust::Any } else { Trust::WithSystem(roots) };
    let tls = client_config(trust, identity).map_err(|e| {
        // With a client certificate, only the certificate and its key fail here.
        if has_identity { invalid_pair(causes(&e)) } else { ClientError::Http { problem: causes(&e) } }
    })?;
    Ok(builder.tls_backend_preconfigured(tls))
}
