//! The task that keeps a replica's certificates good in mode `self`: it reads or makes the CA, watches its Secret,
//! heals it, signs the serving certificate and renews it by the wall clock.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wva_runtime::{Backoff, Clock};

use crate::ca::CaCert;
use crate::leader::Leader;
use crate::rest::Rest;
use crate::rotation::{ReplicaView, Role, SecretView, decide};
use crate::set::{CaSet, Found};
use crate::state::{CHECK, CertPublisher, FIRST_PAUSE, Known, LONGEST_PAUSE, LOOKS, ca_check, looks_in};
use crate::store::{EnsuredSecret, Store};
use crate::trust::Trusts;
use crate::{CertsConfig, news};

/// Longest time that is given to API servers to act on a bundle after it was seen in an object: each keeps a copy of
/// the object, and gets the change by a watch. After the same time the CA of a replica is believed to be trusted.
const SETTLE: Duration = Duration::from_secs(10);

/// The state of the task.
pub(crate) struct Task {
    store: Store,
    config: CertsConfig,
    clock: Clock,
    client: kube::Client,
    filled: CertPublisher,
    known: watch::Sender<Option<Known>>,
    /// The CA that signed what is served.
    signed_by: Option<CaCert>,
    /// How often somebody in this process wished that the Secret be read: it was written, or is to be known for certain.
    wanted: watch::Receiver<u64>,
    /// The version of the Secret that was read last.
    revision: Option<u64>,
    /// When the clock is looked at next.
    check_at: Instant,
    /// When the Secret is to be read and, where needed, written next. `None`: nothing is wrong.
    repair_at: Option<Instant>,
    /// No repair before this: somebody who keeps destroying the Secret must not make a busy loop of us.
    rest_until: Instant,
    rest: Rest,
    backoff: Backoff,
}

type Watched = Result<watcher::Event<Secret>, watcher::Error>;

impl Task {
    /// The task, and what rotates the CA while this replica leads.
    pub(crate) fn new(
        client: kube::Client,
        config: CertsConfig,
        clock: Clock,
        filled: CertPublisher,
        trusts: Trusts,
    ) -> (Self, Leader) {
        let store = Store::new(
            client.clone(),
            &config.namespace,
            &config.secret_name,
            config.ca_lifetime,
            clock.clone(),
        );
        let (known, reader) = watch::channel(None);
        let (wanted, wishes) = watch::channel(0);
        let leader = Leader {
            store: store.clone(),
            client: client.clone(),
            clock: clock.clone(),
            known: reader,
            trusts,
            wanted: Arc::new(wanted),
            check: longest_check(&config),
            settle: settle(&config),
        };
        let now = Instant::now();
        let task = Self {
            store,
            config,
            clock,
            client,
            filled,
            known,
            signed_by: None,
            wanted: wishes,
            revision: None,
            check_at: now,
            repair_at: Some(now),
            rest_until: now,
            rest: Rest::default(),
            backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        };
        (task, leader)
    }

    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut watched = self.watch();
        let mut wanted = self.wanted.clone();
        loop {
            let (repair_at, check_at) = (self.repair_at, self.check_at);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = until(repair_at), if repair_at.is_some() => {
                    if shutdown.run_until_cancelled(self.repair(&shutdown)).await.is_none() {
                        return;
                    }
                }
                Some(event) = watched.next() => self.seen(event),
                Ok(()) = wanted.changed() => self.repair_soon(),
                () = tokio::time::sleep_until(check_at) => self.check_clock(),
            }
        }
    }

    fn watch(&self) -> BoxStream<'static, Watched> {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.config.secret_name));
        watcher(self.store.api().clone(), only).default_backoff().boxed()
    }

    fn seen(&mut self, event: Watched) {
        let name = &self.config.secret_name;
        match event {
            Ok(watcher::Event::Apply(secret) | watcher::Event::InitApply(secret)) => self.judge(&secret),
            Ok(watcher::Event::Delete(_)) => {
                tracing::warn!(secret = %name, "The CA's Secret was deleted");
                self.repair_soon();
            }
            // A deletion during a gap of the watch shows as a list without the object.
            Ok(watcher::Event::InitDone) => self.repair_soon(),
            Ok(watcher::Event::Init) => {}
            Err(error) => {
                let error = wva_runtime::api_call::root_cause(&error);
                tracing::warn!(secret = %name, error, "The watch of the CA's Secret broke: trying again");
            }
        }
    }

    fn judge(&mut self, secret: &Secret) {
        // Told late: to take it into use would be to step back for a moment.
        if self.revision.zip(revision(secret)).is_some_and(|(read, told)| told < read) {
            return;
        }
        let now = (self.clock)();
        let found = secret.data.as_ref().map(|data| Found::read(data, now));
        let known = self.known();
        let view = SecretView { found: found.as_ref(), replica: self.replica(known.as_ref()), now };
        match (decide(view), view.kept()) {
            (None, Some(set)) => self.adopt(set, None),
            _ => self.repair_soon(),
        }
    }

    fn known(&self) -> Option<Known> {
        self.known.borrow().clone()
    }

    fn replica<'a>(&self, known: Option<&'a Known>) -> ReplicaView<'a> {
        let role = Role::Follower;
        match known {
            Some(known) => known.replica(role, settle(&self.config)),
            None => ReplicaView { known: None, trusted_ca_established: false, role },
        }
    }

    /// Reads the Secret and repairs it where needed, now unless an earlier repair is still waiting out its pause.
    fn repair_soon(&mut self) {
        self.repair_at.get_or_insert(Instant::now().max(self.rest_until));
    }

    async fn repair(&mut self, shutdown: &CancellationToken) {
        let (known, wanted) = (self.known(), *self.wanted.borrow());
        match self.store.ensure(self.replica(known.as_ref()), shutdown).await {
            Ok(EnsuredSecret { set, secret, change }) => {
                self.repair_at = None;
                self.rest_until = Instant::now() + self.rest.after(change.as_ref(), Instant::now());
                self.backoff.reset();
                self.revision = revision(&secret);
                self.adopt(set, Some(wanted));
                if let Some(change) = change {
                    news::tell(&self.client, &secret, &change, (self.clock)()).await;
                }
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                let pause = self.backoff.next_delay();
                tracing::error!(error, ?pause, "The CA could not be read or repaired: trying again");
                self.repair_at = Some(Instant::now() + pause);
            }
        }
    }

    /// Takes `set` into use: publishes its bundle and, where the signer changed, serves a certificate of the new one.
    /// `read`: the last wish for a reading that this one came after.
    fn adopt(&mut self, set: CaSet, read: Option<u64>) {
        let old = self.known();
        let set = Arc::new(set);
        // The bundle first: whoever verifies should know the new CA before a certificate of it is served.
        let differs = self.publish(&set);
        let now = Instant::now();
        let since = old.as_ref().filter(|_| !differs).map_or(now, |old| old.since);
        let read = read.or(old.as_ref().map(|old| old.read)).unwrap_or_default();
        let first = old.map_or(now, |old| old.first);
        self.serve(&set);
        self.check_at = self.check_at.min(now + self.check_every(&set));
        // Even where it is the same: the leader looks at the Secret whenever something happened to it.
        self.known.send_replace(Some(Known { set, since, read, first }));
    }

    fn publish(&self, set: &CaSet) -> bool {
        self.filled.publish(set.bundle((self.clock)()), Some(set.current.cert().not_after()))
    }

    fn check_clock(&mut self) {
        self.repair_soon();
        let known = self.known();
        if let Some(Known { set, .. }) = &known {
            // What has expired leaves the bundle: an expired one proves nothing.
            self.publish(set);
            self.serve(set);
        }
        let every = known.map_or(longest_check(&self.config), |known| self.check_every(&known.set));
        self.check_at = Instant::now() + every;
    }

    /// Signs a new certificate where what is served is another CA's or has had its time.
    fn serve(&mut self, set: &CaSet) {
        let (serving, now, ca) = (&self.filled.serving, (self.clock)(), set.current.cert());
        if self.signed_by.as_ref() == Some(ca) && !serving.due(now) {
            return;
        }
        if now >= ca.not_after() {
            // Nothing that it signs would be valid: the next look replaces it.
            return;
        }
        match serving.renew(&set.current, &self.config.dns_names, self.config.cert_lifetime, now) {
            Ok(()) => {
                self.signed_by = Some(ca.clone());
                tracing::info!(not_after = ?serving.not_after(), "Serving a new certificate");
            }
            // The next look at the clock tries again: what is served is still due, or another CA's.
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "No new serving certificate");
            }
        }
    }

    /// The time between two looks at the clock while `set` is in use.
    fn check_every(&self, set: &CaSet) -> Duration {
        let serving = self.filled.serving.life().map_or(CHECK, looks_in);
        longest_check(&self.config).min(ca_check(set)).min(serving)
    }
}

/// What the API server counts changes with. Its numbers fall only where a backup was restored, and each reading begins
/// anew with what it finds.
fn revision(secret: &Secret) -> Option<u64> {
    secret.metadata.resource_version.as_ref()?.parse().ok()
}

/// The longest time between two looks at clock and Secret.
fn longest_check(config: &CertsConfig) -> Duration {
    CHECK.min(config.shortest_life() / LOOKS)
}

fn settle(config: &CertsConfig) -> Duration {
    SETTLE.min(config.shortest_life() / LOOKS)
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
