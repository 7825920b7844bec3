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
    /// Certificates of these CAs, and these certificates themselves.
    Only(Vec<CertificateDer<'static>>),
    /// Certificates of these CAs, these certificates themselves, and those of the system's CAs.
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
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier(trust, &provider)?));
    match identity {
        Some(ClientIdentity { chain, key }) => builder.with_client_auth_cert(chain, key),
        None => Ok(builder.with_no_client_auth()),
    }
}

fn verifier(trust: Trust, provider: &Arc<CryptoProvider>) -> Result<Verifier, rustls::Error> {
    let trusted = match trust {
        Trust::Any => None,
        Trust::Only(given) => Some(CaTrust::new(RootCertStore::empty(), given, provider)?),
        Trust::WithSystem(given) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            Some(CaTrust::new(roots, given, provider)?)
        }
    };
    Ok(Verifier { provider: provider.clone(), trusted })
}

#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None`: every certificate whose key the server has.
    trusted: Option<CaTrust>,
}

/// The library's verifier, and the given certificates themselves. Prometheus often has a certificate that no CA
/// signed, and users give that one as its CA: Go and curl accept it, and the library does not.
#[derive(Debug)]
struct CaTrust {
    library: Arc<WebPkiServerVerifier>,
    given: Vec<CertificateDer<'static>>,
}

impl CaTrust {
    fn new(
        mut roots: RootCertStore,
        given: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, rustls::Error> {
        for certificate in &given {
            roots.add(certificate.clone())?;
        }
        let library = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let failed = |error| {
            rustls::Error::General(format!(
                "no CA is given, and the system has none that can be used: {error}"
            ))
        };
        Ok(Self { library: library.map_err(failed)?, given })
    }
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
        let Some(CaTrust { library, given }) = &self.trusted else {
            return Ok(ServerCertVerified::assertion());
        };
        let verdict = library.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let Err(error) = verdict else { return verdict };
        if !is_about_issuer(&error) || !given.iter().any(|given| given == end_entity) {
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
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
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
