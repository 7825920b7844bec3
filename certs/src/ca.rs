//! The certificate authority: an ECDSA P-256 key and its self-signed certificate, how both are read from PEM and
//! judged, and the signing of serving certificates.

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
use crate::trial;
use crate::why::MOST_BYTES;
pub use crate::why::{Unfit, Why};
use crate::x509;

/// A certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// rcgen refused the parameters or the key.
    #[error("could not make the {what} certificate")]
    Rcgen {
        /// `CA` or `serving`.
        what: &'static str,
        /// What rcgen said.
        #[source]
        source: rcgen::Error,
    },
    /// The lifetime reaches beyond what a date can say, or the clock stands before 1970.
    #[error(
        "a lifetime of {lifetime:?} from {now} on cannot be expressed as dates: check the clock and the setting"
    )]
    Lifetime {
        /// The lifetime asked for.
        lifetime: Duration,
        /// The clock.
        now: Timestamp,
    },
}

/// A CA's certificate without its key.
#[derive(Clone)]
pub struct CaCert {
    der: CertificateDer<'static>,
    pem: String,
    not_before: Timestamp,
    not_after: Timestamp,
}

/// Two are one where they are the same certificate, however its PEM is wrapped.
impl PartialEq for CaCert {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for CaCert {}

impl CaCert {
    /// Reads entry `entry`; it has to be one CA certificate that is valid at `now`.
    pub(crate) fn parse(entry: &'static str, pem: &[u8], now: Timestamp) -> Result<Self, Why> {
        let cert = Self::parse_at_any_time(entry, pem)?;
        let (not_before, not_after) = (cert.not_before, cert.not_after);
        if now >= not_after {
            return Err(Why::Expired { entry, not_after });
        }
        if now < not_before {
            return Err(Why::NotYetValid { entry, not_before });
        }
        Ok(cert)
    }

    /// The same, whatever its dates are.
    pub(crate) fn parse_at_any_time(entry: &'static str, pem: &[u8]) -> Result<Self, Why> {
        let mut certs = CertificateDer::pem_slice_iter(pem);
        let (Some(Ok(der)), None) = (certs.next(), certs.next()) else {
            return Err(Why::NotACertificate { entry });
        };
        Self::from_der(entry, der)
    }

    /// The certificate of entry `entry`, whatever its dates are.
    pub(crate) fn from_der(entry: &'static str, der: CertificateDer<'static>) -> Result<Self, Why> {
        if der.len() > MOST_BYTES {
            return Err(Why::TooLong { entry, length: der.len() });
        }
        let (rest, parsed) =
            x509_parser::parse_x509_certificate(&der).map_err(|_| Why::NotACertificate { entry })?;
        if !rest.is_empty() {
            return Err(Why::NotACertificate { entry });
        }
        if !parsed.is_ca() {
            return Err(Why::NotACa { entry });
        }
        let (not_before, not_after) = x509::validity(&parsed);
        let pem = x509::pem_of(&der);
        Ok(Self { der, pem, not_before, not_after })
    }

    /// DER of the certificate.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// PEM of the certificate, with a final newline.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// End of its validity.
    #[must_use]
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// Whether something that it signs is valid at `now`, as far as the CA is concerned.
    pub(crate) fn valid_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// When two thirds of its life are over: time for the next one.
    #[must_use]
    pub fn rotate_at(&self) -> Timestamp {
        self.issued().checked_add(self.life() * 2 / 3).unwrap_or(self.not_after)
    }

    /// From when it was made to its end.
    pub(crate) fn life(&self) -> SignedDuration {
        self.not_after.duration_since(self.issued())
    }

    /// Ours are dated back; one of a shorter life than that was made elsewhere, and is not.
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

/// A CA that can sign: certificate and key.
pub struct Ca {
    cert: CaCert,
    key: KeyPair,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca").field("cert", &self.cert).finish_non_exhaustive()
    }
}

/// A serving certificate with its key, and the span in which it counts.
pub struct Signed {
    /// The certificate alone: its issuer is a trust anchor and need not be sent.
    pub cert: CertificateDer<'static>,
    /// Its private key, PKCS #8.
    pub key: PrivateKeyDer<'static>,
    /// When it was signed (not the backdated begin of validity).
    pub issued: Timestamp,
    /// End of its validity; never after the CA's.
    pub not_after: Timestamp,
}

/// A certificate and its key as PEM.
pub struct PemPair {
    /// The certificate.
    pub cert: String,
    /// Its key.
    pub key: String,
}

impl Ca {
    /// Makes a new CA whose validity began an hour before `now` and ends `lifetime` after it.
    ///
    /// # Errors
    /// [`SignError`] where the dates cannot be expressed or the cryptography fails.
    pub fn generate(lifetime: Duration, now: Timestamp) -> Result<Self, SignError> {
        let rcgen = |source| SignError::Rcgen { what: "CA", source };
        let not_after = end_of(lifetime, now)?;
        let key = KeyPair::generate().map_err(rcgen)?;
        let mut params = CertificateParams::default();
        // The time tells two CAs apart in a bundle, for people and for verifiers that search by name.
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("wva-ca@{}", now.as_second()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        validity(&mut params, lifetime, now, not_after)?;
        let cert = params.self_signed(&key).map_err(rcgen)?;
        // Dates of certificates have no fractions of a second.
        let not_before = Timestamp::from_second((now - BACKDATED).as_second())
            .map_err(|_| SignError::Lifetime { lifetime, now })?;
        Ok(Self { cert: CaCert { der: cert.der().clone(), pem: cert.pem(), not_before, not_after }, key })
    }

    /// Reads a CA that can sign at `now` from the PEM of two entries.
    pub(crate) fn parse(
        (cert_entry, cert): (&'static str, Option<&[u8]>),
        (key_entry, key): (&'static str, Option<&[u8]>),
        now: Timestamp,
    ) -> Result<Self, Why> {
        let cert = CaCert::parse(cert_entry, cert.ok_or(Why::Missing { entry: cert_entry })?, now)?;
        let not_a_key = || Why::NotAKey { entry: key_entry };
        let pem =
            std::str::from_utf8(key.ok_or(Why::Missing { entry: key_entry })?).map_err(|_| not_a_key())?;
        let key = KeyPair::from_pem(pem).map_err(|_| not_a_key())?;
        let der = cert.der.clone();
        let (_, x509) = x509_parser::parse_x509_certificate(&der)
            .map_err(|_| Why::NotACertificate { entry: cert_entry })?;
        if x509.public_key().raw != key.subject_public_key_info().as_slice() {
            return Err(Why::KeyMismatch { entry: key_entry });
        }
        let ca = Self { cert, key };
        trial::judge(&ca, &x509, now).map_err(|unfit| Why::CannotSign { entry: cert_entry, unfit })?;
        Ok(ca)
    }

    /// PEM of the private key. For the Secret alone.
    pub(crate) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// The certificate.
    #[must_use]
    pub fn cert(&self) -> &CaCert {
        &self.cert
    }

    /// Signs a serving certificate, with a fresh key, for `names` (DNS names; IP addresses are recognised). It ends
    /// `lifetime` after `now`, or with the CA where that is sooner.
    ///
    /// # Errors
    /// [`SignError`] where a name is no DNS name, the dates cannot be expressed, or the cryptography fails.
    pub fn sign_serving(
        &self,
        names: &[String],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<Signed, SignError> {
        let key = fresh_key()?;
        let (cert, not_after) = self.sign(&key, names, lifetime, now)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Signed { cert: cert.der().clone(), key, issued: now, not_after })
    }

    /// The same as PEM, for files.
    ///
    /// # Errors
    /// Those of [`Ca::sign_serving`].
    pub fn sign_serving_pem(
        &self,
        names: &[String],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<PemPair, SignError> {
        let key = fresh_key()?;
        let (cert, _) = self.sign(&key, names, lifetime, now)?;
        Ok(PemPair { cert: cert.pem(), key: key.serialize_pem() })
    }

    /// A serving certificate that is of no use, for the CA's own key: whether it verifies tells of the CA.
    pub(crate) fn sign_trial(
        &self,
        name: &str,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<CertificateDer<'static>, SignError> {
        let (cert, _) = self.sign(&self.key, &[name.to_owned()], lifetime, now)?;
        Ok(cert.der().clone())
    }

    /// The certificate of `key`, and its end.
    fn sign(
        &self,
        key: &KeyPair,
        names: &[String],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<(rcgen::Certificate, Timestamp), SignError> {
        let rcgen = |source| SignError::Rcgen { what: "serving", source };
        let not_after = end_of(lifetime, now)?.min(self.cert.not_after);
        let mut params = CertificateParams::new(names).map_err(rcgen)?;
        // The names stand in the subject alternative name alone. A common name is of no use to a verifier and has a
        // limit of 64 characters.
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        validity(&mut params, lifetime, now, not_after)?;
        let issuer = Issuer::from_ca_cert_der(&self.cert.der, &self.key).map_err(rcgen)?;
        let cert = params.signed_by(key, &issuer).map_err(rcgen)?;
        Ok((cert, not_after))
    }
}

fn fresh_key() -> Result<KeyPair, SignError> {
    KeyPair::generate().map_err(|source| SignError::Rcgen { what: "serving", source })
}

fn end_of(lifetime: Duration, now: Timestamp) -> Result<Timestamp, SignError> {
    SignedDuration::try_from(lifetime)
        .ok()
        .and_then(|span| now.checked_add(span).ok())
        // X.509 counts whole seconds: what is compared later must be what was written.
        .and_then(|end| Timestamp::from_second(end.as_second()).ok())
        .ok_or(SignError::Lifetime { lifetime, now })
}

fn validity(
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
