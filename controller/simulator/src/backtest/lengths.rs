//! Lengths of requests, drawn from the buckets of a histogram.

use rand_distr::{Distribution, StandardUniform};
use rand_pcg::Pcg64Mcg;

/// Lengths of a histogram, log-uniform within each bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Lengths {
    /// Ends of each bucket, and the share of the requests up to its upper end.
    buckets: Vec<Bucket>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    low: f64,
    high: f64,
    /// Share of this bucket and those before.
    cumulative: f64,
    share: f64,
}

/// The last bucket has no upper bound: it ends at this multiple of its lower one.
const OPEN: f64 = 2.0;

impl Lengths {
    /// `None` without requests. `counts`: by bucket, with one more than the bounds.
    #[must_use]
    pub fn new(bounds: &[f64], counts: &[f64]) -> Option<Self> {
        let total: f64 = counts.iter().sum();
        if total <= 0.0 || bounds.is_empty() {
            return None;
        }
        let mut cumulative = 0.0;
        let bucket = |(i, count): (usize, &f64)| {
            let below = i.checked_sub(1).and_then(|i| bounds.get(i)).copied().unwrap_or(0.0);
            let high = bounds.get(i).copied().unwrap_or(below * OPEN);
            let share = count.max(0.0) / total;
            cumulative += share;
            Bucket { low: (below + 1.0).min(high), high, cumulative, share }
        };
        Some(Self { buckets: counts.iter().enumerate().map(bucket).collect() })
    }

    /// Exponential lengths with this mean, for servers that have no histogram.
    #[must_use]
    pub fn exponential(mean: f64) -> Self {
        const BUCKETS: u32 = 40;
        let quantile = |i: u32| -(1.0 - f64::from(i) / f64::from(BUCKETS)).max(1e-3).ln() * mean;
        let bucket = |i: u32| Bucket {
            low: quantile(i).max(1.0),
            high: quantile(i + 1).max(1.0),
            cumulative: f64::from(i + 1) / f64::from(BUCKETS),
            share: 1.0 / f64::from(BUCKETS),
        };
        Self { buckets: (0..BUCKETS).map(bucket).collect() }
    }

    /// Mean of the draws.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.buckets.iter().map(|b| b.share * b.mean()).sum()
    }

    /// One length, tokens, at least 1.
    pub fn draw(&self, random: &mut Pcg64Mcg) -> f64 {
        let (share, place): (f64, f64) = (StandardUniform.sample(random), StandardUniform.sample(random));
        let i = self.buckets.partition_point(|bucket| bucket.cumulative < share);
        let last = self.buckets.len().saturating_sub(1);
        self.buckets.get(i.min(last)).map_or(1.0, |b| b.low * (b.high / b.low).powf(place)).max(1.0)
    }
}

impl Bucket {
    /// Mean of a log-uniform length.
    fn mean(&self) -> f64 {
        let ratio = self.high / self.low;
        if ratio > 1.0 + 1e-9 { (self.high - self.low) / ratio.ln() } else { self.low }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Stream, random_stream};

    #[test]
    fn draws_follow_the_buckets() {
        let lengths = Lengths::new(&[10.0, 100.0], &[30.0, 60.0, 10.0]).unwrap();
        let mut random = random_stream(1, Stream::Lengths);
        let draws: Vec<f64> = (0..100_000).map(|_| lengths.draw(&mut random)).collect();
        let share = |bound: f64| draws.iter().map(|d| f64::from(u8::from(*d <= bound))).sum::<f64>() / 1e5;
        assert!((share(10.0) - 0.3).abs() < 0.01 && (share(100.0) - 0.9).abs() < 0.01);
        assert!(draws.iter().all(|d| (1.0..=200.0).contains(d)));
        let mean = draws.iter().sum::<f64>() / 1e5;
        assert!((mean / lengths.mean() - 1.0).abs() < 0.02, "{mean} {}", lengths.mean());
    }

    #[test]
    fn without_a_histogram_lengths_are_exponential() {
        assert!((Lengths::exponential(300.0).mean() / 300.0 - 1.0).abs() < 0.05);
        assert_eq!(Lengths::new(&[10.0], &[0.0, 0.0]), None);
        assert_eq!(Lengths::new(&[], &[5.0]), None);
    }
}
