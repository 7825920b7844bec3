//! CA of the API server's client certificate. If set, only callers with a certificate of this CA get reviews answered. The
//! file is reloaded when it changes.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use wva_runtime::auth::Peer;

const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// A bundle has a few kilobytes.
const MAX_FILE_BYTES: u64 = 128 << 10;

/// Answer to a caller without a certificate of the CA.
pub(crate) const UNVERIFIED: &str = "client certificate missing or not trusted: configure the API server to use a client certificate \
     for webhooks, signed by the CA in WVA_WEBHOOK_CLIENT_CA";

/// Errors of loading the CA.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaError {
    /// The file cannot be read.
    #[error("cannot read {path}: check that the volume is mounted")]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The file has no CA.
    #[error("{path} contains no usable CA certificate: it must be a PEM file")]
    NoCa {
        /// Path of the file.
        path: PathBuf,
    },
}

/// CA loaded from a file.
#[derive(Debug)]
pub struct ClientCa {
    path: PathBuf,
    current: ArcSwap<LoadedCa>,
}

#[derive(Debug)]
struct LoadedCa {
    pem: Vec<u8>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCa {
    /// Reads the file.
    ///
    /// # Errors
    /// [`ClientCaError`].
    pub fn read(path: impl Into<PathBuf>) -> Result<Self, ClientCaError> {
        let path = path.into();
        let current = ArcSwap::from_pointee(parse(&path, read_file(&path)?)?);
        Ok(Self { path, current })
    }

    /// An error is logged once; the previous CA stays in use.
    pub async fn watch(self: Arc<Self>, shutdown: CancellationToken) {
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported = None;
        while shutdown.run_until_cancelled(poll.tick()).await.is_some() {
            let ca = Arc::clone(&self);
            let Ok(reloaded) = tokio::task::spawn_blocking(move || ca.reload()).await else { continue };
            let problem = reloaded.err().map(|error| error.to_string());
            if let Some(error) = problem.as_ref().filter(|_| reported != problem) {
                tracing::warn!(error, "Cannot reload the client CA; keeping the previous one");
            }
            reported = problem;
        }
    }

    fn reload(&self) -> Result<(), ClientCaError> {
        let pem = read_file(&self.path)?;
        if pem != self.current.load().pem {
            self.current.store(Arc::new(parse(&self.path, pem)?));
            tracing::info!(file = %self.path.display(), "Client CA reloaded");
        }
        Ok(())
    }

    /// The certificate is of this CA and valid now.
    pub(crate) fn verifies(&self, peer: Option<&Peer>) -> bool {
        let Some((leaf, intermediates)) = peer.and_then(Peer::chain) else { return false };
        self.current.load().verifier.verify_client_cert(leaf, intermediates, UnixTime::now()).is_ok()
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, ClientCaError> {
    let unreadable = |source| ClientCaError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

fn parse(path: &Path, pem: Vec<u8>) -> Result<LoadedCa, ClientCaError> {
    let no_ca = || ClientCaError::NoCa { path: path.to_owned() };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    let provider = Arc::new(aws_lc_rs::default_provider());
    // Fails for an empty store.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|_| no_ca())?;
    Ok(LoadedCa { pem, verifier })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(name: &str) -> rcgen::CertifiedIssuer<'static, rcgen::KeyPair> {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap()
    }

    fn peer(
        ca: &rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
        purpose: rcgen::ExtendedKeyUsagePurpose,
    ) -> Peer {
        let mut params = rcgen::CertificateParams::default();
        params.extended_key_usages = vec![purpose];
        let cert = params.signed_by(&rcgen::KeyPair::generate().unwrap(), ca).unwrap();
        Peer::new(Some(&[cert.der().clone()]))
    }

    #[test]
    fn verifies_client_certificates_by_the_ca_file() {
        use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};

        let path = std::env::temp_dir().join(format!("wva-client-ca-{}.crt", std::process::id()));
        assert!(matches!(ClientCa::read(&path), Err(ClientCaError::Unreadable { .. })));
        std::fs::write(&path, "no certificate").unwrap();
        assert!(matches!(ClientCa::read(&path), Err(ClientCaError::NoCa { .. })));

        let (first, second) = (authority("first"), authority("second"));
        std::fs::write(&path, first.pem()).unwrap();
        let ca = ClientCa::read(&path).unwrap();
        let verified = |ca: &ClientCa| {
            let peers = [peer(&first, ClientAuth), peer(&second, ClientAuth), peer(&first, ServerAuth)];
            [ca.verifies(Some(&peers[0])), ca.verifies(Some(&peers[1])), ca.verifies(Some(&peers[2]))]
        };
        assert_eq!(verified(&ca), [true, false, false]);
        assert!(!ca.verifies(None) && !ca.verifies(Some(&Peer::new(None))));

        // Rotated in two steps, then corrupted.
        std::fs::write(&path, first.pem() + &second.pem()).unwrap();
        ca.reload().unwrap();
        assert_eq!(verified(&ca), [true, true, false]);
        std::fs::write(&path, second.pem()).unwrap();
        ca.reload().unwrap();
        assert_eq!(verified(&ca), [false, true, false]);
        std::fs::write(&path, "no certificate").unwrap();
        assert!(ca.reload().is_err());
        assert_eq!(verified(&ca), [false, true, false]);
        std::fs::remove_file(&path).unwrap();
        assert!(ca.reload().is_err());
    }
}
