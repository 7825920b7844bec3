//! What the leader does beside the task of every replica: the steps of a rotation. All state is in the Secret; what
//! this one remembers is who was seen to trust what, since it began.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wva_runtime::{Backoff, Clock};

use crate::ca::CaCert;
use crate::news;
use crate::rotation::Role;
use crate::set::CaSet;
use crate::state::{FIRST_PAUSE, Known, LONGEST_PAUSE, ca_check};
use crate::store::{EnsuredSecret, Store, StoreError};
use crate::trust::Trusts;

/// How often those who trust are asked about while a rotation is under way.
const ASK: Duration = Duration::from_secs(1);

/// Rotates the CA. Clones do the same.
#[derive(Clone)]
pub(crate) struct Leader {
    pub(crate) store: Store,
    pub(crate) client: kube::Client,
    pub(crate) clock: Clock,
    pub(crate) known: watch::Receiver<Option<Known>>,
    pub(crate) trusts: Trusts,
    /// How often the task has been asked to read the Secret.
    pub(crate) wanted: Arc<watch::Sender<u64>>,
    /// The longest time between two looks at the Secret.
    pub(crate) check: Duration,
    /// How long a bundle has to be carried before it counts.
    pub(crate) settle: Duration,
}

impl std::fmt::Debug for Leader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leader").finish_non_exhaustive()
    }
}

impl Leader {
    /// Runs until `stop`, writes nothing after it, and writes by `acting` alone.
    pub(crate) async fn run(mut self, acting: kube::Client, stop: CancellationToken) {
        self.store = self.store.by(acting.clone());
        self.client = acting;
        tokio::select! {
            // First: what is ready together with the end must not act any more.
            biased;
            () = stop.cancelled() => {}
            () = self.lead(&stop) => {}
        }
    }

    /// Has the task read the Secret, and waits until it has taken what it read into use.
    pub(crate) async fn refreshed(mut self) {
        let wanted = self.want();
        // An error means that the task has ended, and with it soon the process.
        self.known.wait_for(|known| known.as_ref().is_some_and(|known| known.read >= wanted)).await.ok();
    }

    fn want(&self) -> u64 {
        self.wanted.send_modify(|wanted| *wanted += 1);
        *self.wanted.borrow()
    }

    async fn lead(mut self, stop: &CancellationToken) {
        let began = Instant::now();
        let (mut look_at, mut rest_until) = (began, began);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            // The task that knows ends with the process.
            let Some(known) = self.first_known().await else { return stop.cancelled().await };
            let trusted = self.trusted(&known, began);
            let now = Instant::now();
            if now >= rest_until && (now >= look_at || is_trusted(&known.set, &trusted)) {
                let done = self.step(&known, &trusted, stop).await;
                if done {
                    backoff.reset();
                }
                let pause = backoff.next_delay();
                let check = self.check.min(ca_check(&known.set));
                (look_at, rest_until) = (Instant::now() + check, Instant::now() + pause);
            }
            let ask = if known.set.next.is_some() { ASK } else { self.check };
            let next = look_at.max(rest_until).min(Instant::now() + ask);
            tokio::select! {
                changed = self.known.changed() => match changed {
                    Ok(()) => look_at = Instant::now(),
                    Err(_) => return stop.cancelled().await,
                },
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    /// What is known, once something is. `None`: the task that knows has ended.
    async fn first_known(&mut self) -> Option<Known> {
        let known = self.known.wait_for(Option::is_some).await.ok()?;
        known.clone()
    }

    /// What every consumer has carried for a while.
    fn trusted(&self, known: &Known, began: Instant) -> Vec<CertificateDer<'static>> {
        let settle = self.settle;
        // With nobody to ask, the time since the bundle was published has to do.
        if known.since.max(began).elapsed() < settle {
            return Vec::new();
        }
        let all = known.set.certs().map(|cert| cert.der().clone()).collect();
        self.trusts.settled(all, began, settle)
    }

    /// One look at the Secret and, where one is due, one step. False where it failed.
    async fn step(
        &self,
        known: &Known,
        trusted: &[CertificateDer<'static>],
        stop: &CancellationToken,
    ) -> bool {
        let replica = known.replica(Role::Leader { trusted }, self.settle);
        match self.store.ensure(replica, stop).await {
            Ok(EnsuredSecret { set: found, change: None, .. }) => {
                // Somebody else's step that the task has not seen, as its watch is behind or broken.
                if !found.is(&known.set) {
                    self.want();
                }
                true
            }
            Ok(EnsuredSecret { secret, change: Some(change), .. }) => {
                self.want();
                news::tell(&self.client, &secret, &change, (self.clock)()).await;
                true
            }
            Err(StoreError::Stopped { .. }) => false,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "A step of the CA's rotation failed: trying again");
                false
            }
        }
    }
}

fn is_trusted(set: &CaSet, trusted: &[CertificateDer<'static>]) -> bool {
    let both = |next: &CaCert| [set.current.cert(), next].iter().all(|ca| trusted.contains(ca.der()));
    set.next.as_ref().is_some_and(|next| both(next.cert()))
}
