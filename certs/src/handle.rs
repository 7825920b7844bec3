//! What the rest of the process holds of its certificates, wherever they come from: the resolver for TLS, the bundle
//! for those who are to trust it, and the reports of who does.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wva_runtime::Clock;

use crate::authority::Task;
use crate::files::Files;
use crate::leader::Leader;
use crate::serving::Serving;
use crate::state::CertPublisher;
use crate::trust::{Trust, Trusts};
use crate::{CertsConfig, ConfigError};

/// A replica's certificates. Clones share them.
#[derive(Clone, Debug)]
pub struct Certs {
    serving: Arc<Serving>,
    bundle: watch::Receiver<Vec<u8>>,
    ca_not_after: watch::Receiver<Option<Timestamp>>,
    trusts: Trusts,
    /// What rotates the CA; somebody else does in mode `files`.
    leader: Option<Leader>,
}

impl Certs {
    /// Mode `self`. Gives the handle at once and the task that fills it, to be spawned by the caller. The task ends
    /// at `shutdown` and at nothing else: while the CA cannot be had it tries again for ever, [`Certs::loaded`] is
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
        let (mut certs, filled) = Self::empty();
        let (task, leader) = Task::new(client, config, clock, filled, certs.trusts.clone());
        certs.leader = Some(leader);
        Ok((certs, async move { Box::pin(task.run(shutdown)).await }))
    }

    /// Mode `files`: certificate (with its chain), key and `ca.crt` in one folder, as cert-manager lays them out.
    /// The handle at once and the task that reads them again every few seconds until `shutdown`. While there is no
    /// good pair [`Certs::loaded`] is false and handshakes are refused; a pair that goes bad leaves the last good one
    /// in use.
    pub fn from_files(
        directory: &Path,
        certificate: &str,
        key: &str,
        clock: Clock,
        shutdown: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (certs, filled) = Self::empty();
        let files = Files::new(directory, certificate, key, clock, filled);
        (certs, async move {
            shutdown.run_until_cancelled(Box::pin(files.run())).await;
        })
    }

    pub(crate) fn empty() -> (Self, CertPublisher) {
        let (serving, trusts) = (Arc::new(Serving::default()), Trusts::new());
        let (bundle_tx, bundle) = watch::channel(Vec::new());
        let (ca_tx, ca_not_after) = watch::channel(None);
        let filled = CertPublisher { serving: serving.clone(), bundle: bundle_tx, ca_not_after: ca_tx };
        (Self { serving, bundle, ca_not_after, trusts, leader: None }, filled)
    }

    /// Rotates the CA until `shutdown`: to be run by the leader alone, and only while it leads. All of it is written by
    /// `acting`, which should let nothing through once this replica does not lead; nothing is begun once `shutdown` is
    /// cancelled. Whoever comes next goes on from what the Secret says. In mode `files` there is nothing to do.
    pub fn rotate(
        &self,
        acting: kube::Client,
        shutdown: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let leader = self.leader.clone();
        async move {
            match leader {
                Some(leader) => Box::pin(leader.run(acting, shutdown)).await,
                None => shutdown.cancelled().await,
            }
        }
    }

    /// A part that keeps the bundle in objects of the cluster, and reports what it sees there. From now on no
    /// rotation goes on without its word.
    #[must_use]
    pub fn trust(&self, who: &'static str) -> Trust {
        self.trusts.of(who)
    }

    /// What rustls asks at each handshake.
    #[must_use]
    pub fn resolver(&self) -> Arc<Serving> {
        self.serving.clone()
    }

    /// [`Certs::ca_bundle`], once it says what the Secret said after this call. For whoever begins to write it to the
    /// cluster: what this replica knew before may lack a CA that another leader has put in use since.
    pub fn fresh_ca_bundle(&self) -> impl Future<Output = watch::Receiver<Vec<u8>>> + Send + use<> {
        let (leader, bundle) = (self.leader.clone(), self.ca_bundle());
        async move {
            if let Some(leader) = leader {
                leader.refreshed().await;
            }
            bundle
        }
    }

    /// PEM of the CA certificates to be trusted (current, next, previous): what belongs into each `caBundle`. Empty
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
