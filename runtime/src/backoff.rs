//! Delays between retries.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// Delays double from `first` to `longest`.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    delays: ExponentialBackoff,
}

impl Backoff {
    /// Starts with `first`.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, delays: delays(first, longest) }
    }

    /// Delay before the next retry.
    pub fn next_delay(&mut self) -> Duration {
        self.delays.next().unwrap_or(self.longest)
    }

    /// Starts again at the first delay, after a success.
    pub fn reset(&mut self) {
        self.delays = delays(self.first, self.longest);
    }
}

fn delays(first: Duration, longest: Duration) -> ExponentialBackoff {
    let builder = ExponentialBuilder::new().with_min_delay(first).with_max_delay(longest);
    builder.with_factor(2.0).without_max_times().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_longest_until_reset() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let next = |backoff: &mut Backoff| backoff.next_delay().as_secs();
        assert_eq!([(); 5].map(|()| next(&mut backoff)), [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!([(); 2].map(|()| next(&mut backoff)), [1, 2]);
    }
}
