//! Client certificate of a TLS connection. The handshake requests a certificate and accepts any or none, because a
//! client with a bearer token may have an unrelated one. Each request verifies the certificate, so that a new CA also
//! applies to open connections.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;

/// Certificate chain that the client sent. The handshake verifies only that the client holds the first one's key.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    chain: Arc<[CertificateDer<'static>]>,
}

impl Peer {
    /// From the certificates that rustls reports for a connection; `None` for a client without one.
    #[must_use]
    pub fn new(chain: Option<&[CertificateDer<'static>]>) -> Self {
        Self { chain: chain.unwrap_or_default().into() }
    }

    /// The client's own certificate, and the other ones that it sent.
    #[must_use]
    pub fn chain(&self) -> Option<(&CertificateDer<'static>, &[CertificateDer<'static>])> {
        self.chain.split_first()
    }
}
