//! Timers of the engine. A changed period counts from the last tick.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::EngineConfig;

pub(super) struct Timers {
    pub(super) fetch: Timer,
    pub(super) cycle: Timer,
}

impl Timers {
    /// Creates the timers. Both are due at once.
    pub(super) fn new(config: EngineConfig) -> Self {
        Self { fetch: Timer::new(config.fetch_interval), cycle: Timer::new(config.interval) }
    }

    pub(super) fn set_periods(&mut self, config: EngineConfig) {
        self.fetch.set_period(config.fetch_interval);
        self.cycle.set_period(config.interval);
    }
}

pub(super) struct Timer {
    interval: Interval,
    last: Option<Instant>,
    /// The next tick comes earlier than the period says.
    is_hastened: bool,
}

impl Timer {
    fn new(period: Duration) -> Self {
        Self { interval: interval(Instant::now(), period), last: None, is_hastened: false }
    }

    pub(super) async fn tick(&mut self) {
        self.interval.tick().await;
        self.last = Some(Instant::now());
        self.is_hastened = false;
    }

    /// The next tick comes after `delay`, the later ones at the period. Repeated calls do not defer it.
    pub(super) fn hasten(&mut self, delay: Duration) {
        if !std::mem::replace(&mut self.is_hastened, true) {
            self.interval.reset_after(delay);
        }
    }

    /// A tick that is overdue by the new period comes at once.
    fn set_period(&mut self, period: Duration) {
        if period != self.interval.period() {
            let now = Instant::now();
            self.interval = interval(self.last.map_or(now, |last| now.max(last + period)), period);
        }
    }
}

fn interval(start: Instant, period: Duration) -> Interval {
    let mut interval = interval_at(start, period);
    // After a delay, ticks do not catch up.
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

pub(super) fn reschedule_earlier(scheduled: &mut Option<Instant>, delay: Duration) {
    let at = Instant::now() + delay;
    *scheduled = Some(scheduled.map_or(at, |scheduled| scheduled.min(at)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_new_period_counts_from_the_last_tick() {
        let start = Instant::now();
        let mut timer = Timer::new(60 * SECOND);
        let at = async |timer: &mut Timer| {
            timer.tick().await;
            start.elapsed().as_secs()
        };
        assert_eq!([at(&mut timer).await, at(&mut timer).await], [0, 60]);
        tokio::time::advance(10 * SECOND).await;
        timer.set_period(30 * SECOND);
        assert_eq!([at(&mut timer).await, at(&mut timer).await], [90, 120]);
        tokio::time::advance(20 * SECOND).await;
        timer.set_period(5 * SECOND);
        assert_eq!([at(&mut timer).await, at(&mut timer).await], [140, 145], "an overdue tick comes at once");
        timer.set_period(5 * SECOND);
        assert_eq!(at(&mut timer).await, 150, "the same period changes nothing");
        timer.set_period(600 * SECOND);
        assert_eq!(at(&mut timer).await, 750);
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_two_requests_counts() {
        let now = Instant::now();
        let mut scheduled = None;
        for (delay, at) in [(5, 5), (2, 2), (3, 2)] {
            reschedule_earlier(&mut scheduled, delay * SECOND);
            assert_eq!(scheduled, Some(now + at * SECOND));
        }
    }
}
