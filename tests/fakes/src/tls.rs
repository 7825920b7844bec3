//! Certificates of servers and clients.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

/// A certificate authority.
pub struct Ca(rcgen::CertifiedIssuer<'static, rcgen::KeyPair>);

/// A certificate and its key.
pub struct CertAndKey {
    /// The certificate.
    pub cert: rcgen::Certificate,
    /// Its key.
    pub key: rcgen::KeyPair,
}

impl Ca {
    /// Creates a CA with a name of its own.
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let name = format!("CA {}", NEXT.fetch_add(1, Ordering::SeqCst));
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        Self(rcgen::CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// Its certificate.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Signs a certificate for a name.
    pub fn issue(&self, name: &str) -> CertAndKey {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        CertAndKey { cert: params.signed_by(&key, &self.0).unwrap(), key }
    }
}

/// Certificate of a server, and the server names that clients requested.
#[derive(Debug)]
pub struct ServerIdentity {
    key: Arc<CertifiedKey>,
    names: Mutex<Vec<Option<String>>>,
    /// The certificate.
    pub pem: String,
}

impl ServerIdentity {
    /// Server names that clients requested, in order.
    pub fn names(&self) -> Vec<Option<String>> {
        self.names.lock().unwrap().clone()
    }
}

impl ResolvesServerCert for ServerIdentity {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.names.lock().unwrap().push(hello.server_name().map(str::to_owned));
        Some(Arc::clone(&self.key))
    }
}

/// Configuration of a server with a certificate of `ca` for `name`, which requires a client certificate of `clients`, if
/// set.
pub fn tls_config(ca: &Ca, name: &str, clients: Option<&Ca>) -> (Arc<ServerConfig>, Arc<ServerIdentity>) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let pair = ca.issue(name);
    let key = PrivateKeyDer::try_from(pair.key.serialize_der()).unwrap();
    let key = CertifiedKey::from_der(vec![pair.cert.der().clone()], key, &provider).unwrap();
    let identity =
        Arc::new(ServerIdentity { key: Arc::new(key), names: Mutex::default(), pem: pair.cert.pem() });
    let verifier = clients.map_or_else(WebPkiClientVerifier::no_client_auth, |clients| {
        let mut roots = RootCertStore::empty();
        roots.add(clients.0.der().clone()).unwrap();
        WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build().unwrap()
    });
    let versions = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.unwrap().with_client_cert_verifier(verifier).with_cert_resolver(identity.clone());
    (Arc::new(config), identity)
}
