//! Task of mode `self`: keeps the CA Secret valid, and signs and renews the serving certificate by the wall clock.

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

use crate::backoff::RepairBackoff;
use crate::ca::CaCert;
use crate::leader::Leader;
use crate::rotation::{ReplicaView, Role, SecretView, decide};
use crate::set::{CaSet, ParsedSecret};
use crate::state::{
    CHECKS_PER_LIFE, CaState, CertPublisher, FIRST_DELAY, MAX_CHECK_INTERVAL, MAX_DELAY, ca_check_interval,
    check_interval,
};
use crate::store::{EnsuredSecret, Store};
use crate::trust::TrustTracker;
use crate::{CertsConfig, events};

/// Maximum time until API servers use a new bundle, which each gets by a watch. A replica's own CA counts as trusted
/// after it, too.
const SETTLE: Duration = Duration::from_secs(10);

pub(crate) struct CaTask {
    store: Store,
    config: CertsConfig,
    clock: Clock,
    client: kube::Client,
    publisher: CertPublisher,
    known: watch::Sender<Option<CaState>>,
    signed_by: Option<CaCert>,
    /// Number of requests to read the Secret, by the leader and by writers of bundles.
    read_requests: watch::Receiver<u64>,
    revision: Option<u64>,
    check_at: Instant,
    /// `None`: no repair is due.
    repair_at: Option<Instant>,
    /// Prevents a busy loop if another client keeps destroying the Secret.
    earliest_repair: Instant,
    repair_backoff: RepairBackoff,
    backoff: Backoff,
}

type WatchEvent = Result<watcher::Event<Secret>, watcher::Error>;

impl CaTask {
    pub(crate) fn new(
        client: kube::Client,
        config: CertsConfig,
        clock: Clock,
        publisher: CertPublisher,
        trust: TrustTracker,
    ) -> (Self, Leader) {
        let store = Store::new(
            client.clone(),
            &config.namespace,
            &config.secret_name,
            config.ca_lifetime,
            clock.clone(),
        );
        let (known, reader) = watch::channel(None);
        let (read_requests, read_request_receiver) = watch::channel(0);
        let leader = Leader {
            store: store.clone(),
            client: client.clone(),
            clock: clock.clone(),
            known: reader,
            trust,
            read_requests: Arc::new(read_requests),
            check: max_check_interval(&config),
            settle: settle(&config),
            event_source: config.event_source.clone(),
        };
        let now = Instant::now();
        let task = Self {
            store,
            config,
            clock,
            client,
            publisher,
            known,
            signed_by: None,
            read_requests: read_request_receiver,
            revision: None,
            check_at: now,
            repair_at: Some(now),
            earliest_repair: now,
            repair_backoff: RepairBackoff::default(),
            backoff: Backoff::new(FIRST_DELAY, MAX_DELAY),
        };
        (task, leader)
    }

    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut watched = self.watch();
        let mut read_requests = self.read_requests.clone();
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
                Some(event) = watched.next() => self.handle_event(event),
                Ok(()) = read_requests.changed() => self.repair_soon(),
                () = tokio::time::sleep_until(check_at) => self.check_clock(),
            }
        }
    }

    fn watch(&self) -> BoxStream<'static, WatchEvent> {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.config.secret_name));
        watcher(self.store.api().clone(), only).default_backoff().boxed()
    }

    fn handle_event(&mut self, event: WatchEvent) {
        let name = &self.config.secret_name;
        match event {
            Ok(watcher::Event::Apply(secret) | watcher::Event::InitApply(secret)) => {
                self.check_secret(&secret);
            }
            Ok(watcher::Event::Delete(_)) => {
                tracing::warn!(secret = %name, "CA Secret deleted; restoring it");
                self.repair_soon();
            }
            // A deletion during an interruption of the watch appears as a list without the object.
            Ok(watcher::Event::InitDone) => self.repair_soon(),
            Ok(watcher::Event::Init) => {}
            Err(error) => {
                let error = wva_runtime::api_call::root_cause(&error);
                tracing::warn!(secret = %name, error, "Watch of the CA Secret interrupted; retrying");
            }
        }
    }

    fn check_secret(&mut self, secret: &Secret) {
        if self.revision.zip(revision(secret)).is_some_and(|(read, event)| event < read) {
            return;
        }
        let now = (self.clock)();
        let found = secret.data.as_ref().map(|data| ParsedSecret::read(data, now));
        let known = self.known();
        let view = SecretView { found: found.as_ref(), replica: self.replica(known.as_ref()), now };
        match (decide(view), view.set_without_change()) {
            (None, Some(set)) => self.adopt(set, None),
            _ => self.repair_soon(),
        }
    }

    fn known(&self) -> Option<CaState> {
        self.known.borrow().clone()
    }

    fn replica<'a>(&self, known: Option<&'a CaState>) -> ReplicaView<'a> {
        let role = Role::Follower;
        match known {
            Some(known) => known.replica(role, settle(&self.config)),
            None => ReplicaView { known: None, trusted_ca_established: false, role },
        }
    }

    /// Schedules a repair, after the pause of the last one.
    fn repair_soon(&mut self) {
        self.repair_at.get_or_insert(Instant::now().max(self.earliest_repair));
    }

    async fn repair(&mut self, shutdown: &CancellationToken) {
        let (known, request) = (self.known(), *self.read_requests.borrow());
        match self.store.ensure(self.replica(known.as_ref()), shutdown).await {
            Ok(EnsuredSecret { set, secret, change }) => {
                self.repair_at = None;
                self.earliest_repair =
                    Instant::now() + self.repair_backoff.delay_after(change.as_ref(), Instant::now());
                self.backoff.reset();
                self.revision = revision(&secret);
                self.adopt(set, Some(request));
                if let Some(change) = change {
                    let source = &self.config.event_source;
                    events::emit(&self.client, source, &secret, &change, (self.clock)()).await;
                }
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                let pause = self.backoff.next_delay();
                tracing::error!(error, ?pause, "Cannot read or repair the CA; retrying");
                self.repair_at = Some(Instant::now() + pause);
            }
        }
    }

    /// Publishes the bundle of `set` and serves a certificate of its signer. `request`: the last read request it
    /// answers.
    fn adopt(&mut self, set: CaSet, request: Option<u64>) {
        let old = self.known();
        let set = Arc::new(set);
        // The bundle comes first: clients must trust a CA before they see its certificate.
        let has_changed = self.publish(&set);
        let now = Instant::now();
        let bundle_since = old.as_ref().filter(|_| !has_changed).map_or(now, |old| old.bundle_since);
        let served_request = request.or(old.as_ref().map(|old| old.served_request)).unwrap_or_default();
        let known_since = old.map_or(now, |old| old.known_since);
        self.serve(&set);
        self.check_at = self.check_at.min(now + self.check_interval_for(&set));
        // Sent even if unchanged: the leader checks the Secret after every event.
        self.known.send_replace(Some(CaState { set, bundle_since, served_request, known_since }));
    }

    fn publish(&self, set: &CaSet) -> bool {
        self.publisher.publish(set.bundle((self.clock)()), Some(set.current.cert().not_after()))
    }

    fn check_clock(&mut self) {
        self.repair_soon();
        let known = self.known();
        if let Some(CaState { set, .. }) = &known {
            self.publish(set);
            self.serve(set);
        }
        let every =
            known.map_or(max_check_interval(&self.config), |known| self.check_interval_for(&known.set));
        self.check_at = Instant::now() + every;
    }

    fn serve(&mut self, set: &CaSet) {
        let (serving, now, ca) = (&self.publisher.serving, (self.clock)(), set.current.cert());
        if self.signed_by.as_ref() == Some(ca) && !serving.is_renewal_due(now) {
            return;
        }
        if now >= ca.not_after() {
            // The next check replaces the expired CA.
            return;
        }
        match serving.renew(&set.current, &self.config.dns_names, self.config.cert_lifetime, now) {
            Ok(()) => {
                self.signed_by = Some(ca.clone());
                let not_after = serving.not_after().map(tracing::field::display);
                tracing::info!(not_after, "Serving a new certificate");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "Cannot renew the serving certificate; keeping the old one");
            }
        }
    }

    fn check_interval_for(&self, set: &CaSet) -> Duration {
        let serving = self.publisher.serving.life().map_or(MAX_CHECK_INTERVAL, check_interval);
        max_check_interval(&self.config).min(ca_check_interval(set)).min(serving)
    }
}

/// resourceVersion as a number. It decreases only after the restore of a backup.
fn revision(secret: &Secret) -> Option<u64> {
    secret.metadata.resource_version.as_ref()?.parse().ok()
}

fn max_check_interval(config: &CertsConfig) -> Duration {
    MAX_CHECK_INTERVAL.min(config.shortest_life() / CHECKS_PER_LIFE)
}

fn settle(config: &CertsConfig) -> Duration {
    SETTLE.min(config.shortest_life() / CHECKS_PER_LIFE)
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
