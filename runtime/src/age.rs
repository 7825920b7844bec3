//! Age of timestamps from other clocks.

use jiff::{SignedDuration, Timestamp};

/// Distance between `written` and `now`. A timestamp in the future counts as age too, so that it expires.
#[must_use]
pub fn age(written: Timestamp, now: Timestamp) -> SignedDuration {
    now.duration_since(written).abs()
}
