//! Age of timestamps from other clocks.

use jiff::{SignedDuration, Timestamp};

/// Distance between `written` and `now`. A timestamp in the future comes from a clock that is ahead or was set back.
/// Its distance counts as age, so that it expires too.
#[must_use]
pub fn age(written: Timestamp, now: Timestamp) -> SignedDuration {
    now.duration_since(written).abs()
}
