//! The other end of a TLS connection: the certificate it sent, if any. The handshake asks for one and accepts any (or
//! none), as long as the client holds its key: a client with a bearer token may well carry an unrelated certificate.
//! What a certificate is worth is judged at each request, so that a new CA counts at once and for old connections.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ResolvesServerCert;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};

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

    pub(super) fn chain(&self) -> Option<(&CertificateDer<'static>, &[CertificateDer<'static>])> {
        self.chain.split_first()
    }
}

/// TLS for a server behind a [`super::Gate`]: HTTP/1.1, and HTTP/2 where `http2` is set; certificates of `resolver`, client certificates asked for and
/// taken as they are.
///
/// # Errors
/// Where the cryptography provider lacks a protocol version.
pub fn server_tls(
    resolver: Arc<dyn ResolvesServerCert>,
    http2: bool,
) -> Result<Arc<ServerConfig>, wva_certs::serving::ServingError> {
    let clients = Arc::new(AnyCertificate(aws_lc_rs::default_provider()));
    Ok(Arc::new(wva_certs::server_config_asking_clients(resolver, http2, clients)?))
}

#[derive(Debug)]
struct AnyCertificate(CryptoProvider);

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// None: a client then sends what it has, whoever issued it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
