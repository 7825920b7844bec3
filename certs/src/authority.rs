//! The task that keeps a replica's certificates good: it reads or makes the CA, watches its Secret, heals it, signs
//! the serving certificate and renews it by the wall clock. `Certs` is what the rest of the process holds.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Resource;
use kube::runtime::WatchStreamExt;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::watcher::{self, watcher};
use rustls::pki_types::{DnsName, IpAddr};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::Clock;
use crate::ca::CaSet;
use crate::serving::Serving;
use crate::store::{Outcome, Store};

/// Shortest lifetime of a certificate: below it, renewals chase each other.
const SHORTEST_LIFETIME: Duration = Duration::from_mins(1);
/// How often the wall clock is looked at. A timer alone sleeps through a suspended machine.
const CHECK: Duration = Duration::from_mins(1);
/// Pause after a failed repair, doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// An event is a courtesy: it never holds up the certificates for longer.
const EVENT: Duration = Duration::from_secs(5);

/// What to keep certificates for.
#[derive(Clone, Debug)]
pub struct CertsConfig {
    /// Namespace of the Secret: the controller's own.
    pub namespace: String,
    /// Name of the Secret.
    pub secret_name: String,
    /// DNS names (and IP addresses) of the serving certificate; [`CertsConfig::service_names`] gives a Service's.
    pub dns_names: Vec<String>,
    /// Life of a CA made here; at least a minute.
    pub ca_lifetime: Duration,
    /// Life of a serving certificate; at least a minute. Never longer than what its CA has left.
    pub cert_lifetime: Duration,
}

/// What is wrong with a [`CertsConfig`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No name to serve.
    #[error("no DNS names for the serving certificate: name at least <service>.<namespace>.svc")]
    NoNames,
    /// A name that no certificate can carry.
    #[error("{name:?} is neither a DNS name nor an IP address")]
    BadName {
        /// The name.
        name: String,
    },
    /// A lifetime below a minute.
    #[error("{what} of {found:?} is too short: the least is {SHORTEST_LIFETIME:?}")]
    TooShort {
        /// Which lifetime.
        what: &'static str,
        /// What was set.
        found: Duration,
    },
}

impl CertsConfig {
    /// The names under which a cluster reaches Service `service` of `namespace`.
    #[must_use]
    pub fn service_names(service: &str, namespace: &str) -> Vec<String> {
        let name = format!("{service}.{namespace}");
        vec![format!("{name}.svc"), format!("{name}.svc.cluster.local"), name]
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.dns_names.is_empty() {
            return Err(ConfigError::NoNames);
        }
        for name in &self.dns_names {
            if DnsName::try_from(name.as_str()).is_err() && IpAddr::try_from(name.as_str()).is_err() {
                return Err(ConfigError::BadName { name: name.clone() });
            }
        }
        for (what, found) in [("CA lifetime", self.ca_lifetime), ("certificate lifetime", self.cert_lifetime)]
        {
            if found < SHORTEST_LIFETIME {
                return Err(ConfigError::TooShort { what, found });
            }
        }
        Ok(())
    }
}

/// A replica's certificates. Clones share them.
#[derive(Clone, Debug)]
pub struct Certs {
    serving: Arc<Serving>,
    bundle: watch::Receiver<Vec<u8>>,
    ca_not_after: watch::Receiver<Option<Timestamp>>,
}

impl Certs {
    /// Gives the handle at once and the task that fills it, to be spawned by the caller. The task ends at
    /// `shutdown` and at nothing else: while the CA cannot be had it tries again for ever, [`Certs::loaded`] is
    /// false and handshakes are refused.
    ///
    /// # Errors
    /// [`ConfigError`]; nothing has been started then.
    pub fn start(
        client: kube::Client,
        config: CertsConfig,
        clock: Clock,
        shutdown: CancellationToken,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), ConfigError> {
        config.check()?;
        let serving = Arc::new(Serving::default());
        let (bundle_tx, bundle) = watch::channel(Vec::new());
        let (ca_tx, ca_not_after) = watch::channel(None);
        let store = Store::new(
            client.clone(),
            &config.namespace,
            &config.secret_name,
            config.ca_lifetime,
            clock.clone(),
        );
        let task = Task {
            store,
            config,
            clock,
            client,
            serving: serving.clone(),
            bundle: bundle_tx,
            ca_not_after: ca_tx,
            set: None,
            repair_at: Some(Instant::now()),
            rest_until: Instant::now(),
            pause: FIRST_PAUSE,
        };
        let certs = Self { serving, bundle, ca_not_after };
        Ok((certs, async move { shutdown.run_until_cancelled(Box::pin(task.run())).await.unwrap_or(()) }))
    }

    /// What rustls asks at each handshake.
    #[must_use]
    pub fn resolver(&self) -> Arc<Serving> {
        self.serving.clone()
    }

    /// PEM of the CA certificates to be trusted (current, then previous): what belongs into each `caBundle`. Empty
    /// until the CA has been read.
    #[must_use]
    pub fn ca_bundle(&self) -> watch::Receiver<Vec<u8>> {
        self.bundle.clone()
    }

    /// Whether there is a certificate to serve with.
    #[must_use]
    pub fn loaded(&self) -> bool {
        self.serving.loaded()
    }

    /// When what is in use ends: `ca` and `serving`, as far as loaded. For
    /// `wva_certificate_expiry_timestamp_seconds{name}`.
    #[must_use]
    pub fn expiries(&self) -> Vec<(&'static str, Timestamp)> {
        let ca = self.ca_not_after.borrow().map(|at| ("ca", at));
        ca.into_iter().chain(self.serving.not_after().map(|at| ("serving", at))).collect()
    }
}

struct Task {
    store: Store,
    config: CertsConfig,
    clock: Clock,
    client: kube::Client,
    serving: Arc<Serving>,
    bundle: watch::Sender<Vec<u8>>,
    ca_not_after: watch::Sender<Option<Timestamp>>,
    set: Option<CaSet>,
    /// When the Secret is to be read and, where needed, written next. `None`: nothing is wrong.
    repair_at: Option<Instant>,
    /// No repair before this: somebody who keeps destroying the Secret must not make a busy loop of us.
    rest_until: Instant,
    pause: Duration,
}

type Watched = Result<watcher::Event<Secret>, watcher::Error>;

impl Task {
    async fn run(mut self) {
        let mut watched = self.watch();
        // Six looks in the shortest life, so that a life of a minute (tests) is renewed in time as well.
        let shortest = self.config.cert_lifetime.min(self.config.ca_lifetime);
        let mut check = tokio::time::interval(CHECK.min(shortest / 6));
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let repair_at = self.repair_at;
            tokio::select! {
                () = until(repair_at), if repair_at.is_some() => self.repair().await,
                Some(event) = watched.next() => self.seen(event),
                _ = check.tick() => self.check_clock(),
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
            Ok(watcher::Event::Apply(secret) | watcher::Event::InitApply(secret)) => {
                let data = secret.data.unwrap_or_default();
                match CaSet::from_secret_data(&data, (self.clock)()) {
                    Ok(set) => self.adopt(set),
                    Err(why) => {
                        tracing::warn!(secret = %name, %why, "The Secret holds no usable CA: replacing it");
                        self.repair_soon();
                    }
                }
            }
            Ok(watcher::Event::Delete(_)) => {
                tracing::warn!(secret = %name, "The CA's Secret was deleted: making a new one");
                self.repair_soon();
            }
            // A deletion during a gap of the watch shows as a list without the object.
            Ok(watcher::Event::InitDone) => self.repair_soon(),
            Ok(watcher::Event::Init) => {}
            Err(error) => {
                tracing::warn!(secret = %name, %error, "The watch of the CA's Secret broke: trying again");
            }
        }
    }

    /// Reads the Secret and repairs it where needed, now unless an earlier repair is still waiting out its pause.
    fn repair_soon(&mut self) {
        self.repair_at.get_or_insert(Instant::now().max(self.rest_until));
    }

    async fn repair(&mut self) {
        match self.store.ensure(self.set.as_ref()).await {
            Ok((set, secret, outcome)) => {
                self.repair_at = None;
                self.rest_until = Instant::now() + FIRST_PAUSE;
                self.pause = FIRST_PAUSE;
                self.adopt(set);
                self.tell(&secret, &outcome).await;
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, pause = ?self.pause, "The CA could not be read or repaired: trying again");
                self.repair_at = Some(Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Takes `set` into use: publishes its bundle and, where the signer changed, serves a certificate of the new one.
    fn adopt(&mut self, set: CaSet) {
        let changed = self.set.as_ref().is_none_or(|old| old.current.cert() != set.current.cert());
        let bundle = set.bundle();
        self.ca_not_after.send_replace(Some(set.current.cert().not_after()));
        // The bundle first: whoever verifies should know the new CA before a certificate of it is served.
        self.bundle.send_if_modified(|old| {
            let differs = *old != bundle;
            *old = bundle;
            differs
        });
        self.set = Some(set);
        if changed {
            self.renew();
        }
    }

    fn check_clock(&mut self) {
        let now = (self.clock)();
        let Some(set) = &self.set else { return };
        if now >= set.current.cert().not_after() {
            self.repair_soon();
        } else if self.serving.due(now) {
            self.renew();
        }
    }

    fn renew(&self) {
        let Some(set) = &self.set else { return };
        let now = (self.clock)();
        match self.serving.renew(&set.current, &self.config.dns_names, self.config.cert_lifetime, now) {
            Ok(()) => tracing::info!(not_after = ?self.serving.not_after(), "Serving a new certificate"),
            // The next look at the clock tries again, as the old one stays due.
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "No new serving certificate");
            }
        }
    }

    async fn tell(&self, secret: &Secret, outcome: &Outcome) {
        let (type_, note) = match outcome {
            Outcome::Found => return,
            Outcome::Created => (EventType::Normal, "Created a new CA, as there was none.".to_owned()),
            Outcome::Replaced(why) => (EventType::Warning, format!("Replaced the CA: {why}.")),
        };
        tracing::info!(secret = %self.config.secret_name, note, "CertificateRotated");
        let event = Event {
            type_,
            reason: "CertificateRotated".to_owned(),
            note: Some(note),
            action: "RotateCertificate".to_owned(),
            secondary: None,
        };
        // A recorder of its own: a kept one would fold this into the series of the last event, with that one's note.
        let recorder =
            Recorder::new(self.client.clone(), Reporter { controller: "wva".to_owned(), instance: None });
        let published = tokio::time::timeout(EVENT, recorder.publish(&event, &secret.object_ref(&()))).await;
        if !matches!(published, Ok(Ok(()))) {
            tracing::debug!("The event CertificateRotated could not be written");
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
