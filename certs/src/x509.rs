//! A certificate of any kind, as far as anybody here wants to know about it. Where it comes from is not trusted:
//! every way in which its text can be bad is an error with a name.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use crate::ca::certificate_blocks;

/// A text is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPem {
    /// Not one certificate block.
    #[error("holds no certificate in PEM (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// A block that cannot be read.
    #[error("holds no X.509 certificate in its PEM block {block}")]
    NotACertificate {
        /// Which block, from 1 on.
        block: usize,
    },
}

/// One certificate.
#[derive(Clone, Debug)]
pub struct Cert {
    /// Its DER.
    pub der: CertificateDer<'static>,
    /// Its PEM, with a final newline and nothing around it.
    pub pem: String,
    /// Its subject; often empty, as names stand elsewhere.
    pub subject: String,
    /// DNS names and IP addresses it is for.
    pub names: Vec<String>,
    /// Begin of its validity.
    pub not_before: Timestamp,
    /// End of its validity.
    pub not_after: Timestamp,
    /// It may sign others.
    pub is_ca: bool,
    /// DER of its public key, with the algorithm.
    pub public_key: Vec<u8>,
}

impl Cert {
    /// Reads every certificate of a PEM text.
    ///
    /// # Errors
    /// [`BadPem`], where there is none or one of them cannot be read.
    pub fn read_all(pem: &[u8]) -> Result<Vec<Self>, BadPem> {
        let certs = certificate_blocks(pem)
            .enumerate()
            .map(|(i, pem)| Self::read(pem).ok_or(BadPem::NotACertificate { block: i + 1 }));
        let certs = certs.collect::<Result<Vec<_>, _>>()?;
        if certs.is_empty() { Err(BadPem::NoCertificate) } else { Ok(certs) }
    }

    fn read(pem: String) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let (rest, x509) = x509_parser::parse_x509_certificate(&der).ok()?;
        if !rest.is_empty() {
            return None;
        }
        let date = |at: i64| Timestamp::from_second(at).ok();
        Some(Self {
            subject: x509.subject().to_string(),
            names: names(&x509),
            not_before: date(x509.validity().not_before.timestamp())?,
            not_after: date(x509.validity().not_after.timestamp())?,
            is_ca: x509.is_ca(),
            public_key: x509.public_key().raw.to_vec(),
            der: der.clone().into_owned(),
            pem,
        })
    }
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
