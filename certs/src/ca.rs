//! Certificate authority: an ECDSA P-256 key and its self-signed certificate.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::BACKDATED;
use crate::fault::MAX_CERT_BYTES;
pub use crate::fault::{CaDefect, CaFault};
use crate::verify;
use crate::x509;

/// A certificate could not be created.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// rcgen rejected the parameters or the key.
    #[error("cannot create the {kind} certificate")]
    Rcgen {
        /// `CA` or `serving`.
        kind: &'static str,
        /// Error of rcgen.
        #[source]
        source: rcgen::Error,
    },
    /// The dates are outside the range of X.509, or the clock is before 1970.
    #[error(
        "a certificate lifetime of {lifetime:?} from {now} is out of range; check the clock and the setting"
    )]
    Lifetime {
        /// Requested lifetime.
        lifetime: Duration,
        /// Current time.
        now: Timestamp,
    },
}

/// Certificate of a CA, without its key.
#[derive(Clone)]
pub struct CaCert {
    der: CertificateDer<'static>,
    pem: String,
    not_before: Timestamp,
    not_after: Timestamp,
}

/// Equal if the DER is equal; the PEM text may differ.
impl PartialEq for CaCert {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for CaCert {}

impl CaCert {
    /// Parses `entry`: exactly one CA certificate that is valid at `now`.
    pub(crate) fn parse(entry: &'static str, pem: &[u8], now: Timestamp) -> Result<Self, CaFault> {
        let cert = Self::parse_ignoring_dates(entry, pem)?;
        let (not_before, not_after) = (cert.not_before, cert.not_after);
        if now >= not_after {
            return Err(CaFault::Expired { entry, not_after });
        }
        if now < not_before {
            return Err(CaFault::NotYetValid { entry, not_before });
        }
        Ok(cert)
    }

    /// Parses `entry`, which must be one CA certificate. Its dates are not checked.
    pub(crate) fn parse_ignoring_dates(entry: &'static str, pem: &[u8]) -> Result<Self, CaFault> {
        let mut certs = CertificateDer::pem_slice_iter(pem);
        let (Some(Ok(der)), None) = (certs.next(), certs.next()) else {
            return Err(CaFault::NotACertificate { entry });
        };
        Self::from_der(entry, der)
    }

    pub(crate) fn from_der(entry: &'static str, der: CertificateDer<'static>) -> Result<Self, CaFault> {
        if der.len() > MAX_CERT_BYTES {
            return Err(CaFault::TooLong { entry, length: der.len() });
        }
        let (rest, parsed) =
            x509_parser::parse_x509_certificate(&der).map_err(|_| CaFault::NotACertificate { entry })?;
        if !rest.is_empty() {
            return Err(CaFault::NotACertificate { entry });
        }
        if !parsed.is_ca() {
            return Err(CaFault::NotACa { entry });
        }
        let (not_before, not_after) = x509::validity(&parsed);
        let pem = x509::pem_of(&der);
        Ok(Self { der, pem, not_before, not_after })
    }

    /// Certificate as DER.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Certificate as PEM, with a final newline.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// End of validity.
    #[must_use]
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    pub(crate) fn is_valid_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// Time of the rotation: two thirds of the lifetime.
    #[must_use]
    pub fn rotate_at(&self) -> Timestamp {
        self.issued().checked_add(self.life() * 2 / 3).unwrap_or(self.not_after)
    }

    pub(crate) fn life(&self) -> SignedDuration {
        self.not_after.duration_since(self.issued())
    }

    /// Time of creation. wva backdates its CAs; a CA with a shorter lifetime than that comes from another issuer.
    fn issued(&self) -> Timestamp {
        let issued = self.not_before.checked_add(BACKDATED).unwrap_or(self.not_before);
        if issued < self.not_after { issued } else { self.not_before }
    }
}

impl fmt::Debug for CaCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaCert").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// A CA with its key.
pub struct Ca {
    cert: CaCert,
    key: KeyPair,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca").field("cert", &self.cert).finish_non_exhaustive()
    }
}

/// An entry of the CA's Secret.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'static str,
    /// `None` if the entry is missing or empty.
    pub(crate) pem: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    fn present(self) -> Result<&'a [u8], CaFault> {
        self.pem.ok_or(CaFault::Missing { entry: self.name })
    }
}

/// Serving certificate with its key and dates.
pub struct SignedCert {
    /// Certificate without a chain: its issuer is a trust anchor.
    pub cert: CertificateDer<'static>,
    /// Private key, PKCS #8.
    pub key: PrivateKeyDer<'static>,
    /// Time of signing, not the backdated `notBefore`.
    pub issued: Timestamp,
    /// End of validity; never after the CA's.
    pub not_after: Timestamp,
}

/// A certificate and its key as PEM.
pub struct PemPair {
    /// Certificate.
    pub cert: String,
    /// Private key.
    pub key: String,
}

impl Ca {
    /// Creates a CA that is valid from an hour before `now` until `lifetime` after it.
    ///
    /// # Errors
    /// [`SignError`].
    pub fn generate(lifetime: Duration, now: Timestamp) -> Result<Self, SignError> {
        let rcgen = |source| SignError::Rcgen { kind: "CA", source };
        let not_after = end_after(lifetime, now)?;
        let key = KeyPair::generate().map_err(rcgen)?;
        let mut params = CertificateParams::default();
        // The time makes the name unique: verifiers search a bundle by name.
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("wva-ca@{}", now.as_second()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        set_validity(&mut params, lifetime, now, not_after)?;
        let cert = params.self_signed(&key).map_err(rcgen)?;
        // Certificates have no fractions of a second.
        let not_before = Timestamp::from_second((now - BACKDATED).as_second())
            .map_err(|_| SignError::Lifetime { lifetime, now })?;
        Ok(Self { cert: CaCert { der: cert.der().clone(), pem: cert.pem(), not_before, not_after }, key })
    }

    pub(crate) fn parse(cert: Entry<'_>, key: Entry<'_>, now: Timestamp) -> Result<Self, CaFault> {
        let (cert_entry, key_entry) = (cert.name, key.name);
        let cert = CaCert::parse(cert_entry, cert.present()?, now)?;
        let not_a_key = || CaFault::NotAKey { entry: key_entry };
        let pem = std::str::from_utf8(key.present()?).map_err(|_| not_a_key())?;
        let key = KeyPair::from_pem(pem).map_err(|_| not_a_key())?;
        let der = cert.der.clone();
        let (_, x509) = x509_parser::parse_x509_certificate(&der)
            .map_err(|_| CaFault::NotACertificate { entry: cert_entry })?;
        if x509.public_key().raw != key.subject_public_key_info().as_slice() {
            return Err(CaFault::KeyMismatch { entry: key_entry });
        }
        let ca = Self { cert, key };
        verify::check_ca(&ca, &x509, now)
            .map_err(|defect| CaFault::CannotSign { entry: cert_entry, defect })?;
        Ok(ca)
    }

    /// Private key as PEM, only for the Secret.
    pub(crate) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Certificate of the CA.
    #[must_use]
    pub fn cert(&self) -> &CaCert {
        &self.cert
    }

    /// Signs a certificate with a new key for `names` (DNS names or IP addresses), until `lifetime` after `now` or the
    /// end of the CA.
    ///
    /// # Errors
    /// [`SignError`].
    pub fn sign_serving(
        &self,
        names: &[String],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<SignedCert, SignError> {
        let key = generate_key()?;
        let (cert, not_after) = self.sign(&key, names, lifetime, now)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(SignedCert { cert: cert.der().clone(), key, issued: now, not_after })
    }

    /// Signs like [`Ca::sign_serving`], as PEM for files.
    ///
    /// # Errors
    /// [`SignError`].
    pub fn sign_serving_pem(
        &self,
        names: &[String],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<PemPair, SignError> {
        let key = generate_key()?;
        let (cert, _) = self.sign(&key, names, lifetime, now)?;
        Ok(PemPair { cert: cert.pem(), key: key.serialize_pem() })
    }

    /// Signs a certificate for the CA's own key, to check the CA.
    pub(crate) fn sign_test_cert(
        &self,
        name: &str,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<CertificateDer<'static>, SignError> {
        let (cert, _) = self.sign(&self.key, &[name.to_owned()], lifetime, now)?;
        Ok(cert.der().clone())
    }

    fn sign(
        &self,
        key: &KeyPair,
        names: &[String],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<(rcgen::Certificate, Timestamp), SignError> {
        let rcgen = |source| SignError::Rcgen { kind: "serving", source };
        let not_after = end_after(lifetime, now)?.min(self.cert.not_after);
        let mut params = CertificateParams::new(names).map_err(rcgen)?;
        // Verifiers ignore a common name, which is limited to 64 characters.
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, lifetime, now, not_after)?;
        let issuer = Issuer::from_ca_cert_der(&self.cert.der, &self.key).map_err(rcgen)?;
        let cert = params.signed_by(key, &issuer).map_err(rcgen)?;
        Ok((cert, not_after))
    }
}

fn generate_key() -> Result<KeyPair, SignError> {
    KeyPair::generate().map_err(|source| SignError::Rcgen { kind: "serving", source })
}

fn end_after(lifetime: Duration, now: Timestamp) -> Result<Timestamp, SignError> {
    SignedDuration::try_from(lifetime)
        .ok()
        .and_then(|span| now.checked_add(span).ok())
        // X.509 has whole seconds; later comparisons need the stored value.
        .and_then(|end| Timestamp::from_second(end.as_second()).ok())
        .ok_or(SignError::Lifetime { lifetime, now })
}

fn set_validity(
    params: &mut CertificateParams,
    lifetime: Duration,
    now: Timestamp,
    end: Timestamp,
) -> Result<(), SignError> {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let seconds = |at: Timestamp| {
        u64::try_from(at.as_second())
            .map(Duration::from_secs)
            .map_err(|_| SignError::Lifetime { lifetime, now })
    };
    let begin = now.checked_sub(BACKDATED).map_err(|_| SignError::Lifetime { lifetime, now })?;
    params.not_before = epoch + seconds(begin)?;
    params.not_after = epoch + seconds(end)?;
    Ok(())
}

#[cfg(test)]
mod tests;
