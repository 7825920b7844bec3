//! What the tasks of this crate share: the CA as this replica knows it, and where its certificates go.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::rotation::{ReplicaView, Role};
use crate::serving::Serving;
use crate::set::CaSet;

/// Looks in the shortest life, so that a life of a minute (tests) is renewed in time as well.
pub(crate) const LOOKS: u32 = 12;
/// However short the life of a CA that somebody else made.
pub(crate) const SHORTEST_CHECK: Duration = Duration::from_secs(1);
/// How often the wall clock and the Secret are looked at. A timer alone sleeps through a suspended machine, and a
/// watch can break without a word.
pub(crate) const CHECK: Duration = Duration::from_mins(1);
/// Pause after a failed repair, doubled up to the longest.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_secs(1);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What this replica knows of the CA.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) set: Arc<CaSet>,
    /// Since when the bundle is what it is.
    pub(crate) since: Instant,
    /// The last wish for a reading that came before the Secret was last read. A watch, which can be behind, fulfils none.
    pub(crate) read: u64,
    /// Since when this replica has known any CA.
    pub(crate) first: Instant,
}

impl Known {
    /// The replica that knows this, as it looks at the Secret.
    pub(crate) fn replica<'a>(&'a self, role: Role<'a>, settle: Duration) -> ReplicaView<'a> {
        ReplicaView { known: Some(&self.set), trusted_ca_established: self.first.elapsed() >= settle, role }
    }
}

/// What the task of either mode fills.
#[derive(Debug)]
pub(crate) struct CertPublisher {
    pub(crate) serving: Arc<Serving>,
    pub(crate) bundle: watch::Sender<Vec<u8>>,
    pub(crate) ca_not_after: watch::Sender<Option<Timestamp>>,
}

impl CertPublisher {
    /// Publishes a bundle where it differs from the last. True where it did.
    pub(crate) fn publish(&self, bundle: Vec<u8>, ca_not_after: Option<Timestamp>) -> bool {
        self.ca_not_after.send_replace(ca_not_after);
        self.bundle.send_if_modified(|old| {
            let differs = *old != bundle;
            *old = bundle;
            differs
        })
    }
}

/// The time between two looks at a CA, whatever was wished for: it may be somebody else's.
pub(crate) fn ca_check(set: &CaSet) -> Duration {
    looks_in(set.current.cert().life())
}

pub(crate) fn looks_in(life: SignedDuration) -> Duration {
    (life.unsigned_abs() / LOOKS).clamp(SHORTEST_CHECK, CHECK)
}
