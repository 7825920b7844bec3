//! Arrangements of an hour that stand for all that the data allows: the best one, the smoothest and the burstiest that fit
//! as well, and two with which the measured share of late first tokens is in between.

use super::arrangement::{ARRANGEMENTS, Arrangement};

/// Indices in [`ARRANGEMENTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidates {
    /// The latencies of this one are nearest to the measured ones.
    pub best: usize,
    /// The smoothest that fits as well.
    pub smoothest: usize,
    /// The burstiest that fits as well.
    pub burstiest: usize,
    /// The nearest with at most as many late first tokens as were measured.
    pub early: usize,
    /// The nearest with at least as many.
    pub late: usize,
}

/// How an arrangement compares with what was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fitness {
    /// Greatest difference of the shares at any time, 0 to 1.
    pub(super) distance: f64,
    /// Simulated share within the objective less the measured one, at the bounds next to the objective: the least and the
    /// greatest.
    pub(super) surplus: (f64, f64),
}

impl Candidates {
    /// The only candidate.
    #[must_use]
    pub fn only(index: usize) -> Self {
        Self { best: index, smoothest: index, burstiest: index, early: index, late: index }
    }

    /// `tolerance`: distance within which another arrangement fits as well.
    pub(super) fn new(all: &[Fitness], tolerance: f64) -> Self {
        let nearest = |is_allowed: &dyn Fn(&Fitness) -> bool| {
            let allowed = all.iter().enumerate().filter(|(_, own)| is_allowed(own));
            allowed.min_by(|a, b| a.1.distance.total_cmp(&b.1.distance)).map(|(i, _)| i)
        };
        let Some(nearest_of_all) = nearest(&|_| true) else { return Self::only(RANDOM) };
        let fits = |own: &Fitness| own.distance <= all[nearest_of_all].distance + tolerance;
        // It follows the bursts of the hour, which others only have as often.
        let (best, ordered) = match all.get(BY_CELL) {
            Some(own) if fits(own) => (BY_CELL, &[][..]),
            Some(_) => (nearest_of_all, &all[..BY_CELL]),
            None => (nearest_of_all, all),
        };
        let least = |of: &dyn Fn(&Fitness) -> f64| {
            let found = all.iter().enumerate().min_by(|a, b| of(a.1).total_cmp(&of(b.1)));
            found.map_or(best, |(i, _)| i)
        };
        Self {
            best,
            smoothest: ordered.iter().position(fits).unwrap_or(best),
            burstiest: ordered.iter().rposition(fits).unwrap_or(best),
            early: nearest(&|own| own.surplus.0 >= 0.0).unwrap_or_else(|| least(&|own| -own.surplus.0)),
            late: nearest(&|own| own.surplus.1 <= 0.0).unwrap_or_else(|| least(&|own| own.surplus.1)),
        }
    }

    /// How far the measured share is from all arrangements, if all are on one side of it, 0 to 1; and the nearest of them.
    pub(super) fn beyond(&self, all: &[Fitness]) -> Option<(f64, usize)> {
        let (early, late) = (all.get(self.early)?, all.get(self.late)?);
        if late.surplus.1 > 0.0 {
            Some((late.surplus.1, self.late))
        } else {
            (early.surplus.0 < 0.0).then_some((-early.surplus.0, self.early))
        }
    }

    /// Whether the data allows only one.
    pub(super) fn is_certain(&self) -> bool {
        *self == Self::only(self.best)
    }
}

/// Index of the arrangement of each cell on its own, after [`ARRANGEMENTS`].
pub(super) const BY_CELL: usize = ARRANGEMENTS.len();

/// Arrangement without any evidence.
const RANDOM: usize = 1;

/// Name of an arrangement by its index.
pub(super) fn name(index: usize) -> String {
    if index == BY_CELL {
        "as the first tokens of each scrape tell".to_owned()
    } else {
        arrangement(index).to_string()
    }
}

/// An arrangement by its index, the same for all cells.
pub(super) fn arrangement(index: usize) -> Arrangement {
    ARRANGEMENTS.get(index).copied().unwrap_or(Arrangement::Random)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitness(distance: f64, surplus: f64) -> Fitness {
        Fitness { distance, surplus: (surplus, surplus) }
    }

    #[test]
    fn late_and_early_are_on_both_sides_of_the_measured_share() {
        let all = [fitness(0.05, 0.02), fitness(0.01, 0.01), fitness(0.03, -0.01), fitness(0.2, -0.05)];
        let found = Candidates::new(&all, 0.025);
        let expected = Candidates { best: 1, smoothest: 1, burstiest: 2, early: 1, late: 2 };
        assert_eq!((found, found.beyond(&all)), (expected, None));
        assert!(!found.is_certain() && Candidates::only(4).is_certain());
    }

    #[test]
    fn the_arrangement_by_cell_stands_for_all_if_it_fits_as_well() {
        let mut all = [fitness(0.1, 0.03); BY_CELL + 1];
        (all[4], all[BY_CELL]) = (fitness(0.01, 0.01), fitness(0.02, -0.005));
        let found = Candidates::new(&all, 0.02);
        let expected =
            Candidates { best: BY_CELL, smoothest: BY_CELL, burstiest: BY_CELL, early: 4, late: BY_CELL };
        assert_eq!(found, expected);
        let strict = Candidates::new(&all, 0.005);
        assert_eq!((strict.best, strict.burstiest), (4, 4), "it does not fit as well");
    }

    #[test]
    fn without_one_on_a_side_the_last_on_it_stands() {
        let all = [fitness(0.01, 0.02), fitness(0.02, 0.01), fitness(0.03, 0.03)];
        let found = Candidates::new(&all, 0.0);
        assert_eq!((found.early, found.late), (0, 1));
        assert_eq!(found.beyond(&all), Some((0.01, 1)));
        assert_eq!(Candidates::new(&[], 0.0), Candidates::only(RANDOM));
    }
}
