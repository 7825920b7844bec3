//! Histogram of the times between two tokens of the emulated server.

use wva_simulator::fleet::server::Counters;

/// vLLM's buckets of the time between two tokens, in seconds.
pub(super) const BOUNDS: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];

/// Gaps by bucket, from counters of the server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GapHistogram {
    /// Gaps of each bucket. The last bucket has no upper bound.
    buckets: [u64; BOUNDS.len() + 1],
    count: u64,
    seconds: f64,
}

impl GapHistogram {
    /// Adds the gaps since the last call. All steps of a batch take the same time.
    pub(super) fn update(&mut self, counters: &Counters) {
        let new = counters.gaps.saturating_sub(self.count);
        if new > 0 {
            #[expect(clippy::cast_precision_loss, reason = "no count of an emulated server comes near 2^53")]
            let each = (counters.gap_seconds - self.seconds) / new as f64;
            self.buckets[BOUNDS.partition_point(|bound| *bound < each)] += new;
        }
        (self.count, self.seconds) = (counters.gaps, counters.gap_seconds);
    }

    /// Upper bounds with the gaps up to each. The last bound, infinity, is left out.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let counts = self.buckets.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        BOUNDS.into_iter().zip(counts)
    }
}
