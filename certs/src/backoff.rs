//! Backoff between repairs of the Secret. Replicas with different clocks may overwrite each other because of a date, so
//! each such write doubles the delay.

use std::time::Duration;

use tokio::time::Instant;

use crate::rotation::Change;
use crate::state::{FIRST_DELAY, MAX_DELAY};

/// The delay is reset after this time without such a write.
const RESET_AFTER: Duration = Duration::from_mins(10);

#[derive(Debug, Default)]
pub(crate) struct RepairBackoff {
    last: Option<ClockWrite>,
}

#[derive(Debug)]
struct ClockWrite {
    at: Instant,
    delay: Duration,
}

impl RepairBackoff {
    pub(crate) fn delay_after(&mut self, change: Option<&Change>, now: Instant) -> Duration {
        if !change.and_then(Change::fault).is_some_and(crate::ca::CaFault::is_clock_dependent) {
            return FIRST_DELAY;
        }
        let last = self.last.as_ref().filter(|last| now.duration_since(last.at) < RESET_AFTER);
        let delay = last.map_or(FIRST_DELAY, |last| (last.delay * 2).min(MAX_DELAY));
        self.last = Some(ClockWrite { at: now, delay });
        delay
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::ca::CaFault;
    use crate::set::CA_CERT;

    #[tokio::test(start_paused = true)]
    async fn delay_doubles_while_clocks_disagree() {
        let mut backoff = RepairBackoff::default();
        let too_early = CaFault::NotYetValid { entry: CA_CERT, not_before: Timestamp::UNIX_EPOCH };
        let date = Change::Restored(too_early);
        let mut after = |change: &Change| backoff.delay_after(Some(change), Instant::now()).as_secs();
        let delays: Vec<_> = (0..7).map(|_| after(&date)).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(after(&Change::Restored(CaFault::NoSecret)), 1, "a deletion is repaired without backoff");
        assert_eq!(after(&date), 30);
        tokio::time::advance(RESET_AFTER).await;
        assert_eq!(after(&date), 1);
    }
}
