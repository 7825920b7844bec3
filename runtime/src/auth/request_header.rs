//! Request-header authentication: the aggregator names the user in headers. A ConfigMap of the cluster has its
//! configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio_util::sync::CancellationToken;

use super::{ANONYMOUS, AUTHENTICATED, DelegatedAuth, Peer, User};
use crate::api_call::ApiCall;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const CA: &str = "requestheader-client-ca-file";

/// Request-header authentication is not configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestHeaderError {
    /// The API server runs without aggregation.
    #[error("entry {0} is absent: the API server runs without --requestheader-client-ca-file")]
    Absent(&'static str),
    /// The entry has no CA certificate.
    #[error("entry {CA} holds no usable CA certificate")]
    NoCa,
    /// The entry is not a JSON list of strings or header names.
    #[error("entry {0} is not a JSON list of header names or common names")]
    BadList(&'static str),
}

/// Request-header configuration: CA, allowed names and headers of the aggregator.
pub struct RequestHeader {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Empty allows any certificate of the CA.
    allowed_names: Vec<String>,
    username: Vec<HeaderName>,
    uid: Vec<HeaderName>,
    group: Vec<HeaderName>,
    extra_prefixes: Vec<String>,
}

impl RequestHeader {
    /// Parses the data of the ConfigMap.
    ///
    /// # Errors
    /// [`RequestHeaderError`]; ignore request headers then.
    pub fn parse(data: &BTreeMap<String, String>) -> Result<Self, RequestHeaderError> {
        let pem = data.get(CA).ok_or(RequestHeaderError::Absent(CA))?;
        let mut roots = RootCertStore::empty();
        let (added, _) = roots
            .add_parsable_certificates(CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok));
        if added == 0 {
            return Err(RequestHeaderError::NoCa);
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|_| RequestHeaderError::NoCa)?;
        Ok(Self {
            verifier,
            allowed_names: list(data, "requestheader-allowed-names")?,
            username: headers(data, "requestheader-username-headers")?,
            uid: headers(data, "requestheader-uid-headers")?,
            group: headers(data, "requestheader-group-headers")?,
            extra_prefixes: list(data, "requestheader-extra-headers-prefix")?
                .into_iter()
                .map(|prefix| prefix.to_ascii_lowercase())
                .collect(),
        })
    }

    /// `None` without a user or an accepted certificate.
    pub(super) fn user(&self, peer: &Peer, headers: &HeaderMap) -> Option<User> {
        let (leaf, intermediates) = peer.chain()?;
        self.verifier.verify_client_cert(leaf, intermediates, UnixTime::now()).ok()?;
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&common_name(leaf)?) {
            return None;
        }
        let values = |names: &[HeaderName]| -> Option<Vec<String>> {
            // One value that is not UTF-8 invalidates the request: a user with fewer groups is another user.
            names
                .iter()
                .flat_map(|name| headers.get_all(name))
                .map(|value| String::from_utf8(value.as_bytes().to_vec()).ok())
                .collect()
        };
        let first = |names| Some(values(names)?.into_iter().find(|value| !value.is_empty()));
        let name = first(&self.username)??;
        let uid = first(&self.uid)?;
        let mut groups = values(&self.group)?;
        // Every API server adds this group to each named user.
        if name != ANONYMOUS && !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for header in headers.keys() {
            let key =
                self.extra_prefixes.iter().find_map(|prefix| header.as_str().strip_prefix(prefix.as_str()));
            if let Some(key) = key {
                extra.insert(percent_decoded(key), values(std::slice::from_ref(header))?);
            }
        }
        Some(User { name, uid, groups, extra })
    }
}

fn list(data: &BTreeMap<String, String>, entry: &'static str) -> Result<Vec<String>, RequestHeaderError> {
    let Some(text) = data.get(entry) else { return Ok(Vec::new()) };
    serde_json::from_str(text).map_err(|_| RequestHeaderError::BadList(entry))
}

fn headers(
    data: &BTreeMap<String, String>,
    entry: &'static str,
) -> Result<Vec<HeaderName>, RequestHeaderError> {
    let name = |name: String| HeaderName::try_from(name).map_err(|_| RequestHeaderError::BadList(entry));
    list(data, entry)?.into_iter().map(name).collect()
}

fn common_name(cert: &CertificateDer<'_>) -> Option<String> {
    let (_, cert) = x509_parser::parse_x509_certificate(cert).ok()?;
    let name = cert.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    Some(name)
}

/// Keeps an invalid encoding, as Kubernetes does.
fn percent_decoded(key: &str) -> String {
    let decoded = || {
        let (mut bytes, mut rest) = (Vec::new(), key.as_bytes());
        while let [first, tail @ ..] = rest {
            if *first == b'%' {
                let hex = std::str::from_utf8(tail.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(hex, 16).ok()?);
                rest = &tail[2..];
            } else {
                bytes.push(*first);
                rest = tail;
            }
        }
        String::from_utf8(bytes).ok()
    };
    decoded().unwrap_or_else(|| key.to_owned())
}

impl DelegatedAuth {
    /// Watches the configuration until `shutdown`. If the ConfigMap is forbidden, absent or invalid, only bearer tokens
    /// count. Without an answer, the last configuration stays in use.
    pub async fn watch_request_header(&self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled(Box::pin(self.run_watch())).await;
    }

    async fn run_watch(&self) {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut changes = watch_object(api, NAME).default_backoff().boxed();
        let mut logged = None;
        let mut log = |error: Option<String>| {
            if logged.as_ref() != Some(&error) {
                match &error {
                    None => tracing::info!("Read ConfigMap {NAMESPACE}/{NAME}; accepting request headers"),
                    Some(error) => {
                        tracing::warn!(
                            error,
                            "ConfigMap {NAMESPACE}/{NAME} not usable; accepting only bearer tokens"
                        );
                    }
                }
                logged = Some(error);
            }
        };
        while let Some(change) = changes.next().await {
            match change {
                Ok(Some(map)) => {
                    let parsed = RequestHeader::parse(&map.data.unwrap_or_default());
                    log(parsed.as_ref().err().map(ToString::to_string));
                    self.set_request_header(parsed.ok());
                }
                Ok(None) => {
                    log(Some("it does not exist".to_owned()));
                    self.set_request_header(None);
                }
                Err(error) => {
                    let call =
                        ApiCall { verb: "watch", resource: "configmaps", namespace: NAMESPACE, name: NAME };
                    let error = call.describe_failure(&error);
                    if self.request_header.load().is_none() {
                        log(Some(error));
                    } else {
                        tracing::debug!(error, "Watch interrupted; retrying");
                    }
                }
            }
        }
    }
}
