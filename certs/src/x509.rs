//! Parsed X.509 certificates from untrusted input.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pem::{EncodeConfig, LineEnding, Pem};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

/// Invalid PEM of certificates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPem {
    /// No certificate block.
    #[error("holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// A block that is not an X.509 certificate.
    #[error("holds no X.509 certificate in its PEM block {block}")]
    NotACertificate {
        /// Number of the block, from 1.
        block: usize,
    },
}

/// A certificate.
#[derive(Clone, Debug)]
pub struct Cert {
    /// Certificate as DER.
    pub der: CertificateDer<'static>,
    /// PEM with a final newline and no other text.
    pub pem: String,
    /// Subject; often empty.
    pub subject: String,
    /// DNS names and IP addresses (subject alternative names).
    pub names: Vec<String>,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
    /// Whether it is a CA certificate.
    pub is_ca: bool,
    /// Public key as DER, with its algorithm.
    pub public_key: Vec<u8>,
}

impl Cert {
    /// Parses every certificate of a PEM text.
    ///
    /// # Errors
    /// [`BadPem`] if there is none or one is not valid.
    pub fn read_all(pem: &[u8]) -> Result<Vec<Self>, BadPem> {
        let certs = CertificateDer::pem_slice_iter(pem)
            .enumerate()
            .map(|(i, der)| der.ok().and_then(Self::read).ok_or(BadPem::NotACertificate { block: i + 1 }));
        let certs = certs.collect::<Result<Vec<_>, _>>()?;
        if certs.is_empty() { Err(BadPem::NoCertificate) } else { Ok(certs) }
    }

    fn read(der: CertificateDer<'static>) -> Option<Self> {
        let (rest, x509) = x509_parser::parse_x509_certificate(&der).ok()?;
        if !rest.is_empty() {
            return None;
        }
        let (not_before, not_after) = validity(&x509);
        Some(Self {
            subject: x509.subject().to_string(),
            names: names(&x509),
            not_before,
            not_after,
            is_ca: x509.is_ca(),
            public_key: x509.public_key().raw.to_vec(),
            pem: pem_of(&der),
            der,
        })
    }
}

/// Never copy PEM from the input, which may contain a private key.
pub(crate) fn pem_of(der: &CertificateDer<'_>) -> String {
    let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new("CERTIFICATE", der.as_ref()), lines)
}

/// Validity. 99991231235959Z means "no end" and becomes [`Timestamp::MAX`].
pub(crate) fn validity(x509: &X509Certificate<'_>) -> (Timestamp, Timestamp) {
    let nearest = |at: i64| {
        let limit = if at < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::from_second(at).unwrap_or(limit)
    };
    let validity = x509.validity();
    (nearest(validity.not_before.timestamp()), nearest(validity.not_after.timestamp()))
}

/// Verifies `leaf` as a client that connects to `name` and trusts `cas`.
///
/// # Errors
/// Error text of rustls.
pub(crate) fn verify(
    leaf: &CertificateDer<'_>,
    chain: &[CertificateDer<'_>],
    cas: &[CertificateDer<'static>],
    name: &str,
    now: Timestamp,
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(cas.iter().cloned());
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|e| e.to_string())?;
    let name = ServerName::try_from(name).map_err(|e| e.to_string())?;
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
    verifier.verify_server_cert(leaf, chain, &name, &[], at).map(|_| ()).map_err(|e| e.to_string())
}

fn names(x509: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = x509.subject_alternative_name() else { return Vec::new() };
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match **bytes {
            [a, b, c, d] => Some(std::net::Ipv4Addr::new(a, b, c, d).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|b| std::net::Ipv6Addr::from(b).to_string()),
        },
        _ => None,
    };
    names.value.general_names.iter().filter_map(name).collect()
}
