//! Arrangement of requests within a cell. A scrape says how many requests arrived, not when within the interval: the
//! candidates go from evenly spaced to bunched, and the measured latencies decide between them.

use rand_distr::{Distribution, StandardUniform};
use rand_pcg::Pcg64Mcg;

/// Arrangement of the requests of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arrangement {
    /// At equal distances.
    Even,
    /// At random times, independent of each other.
    Random,
    /// In bunches of this many requests at random times.
    Bunches(u16),
    /// All at once.
    AtOnce,
}

/// Candidates, from the smoothest to the burstiest.
pub const ARRANGEMENTS: [Arrangement; 6] = [
    Arrangement::Even,
    Arrangement::Random,
    Arrangement::Bunches(3),
    Arrangement::Bunches(8),
    Arrangement::Bunches(24),
    Arrangement::AtOnce,
];

impl std::fmt::Display for Arrangement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Even => f.write_str("evenly spaced"),
            Self::Random => f.write_str("at random times"),
            Self::Bunches(size) => write!(f, "in bunches of {size}"),
            Self::AtOnce => f.write_str("all at once"),
        }
    }
}

/// Seconds over which a bunch arrives.
const BUNCH: f64 = 0.2;

impl Arrangement {
    /// Times of `count` requests within a cell, as shares of it, in order. `step`: length of the cell, seconds.
    pub fn places(self, count: u32, step: f64, random: &mut Pcg64Mcg) -> Vec<f64> {
        let mut uniform = || -> f64 { StandardUniform.sample(random) };
        let mut bunched = |bunches: u32| -> Vec<f64> {
            let width = (BUNCH / step).min(1.0);
            let centers: Vec<f64> = (0..bunches.max(1)).map(|_| uniform() * (1.0 - width)).collect();
            let mut place = || {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "below the length"
                )]
                let bunch = (uniform() * f64::from(bunches.max(1))) as usize;
                centers[bunch.min(centers.len() - 1)] + width * uniform()
            };
            (0..count).map(|_| place()).collect()
        };
        let mut places = match self {
            Self::Even => (0..count).map(|i| (f64::from(i) + 0.5) / f64::from(count)).collect(),
            Self::Random => (0..count).map(|_| uniform()).collect(),
            Self::Bunches(size) => bunched(count.div_ceil(u32::from(size.max(1)))),
            Self::AtOnce => bunched(1),
        };
        places.sort_by(f64::total_cmp);
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Stream, random_stream};

    #[test]
    fn places_are_within_the_cell_and_ever_closer_together() {
        let mut random = random_stream(1, Stream::Arrivals);
        let mut widths = Vec::new();
        for arrangement in ARRANGEMENTS {
            let places = arrangement.places(100, 15.0, &mut random);
            assert_eq!(places.len(), 100, "{arrangement}");
            assert!(places.iter().all(|place| (0.0..=1.0).contains(place)), "{arrangement}");
            // Pairs of neighbours that are closer than a tenth of the mean distance.
            widths.push(places.windows(2).filter(|pair| pair[1] - pair[0] < 0.001).count());
        }
        assert!(widths.is_sorted(), "{widths:?}");
        assert!(Arrangement::AtOnce.places(0, 15.0, &mut random).is_empty());
    }
}
