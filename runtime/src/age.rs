//! Ages of times that another clock may have written.

use jiff::{SignedDuration, Timestamp};

/// How far `written` is from `now`. A time from the future comes from a clock that is ahead or was set back since: it counts
/// as that far off, so that it ends as an old one does.
#[must_use]
pub fn age(written: Timestamp, now: Timestamp) -> SignedDuration {
    now.duration_since(written).abs()
}
