//! The timers of the engine: one for samples, one for cycles. Their periods may change while they run, and the new one
//! is counted from the last tick.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::EngineConfig;

/// When to do what.
pub(super) struct Timers {
    /// Samples.
    pub(super) fetch: Ticks,
    /// Cycles.
    pub(super) cycle: Ticks,
}

impl Timers {
    /// Both are due at once.
    pub(super) fn new(config: EngineConfig) -> Self {
        Self { fetch: Ticks::new(config.fetch_interval), cycle: Ticks::new(config.interval) }
    }

    /// Takes over other periods.
    pub(super) fn change(&mut self, config: EngineConfig) {
        self.fetch.every(config.fetch_interval);
        self.cycle.every(config.interval);
    }
}

/// One timer.
pub(super) struct Ticks {
    interval: Interval,
    last: Option<Instant>,
}

impl Ticks {
    fn new(period: Duration) -> Self {
        Self { interval: interval(Instant::now(), period), last: None }
    }

    /// Waits for the next tick.
    pub(super) async fn tick(&mut self) {
        self.interval.tick().await;
        self.last = Some(Instant::now());
    }

    /// The next tick comes after `delay`, and those after it a period apart.
    pub(super) fn after(&mut self, delay: Duration) {
        self.interval.reset_after(delay);
    }

    /// What is overdue by the new period comes at once.
    fn every(&mut self, period: Duration) {
        if period != self.interval.period() {
            let now = Instant::now();
            self.interval = interval(self.last.map_or(now, |last| now.max(last + period)), period);
        }
    }
}

fn interval(start: Instant, period: Duration) -> Interval {
    let mut interval = interval_at(start, period);
    // After a slow answer the next tick comes a whole period later, not several at once.
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Asks for a cycle after `delay`, unless one comes sooner.
pub(super) fn reschedule_earlier(asked: &mut Option<Instant>, delay: Duration) {
    let at = Instant::now() + delay;
    *asked = Some(asked.map_or(at, |asked| asked.min(at)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_new_period_counts_from_the_last_tick() {
        let start = Instant::now();
        let mut ticks = Ticks::new(60 * SECOND);
        let at = async |ticks: &mut Ticks| {
            ticks.tick().await;
            start.elapsed().as_secs()
        };
        assert_eq!([at(&mut ticks).await, at(&mut ticks).await], [0, 60]);
        tokio::time::advance(10 * SECOND).await;
        ticks.every(30 * SECOND);
        assert_eq!([at(&mut ticks).await, at(&mut ticks).await], [90, 120]);
        tokio::time::advance(20 * SECOND).await;
        ticks.every(5 * SECOND);
        assert_eq!([at(&mut ticks).await, at(&mut ticks).await], [140, 145], "what is overdue comes at once");
        ticks.every(5 * SECOND);
        assert_eq!(at(&mut ticks).await, 150, "the same period changes nothing");
        ticks.every(600 * SECOND);
        assert_eq!(at(&mut ticks).await, 750);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_requests_counts() {
        let now = Instant::now();
        let mut asked = None;
        for (delay, at) in [(5, 5), (2, 2), (3, 2)] {
            reschedule_earlier(&mut asked, delay * SECOND);
            assert_eq!(asked, Some(now + at * SECOND));
        }
    }
}
