//! Latency histograms of an emulated pod, with vLLM's buckets. Counts are fractional, as in the queueing model.

/// Bounds of the time to first token, in seconds.
static FIRST_TOKEN_BOUNDS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
/// Bounds of the time between two tokens, in seconds.
static GAP_BOUNDS: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];

/// Both histograms of a pod.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Latencies {
    pub(super) first_tokens: Histogram<22>,
    pub(super) gaps: Histogram<19>,
}

impl Default for Latencies {
    fn default() -> Self {
        let first_tokens = Histogram { bounds: &FIRST_TOKEN_BOUNDS, counts: [0.0; 22], above: 0.0, sum: 0.0 };
        let gaps = Histogram { bounds: &GAP_BOUNDS, counts: [0.0; 19], above: 0.0, sum: 0.0 };
        Self { first_tokens, gaps }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Histogram<const N: usize> {
    /// Seconds.
    bounds: &'static [f64; N],
    counts: [f64; N],
    /// Observations above the last bound.
    above: f64,
    /// Seconds of all observations.
    sum: f64,
}

impl<const N: usize> Histogram<N> {
    /// Adds so many observations of one latency in seconds.
    pub(super) fn observe(&mut self, seconds: f64, count: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        *self.counts.get_mut(bucket).unwrap_or(&mut self.above) += count;
        self.sum += seconds * count;
    }

    /// Seconds of all observations.
    pub(super) fn sum(&self) -> f64 {
        self.sum
    }

    /// Number of observations.
    pub(super) fn count(&self) -> f64 {
        self.counts.iter().sum::<f64>() + self.above
    }

    /// Values of the label `le`, each with the observations up to it.
    pub(super) fn buckets(&self) -> Vec<(String, f64)> {
        // Debug writes 1 as 1.0, as vLLM does.
        let bounds = self.bounds.iter().map(|bound| format!("{bound:?}")).chain(["+Inf".to_owned()]);
        let mut sum = 0.0;
        let counts = self.counts.iter().chain([&self.above]).map(|count| {
            sum += count;
            sum
        });
        bounds.zip(counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let mut gaps = Latencies::default().gaps;
        for (seconds, count) in [(0.025, 1.0), (0.015, 2.0), (100.0, 4.0)] {
            gaps.observe(seconds, count);
        }
        let found = gaps.buckets();
        let of = |le: &str| found.iter().find(|(bound, _)| bound == le).map(|(_, count)| *count);
        assert_eq!(
            [of("0.01"), of("0.025"), of("80.0"), of("+Inf")],
            [Some(0.0), Some(3.0), Some(3.0), Some(7.0)]
        );
        assert!((gaps.sum() - 400.055).abs() < 1e-9 && (gaps.count() - 7.0).abs() < 1e-9, "{gaps:?}");
    }
}
