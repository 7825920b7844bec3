//! Time since the last cycle. A hanging engine keeps its Lease, so without this check its last publication would stay
//! forever.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Missed cycles after which series end. After twice as many, `/healthz` fails.
const MISSED_CYCLES: u32 = 5;
/// Minimum lifetime of series. For `/healthz` three times as long.
const MIN_SERIES_LIFETIME: Duration = Duration::from_mins(5);

/// Time since the last cycle. Clones share it.
#[derive(Clone, Debug)]
pub struct CycleProgress {
    last: Arc<Mutex<Option<LastCycle>>>,
    min_series_lifetime: Duration,
}

#[derive(Clone, Copy, Debug)]
struct LastCycle {
    at: Instant,
    period: Duration,
}

impl Default for CycleProgress {
    fn default() -> Self {
        Self::new(MIN_SERIES_LIFETIME)
    }
}

impl CycleProgress {
    /// Creates it with a minimum lifetime of series; tests use a short one.
    #[must_use]
    pub fn new(min_series_lifetime: Duration) -> Self {
        Self { last: Arc::default(), min_series_lifetime }
    }

    /// Cycles are expected until the guard is dropped.
    pub(crate) fn begin(&self, period: Duration) -> RunGuard<'_> {
        self.advance(period);
        RunGuard(self)
    }

    /// The next cycle is due after `period`.
    pub(super) fn advance(&self, period: Duration) {
        *self.lock() = Some(LastCycle { at: Instant::now(), period });
    }

    /// Whether the publication of the last cycle is still valid.
    #[must_use]
    pub fn is_recent(&self) -> bool {
        self.is_within(MISSED_CYCLES, self.min_series_lifetime)
    }

    /// True if the engine does not run on this replica.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.is_within(2 * MISSED_CYCLES, 3 * self.min_series_lifetime)
    }

    fn is_within(&self, missed: u32, minimum: Duration) -> bool {
        let last = *self.lock();
        last.is_none_or(|last| last.at.elapsed() <= last.period.saturating_mul(missed).max(minimum))
    }

    fn lock(&self) -> MutexGuard<'_, Option<LastCycle>> {
        // No code panics while it holds the lock.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct RunGuard<'p>(&'p CycleProgress);

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    /// Whole minutes after a cycle for which series are valid, and for which `/healthz` succeeds.
    async fn lifetimes(period: Duration) -> (u32, u32) {
        let progress = CycleProgress::default();
        let _run = progress.begin(period);
        let (mut recent, mut alive) = (0, 0);
        while progress.is_alive() {
            alive += 1;
            recent += u32::from(progress.is_recent());
            tokio::time::advance(MINUTE).await;
        }
        (recent - 1, alive - 1)
    }

    #[tokio::test(start_paused = true)]
    async fn missed_cycles_end_series_before_health() {
        assert_eq!(lifetimes(Duration::from_secs(1)).await, (5, 15));
        assert_eq!(lifetimes(MINUTE).await, (5, 15));
        assert_eq!(lifetimes(2 * MINUTE).await, (10, 20));
        assert_eq!(lifetimes(60 * MINUTE).await, (300, 600));
    }

    #[tokio::test(start_paused = true)]
    async fn each_cycle_counts_and_an_ended_run_is_healthy() {
        let progress = CycleProgress::default();
        let run = progress.begin(MINUTE);
        for _ in 0..10 {
            tokio::time::advance(4 * MINUTE).await;
            assert!(progress.is_recent());
            progress.advance(MINUTE);
        }
        tokio::time::advance(60 * MINUTE).await;
        assert!(!progress.is_recent() && !progress.is_alive());
        drop(run);
        assert!(progress.is_recent() && progress.is_alive(), "another replica leads");
    }
}
