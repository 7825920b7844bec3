//! Term of a leader, and its validity by two clocks.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Clock;

/// Time from acquiring the Lease to losing or releasing it.
#[derive(Clone, Debug)]
pub(super) struct Term {
    pub(super) ended: CancellationToken,
    since: Instant,
    /// The Lease may be released once every clone is dropped.
    _work: mpsc::Sender<Infallible>,
}

pub(super) type WorkDone = mpsc::Receiver<Infallible>;

impl Term {
    pub(super) fn begin(stopping: &CancellationToken) -> (Self, WorkDone) {
        let (work, left) = mpsc::channel(1);
        (Self { ended: stopping.child_token(), since: Instant::now(), _work: work }, left)
    }

    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }
}

/// Checked before each action of a leader: a process that was stopped, or whose machine was suspended, must not act on
/// an expired Lease.
#[derive(Clone)]
pub(super) struct Validity {
    /// `None`: no election.
    until: Option<Arc<Mutex<Option<Moment>>>>,
    clock: Clock,
}

impl std::fmt::Debug for Validity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Validity").field("is_valid", &self.is_valid()).finish_non_exhaustive()
    }
}

/// The monotonic clock stops while the machine is suspended, the wall clock can be set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) monotonic: Instant,
    wall: Timestamp,
}

impl Validity {
    pub(super) fn always() -> Self {
        Self { until: None, clock: crate::system_clock() }
    }

    /// Invalid until it is extended.
    pub(super) fn expired(clock: Clock) -> Self {
        Self { until: Some(Arc::default()), clock }
    }

    /// Whether the Lease is valid now by both clocks.
    pub(super) fn is_valid(&self) -> bool {
        let Some(until) = &self.until else { return true };
        let until = *until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until.monotonic && (self.clock)() < until.wall)
    }

    /// Time for [`Validity::extend`].
    pub(super) fn now(&self) -> Moment {
        Moment { monotonic: Instant::now(), wall: (self.clock)() }
    }

    /// Valid for `span` from the given moment.
    pub(super) fn extend(&self, Moment { monotonic, wall }: Moment, span: Duration) {
        let until = jiff::SignedDuration::try_from(span)
            .ok()
            .and_then(|wait| wall.checked_add(wait).ok())
            .map(|wall| Moment { monotonic: monotonic + span, wall });
        self.set(until);
    }

    pub(super) fn end(&self) {
        self.set(None);
    }

    fn set(&self, to: Option<Moment>) {
        if let Some(until) = &self.until {
            *until.lock().unwrap_or_else(PoisonError::into_inner) = to;
        }
    }
}
