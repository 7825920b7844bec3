//! Times by both clocks.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use wva_crds::GoDuration;

/// Oldest confirmation of a target that still counts: of a status that a new leader reads, and of the external metrics
/// API.
pub const LONGEST_AGE: SignedDuration = SignedDuration::from_mins(15);

/// The moment a Snapshot is taken at, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    pub(crate) wall: Timestamp,
}

/// Rounded down to milliseconds: a snapshot file needs no nanoseconds.
pub(crate) fn whole_millis(d: Duration) -> GoDuration {
    Duration::from_millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX)).into()
}
