//! Rotation of the CA by the leader. All state is in the Secret, except the reports of trust in this term.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wva_crds::events::EventSource;
use wva_runtime::{Backoff, Clock};

use crate::ca::CaCert;
use crate::events;
use crate::rotation::Role;
use crate::set::CaSet;
use crate::state::{CaState, FIRST_DELAY, MAX_DELAY, ca_check_interval};
use crate::store::{EnsuredSecret, Store, StoreError};
use crate::trust::TrustTracker;

/// Time between two checks of the trust reports during a rotation.
const TRUST_POLL: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Leader {
    pub(crate) store: Store,
    pub(crate) client: kube::Client,
    pub(crate) clock: Clock,
    pub(crate) known: watch::Receiver<Option<CaState>>,
    pub(crate) trust: TrustTracker,
    pub(crate) read_requests: Arc<watch::Sender<u64>>,
    pub(crate) check: Duration,
    /// How long a consumer must have a bundle before it counts as trusted.
    pub(crate) settle: Duration,
    pub(crate) event_source: EventSource,
}

impl std::fmt::Debug for Leader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leader").finish_non_exhaustive()
    }
}

impl Leader {
    /// Runs until `stop`. All writes use client `fenced`.
    pub(crate) async fn run(mut self, fenced: kube::Client, stop: CancellationToken) {
        self.store = self.store.with_client(fenced.clone());
        self.client = fenced;
        tokio::select! {
            // `stop` comes first: no write after it.
            biased;
            () = stop.cancelled() => {}
            () = self.lead(&stop) => {}
        }
    }

    /// Requests a read of the Secret and waits for its result.
    pub(crate) async fn refresh(mut self) {
        let request = self.request_read();
        let is_served = |known: &Option<CaState>| known.as_ref().is_some_and(|k| k.served_request >= request);
        // An error means that the task, and soon the process, has ended.
        self.known.wait_for(is_served).await.ok();
    }

    fn request_read(&self) -> u64 {
        self.read_requests.send_modify(|requests| *requests += 1);
        *self.read_requests.borrow()
    }

    async fn lead(mut self, stop: &CancellationToken) {
        let term_start = Instant::now();
        let (mut check_at, mut earliest_step) = (term_start, term_start);
        let mut backoff = Backoff::new(FIRST_DELAY, MAX_DELAY);
        loop {
            let Some(known) = self.wait_known().await else { return stop.cancelled().await };
            let trusted = self.trusted(&known, term_start);
            let now = Instant::now();
            if now >= earliest_step && (now >= check_at || is_trusted(&known.set, &trusted)) {
                if self.step(&known, &trusted, stop).await {
                    backoff.reset();
                }
                let pause = backoff.next_delay();
                let check = self.check.min(ca_check_interval(&known.set));
                (check_at, earliest_step) = (Instant::now() + check, Instant::now() + pause);
            }
            let poll = if known.set.next.is_some() { TRUST_POLL } else { self.check };
            let next = check_at.max(earliest_step).min(Instant::now() + poll);
            tokio::select! {
                changed = self.known.changed() => match changed {
                    Ok(()) => check_at = Instant::now(),
                    Err(_) => return stop.cancelled().await,
                },
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    /// `None`: the task has ended.
    async fn wait_known(&mut self) -> Option<CaState> {
        let known = self.known.wait_for(Option::is_some).await.ok()?;
        known.clone()
    }

    /// Certificates that every consumer has had for the settle time.
    fn trusted(&self, known: &CaState, term_start: Instant) -> Vec<CertificateDer<'static>> {
        let settle = self.settle;
        if known.bundle_since.max(term_start).elapsed() < settle {
            return Vec::new();
        }
        let all = known.set.certs().map(|cert| cert.der().clone()).collect();
        self.trust.settled(all, term_start, settle)
    }

    /// Takes a step if one is due. Returns false on failure.
    async fn step(
        &self,
        known: &CaState,
        trusted: &[CertificateDer<'static>],
        stop: &CancellationToken,
    ) -> bool {
        let replica = known.replica(Role::Leader { trusted }, self.settle);
        match self.store.ensure(replica, stop).await {
            Ok(EnsuredSecret { set: found, change: None, .. }) => {
                // Another replica took a step that the watch has not reported yet.
                if !found.has_same_certs(&known.set) {
                    self.request_read();
                }
                true
            }
            Ok(EnsuredSecret { secret, change: Some(change), .. }) => {
                self.request_read();
                events::emit(&self.client, &self.event_source, &secret, &change, (self.clock)()).await;
                true
            }
            Err(StoreError::Stopped { .. }) => false,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "CA rotation step failed; retrying");
                false
            }
        }
    }
}

fn is_trusted(set: &CaSet, trusted: &[CertificateDer<'static>]) -> bool {
    let both = |next: &CaCert| [set.current.cert(), next].iter().all(|ca| trusted.contains(ca.der()));
    set.next.as_ref().is_some_and(|next| both(next.cert()))
}
