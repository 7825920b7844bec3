//! What a replica can do for requests, from its signals. The analyzers, the conditions, the choice of the pod that goes and
//! `wva explain` share these states. Replicas that are not ready are [`crate::snapshot::Pending`].

use std::fmt;

use crate::snapshot::{Replica, Variant};

/// Requests that no server leaves waiting while it runs none. Fewer may have arrived a moment before the scrape.
const STALLED_QUEUE: f64 = 5.0;

/// State of a ready replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicaState {
    /// The replica serves requests, or would.
    #[default]
    Serving,
    /// No request runs or waits, whatever its KV cache holds.
    Idle,
    /// The engines of the replica sleep: no capacity.
    Asleep,
    /// Requests run or wait, and none makes progress: its load does not show what it can serve.
    Stalled,
    /// A main signal is missing: its load is not known, so it is not idle.
    Unknown,
}

impl ReplicaState {
    /// State of a replica that reports.
    #[must_use]
    pub fn of(replica: &Replica, variant: &Variant) -> Self {
        let waiting = replica.queue.map_or(0.0, f64::from);
        if replica.asleep {
            Self::Asleep
        } else if replica.stalled_for.is_some()
            || (waiting >= STALLED_QUEUE && runs_nothing(replica, variant))
        {
            Self::Stalled
        } else if replica.kv.is_none() || replica.queue.is_none() {
            Self::Unknown
        } else if waiting <= 0.0 && runs_nothing(replica, variant) {
            Self::Idle
        } else {
            Self::Serving
        }
    }
}

/// No request has run for as long as the signals show. False if that is not known.
fn runs_nothing(replica: &Replica, variant: &Variant) -> bool {
    let newest = || replica.newest_scrape().map(|scrape| scrape.running);
    // Most replicas are busy, and their first scrape shows it.
    replica.work.iter().all(|scrape| scrape.running.get() <= 0.0)
        && replica.running.or_else(newest).or(variant.running).is_some_and(|running| running.get() <= 0.0)
}

impl fmt::Display for ReplicaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Serving => "serving",
            Self::Idle => "no request runs or waits, so its KV cache does not count",
            Self::Asleep => "asleep: no capacity",
            Self::Stalled => "requests wait and none makes progress: restart it",
            Self::Unknown => "load unknown: a main signal is missing",
        })
    }
}
