//! How long a replica leaves the Secret alone after it has looked. Where it wrote because of a date, another replica whose
//! clock differs may see it the other way round and write as well: each time, the rest gets longer.

use std::time::Duration;

use tokio::time::Instant;

use crate::rotation::Change;
use crate::state::{FIRST_PAUSE, LONGEST_PAUSE};

/// A time without such a write after which the clocks count as agreed.
const PEACE: Duration = Duration::from_mins(10);

#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// The last write because of a date, and the rest that followed it.
    last: Option<(Instant, Duration)>,
}

impl Rest {
    /// The rest after a look at `now` that ended in `change`.
    pub(crate) fn after(&mut self, change: Option<&Change>, now: Instant) -> Duration {
        if !change.and_then(Change::why).is_some_and(crate::ca::Why::is_a_date) {
            return FIRST_PAUSE;
        }
        let before = self.last.filter(|(at, _)| now.duration_since(*at) < PEACE);
        let rest = before.map_or(FIRST_PAUSE, |(_, rest)| (rest * 2).min(LONGEST_PAUSE));
        self.last = Some((now, rest));
        rest
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::ca::Why;
    use crate::set::CA_CERT;

    #[tokio::test(start_paused = true)]
    async fn replicas_whose_clocks_disagree_do_not_chase_each_other() {
        let mut rest = Rest::default();
        let too_early = Why::NotYetValid { entry: CA_CERT, not_before: Timestamp::UNIX_EPOCH };
        let date = Change::Restored(too_early);
        let mut after = |change: &Change| rest.after(Some(change), Instant::now()).as_secs();
        let rests: Vec<_> = (0..7).map(|_| after(&date)).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(after(&Change::Restored(Why::NoSecret)), 1, "a deletion is repaired as fast as ever");
        assert_eq!(after(&date), 30);
        tokio::time::advance(PEACE).await;
        assert_eq!(after(&date), 1);
    }
}
