//! The certificate authority: an ECDSA P-256 key and its self-signed certificate, the set that one Secret holds
//! (current CA, and the previous one's certificate while it is still needed), and the signing of serving
//! certificates. What the Secret holds is judged here; what to do about it is the store's business.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::BACKDATED;

/// Entry of the Secret: the current CA's certificate, PEM.
pub const CA_CERT: &str = "ca.crt";
/// Entry of the Secret: the current CA's private key, PEM.
pub const CA_KEY: &str = "ca.key";
/// Entry of the Secret: the previous CA's certificate, PEM; absent where none is needed.
pub const PREVIOUS_CA_CERT: &str = "previous-ca.crt";

/// Why what a Secret holds is no usable CA. Each one means that the CA has to be replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// An entry is absent or empty.
    #[error("entry {entry} is absent or empty")]
    Missing {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// An entry is no PEM of exactly one certificate.
    #[error("entry {entry} is not exactly one X.509 certificate in PEM")]
    NotACertificate {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// The certificate may not sign others.
    #[error("the certificate of entry {entry} is not a CA's")]
    NotACa {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// The key cannot be read. What it holds is never repeated.
    #[error("entry {entry} is not a private key in PEM")]
    NotAKey {
        /// Key within the Secret's data.
        entry: &'static str,
    },
    /// The key belongs to another certificate.
    #[error("the private key does not match the certificate")]
    KeyMismatch,
    /// Its time is over.
    #[error("the certificate of entry {entry} expired at {not_after}")]
    Expired {
        /// Key within the Secret's data.
        entry: &'static str,
        /// End of its validity.
        not_after: Timestamp,
    },
    /// Its time has not come, though every CA is dated back an hour: somebody's clock is wrong.
    #[error(
        "the certificate of entry {entry} is not valid before {not_before}: compare the clocks of the nodes"
    )]
    NotYetValid {
        /// Key within the Secret's data.
        entry: &'static str,
        /// Begin of its validity.
        not_before: Timestamp,
    },
}

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
#[derive(Clone, PartialEq, Eq)]
pub struct CaCert {
    der: CertificateDer<'static>,
    pem: String,
    not_after: Timestamp,
}

impl CaCert {
    /// Reads entry `entry`; it has to be one CA certificate that is valid at `now`.
    fn parse(entry: &'static str, pem: &[u8], now: Timestamp) -> Result<Self, Why> {
        let mut certs = CertificateDer::pem_slice_iter(pem);
        let (Some(Ok(der)), None) = (certs.next(), certs.next()) else {
            return Err(Why::NotACertificate { entry });
        };
        let (rest, x509) =
            x509_parser::parse_x509_certificate(&der).map_err(|_| Why::NotACertificate { entry })?;
        if !rest.is_empty() {
            return Err(Why::NotACertificate { entry });
        }
        if !x509.is_ca() {
            return Err(Why::NotACa { entry });
        }
        let date = |at: i64| Timestamp::from_second(at).map_err(|_| Why::NotACertificate { entry });
        let not_before = date(x509.validity().not_before.timestamp())?;
        let not_after = date(x509.validity().not_after.timestamp())?;
        if now >= not_after {
            return Err(Why::Expired { entry, not_after });
        }
        if now < not_before {
            return Err(Why::NotYetValid { entry, not_before });
        }
        let pem = certificate_block(pem).ok_or(Why::NotACertificate { entry })?;
        Ok(Self { der: der.into_owned(), pem, not_after })
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
        Ok(Self { cert: CaCert { der: cert.der().clone(), pem: cert.pem(), not_after }, key })
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
        let rcgen = |source| SignError::Rcgen { what: "serving", source };
        let not_after = end_of(lifetime, now)?.min(self.cert.not_after);
        let key = KeyPair::generate().map_err(rcgen)?;
        let mut params = CertificateParams::new(names).map_err(rcgen)?;
        // The names stand in the subject alternative name alone. A common name is of no use to a verifier and has a
        // limit of 64 characters.
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        validity(&mut params, lifetime, now, not_after)?;
        let issuer = Issuer::from_ca_cert_der(&self.cert.der, &self.key).map_err(rcgen)?;
        let cert = params.signed_by(&key, &issuer).map_err(rcgen)?.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Signed { cert, key, issued: now, not_after })
    }
}

/// What one Secret holds.
#[derive(Debug)]
pub struct CaSet {
    /// Signs.
    pub current: Ca,
    /// Still trusted, while certificates that it signed are in use.
    pub previous: Option<CaCert>,
}

impl CaSet {
    /// Reads a Secret's data. A previous certificate that is garbage or expired is left out rather than held
    /// against the set: nobody can still need it, and an apiserver refuses a bundle with one bad certificate.
    ///
    /// # Errors
    /// [`Why`] the current CA cannot be used at `now`.
    pub fn from_secret_data(data: &BTreeMap<String, ByteString>, now: Timestamp) -> Result<Self, Why> {
        let entry = |entry: &'static str| {
            data.get(entry).map(|b| b.0.as_slice()).filter(|b| !b.is_empty()).ok_or(Why::Missing { entry })
        };
        let cert = CaCert::parse(CA_CERT, entry(CA_CERT)?, now)?;
        let not_a_key = || Why::NotAKey { entry: CA_KEY };
        let pem = std::str::from_utf8(entry(CA_KEY)?).map_err(|_| not_a_key())?;
        let key = KeyPair::from_pem(pem).map_err(|_| not_a_key())?;
        let (_, x509) = x509_parser::parse_x509_certificate(&cert.der)
            .map_err(|_| Why::NotACertificate { entry: CA_CERT })?;
        if x509.public_key().raw != key.subject_public_key_info().as_slice() {
            return Err(Why::KeyMismatch);
        }
        let previous = entry(PREVIOUS_CA_CERT).ok().and_then(|pem| {
            CaCert::parse(PREVIOUS_CA_CERT, pem, now)
                .inspect_err(|why| tracing::warn!(%why, "Left the previous CA out of the bundle"))
                .ok()
        });
        Ok(Self { current: Ca { cert, key }, previous })
    }

    /// The data of the Secret that holds this set.
    #[must_use]
    pub fn to_secret_data(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::from([
            (CA_CERT.to_owned(), ByteString(self.current.cert.pem.clone().into_bytes())),
            (CA_KEY.to_owned(), ByteString(self.current.key.serialize_pem().into_bytes())),
        ]);
        if let Some(previous) = &self.previous {
            data.insert(PREVIOUS_CA_CERT.to_owned(), ByteString(previous.pem.clone().into_bytes()));
        }
        data
    }

    /// PEM of every certificate that is to be trusted: what goes into a `caBundle`.
    #[must_use]
    pub fn bundle(&self) -> Vec<u8> {
        let previous = self.previous.as_ref().map_or("", CaCert::pem);
        format!("{}{previous}", self.current.cert.pem).into_bytes()
    }
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

/// The one certificate block of a PEM text, without whatever stands around it: a key that somebody put in the same
/// entry must not travel on in a bundle.
fn certificate_block(pem: &[u8]) -> Option<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let text = std::str::from_utf8(pem).ok()?;
    let begin = text.find("-----BEGIN CERTIFICATE-----")?;
    let end = begin + text[begin..].find(END)? + END.len();
    Some(format!("{}\n", &text[begin..end]))
}

#[cfg(test)]
mod tests;
