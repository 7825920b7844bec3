//! Random numbers by seed. Each use has its own stream, so a policy that starts more replicas does not change the
//! requests.

use rand::SeedableRng;
use rand_distr::{Distribution, Gamma, LogNormal};
use rand_pcg::Pcg64Mcg;

/// Use of a stream of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Arrival times of requests.
    Arrivals = 1,
    /// Lengths of requests.
    Lengths = 2,
    /// Start times and failures of replicas.
    Replicas = 3,
    /// Resamples for confidence intervals.
    Resampling = 4,
    /// Lost and late scrapes.
    Scrapes = 5,
    /// Retries of clients.
    Clients = 6,
}

/// The random numbers of a seed for one use.
#[must_use]
pub fn random_stream(seed: u64, purpose: Stream) -> Pcg64Mcg {
    // The golden ratio spreads neighbouring seeds over all bits.
    Pcg64Mcg::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ purpose as u64)
}

/// Positive quantity; with a coefficient of variation of 0 it is constant.
#[derive(Clone, Copy, Debug)]
pub struct RandomQuantity {
    mean: f64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Constant,
    Gamma(Gamma<f64>),
    LogNormal(LogNormal<f64>),
}

impl RandomQuantity {
    /// Time between events; at 1 a Poisson process.
    #[must_use]
    pub fn gamma(mean: f64, cv: f64) -> Self {
        let shape = 1.0 / (cv * cv);
        Self { mean, kind: Gamma::new(shape, mean / shape).map_or(Kind::Constant, Kind::Gamma) }
    }

    /// Length or start time, with a long tail.
    #[must_use]
    pub fn log_normal(mean: f64, cv: f64) -> Self {
        let kind = if cv > 0.0 {
            LogNormal::from_mean_cv(mean, cv).map_or(Kind::Constant, Kind::LogNormal)
        } else {
            Kind::Constant
        };
        Self { mean, kind }
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// One draw.
    pub fn draw(&self, random: &mut Pcg64Mcg) -> f64 {
        match self.kind {
            Kind::Constant => self.mean,
            Kind::Gamma(gamma) => gamma.sample(random),
            Kind::LogNormal(log_normal) => log_normal.sample(random),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_mean_and_the_variation_asked_for() {
        let mut random = random_stream(1, Stream::Lengths);
        for (what, varying, cv) in [
            ("constant", RandomQuantity::log_normal(7.0, 0.0), 0.0),
            ("no variation between events", RandomQuantity::gamma(7.0, 0.0), 0.0),
            ("Poisson", RandomQuantity::gamma(7.0, 1.0), 1.0),
            ("bursts", RandomQuantity::gamma(7.0, 3.0), 3.0),
            ("lengths", RandomQuantity::log_normal(7.0, 0.8), 0.8),
        ] {
            let draws: Vec<f64> = (0..400_000).map(|_| varying.draw(&mut random)).collect();
            let n = 400_000.0;
            let mean = draws.iter().sum::<f64>() / n;
            let variance = draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / n;
            assert!((mean / 7.0 - 1.0).abs() < 0.02, "{what}: mean {mean}");
            assert!(
                (variance.sqrt() / mean - cv).abs() < 0.03 * cv.max(0.1),
                "{what}: {}",
                variance.sqrt() / mean
            );
        }
    }

    #[test]
    fn a_seed_fixes_each_stream_and_streams_differ() {
        let draw =
            |seed, which| RandomQuantity::gamma(1.0, 1.0).draw(&mut random_stream(seed, which)).to_bits();
        assert_eq!(draw(5, Stream::Arrivals), draw(5, Stream::Arrivals));
        assert_ne!(draw(5, Stream::Arrivals), draw(5, Stream::Lengths));
        assert_ne!(draw(5, Stream::Arrivals), draw(6, Stream::Arrivals));
    }
}
