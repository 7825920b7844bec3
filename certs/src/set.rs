//! What one Secret holds: the CA that signs, the next one while a rotation is under way, and the certificates of
//! earlier ones while something that they signed may be in use. The Secret is read here; what to do about what was
//! found is `rotation`'s business.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::ca::{Ca, CaCert, Why};

/// Entry of the Secret: the current CA's certificate, PEM.
pub const CA_CERT: &str = "ca.crt";
/// Entry of the Secret: the current CA's private key, PEM.
pub const CA_KEY: &str = "ca.key";
/// Entry of the Secret: the next CA's certificate, PEM; there while a rotation is under way.
pub const NEXT_CA_CERT: &str = "next-ca.crt";
/// Entry of the Secret: the next CA's private key, PEM.
pub const NEXT_CA_KEY: &str = "next-ca.key";
/// Entry of the Secret: certificates of earlier CAs, PEM, the latest first; absent where none is needed.
pub const PREVIOUS_CA_CERT: &str = "previous-ca.crt";

/// So many earlier CAs are remembered. One is the rule; each rotation that is forced before the last one's CA has
/// expired adds one.
pub(crate) const MOST_PREVIOUS: usize = 4;

/// An expired CA stays in the Secret (and not in the bundle) for so long: a replica whose clock is a little slow, and
/// to which it is still good, finds it there and takes the Secret as it is.
const LINGER: SignedDuration = SignedDuration::from_mins(1);

/// Whether an earlier CA is to leave the Secret.
pub(crate) fn over(cert: &CaCert, now: Timestamp) -> bool {
    now.duration_since(cert.not_after()) >= LINGER
}

/// What a Secret holds, to data and from it.
pub(crate) type Data = BTreeMap<String, ByteString>;

/// The CAs in use.
#[derive(Clone, Debug)]
pub struct CaSet {
    /// Signs.
    pub current: Arc<Ca>,
    /// Will sign, once everybody who verifies trusts it.
    pub next: Option<Arc<Ca>>,
    /// Still trusted, while certificates that they signed may be in use. The latest first.
    pub previous: Vec<CaCert>,
}

impl CaSet {
    /// A CA alone.
    #[must_use]
    pub fn of(current: Ca) -> Self {
        Self { current: Arc::new(current), next: None, previous: Vec::new() }
    }

    /// Reads a Secret's data. A next or previous CA that is of no use is left out rather than held against the set:
    /// an API server refuses a bundle with one bad certificate.
    ///
    /// # Errors
    /// [`Why`] the current CA cannot be used at `now`.
    pub fn from_secret_data(data: &BTreeMap<String, ByteString>, now: Timestamp) -> Result<Self, Why> {
        Found::read(data, now).set()
    }

    /// The data of the Secret that holds this set.
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

    /// PEM of every certificate that is to be trusted at `now`: what goes into a `caBundle`.
    #[must_use]
    pub fn bundle(&self, now: Timestamp) -> Vec<u8> {
        self.certs()
            .enumerate()
            // The current one stays whatever the clock says: an empty bundle would help nobody.
            .filter(|(i, cert)| *i == 0 || now < cert.not_after())
            .flat_map(|(_, cert)| cert.pem().bytes())
            .collect()
    }

    /// Whether both hold the same CAs, each in the same place.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.next.is_some() == other.next.is_some() && self.certs().eq(other.certs())
    }

    /// Every certificate: current, next, previous.
    pub(crate) fn certs(&self) -> impl Iterator<Item = &CaCert> {
        let next = self.next.iter().map(|ca| ca.cert());
        std::iter::once(self.current.cert()).chain(next).chain(&self.previous)
    }
}

/// A Secret as it was found, each part judged by itself.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) current: Result<Arc<Ca>, Why>,
    /// The current CA's certificate where it can be read, whatever else is wrong with it or its key.
    pub(crate) current_cert: Option<CaCert>,
    /// `None` where neither of its entries is there.
    pub(crate) next: Option<Result<Arc<Ca>, Why>>,
    /// The next CA's certificate where that is only not valid yet: the clock was set back. It may sign in a moment, so
    /// nobody stops trusting it.
    pub(crate) early_next: Option<CaCert>,
    pub(crate) previous: Vec<CaCert>,
    /// What is wrong with an entry of the previous ones.
    pub(crate) previous_flaw: Option<Why>,
}

impl Found {
    pub(crate) fn read(data: &Data, now: Timestamp) -> Self {
        let entry =
            |entry: &'static str| (entry, data.get(entry).map(|b| b.0.as_slice()).filter(|b| !b.is_empty()));
        let current = Ca::parse(entry(CA_CERT), entry(CA_KEY), now).map(Arc::new);
        let current_cert = entry(CA_CERT).1.and_then(|pem| CaCert::parse_at_any_time(CA_CERT, pem).ok());
        let there = entry(NEXT_CA_CERT).1.is_some() || entry(NEXT_CA_KEY).1.is_some();
        let next = there.then(|| Ca::parse(entry(NEXT_CA_CERT), entry(NEXT_CA_KEY), now).map(Arc::new));
        let early = matches!(next, Some(Err(Why::NotYetValid { .. })));
        let next_cert = || CaCert::parse_at_any_time(NEXT_CA_CERT, entry(NEXT_CA_CERT).1?).ok();
        let early_next = early.then(next_cert).flatten();
        let previous = Vec::new();
        let mut found = Self { current, current_cert, next, early_next, previous, previous_flaw: None };
        found.drop_doubled_next();
        if let Some(pem) = entry(PREVIOUS_CA_CERT).1 {
            found.read_previous(pem, now);
        }
        found
    }

    /// The current CA cannot be the next one as well.
    fn drop_doubled_next(&mut self) {
        if let (Some(Ok(next)), Some(current)) = (&self.next, &self.current_cert)
            && next.cert() == current
            && self.current.is_ok()
        {
            self.next = Some(Err(Why::Doubled { entry: NEXT_CA_CERT }));
        }
    }

    fn read_previous(&mut self, pem: &[u8], now: Timestamp) {
        let mut any = false;
        for der in CertificateDer::pem_slice_iter(pem) {
            any = true;
            let der = der.map_err(|_| Why::NotACertificate { entry: PREVIOUS_CA_CERT });
            match der.and_then(|der| CaCert::from_der(PREVIOUS_CA_CERT, der)) {
                Ok(cert) if over(&cert, now) => {
                    let not_after = cert.not_after();
                    self.previous_flaw.get_or_insert(Why::Expired { entry: PREVIOUS_CA_CERT, not_after });
                }
                Ok(cert) if self.previous.len() < MOST_PREVIOUS && !self.previous.contains(&cert) => {
                    self.previous.push(cert);
                }
                Ok(_) => {}
                Err(why) => self.previous_flaw = Some(why),
            }
        }
        if !any {
            self.previous_flaw = Some(Why::NotACertificate { entry: PREVIOUS_CA_CERT });
        }
    }

    /// The next CA, where it is good.
    pub(crate) fn good_next(&self) -> Option<&Arc<Ca>> {
        self.next.as_ref().and_then(|next| next.as_ref().ok())
    }

    /// Whether a CA stands anywhere in the Secret.
    pub(crate) fn names(&self, cert: &CaCert) -> bool {
        let current = self.current.as_ref().ok().map(|ca| ca.cert());
        let next = self.good_next().map(|ca| ca.cert());
        current.into_iter().chain(next).chain(&self.previous).any(|found| found == cert)
    }

    /// What can be used of it.
    ///
    /// # Errors
    /// [`Why`] there is no current CA.
    pub(crate) fn set(&self) -> Result<CaSet, Why> {
        Ok(CaSet {
            current: self.current.clone()?,
            next: self.good_next().cloned(),
            previous: self.previous.iter().chain(&self.early_next).cloned().collect(),
        })
    }
}

#[cfg(test)]
mod tests;
