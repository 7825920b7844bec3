//! Address and client certificate of a connection. The handshake accepts any or none; each request verifies it, so that a new
//! CA also applies to open connections.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;

/// The handshake verifies only that the client holds the key.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    address: Option<IpAddr>,
    chain: Arc<[CertificateDer<'static>]>,
}

impl Peer {
    /// Peer with the certificates from rustls; `None` for a client without one.
    #[must_use]
    pub fn new(chain: Option<&[CertificateDer<'static>]>) -> Self {
        Self { address: None, chain: chain.unwrap_or_default().into() }
    }

    /// The same peer at this address.
    #[must_use]
    pub fn at(self, address: Option<IpAddr>) -> Self {
        Self { address: address.map(|address| address.to_canonical()), ..self }
    }

    /// Address of the client, or of the proxy in front of it. `None`: unknown.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// The client's own certificate, and the others.
    #[must_use]
    pub fn chain(&self) -> Option<(&CertificateDer<'static>, &[CertificateDer<'static>])> {
        self.chain.split_first()
    }
}
