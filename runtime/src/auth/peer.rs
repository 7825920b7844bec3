//! Client certificate of a TLS connection. The handshake accepts any or none; each request verifies it, so that a new
//! CA also applies to open connections.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;

/// The handshake verifies only that the client holds the key.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    chain: Arc<[CertificateDer<'static>]>,
}

impl Peer {
    /// Peer with the certificates from rustls; `None` for a client without one.
    #[must_use]
    pub fn new(chain: Option<&[CertificateDer<'static>]>) -> Self {
        Self { chain: chain.unwrap_or_default().into() }
    }

    /// The client's own certificate, and the others.
    #[must_use]
    pub fn chain(&self) -> Option<(&CertificateDer<'static>, &[CertificateDer<'static>])> {
        self.chain.split_first()
    }
}
