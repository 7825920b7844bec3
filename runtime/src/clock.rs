//! The wall clock.

use std::sync::Arc;

use jiff::Timestamp;

/// Tests set it; a program uses [`system_clock`].
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The machine's wall clock.
#[must_use]
pub fn system_clock() -> Clock {
    Arc::new(Timestamp::now)
}
