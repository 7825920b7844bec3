//! When the last cycle ended. A task that hangs does not end, and its replica keeps its Lease: what it published would
//! stand for ever. A cycle that holds all targets, for want of Prometheus or of the API server, counts like any other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Series end after this many missed cycles, and `/healthz` fails after twice as many.
const MISSED: u32 = 5;
/// Series stand this long after a cycle, however short the interval is; `/healthz` holds three times as long.
const SERIES_STAND: Duration = Duration::from_mins(5);

/// How long ago the engine of this replica ended a cycle. Clones share it. Written by the engine alone.
#[derive(Clone, Debug)]
pub struct CycleProgress {
    last: Arc<Mutex<Option<Last>>>,
    series_stand: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    at: Instant,
    /// Time to the next cycle: at most this, and a round of queries.
    period: Duration,
}

impl Default for CycleProgress {
    fn default() -> Self {
        Self::new(SERIES_STAND)
    }
}

impl CycleProgress {
    /// With another least time for which series stand; tests have a short one.
    #[must_use]
    pub fn new(series_stand: Duration) -> Self {
        Self { last: Arc::default(), series_stand }
    }

    /// Begins a run of the engine: from here on cycles are expected, until what this returns is dropped.
    pub(crate) fn begin(&self, period: Duration) -> Run<'_> {
        self.advance(period);
        Run(self)
    }

    /// A cycle has ended; the next one comes after `period`.
    pub(super) fn advance(&self, period: Duration) {
        *self.lock() = Some(Last { at: Instant::now(), period });
    }

    /// Whether what the last cycle published still counts.
    #[must_use]
    pub fn is_recent(&self) -> bool {
        self.is_within(MISSED, self.series_stand)
    }

    /// Whether the engine works, or does not run here.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.is_within(2 * MISSED, 3 * self.series_stand)
    }

    fn is_within(&self, missed: u32, minimum: Duration) -> bool {
        let last = *self.lock();
        last.is_none_or(|last| last.at.elapsed() <= last.period.saturating_mul(missed).max(minimum))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Last>> {
        // Nothing panics while it holds the lock.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run of the engine. Its end, in whichever way, is not a stop of cycles.
pub(crate) struct Run<'p>(&'p CycleProgress);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    /// For how many whole minutes after a cycle series stand, and `/healthz` holds.
    async fn stands(period: Duration) -> (u32, u32) {
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
    async fn missed_cycles_end_series_first_and_health_later() {
        assert_eq!(stands(Duration::from_secs(1)).await, (5, 15));
        assert_eq!(stands(MINUTE).await, (5, 15));
        assert_eq!(stands(2 * MINUTE).await, (10, 20));
        assert_eq!(stands(60 * MINUTE).await, (300, 600));
    }

    #[tokio::test(start_paused = true)]
    async fn each_cycle_counts_and_an_ended_run_is_not_stalled() {
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
