//! Trusted CAs in the cluster. A consumer keeps the CA bundle in objects (webhook configurations, an APIService) and
//! reports it. A rotation waits until every consumer has both CAs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::watch;
use tokio::time::Instant;

#[derive(Clone, Debug)]
struct ReportedBundle {
    certs: Vec<CertificateDer<'static>>,
    /// Time since which every report had these certificates.
    since: Instant,
    reported: Instant,
}

/// Bundles of all consumers; `None` for an unknown one.
#[derive(Clone, Debug)]
pub(crate) struct TrustTracker(Arc<watch::Sender<BTreeMap<&'static str, Option<ReportedBundle>>>>);

impl TrustTracker {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(BTreeMap::new())))
    }

    /// Adds a consumer.
    pub(crate) fn add(&self, consumer: &'static str) -> TrustReporter {
        self.0.send_modify(|bundles| {
            bundles.insert(consumer, None);
        });
        TrustReporter { consumer, tracker: self.clone() }
    }

    /// Certificates that every consumer has had for `settle`, with a report after `term_start`.
    pub(crate) fn settled(
        &self,
        mut certs: Vec<CertificateDer<'static>>,
        term_start: Instant,
        settle: Duration,
    ) -> Vec<CertificateDer<'static>> {
        for bundle in self.0.borrow().values() {
            let bundle = bundle.as_ref().filter(|b| b.reported >= term_start && b.since.elapsed() >= settle);
            certs.retain(|cert| bundle.is_some_and(|b| b.certs.contains(cert)));
        }
        certs
    }
}

/// Reports the bundle of one consumer.
#[derive(Clone, Debug)]
pub struct TrustReporter {
    consumer: &'static str,
    tracker: TrustTracker,
}

impl TrustReporter {
    /// Reports that every object has `bundle` (PEM), or that there is none. Call it after each check.
    pub fn report(&self, bundle: &[u8]) {
        let certs: Vec<_> = CertificateDer::pem_slice_iter(bundle)
            .filter_map(Result::ok)
            .map(CertificateDer::into_owned)
            .collect();
        let reported = Instant::now();
        self.tracker.0.send_if_modified(|bundles| {
            let bundle = bundles.entry(self.consumer).or_default();
            let unchanged_since = bundle.as_ref().filter(|old| old.certs == certs).map(|old| old.since);
            *bundle = Some(ReportedBundle { certs, since: unchanged_since.unwrap_or(reported), reported });
            unchanged_since.is_none()
        });
    }

    /// Certificates of the last report; `None` if unknown.
    #[must_use]
    pub fn last_report(&self) -> Option<Vec<CertificateDer<'static>>> {
        let bundles = self.tracker.0.borrow();
        bundles.get(self.consumer).and_then(Option::as_ref).map(|bundle| bundle.certs.clone())
    }

    /// Reports an unknown bundle: at the start of each run, and after a failed check.
    pub fn report_unknown(&self) {
        self.tracker.0.send_if_modified(|bundles| bundles.insert(self.consumer, None).flatten().is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ca::Ca;

    const SETTLE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn certificate_counts_once_all_consumers_had_it_for_a_while() {
        let cas: Vec<_> =
            (0..2).map(|_| Ca::generate(Duration::from_hours(1), jiff::Timestamp::now()).unwrap()).collect();
        let ders: Vec<_> = cas.iter().map(|ca| ca.cert().der().clone()).collect();
        let (one, both) =
            (cas[0].cert().pem().to_owned(), format!("{}{}", cas[1].cert().pem(), cas[0].cert().pem()));
        let tracker = TrustTracker::new();
        let term_start = Instant::now();
        let settled = || tracker.settled(ders.clone(), term_start, SETTLE);
        assert_eq!(settled(), ders, "there are no consumers");

        let (a, b) = (tracker.add("a"), tracker.add("b"));
        assert!(settled().is_empty());
        a.report(both.as_bytes());
        b.report(one.as_bytes());
        assert!(settled().is_empty(), "not for long enough");
        tokio::time::advance(SETTLE).await;
        assert_eq!(settled(), ders[..1], "only one consumer has the other");
        b.report(both.as_bytes());
        assert!(settled().is_empty(), "the time starts again with a change");
        tokio::time::advance(SETTLE).await;
        b.report(both.as_bytes());
        assert_eq!(settled(), ders, "an unchanged report does not restart the time");
        assert!(
            tracker.settled(ders.clone(), Instant::now(), SETTLE).is_empty(),
            "no report of a since then"
        );
        a.report_unknown();
        assert!(settled().is_empty());
        a.report(both.as_bytes());
        assert!(settled().is_empty());
    }
}
