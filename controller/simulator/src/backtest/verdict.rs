//! Whether there is a verdict on a policy: its figures have to be the same in all reconstructions that the data does not
//! tell apart, and at loads of a replica that were seen.

use super::compare::{Counts, counted_minutes};
use super::ensemble::DRAWS;
use super::refusal::MAX_ERROR;
use crate::fleet::engine::to_f64;
use crate::measure::Minute;

/// Greatest relative difference of the cost in a reconstruction: 5 %.
pub const MAX_COST_ERROR: f64 = 0.05;
/// Load beyond the seen one by this factor is not known: an engine may behave in another way there.
const BEYOND: f64 = 1.25;
/// Share of the minutes with a smaller load.
const MOST: f64 = 0.9;

/// Why a figure of a policy has no verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubt {
    /// The data allows shares that are too far apart, 0 to 1.
    Share {
        /// Least.
        least: f64,
        /// Greatest.
        most: f64,
    },
    /// The data allows costs that are too far apart, as multiples of that of what ran.
    Cost {
        /// Least.
        least: f64,
        /// Greatest.
        most: f64,
    },
    /// Replicas of the policy get more requests in a minute than any of those that ran.
    Load {
        /// Requests of a replica in a minute.
        own: f64,
        /// Most that were seen.
        seen: f64,
    },
}

/// Why the figures of a policy have no verdict. `None`: the figure has one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Doubts {
    /// Doubt about the share within the objectives.
    pub share: Option<Doubt>,
    /// Doubt about the cost.
    pub cost: Option<Doubt>,
}

/// Least and greatest figures of a policy that the data allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranges {
    /// Share within both objectives, 0 to 1.
    pub share: (f64, f64),
    /// Replica hours.
    pub hours: (f64, f64),
}

/// What is known of the replicas that ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RanFigures {
    /// Most requests of one in a minute.
    pub(super) load: f64,
    /// Hours of these replicas.
    pub(super) hours: f64,
}

impl Ranges {
    /// Ranges of all members, and beyond them by what is lost with half of the scrapes: as much may be lost already.
    /// The first [`DRAWS`] of `members` are draws like those of `coarse`.
    pub(super) fn new(members: &[Counts], coarse: &[Counts]) -> Self {
        let of = |value: fn(&Counts) -> f64| {
            let (least, most) = range(members.iter().map(value));
            let lost = match (mean(members.iter().take(DRAWS).map(value)), mean(coarse.iter().map(value))) {
                (Some(fine), Some(coarse)) => fine - coarse,
                _ => 0.0,
            };
            (least + lost.min(0.0), most + lost.max(0.0))
        };
        let (share, hours) = (of(Counts::share), of(|counts| counts.replica_hours));
        Self { share: (share.0.max(0.0), share.1.min(1.0)), hours: (hours.0.max(0.0), hours.1) }
    }
}

/// The least and the greatest.
pub(super) fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let nothing = (f64::INFINITY, f64::NEG_INFINITY);
    values.fold(nothing, |(least, most), value| (least.min(value), most.max(value)))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / to_f64(count))
}

impl Doubts {
    /// `counts`: that are shown; `load`: of its replicas.
    pub(super) fn new(counts: &Counts, ranges: Ranges, load: f64, ran: RanFigures) -> Self {
        if load > BEYOND * ran.load {
            let doubt = Some(Doubt::Load { own: load, seen: ran.load });
            return Self { share: doubt, cost: doubt };
        }
        let off = |shown: f64, (least, most): (f64, f64)| (shown - least).max(most - shown);
        let (share, hours) = (ranges.share, ranges.hours);
        let is_far = off(counts.replica_hours, hours) > MAX_COST_ERROR * counts.replica_hours;
        Self {
            share: (off(counts.share(), share) > MAX_ERROR)
                .then_some(Doubt::Share { least: share.0, most: share.1 }),
            cost: is_far.then(|| Doubt::Cost { least: hours.0 / ran.hours, most: hours.1 / ran.hours }),
        }
    }

    /// Whether each figure has a verdict.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        self.share.is_none() && self.cost.is_none()
    }

    /// Whether no figure has a verdict.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.share.is_some() && self.cost.is_some()
    }
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Share { least, most } => {
                write!(f, "the data allows {:.1} to {:.1} %", 100.0 * least, 100.0 * most)
            }
            Self::Cost { least, most } => {
                write!(f, "the data allows {least:.2} to {most:.2} times that of what ran")
            }
            Self::Load { own, seen } => write!(
                f,
                "its replicas would get {own:.0} requests a minute, and no replica that ran got more than {seen:.0}"
            ),
        }
    }
}

/// Requests of a replica in a minute, of most minutes of the judged hours.
pub(super) fn load(minutes: &[Minute], is_judged: &[bool]) -> f64 {
    let mut loads: Vec<f64> = counted_minutes(minutes, is_judged).filter_map(load_of).collect();
    loads.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
    let index = (MOST * to_f64(loads.len() as u64)) as usize;
    loads.get(index.min(loads.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Most requests of a replica that ran in a minute.
pub(super) fn seen_load(ran: &[Minute]) -> f64 {
    ran.iter().filter_map(load_of).fold(0.0, f64::max)
}

fn load_of(minute: &Minute) -> Option<f64> {
    let replicas: f64 = minute.current.iter().map(|n| f64::from(*n)).sum();
    (minute.arrived > 0 && replicas > 0.0).then(|| f64::from(minute.arrived) / replicas)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(good: f64, replica_hours: f64) -> Counts {
        Counts { arrived: 100.0, good, replica_hours, ..Counts::default() }
    }

    fn doubts(share: (f64, f64), hours: (f64, f64), load: f64) -> Doubts {
        Doubts::new(&counts(95.0, 10.0), Ranges { share, hours }, load, RanFigures { load: 60.0, hours: 5.0 })
    }

    #[test]
    fn each_figure_has_a_verdict_of_its_own() {
        assert_eq!(doubts((0.94, 0.96), (9.6, 10.4), 70.0), Doubts::default());
        let cost = doubts((0.94, 0.96), (9.6, 10.6), 70.0);
        assert_eq!((cost.share, cost.is_refused()), (None, false));
        assert_eq!(
            cost.cost.map(|doubt| doubt.to_string()).as_deref(),
            Some("the data allows 1.92 to 2.12 times that of what ran")
        );
        let share = doubts((0.92, 0.96), (9.6, 10.4), 70.0);
        assert!(matches!(share, Doubts { share: Some(Doubt::Share { .. }), cost: None }));
        let load = doubts((0.94, 0.96), (9.6, 10.4), 80.0);
        assert!(matches!(load, Doubts { share: Some(Doubt::Load { .. }), .. }) && load.is_refused());
    }

    #[test]
    fn ranges_grow_by_what_half_of_the_scrapes_lose() {
        let members = [95.0, 95.0, 95.0, 97.0].map(|good| counts(good, 10.0));
        let lost = Ranges::new(&members, &[96.0, 96.0, 96.0].map(|good| counts(good, 9.0)));
        assert!((lost.share.0 - 0.94).abs() < 1e-9 && (lost.share.1 - 0.97).abs() < 1e-9, "{lost:?}");
        assert!((lost.hours.0 - 10.0).abs() < 1e-9 && (lost.hours.1 - 11.0).abs() < 1e-9, "{lost:?}");
        let same = Ranges::new(&members, &[]);
        assert!((same.share.0 - 0.95).abs() < 1e-9 && (same.hours.1 - 10.0).abs() < 1e-9, "{same:?}");
    }

    #[test]
    fn the_load_is_that_of_most_minutes_of_judged_hours() {
        let minute = |arrived| Minute { arrived, current: vec![2], ..Minute::default() };
        let minutes: Vec<Minute> = (0..60).map(minute).chain((0..60).map(|_| minute(999))).collect();
        assert!((load(&minutes, &[true, false]) - 27.0).abs() < 1.0, "{}", load(&minutes, &[true, false]));
        assert_eq!(load(&[], &[]).to_bits(), 0.0_f64.to_bits());
    }
}
