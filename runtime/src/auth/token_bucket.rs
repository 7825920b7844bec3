//! Rate limit on reviews of unknown tokens.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Allows a burst of `size`, then one per `interval`.
pub(super) struct TokenBucket {
    size: u32,
    interval: Duration,
    full_at: Mutex<Instant>,
}

impl TokenBucket {
    pub(super) fn new(size: u32, interval: Duration) -> Self {
        Self { size, interval, full_at: Mutex::new(Instant::now()) }
    }

    pub(super) fn take(&self) -> bool {
        let now = Instant::now();
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let next = (*full_at).max(now) + self.interval;
        let has_token = next.duration_since(now) <= self.interval * self.size;
        if has_token {
            *full_at = next;
        }
        has_token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn allows_a_burst_then_one_per_interval() {
        let bucket = TokenBucket::new(3, Duration::from_secs(1));
        let taken = || (0..10).filter(|_| bucket.take()).count();
        assert_eq!(taken(), 3);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(taken(), 2);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(taken(), 3);
    }
}
