//! Would a review be answered? Asked by sending one, over the same handshake and to the same server name as the
//! apiserver would: a deletion, which is always admitted.

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

/// A review's own `timeoutSeconds`.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than any answer to the probe.
const ANSWER_BYTES: u64 = 64 << 10;

/// The address the apiserver will use.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Where to dial: an endpoint of the Service.
    pub addr: SocketAddr,
    /// The name the apiserver verifies, `<service>.<namespace>.svc`.
    pub server_name: String,
}

/// Why a review was not answered.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No certificate in the bundle can be a root.
    #[error("the CA bundle holds no usable certificate")]
    Bundle,
    /// The server name is no DNS name.
    #[error("{name:?} is no DNS name: check the names of the Service and its namespace")]
    Name {
        /// What was given.
        name: String,
    },
    /// Connection or handshake failed, among others because the certificate does not verify.
    #[error("no connection that the CA bundle vouches for")]
    Connection(#[source] io::Error),
    /// No answer in time.
    #[error("no answer in {PATIENCE:?}")]
    Slow,
    /// Something else answers there.
    #[error("something answers that is no admission review of ours: {start:?}")]
    Foreign {
        /// The first characters of the answer.
        start: String,
    },
}

impl Probe {
    /// Sends a review and reads its answer; the server's certificate must verify against `ca_bundle` (PEM), which is
    /// the one about to be published.
    ///
    /// # Errors
    /// Each [`ProbeError`] says which step failed.
    pub async fn answered(&self, ca_bundle: &[u8]) -> Result<(), ProbeError> {
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
        match timeout(PATIENCE, self.ask(TlsConnector::from(Arc::new(tls)), name)).await {
            Ok(Ok(answer)) => judge(&answer),
            Ok(Err(source)) => Err(ProbeError::Connection(source)),
            Err(_) => Err(ProbeError::Slow),
        }
    }

    async fn ask(&self, tls: TlsConnector, name: ServerName<'static>) -> io::Result<Vec<u8>> {
        let tcp = TcpStream::connect(self.addr).await?;
        let mut stream = tls.connect(name, tcp).await?;
        let body = review().to_string();
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
            // A server that closes without a TLS goodbye has still said what it said.
            _ => Ok(answer),
        }
    }
}

const UID: &str = "wva-registration-probe";

fn review() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": UID, "operation": "DELETE", "name": UID, "dryRun": true,
            "kind": {"group": GROUP, "version": VERSION, "kind": KIND},
            "resource": {"group": GROUP, "version": VERSION, "resource": PLURAL},
        },
    })
}

fn judge(answer: &[u8]) -> Result<(), ProbeError> {
    let text = String::from_utf8_lossy(answer);
    let ours = text
        .split_once("\r\n\r\n")
        .filter(|(head, _)| head.starts_with("HTTP/1.1 200 "))
        .and_then(|(_, body)| serde_json::from_str::<Value>(body).ok())
        .is_some_and(|review| review["response"]["uid"] == UID && review["response"]["allowed"] == true);
    // With a client CA the server takes no review but the API server's, and says so.
    let refused = text.starts_with("HTTP/1.1 403 ") && text.contains(UNVERIFIED);
    if ours || refused { Ok(()) } else { Err(ProbeError::Foreign { start: text.chars().take(80).collect() }) }
}
