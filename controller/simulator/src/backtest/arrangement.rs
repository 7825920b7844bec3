//! Arrangement of requests within a cell. A scrape says how many requests arrived, not when within the interval: the
//! candidates go from evenly spaced to bunched, and the measured latencies decide between them.

use rand_distr::{Distribution, StandardUniform};
use rand_pcg::Pcg64Mcg;

/// Arrangement of the requests of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arrangement {
    /// Requests at equal distances.
    Even,
    /// Requests at random times, independent of each other.
    Random,
    /// Bunches of this many requests at equal distances, as jobs on a timer send them.
    Ticks(u16),
    /// This percentage of the requests in bunches at random times, the others independent of them.
    Bunches {
        /// Mean number of requests of a bunch; the numbers are geometric.
        size: u16,
        /// Share of the requests, percent.
        percent: u8,
    },
}

const fn bunches(size: u16, percent: u8) -> Arrangement {
    Arrangement::Bunches { size, percent }
}

/// Candidates, regular ones and then from the smoothest to the burstiest: by the bunch that a request is in, on average.
pub const ARRANGEMENTS: [Arrangement; 21] = [
    Arrangement::Even,
    Arrangement::Random,
    Arrangement::Ticks(4),
    Arrangement::Ticks(12),
    Arrangement::Ticks(36),
    bunches(4, 10),
    bunches(4, 25),
    bunches(12, 10),
    bunches(4, 50),
    bunches(12, 25),
    bunches(36, 10),
    bunches(4, 100),
    bunches(12, 50),
    bunches(36, 25),
    bunches(108, 10),
    bunches(12, 100),
    bunches(36, 50),
    bunches(108, 25),
    bunches(36, 100),
    bunches(108, 50),
    bunches(108, 100),
];

impl std::fmt::Display for Arrangement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Even => f.write_str("evenly spaced"),
            Self::Random => f.write_str("at random times"),
            Self::Ticks(size) => write!(f, "in bunches of {size} at equal distances"),
            Self::Bunches { size, percent: 100 } => write!(f, "in bunches of {size}"),
            Self::Bunches { size, percent } => write!(f, "{percent} % in bunches of {size}"),
        }
    }
}

/// Seconds over which a bunch arrives.
const BUNCH: f64 = 0.2;

impl Arrangement {
    /// Times of `count` requests within a cell, as shares of it, in order. `step`: length of the cell, seconds.
    pub fn places(self, count: u32, step: f64, random: &mut Pcg64Mcg) -> Vec<f64> {
        let mut uniform = || -> f64 { StandardUniform.sample(random) };
        let mut places: Vec<f64> = match self {
            Self::Even => (0..count).map(|i| (f64::from(i) + 0.5) / f64::from(count)).collect(),
            Self::Random => (0..count).map(|_| uniform()).collect(),
            Self::Ticks(size) => {
                let ticks = count.div_ceil(u32::from(size.max(1))).max(1);
                let width = (BUNCH / step).min(1.0 / f64::from(ticks));
                let place = |i: u32| (f64::from(i % ticks) + 0.5) / f64::from(ticks) - width / 2.0;
                (0..count).map(|i| place(i) + width * uniform()).collect()
            }
            Self::Bunches { size, percent } => {
                let width = (BUNCH / step).min(1.0);
                let (stay, share) = (1.0 - 1.0 / f64::from(size.max(1)), f64::from(percent) / 100.0);
                let mut center = uniform() * (1.0 - width);
                let mut place = || {
                    if uniform() >= share {
                        return uniform();
                    }
                    if uniform() >= stay {
                        center = uniform() * (1.0 - width);
                    }
                    center + width * uniform()
                };
                (0..count).map(|_| place()).collect()
            }
        };
        places.sort_by(f64::total_cmp);
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Stream, random_stream};

    /// Pairs of neighbours that are much closer than the mean distance.
    fn close_pairs(arrangement: Arrangement) -> usize {
        let mut random = random_stream(1, Stream::Arrivals);
        let places = arrangement.places(200, 15.0, &mut random);
        places.windows(2).filter(|pair| pair[1] - pair[0] < 0.000_5).count()
    }

    #[test]
    fn places_are_within_the_cell_and_in_order() {
        let mut random = random_stream(1, Stream::Arrivals);
        for arrangement in ARRANGEMENTS {
            let places = arrangement.places(100, 15.0, &mut random);
            assert_eq!(places.len(), 100, "{arrangement}");
            assert!(places.iter().all(|place| (0.0..=1.0).contains(place)), "{arrangement}");
            assert!(places.is_sorted(), "{arrangement}");
            assert!(arrangement.places(0, 15.0, &mut random).is_empty());
        }
    }

    #[test]
    fn more_and_greater_bunches_are_closer_together() {
        let pairs =
            [Arrangement::Even, Arrangement::Random, bunches(12, 25), bunches(12, 50), bunches(36, 100)]
                .map(close_pairs);
        assert!(pairs.is_sorted() && pairs[0] == 0 && pairs[4] > pairs[1], "{pairs:?}");
    }

    #[test]
    fn ticks_are_at_equal_distances() {
        let mut random = random_stream(1, Stream::Arrivals);
        let places = Arrangement::Ticks(10).places(50, 15.0, &mut random);
        for (i, place) in (0_u32..).zip(&places) {
            let tick = (f64::from(i / 10) + 0.5) / 5.0;
            assert!((place - tick).abs() < 0.01, "{places:?}");
        }
    }
}
