//! Quantiles of millions of times in a few kilobytes, right within 1 %: each bucket is 1 % wider than the one before.

/// Seconds; smallest time with a bucket of its own.
const SMALLEST: f64 = 1e-4;
/// Ratio of the widths of two neighbouring buckets.
const WIDTH: f64 = 1.01;
/// The last bucket reaches a day.
const BUCKETS: usize = 2070;

/// Times in seconds, by bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    buckets: Vec<u32>,
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0 }
    }
}

impl Histogram {
    /// Adds a time.
    pub fn add(&mut self, seconds: f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let bucket = ((seconds / SMALLEST).ln() / WIDTH.ln()).max(0.0) as usize;
        self.buckets[bucket.min(BUCKETS - 1)] += 1;
        self.count += 1;
    }

    /// Seconds; NaN if empty.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let rank = share * crate::fleet::engine::to_f64(self.count);
        let mut counted = 0.0;
        for (i, count) in (0_u32..).zip(&self.buckets) {
            counted += f64::from(*count);
            if *count > 0 && counted >= rank {
                return SMALLEST * WIDTH.powf(f64::from(i) + 0.5);
            }
        }
        f64::NAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_bucket() {
        let mut histogram = Histogram::default();
        for i in 1..=10_000_u32 {
            histogram.add(f64::from(i) / 1000.0);
        }
        for share in [0.01, 0.5, 0.99, 1.0] {
            let got = histogram.quantile(share);
            assert!((got / (10.0 * share) - 1.0).abs() < 0.01, "{share}: {got}");
        }
        assert!(Histogram::default().quantile(0.5).is_nan());
        let mut extremes = Histogram::default();
        extremes.add(0.0);
        extremes.add(1e9);
        assert_eq!(extremes.count, 2);
    }
}
