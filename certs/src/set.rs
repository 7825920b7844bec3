//! Content of the Secret: the current CA, the next one during a rotation, and previous ones whose certificates may be
//! in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::ca::{Ca, CaCert, CaFault, Entry};

/// Current CA's certificate, PEM.
pub const CA_CERT: &str = "ca.crt";
/// Current CA's private key, PEM.
pub const CA_KEY: &str = "ca.key";
/// Next CA's certificate, PEM; only during a rotation.
pub const NEXT_CA_CERT: &str = "next-ca.crt";
/// Next CA's private key, PEM; only during a rotation.
pub const NEXT_CA_KEY: &str = "next-ca.key";
/// Certificates of previous CAs, PEM, the latest first.
pub const PREVIOUS_CA_CERT: &str = "previous-ca.crt";

/// Maximum number of previous CAs; usually one, and one more for each forced rotation.
pub(crate) const MAX_PREVIOUS: usize = 4;

/// How long an expired CA stays in the Secret. A replica with a slow clock would write it back otherwise.
const EXPIRED_GRACE: SignedDuration = SignedDuration::from_mins(1);

pub(crate) fn is_removable(cert: &CaCert, now: Timestamp) -> bool {
    now.duration_since(cert.not_after()) >= EXPIRED_GRACE
}

pub(crate) type Data = BTreeMap<String, ByteString>;

/// CAs in use.
#[derive(Clone, Debug)]
pub struct CaSet {
    /// Signs serving certificates.
    pub current: Arc<Ca>,
    /// Signs once all clients trust it.
    pub next: Option<Arc<Ca>>,
    /// Trusted while their certificates may be in use. The latest first.
    pub previous: Vec<CaCert>,
}

impl CaSet {
    /// A set of one CA.
    #[must_use]
    pub fn new(current: Ca) -> Self {
        Self { current: Arc::new(current), next: None, previous: Vec::new() }
    }

    /// Parses the data of a Secret without invalid next or previous CAs, because an API server rejects a bundle with
    /// one.
    ///
    /// # Errors
    /// [`CaFault`] of the current CA.
    pub fn from_secret_data(data: &BTreeMap<String, ByteString>, now: Timestamp) -> Result<Self, CaFault> {
        ParsedSecret::read(data, now).set()
    }

    /// Data of the Secret for this set.
    #[must_use]
    pub fn to_secret_data(&self) -> BTreeMap<String, ByteString> {
        let mut data = Data::new();
        let mut put = |entry: &str, pem: &str| {
            data.insert(entry.to_owned(), ByteString(pem.as_bytes().to_vec()));
        };
        put(CA_CERT, self.current.cert().pem());
        put(CA_KEY, &self.current.key_pem());
        if let Some(next) = &self.next {
            put(NEXT_CA_CERT, next.cert().pem());
            put(NEXT_CA_KEY, &next.key_pem());
        }
        if !self.previous.is_empty() {
            put(PREVIOUS_CA_CERT, &self.previous.iter().map(CaCert::pem).collect::<String>());
        }
        data
    }

    /// PEM of every trusted certificate at `now`.
    #[must_use]
    pub fn bundle(&self, now: Timestamp) -> Vec<u8> {
        self.certs()
            .enumerate()
            // Keeps an expired current one: a `caBundle` must not be empty.
            .filter(|(i, cert)| *i == 0 || now < cert.not_after())
            .flat_map(|(_, cert)| cert.pem().bytes())
            .collect()
    }

    /// Whether both have the same CAs in the same roles.
    pub(crate) fn has_same_certs(&self, other: &Self) -> bool {
        self.next.is_some() == other.next.is_some() && self.certs().eq(other.certs())
    }

    pub(crate) fn certs(&self) -> impl Iterator<Item = &CaCert> {
        let next = self.next.iter().map(|ca| ca.cert());
        std::iter::once(self.current.cert()).chain(next).chain(&self.previous)
    }
}

/// Each part is validated by itself.
#[derive(Debug)]
pub(crate) struct ParsedSecret {
    pub(crate) current: Result<Arc<Ca>, CaFault>,
    /// Present if readable, even if it expired or its key is wrong.
    pub(crate) current_cert: Option<CaCert>,
    /// `None` if neither entry is present.
    pub(crate) next: Option<Result<Arc<Ca>, CaFault>>,
    /// A next CA whose only fault is that it is not valid yet. It may sign soon and must stay trusted.
    pub(crate) early_next: Option<CaCert>,
    pub(crate) previous: Vec<CaCert>,
    pub(crate) previous_fault: Option<CaFault>,
}

impl ParsedSecret {
    pub(crate) fn read(data: &Data, now: Timestamp) -> Self {
        let entry = |name: &'static str| {
            let pem = data.get(name).map(|bytes| bytes.0.as_slice()).filter(|pem| !pem.is_empty());
            Entry { name, pem }
        };
        let current = Ca::parse(entry(CA_CERT), entry(CA_KEY), now).map(Arc::new);
        let current_cert = entry(CA_CERT).pem.and_then(|pem| CaCert::parse_ignoring_dates(CA_CERT, pem).ok());
        let is_present = entry(NEXT_CA_CERT).pem.is_some() || entry(NEXT_CA_KEY).pem.is_some();
        let next = is_present.then(|| Ca::parse(entry(NEXT_CA_CERT), entry(NEXT_CA_KEY), now).map(Arc::new));
        let early = matches!(next, Some(Err(CaFault::NotYetValid { .. })));
        let next_cert = || CaCert::parse_ignoring_dates(NEXT_CA_CERT, entry(NEXT_CA_CERT).pem?).ok();
        let early_next = early.then(next_cert).flatten();
        let previous = Vec::new();
        let mut found = Self { current, current_cert, next, early_next, previous, previous_fault: None };
        found.reject_duplicate_next();
        if let Some(pem) = entry(PREVIOUS_CA_CERT).pem {
            found.read_previous(pem, now);
        }
        found
    }

    fn reject_duplicate_next(&mut self) {
        if let (Some(Ok(next)), Some(current)) = (&self.next, &self.current_cert)
            && next.cert() == current
            && self.current.is_ok()
        {
            self.next = Some(Err(CaFault::Duplicate { entry: NEXT_CA_CERT }));
        }
    }

    fn read_previous(&mut self, pem: &[u8], now: Timestamp) {
        let mut any = false;
        for der in CertificateDer::pem_slice_iter(pem) {
            any = true;
            let der = der.map_err(|_| CaFault::NotACertificate { entry: PREVIOUS_CA_CERT });
            match der.and_then(|der| CaCert::from_der(PREVIOUS_CA_CERT, der)) {
                Ok(cert) if is_removable(&cert, now) => {
                    let not_after = cert.not_after();
                    self.previous_fault
                        .get_or_insert(CaFault::Expired { entry: PREVIOUS_CA_CERT, not_after });
                }
                Ok(cert) if self.previous.len() < MAX_PREVIOUS && !self.previous.contains(&cert) => {
                    self.previous.push(cert);
                }
                Ok(_) => {}
                Err(fault) => self.previous_fault = Some(fault),
            }
        }
        if !any {
            self.previous_fault = Some(CaFault::NotACertificate { entry: PREVIOUS_CA_CERT });
        }
    }

    pub(crate) fn valid_next(&self) -> Option<&Arc<Ca>> {
        self.next.as_ref().and_then(|next| next.as_ref().ok())
    }

    pub(crate) fn contains(&self, cert: &CaCert) -> bool {
        let current = self.current.as_ref().ok().map(|ca| ca.cert());
        let next = self.valid_next().map(|ca| ca.cert());
        current.into_iter().chain(next).chain(&self.previous).any(|found| found == cert)
    }

    /// The valid CAs of the Secret.
    ///
    /// # Errors
    /// [`CaFault`] of the current CA.
    pub(crate) fn set(&self) -> Result<CaSet, CaFault> {
        Ok(CaSet {
            current: self.current.clone()?,
            next: self.valid_next().cloned(),
            previous: self.previous.iter().chain(&self.early_next).cloned().collect(),
        })
    }
}

#[cfg(test)]
mod tests;
