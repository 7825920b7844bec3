//! Since when a model is idle.

use std::time::Duration;

use super::Time;

/// Evidence that a model is idle. It starts when the model is first seen; a gap between samples counts as activity.
#[derive(Clone, Copy, Debug)]
pub struct Idleness<T> {
    tracked_since: T,
    /// No sample since then has shown activity.
    idle_since: T,
    /// The newest that showed activity or idleness.
    last_sample: T,
}

impl<T: Time + PartialOrd> Idleness<T> {
    /// A model that is seen for the first time.
    #[must_use]
    pub fn new(now: T) -> Self {
        Self { tracked_since: now, idle_since: now, last_sample: now }
    }

    /// Adds a sample that was taken at this time. Idleness does not last across a gap of over `longest_gap`.
    pub fn update(&mut self, is_busy: bool, taken: T, longest_gap: Duration) {
        if is_busy || taken.since(self.last_sample) > longest_gap {
            self.idle_since = later(self.idle_since, taken);
        }
        self.last_sample = later(self.last_sample, taken);
    }

    /// Begins the idle time again.
    pub fn restart(&mut self, now: T) {
        self.idle_since = now;
    }

    /// Time since the model was first seen.
    #[must_use]
    pub fn tracked_for(&self, now: T) -> Duration {
        now.since(self.tracked_since)
    }

    /// Moves all evidence into the past, by `earlier`. For tests.
    pub fn age(&mut self, earlier: impl Fn(T) -> T) {
        (self.tracked_since, self.idle_since) = (earlier(self.tracked_since), earlier(self.idle_since));
    }

    /// Time since the last activity.
    #[must_use]
    pub fn idle_for(&self, now: T) -> Duration {
        now.since(self.idle_since)
    }
}

fn later<T: PartialOrd>(a: T, b: T) -> T {
    if b > a { b } else { a }
}
