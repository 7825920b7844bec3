//! TLS of clients: what they trust, their certificate, and what a failed handshake means.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Certificates that a client trusts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Every certificate.
    Any,
    /// Those of these CAs, and these certificates themselves.
    Only(Vec<CertificateDer<'static>>),
    /// The same, and those of the system's CAs.
    WithSystem(Vec<CertificateDer<'static>>),
}

/// Certificate of a client, and its key.
#[derive(Debug)]
pub struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Clone for ClientIdentity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl ClientIdentity {
    /// Reads certificates and one key.
    ///
    /// # Errors
    /// Which of them is missing or invalid.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let chain = certificates(pem)?;
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| format!("no private key: {error}"))?;
        Ok(Self { chain, key })
    }
}

/// Certificates of a PEM bundle.
///
/// # Errors
/// The first one that cannot be read, or there is none.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err("no certificate found".to_owned()),
        found => found.map_err(|error| error.to_string()),
    }
}

/// Configuration of a client.
///
/// # Errors
/// [`rustls::Error`]: a certificate that cannot be a root, or a key that does not fit its certificate.
pub fn client_config(trust: Trust, identity: Option<ClientIdentity>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier(trust, &provider)?);
    match identity {
        Some(ClientIdentity { chain, key }) => builder.with_client_auth_cert(chain, key),
        None => Ok(builder.with_no_client_auth()),
    }
}

fn verifier(
    trust: Trust,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, rustls::Error> {
    let (given, with_system) = match trust {
        Trust::Any => return Ok(Arc::new(Unverified(provider.clone()))),
        Trust::Only(given) => (given, false),
        Trust::WithSystem(given) => (given, true),
    };
    let mut roots = RootCertStore::empty();
    if with_system {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    for certificate in &given {
        roots.add(certificate.clone())?;
    }
    // A verifier refuses an empty store, and an empty store verifies nothing.
    if roots.is_empty() {
        return Err(rustls::Error::General("no CA is given, and the system has none".to_owned()));
    }
    let library = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let library = library.map_err(|error| rustls::Error::General(error.to_string()))?;
    Ok(Arc::new(Verifier { library, given }))
}

/// The library's verifier, and the given certificates themselves. Prometheus often has a certificate that no CA
/// signed, and users give that one as its CA: Go and curl accept it, and the library does not.
#[derive(Debug)]
struct Verifier {
    library: Arc<WebPkiServerVerifier>,
    given: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verdict =
            self.library.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let Err(error) = verdict else { return verdict };
        if !is_about_issuer(&error) || !self.given.iter().any(|given| given == end_entity) {
            return Err(error);
        }
        check_dates(end_entity, now)?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.library.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.library.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.library.supported_verify_schemes()
    }
}

/// Nothing but the issuer is wrong: no CA is known for it, or the certificate is itself a CA.
fn is_about_issuer(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
            matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
        }
        _ => false,
    }
}

fn check_dates(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < parsed.validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet);
    }
    if now > parsed.validity.not_after.timestamp() {
        return Err(CertificateError::Expired);
    }
    Ok(())
}

/// Accepts every certificate whose key the server has.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// What a failed TLS connection says of its cause. The caller knows which setting to change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsFault {
    /// No trusted CA signed the certificate.
    UnknownIssuer,
    /// The certificate is for other names: these.
    OtherName(Vec<String>),
    /// The certificate has expired, or is not valid yet.
    Dates,
    /// Another fault of the certificate.
    Certificate,
    /// The peer does not trust this side's certificate.
    NotTrustedByPeer,
    /// The peer asks for a certificate, or refuses the one it got.
    CertificateRequired,
    /// The peer does not speak TLS.
    NotTls,
    /// No common version or cipher.
    Incompatible,
}

impl TlsFault {
    /// `None`: not a fault of TLS.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<rustls::Error>() {
                return Self::of_tls(error);
            }
            // The source of an I/O error is that of the error within, not this one itself.
            if let Some(within) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                next = Some(within);
                continue;
            }
            next = error.source();
        }
        None
    }

    fn of_tls(error: &rustls::Error) -> Option<Self> {
        Some(match error {
            rustls::Error::InvalidCertificate(error) => match error {
                CertificateError::UnknownIssuer => Self::UnknownIssuer,
                CertificateError::NotValidForNameContext { presented, .. } => {
                    Self::OtherName(presented.clone())
                }
                CertificateError::NotValidForName => Self::OtherName(Vec::new()),
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Self::Dates,
                CertificateError::Other(_) if is_about_issuer(&error.clone().into()) => Self::UnknownIssuer,
                _ => Self::Certificate,
            },
            rustls::Error::AlertReceived(alert) => match alert {
                AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown => Self::NotTrustedByPeer,
                AlertDescription::CertificateRequired | AlertDescription::AccessDenied => {
                    Self::CertificateRequired
                }
                AlertDescription::HandshakeFailure
                | AlertDescription::ProtocolVersion
                | AlertDescription::InsufficientSecurity => Self::Incompatible,
                _ => return None,
            },
            rustls::Error::NoCertificatesPresented => Self::CertificateRequired,
            rustls::Error::InvalidMessage(_) => Self::NotTls,
            rustls::Error::PeerIncompatible(_) => Self::Incompatible,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
