//! One term of a leader, and the clocks that say whether it still holds.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Clock;

/// From winning the Lease to losing or releasing it.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// Cancelled when the term is over.
    pub(super) ended: CancellationToken,
    since: Instant,
    /// Held by whoever works in this term: when all are gone, the Lease may be handed over.
    _work: mpsc::Sender<Infallible>,
}

/// Ends when nobody holds a term any more.
pub(super) type WorkLeft = mpsc::Receiver<Infallible>;

impl Term {
    pub(super) fn begin(stopping: &CancellationToken) -> (Self, WorkLeft) {
        let (work, left) = mpsc::channel(1);
        (Self { ended: stopping.child_token(), since: Instant::now(), _work: work }, left)
    }

    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }
}

/// Until when the Lease was renewed. Asked before anything that only a leader does, so that a process that was stopped,
/// or whose machine was suspended, does nothing in the moment before it notices.
#[derive(Clone)]
pub(super) struct Validity {
    /// `None`: there is no election.
    until: Option<Arc<Mutex<Option<Moment>>>>,
    clock: Clock,
}

impl std::fmt::Debug for Validity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Validity").field("holds", &self.holds()).finish_non_exhaustive()
    }
}

/// The same moment by two clocks: the one stands still while the machine is suspended, the other can be set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) monotonic: Instant,
    wall: Timestamp,
}

impl Validity {
    pub(super) fn always() -> Self {
        Self { until: None, clock: crate::system_clock() }
    }

    /// Holds at no time until it is extended.
    pub(super) fn expired(clock: Clock) -> Self {
        Self { until: Some(Arc::default()), clock }
    }

    /// Whether the present moment is within it, by both clocks.
    pub(super) fn holds(&self) -> bool {
        let Some(until) = &self.until else { return true };
        let until = *until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until.monotonic && (self.clock)() < until.wall)
    }

    /// The present moment, to be given to [`Validity::extend`] later.
    pub(super) fn now(&self) -> Moment {
        Moment { monotonic: Instant::now(), wall: (self.clock)() }
    }

    /// Holds for `span` from a moment on.
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
