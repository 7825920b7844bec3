//! Who was seen to carry which bundle. A part that keeps the CA bundle in objects of the cluster (webhook
//! configurations, an APIService) reports here what it found there; a rotation goes on only when all of them carry
//! both CAs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::watch;
use tokio::time::Instant;

/// What one part carries.
#[derive(Clone, Debug)]
struct Carried {
    certs: Vec<CertificateDer<'static>>,
    /// Since when, without a break.
    since: Instant,
    /// When it was last looked at.
    seen: Instant,
}

/// All parts; `None` where it is not known what a part carries.
#[derive(Clone, Debug)]
pub(crate) struct Trusts(Arc<watch::Sender<BTreeMap<&'static str, Option<Carried>>>>);

impl Trusts {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeMap::new())))
    }

    /// A part that has to be seen from now on.
    pub(crate) fn of(&self, who: &'static str) -> Trust {
        self.0.send_modify(|parts| {
            parts.insert(who, None);
        });
        Trust { who, trusts: self.clone() }
    }

    /// Those of `certs` that every part has carried for `settle`, and was seen to carry since `began`.
    pub(crate) fn settled(
        &self,
        mut certs: Vec<CertificateDer<'static>>,
        began: Instant,
        settle: Duration,
    ) -> Vec<CertificateDer<'static>> {
        for carried in self.0.borrow().values() {
            let carried = carried.as_ref().filter(|c| c.seen >= began && c.since.elapsed() >= settle);
            certs.retain(|cert| carried.is_some_and(|c| c.certs.contains(cert)));
        }
        certs
    }
}

/// Says for one part what its objects carry.
#[derive(Clone, Debug)]
pub struct Trust {
    who: &'static str,
    trusts: Trusts,
}

impl Trust {
    /// Every object that this part keeps carries `bundle` (PEM), or there is none to keep. To be said after each
    /// look, not only after a change.
    pub fn seen(&self, bundle: &[u8]) {
        let certs: Vec<_> = CertificateDer::pem_slice_iter(bundle)
            .filter_map(Result::ok)
            .map(CertificateDer::into_owned)
            .collect();
        let seen = Instant::now();
        self.trusts.0.send_if_modified(|parts| {
            let part = parts.entry(self.who).or_default();
            let same = part.as_ref().filter(|old| old.certs == certs).map(|old| old.since);
            *part = Some(Carried { certs, since: same.unwrap_or(seen), seen });
            same.is_none()
        });
    }

    /// The certificates reported last; `None` where nothing is known.
    #[must_use]
    pub fn carried(&self) -> Option<Vec<CertificateDer<'static>>> {
        let parts = self.trusts.0.borrow();
        parts.get(self.who).and_then(Option::as_ref).map(|carried| carried.certs.clone())
    }

    /// It is not known what the objects carry: at the begin of each run of the part, and whenever a look failed.
    pub fn unknown(&self) {
        self.trusts.0.send_if_modified(|parts| parts.insert(self.who, None).flatten().is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca::Ca;

    const SETTLE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_certificate_counts_once_all_have_carried_it_for_a_while() {
        let cas: Vec<_> =
            (0..2).map(|_| Ca::generate(Duration::from_hours(1), jiff::Timestamp::now()).unwrap()).collect();
        let ders: Vec<_> = cas.iter().map(|ca| ca.cert().der().clone()).collect();
        let (one, both) =
            (cas[0].cert().pem().to_owned(), format!("{}{}", cas[1].cert().pem(), cas[0].cert().pem()));
        let trusts = Trusts::new();
        let began = Instant::now();
        let settled = || trusts.settled(ders.clone(), began, SETTLE);
        assert_eq!(settled(), ders, "nobody is to be waited for");

        let (a, b) = (trusts.of("a"), trusts.of("b"));
        assert!(settled().is_empty());
        a.seen(both.as_bytes());
        b.seen(one.as_bytes());
        assert!(settled().is_empty(), "not for long enough");
        tokio::time::advance(SETTLE).await;
        assert_eq!(settled(), ders[..1], "the other is carried by one of them alone");
        b.seen(both.as_bytes());
        assert!(settled().is_empty(), "the time begins anew with a change");
        tokio::time::advance(SETTLE).await;
        b.seen(both.as_bytes());
        assert_eq!(settled(), ders, "and goes on with each look");
        assert!(trusts.settled(ders.clone(), Instant::now(), SETTLE).is_empty(), "a: not seen since then");
        a.unknown();
        assert!(settled().is_empty());
        a.seen(both.as_bytes());
        assert!(settled().is_empty());
    }
}
