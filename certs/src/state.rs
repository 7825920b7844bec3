//! Shared state of the tasks of this crate: the CA that this replica uses, and the publisher of its certificates.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::rotation::{ReplicaView, Role};
use crate::serving::ServingCert;
use crate::set::CaSet;

/// Checks within the shortest lifetime, so that a lifetime of a minute (tests) is also renewed in time.
pub(crate) const CHECKS_PER_LIFE: u32 = 12;
/// Minimum time between two checks, however short the life of a foreign CA is.
pub(crate) const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time between two checks of wall clock and Secret. Timers stop while a machine is suspended, and a watch can
/// break without an error.
pub(crate) const MAX_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// First and longest delay between two repairs.
pub(crate) const FIRST_DELAY: Duration = Duration::from_secs(1);
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct CaState {
    pub(crate) set: Arc<CaSet>,
    pub(crate) bundle_since: Instant,
    /// Number of the last read request that was served. Events of the watch serve none, because it can be behind.
    pub(crate) served_request: u64,
    /// Time since which this replica has known any CA.
    pub(crate) known_since: Instant,
}

impl CaState {
    pub(crate) fn replica<'a>(&'a self, role: Role<'a>, settle: Duration) -> ReplicaView<'a> {
        let trusted_ca_established = self.known_since.elapsed() >= settle;
        ReplicaView { known: Some(&self.set), trusted_ca_established, role }
    }
}

/// Publishes serving certificate, bundle and expiry of the CA; used by the task of either mode.
#[derive(Debug)]
pub(crate) struct CertPublisher {
    pub(crate) serving: Arc<ServingCert>,
    pub(crate) bundle: watch::Sender<Vec<u8>>,
    pub(crate) ca_not_after: watch::Sender<Option<Timestamp>>,
}

impl CertPublisher {
    /// Publishes a bundle and returns whether it changed.
    pub(crate) fn publish(&self, bundle: Vec<u8>, ca_not_after: Option<Timestamp>) -> bool {
        self.ca_not_after.send_replace(ca_not_after);
        self.bundle.send_if_modified(|old| {
            let differs = *old != bundle;
            *old = bundle;
            differs
        })
    }
}

/// Time between two checks of a CA. It depends on the CA's own life, because the CA may be a foreign one.
pub(crate) fn ca_check_interval(set: &CaSet) -> Duration {
    check_interval(set.current.cert().life())
}

pub(crate) fn check_interval(life: SignedDuration) -> Duration {
    (life.unsigned_abs() / CHECKS_PER_LIFE).clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL)
}
