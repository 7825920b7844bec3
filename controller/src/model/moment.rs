//! Monotonic and wall-clock times.

use std::time::Instant;

use jiff::Timestamp;

/// A time by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    pub(crate) wall: Timestamp,
}
