//! The other end of a TLS connection: the certificate it sent, if any. The handshake asks for one and accepts any (or
//! none), as long as the client holds its key: a client with a bearer token may well carry an unrelated certificate.
//! What a certificate is worth is judged at each request, so that a new CA counts at once and for old connections.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;

/// What the client sent in the handshake; nothing of it is verified but that it holds the first certificate's key.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    chain: Arc<[CertificateDer<'static>]>,
}

impl Peer {
    /// From the certificates rustls reports for a connection; `None` for a client without any.
    #[must_use]
    pub fn new(chain: Option<&[CertificateDer<'static>]>) -> Self {
        Self { chain: chain.unwrap_or_default().into() }
    }

    /// The client's own certificate and the others that it sent.
    #[must_use]
    pub fn chain(&self) -> Option<(&CertificateDer<'static>, &[CertificateDer<'static>])> {
        self.chain.split_first()
    }
}
