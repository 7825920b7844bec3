//! Monotonic and wall-clock times.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use wva_crds::GoDuration;

/// A time by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    pub(crate) wall: Timestamp,
}

/// Keeps snapshot files readable.
pub(crate) fn truncate_to_millis(d: Duration) -> GoDuration {
    Duration::from_millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)).into()
}
