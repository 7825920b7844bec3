//! CA that this replica uses, and the publisher of its certificates.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::rotation::{ReplicaView, Role};
use crate::serving::ServingCert;
use crate::set::CaSet;

/// Checks within the shortest lifetime.
pub(crate) const CHECKS_PER_LIFE: u32 = 12;
pub(crate) const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Timers stop while a machine is suspended, and a watch can break without an error.
pub(crate) const MAX_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// Delays between two repairs.
pub(crate) const FIRST_DELAY: Duration = Duration::from_secs(1);
pub(crate) const MAX_DELAY: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct CaState {
    pub(crate) set: Arc<CaSet>,
    pub(crate) bundle_since: Instant,
    /// Last read request that was served. Events of the watch serve none, because it can be behind.
    pub(crate) served_request: u64,
    pub(crate) known_since: Instant,
}

impl CaState {
    pub(crate) fn replica<'a>(&'a self, role: Role<'a>, settle: Duration) -> ReplicaView<'a> {
        let trusted_ca_established = self.known_since.elapsed() >= settle;
        ReplicaView { known: Some(&self.set), trusted_ca_established, role }
    }
}

/// Publishes serving certificate, bundle and expiry of the CA.
#[derive(Debug)]
pub(crate) struct CertPublisher {
    pub(crate) serving: Arc<ServingCert>,
    pub(crate) bundle: watch::Sender<Vec<u8>>,
    pub(crate) ca_not_after: watch::Sender<Option<Timestamp>>,
}

impl CertPublisher {
    /// Returns whether the bundle changed.
    pub(crate) fn publish(&self, bundle: Vec<u8>, ca_not_after: Option<Timestamp>) -> bool {
        self.ca_not_after.send_replace(ca_not_after);
        self.bundle.send_if_modified(|old| {
            let differs = *old != bundle;
            *old = bundle;
            differs
        })
    }
}

/// Time between two checks, from the CA's own life: it may be a foreign one.
pub(crate) fn ca_check_interval(set: &CaSet) -> Duration {
    check_interval(set.current.cert().life())
}

pub(crate) fn check_interval(life: SignedDuration) -> Duration {
    (life.unsigned_abs() / CHECKS_PER_LIFE).clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL)
}
