//! Handle of the process's certificates: TLS resolver, CA bundle, and trust reports.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wva_runtime::Clock;

use crate::authority::CaTask;
use crate::files::Files;
use crate::leader::Leader;
use crate::serving::ServingCert;
use crate::state::CertPublisher;
use crate::trust::{TrustReporter, TrustTracker};
use crate::{CertsConfig, ConfigError};

/// Certificates of a replica. Clones share them.
#[derive(Clone, Debug)]
pub struct Certs {
    serving: Arc<ServingCert>,
    bundle: watch::Receiver<Vec<u8>>,
    ca_not_after: watch::Receiver<Option<Timestamp>>,
    trust: TrustTracker,
    /// `None` in mode `files`.
    leader: Option<Leader>,
}

impl Certs {
    /// Mode `self`. Returns the handle and its task, which ends at `shutdown`. Until a CA is available, handshakes
    /// fail.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn start(
        client: kube::Client,
        config: CertsConfig,
        clock: Clock,
        shutdown: CancellationToken,
    ) -> Result<(Self, impl Future<Output = ()> + Send + 'static), ConfigError> {
        config.check()?;
        let (mut certs, publisher) = Self::empty();
        let (task, leader) = CaTask::new(client, config, clock, publisher, certs.trust.clone());
        certs.leader = Some(leader);
        Ok((certs, async move { Box::pin(task.run(shutdown)).await }))
    }

    /// Mode `files`: reads certificate with chain, key and `ca.crt` from one directory, as cert-manager writes them.
    /// Returns the handle and its task, which ends at `shutdown`. Until the first valid pair, handshakes fail.
    pub fn from_files(
        directory: &Path,
        certificate: &str,
        key: &str,
        clock: Clock,
        shutdown: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (certs, publisher) = Self::empty();
        let files = Files::new(directory, certificate, key, clock, publisher);
        (certs, async move {
            shutdown.run_until_cancelled(Box::pin(files.run())).await;
        })
    }

    pub(crate) fn empty() -> (Self, CertPublisher) {
        let (serving, trust) = (Arc::new(ServingCert::default()), TrustTracker::new());
        let (bundle_tx, bundle) = watch::channel(Vec::new());
        let (ca_tx, ca_not_after) = watch::channel(None);
        let publisher = CertPublisher { serving: serving.clone(), bundle: bundle_tx, ca_not_after: ca_tx };
        (Self { serving, bundle, ca_not_after, trust, leader: None }, publisher)
    }

    /// Rotates the CA until `shutdown`, while this replica leads. Writes with `fenced`, which must refuse writes of a
    /// replica that does not lead. Does nothing in mode `files`.
    pub fn rotate(
        &self,
        fenced: kube::Client,
        shutdown: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let leader = self.leader.clone();
        async move {
            match leader {
                Some(leader) => Box::pin(leader.run(fenced, shutdown)).await,
                None => shutdown.cancelled().await,
            }
        }
    }

    /// Adds a consumer that writes the bundle to objects of the cluster. Every rotation waits for its reports.
    #[must_use]
    pub fn trust_reporter(&self, name: &'static str) -> TrustReporter {
        self.trust.add(name)
    }

    /// Certificate resolver for rustls.
    #[must_use]
    pub fn resolver(&self) -> Arc<ServingCert> {
        self.serving.clone()
    }

    /// Returns [`Certs::ca_bundle`] after a new read of the Secret. Use it before writing the bundle to the cluster:
    /// the known bundle may lack the CA of another leader.
    pub fn fresh_ca_bundle(&self) -> impl Future<Output = watch::Receiver<Vec<u8>>> + Send + use<> {
        let (leader, bundle) = (self.leader.clone(), self.ca_bundle());
        async move {
            if let Some(leader) = leader {
                leader.refresh().await;
            }
            bundle
        }
    }

    /// PEM for `caBundle`: current, next and previous CAs. Empty until the CA is read.
    #[must_use]
    pub fn ca_bundle(&self) -> watch::Receiver<Vec<u8>> {
        self.bundle.clone()
    }

    /// Whether there is a certificate to serve with.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.serving.is_loaded()
    }

    /// Expiry of `ca` and `serving`, for `wva_certificate_expiry_timestamp_seconds{name}`.
    #[must_use]
    pub fn expiries(&self) -> Vec<(&'static str, Timestamp)> {
        let ca = self.ca_not_after.borrow().map(|at| ("ca", at));
        ca.into_iter().chain(self.serving.not_after().map(|at| ("serving", at))).collect()
    }
}
