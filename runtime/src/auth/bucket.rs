//! A token bucket: bounds how often unknown callers make the program ask the API server.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// So many at once, and one more for each interval that passes.
pub(super) struct Bucket {
    size: u32,
    interval: Duration,
    /// When the bucket will be full again.
    full_at: Mutex<Instant>,
}

impl Bucket {
    pub(super) fn new(size: u32, interval: Duration) -> Self {
        Self { size, interval, full_at: Mutex::new(Instant::now()) }
    }

    /// Takes one. `false` where the bucket is empty.
    pub(super) fn take(&self) -> bool {
        let now = Instant::now();
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let next = (*full_at).max(now) + self.interval;
        let left = next.duration_since(now) <= self.interval * self.size;
        if left {
            *full_at = next;
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn gives_a_burst_and_then_one_per_interval() {
        let bucket = Bucket::new(3, Duration::from_secs(1));
        let taken = || (0..10).filter(|_| bucket.take()).count();
        assert_eq!(taken(), 3);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(taken(), 2);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(taken(), 3);
    }
}
