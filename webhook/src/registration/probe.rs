//! Probe of the review server: a DELETE review, which is always admitted, over the API server's TLS handshake and
//! server name.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use wva_crds::names::{GROUP, KIND, PLURAL, VERSION};

use crate::client_ca::UNVERIFIED;
use crate::review::VALIDATE_PATH;

/// The `timeoutSeconds` of a review.
const TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES: u64 = 64 << 10;

/// Address of the review server.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Address to connect to.
    pub addr: SocketAddr,
    /// `<service>.<namespace>.svc`.
    pub server_name: String,
}

/// Why the probe was not answered.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The bundle has no usable root certificate.
    #[error("the CA bundle contains no usable certificate")]
    Bundle,
    /// The server name is not a DNS name.
    #[error("{name:?} is not a DNS name: check the name of the Service and its namespace")]
    Name {
        /// The name.
        name: String,
    },
    /// The connection or the TLS handshake failed; the certificate may not match the CA bundle.
    #[error("connection or TLS handshake failed; the certificate must verify against the CA bundle")]
    Connection(#[source] io::Error),
    /// The answer took too long.
    #[error("no answer within {TIMEOUT:?}")]
    Slow,
    /// Another program answers.
    #[error("the answer is not an admission review of wva: {start:?}")]
    Foreign {
        /// The first characters of the answer.
        start: String,
    },
}

impl Probe {
    /// Sends a review. The server's certificate must verify against `ca_bundle` (PEM).
    ///
    /// # Errors
    /// [`ProbeError`], the step that failed.
    pub async fn check(&self, ca_bundle: &[u8]) -> Result<(), ProbeError> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(ca_bundle).filter_map(Result::ok));
        if roots.is_empty() {
            return Err(ProbeError::Bundle);
        }
        let name = ServerName::try_from(self.server_name.clone())
            .map_err(|_| ProbeError::Name { name: self.server_name.clone() })?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| ProbeError::Connection(io::Error::other(e)))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        match timeout(TIMEOUT, self.send_review(TlsConnector::from(Arc::new(tls)), name)).await {
            Ok(Ok(answer)) => check_answer(&answer),
            Ok(Err(source)) => Err(ProbeError::Connection(source)),
            Err(_) => Err(ProbeError::Slow),
        }
    }

    async fn send_review(&self, tls: TlsConnector, name: ServerName<'static>) -> io::Result<Vec<u8>> {
        let tcp = TcpStream::connect(self.addr).await?;
        let mut stream = tls.connect(name, tcp).await?;
        let body = delete_review().to_string();
        let head = format!(
            "POST {VALIDATE_PATH} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.server_name,
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        match stream.take(ANSWER_BYTES).read_to_end(&mut answer).await {
            Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => Err(e),
            // A missing TLS close_notify does not invalidate the answer.
            _ => Ok(answer),
        }
    }
}

const UID: &str = "wva-registration-probe";

fn delete_review() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": UID, "operation": "DELETE", "name": UID, "dryRun": true,
            "kind": {"group": GROUP, "version": VERSION, "kind": KIND},
            "resource": {"group": GROUP, "version": VERSION, "resource": PLURAL},
        },
    })
}

fn check_answer(answer: &[u8]) -> Result<(), ProbeError> {
    let text = String::from_utf8_lossy(answer);
    let is_admitted = text
        .split_once("\r\n\r\n")
        .filter(|(head, _)| head.starts_with("HTTP/1.1 200 "))
        .and_then(|(_, body)| serde_json::from_str::<Value>(body).ok())
        .is_some_and(|review| review["response"]["uid"] == UID && review["response"]["allowed"] == true);
    // With a client CA, the server accepts reviews of the API server only.
    let is_refused_as_unverified = text.starts_with("HTTP/1.1 403 ") && text.contains(UNVERIFIED);
    if is_admitted || is_refused_as_unverified {
        Ok(())
    } else {
        Err(ProbeError::Foreign { start: text.chars().take(80).collect() })
    }
}
