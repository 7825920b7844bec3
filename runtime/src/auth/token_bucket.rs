//! Rate limit on reviews of unknown tokens, for each client.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Allows each key a burst of `size`, then one per `interval`.
pub(super) struct TokenBuckets<K> {
    size: u32,
    interval: Duration,
    max_keys: usize,
    /// Keys whose bucket is not full.
    full_at: Mutex<HashMap<K, Instant>>,
}

impl<K: Clone + Eq + Hash> TokenBuckets<K> {
    /// Creates buckets of `size` tokens, of which one comes back in each `interval`. At most `max_keys` buckets are
    /// remembered at once.
    pub(super) fn new(size: u32, interval: Duration, max_keys: usize) -> Self {
        Self { size, interval, max_keys, full_at: Mutex::default() }
    }

    /// Takes a token of this client, if it has one. With as many clients as keys, an unknown one has to wait.
    pub(super) fn take(&self, key: &K) -> bool {
        let now = Instant::now();
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if !full_at.contains_key(key) && full_at.len() >= self.max_keys {
            full_at.retain(|_, at| *at > now);
            if full_at.len() >= self.max_keys {
                return false;
            }
        }
        let at = full_at.entry(key.clone()).or_insert(now);
        let next = (*at).max(now) + self.interval;
        let has_token = next.duration_since(now) <= self.interval * self.size;
        if has_token {
            *at = next;
        }
        has_token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn allows_each_key_a_burst_then_one_per_interval() {
        let buckets = TokenBuckets::new(3, Duration::from_secs(1), 2);
        let taken = |key: &'static str| (0..10).filter(|_| buckets.take(&key)).count();
        assert_eq!([taken("a"), taken("b")], [3, 3], "each has its own");
        assert_eq!(taken("c"), 0, "no more keys are remembered");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!([taken("a"), taken("b")], [2, 2]);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!([taken("c"), taken("a"), taken("b")], [3, 3, 0], "full buckets are forgotten");
    }
}
