//! Monotonic and wall-clock times.

use std::time::Instant;

use jiff::Timestamp;

/// A time by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    pub(crate) wall: Timestamp,
}

impl Moment {
    pub(crate) fn current() -> Self {
        Self { now: Instant::now(), wall: Timestamp::now() }
    }
}
