//! Whether there is a verdict on a policy: its figures have to be the same in all reconstructions that the data does not
//! tell apart, and at loads of a replica that were seen.

use super::calibrate::MAX_ERROR;
use super::compare::{Counts, MINUTES};
use crate::fleet::engine::to_f64;
use crate::measure::{Minute, Tally};

/// Greatest relative difference of the cost in a reconstruction: 5 %.
pub const MAX_COST_ERROR: f64 = 0.05;
/// Load beyond the seen one by this factor is not known: an engine may behave in another way there.
const BEYOND: f64 = 1.25;
/// Share of the minutes with a smaller load.
const MOST: f64 = 0.9;

/// Why a policy has no verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubt {
    /// Reconstructions that fit as well lead to other shares, 0 to 1.
    Share {
        /// Least.
        least: f64,
        /// Greatest.
        most: f64,
    },
    /// Reconstructions that fit as well lead to other costs, replica hours.
    Cost {
        /// Least.
        least: f64,
        /// Greatest.
        most: f64,
    },
    /// Its replicas get more requests in a minute than any of those that ran.
    Load {
        /// Requests of a replica in a minute.
        own: f64,
        /// Most that were seen.
        seen: f64,
    },
}

impl Doubt {
    /// `None`: there is a verdict. `counts`: that are shown; `shares`, `hours`: least and greatest of all reconstructions.
    pub(super) fn new(
        counts: &Counts,
        shares: (f64, f64),
        hours: (f64, f64),
        load: f64,
        seen: f64,
    ) -> Option<Self> {
        let off = |shown: f64, (least, most): (f64, f64)| (shown - least).max(most - shown);
        if off(counts.replica_hours, hours) > MAX_COST_ERROR * counts.replica_hours {
            return Some(Self::Cost { least: hours.0, most: hours.1 });
        }
        if off(counts.share(), shares) > MAX_ERROR {
            return Some(Self::Share { least: shares.0, most: shares.1 });
        }
        (load > BEYOND * seen).then_some(Self::Load { own: load, seen })
    }
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = "reconstructions that fit the data as well";
        match self {
            Self::Share { least, most } => {
                write!(f, "{:.1} to {:.1} % in the objectives in {of}", 100.0 * least, 100.0 * most)
            }
            Self::Cost { least, most } => write!(f, "{least:.1} to {most:.1} replica h in {of}"),
            Self::Load { own, seen } => write!(
                f,
                "its replicas would get {own:.0} requests a minute, and no replica that ran got more than {seen:.0}"
            ),
        }
    }
}

/// Requests of a replica in a minute, of most minutes of the judged hours.
pub(super) fn load(minutes: &[Minute], is_judged: &[bool]) -> f64 {
    let judged = minutes.chunks(MINUTES).zip(is_judged).filter(|(_, judged)| **judged);
    let mut loads: Vec<f64> = judged.flat_map(|(minutes, _)| minutes).filter_map(load_of).collect();
    loads.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
    let index = (MOST * to_f64(loads.len() as u64)) as usize;
    loads.get(index.min(loads.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Most requests of a replica that ran in a minute.
pub(super) fn seen_load(ran: &Tally) -> f64 {
    ran.minutes.iter().filter_map(load_of).fold(0.0, f64::max)
}

fn load_of(minute: &Minute) -> Option<f64> {
    let replicas: f64 = minute.current.iter().map(|n| f64::from(*n)).sum();
    (minute.arrived > 0 && replicas > 0.0).then(|| f64::from(minute.arrived) / replicas)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt(shares: (f64, f64), hours: (f64, f64), load: f64) -> Option<Doubt> {
        let counts = Counts { arrived: 100.0, good: 95.0, replica_hours: 10.0, ..Counts::default() };
        Doubt::new(&counts, shares, hours, load, 60.0)
    }

    #[test]
    fn a_verdict_holds_in_all_reconstructions_and_at_seen_loads() {
        assert_eq!(doubt((0.94, 0.96), (9.6, 10.4), 70.0), None);
        assert!(matches!(doubt((0.94, 0.96), (9.6, 10.6), 70.0), Some(Doubt::Cost { .. })));
        assert!(matches!(doubt((0.92, 0.96), (9.6, 10.4), 70.0), Some(Doubt::Share { .. })));
        assert!(matches!(doubt((0.94, 0.96), (9.6, 10.4), 80.0), Some(Doubt::Load { .. })));
    }

    #[test]
    fn the_load_is_that_of_most_minutes_of_judged_hours() {
        let minute = |arrived| Minute { arrived, current: vec![2], ..Minute::default() };
        let minutes: Vec<Minute> = (0..60).map(minute).chain((0..60).map(|_| minute(999))).collect();
        assert!((load(&minutes, &[true, false]) - 27.0).abs() < 1.0, "{}", load(&minutes, &[true, false]));
        assert_eq!(load(&[], &[]).to_bits(), 0.0_f64.to_bits());
    }
}
