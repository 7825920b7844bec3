//! Steps of an engine that are computed at once. Each step takes a little longer than the one before, because the cache
//! grows.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Batch {
    /// Start of the first step.
    pub began: f64,
    /// Number of steps, at least 1.
    pub steps: u64,
    /// Prompt tokens; above 0 only for a single step.
    pub prompt_tokens: u64,
    /// Time of the first step, above 0.
    pub first: f64,
    /// Growth of each step over the step before, at least 0.
    pub growth: f64,
}

impl Batch {
    /// End of the last step.
    pub(super) fn end(&self) -> f64 {
        let n = super::engine::to_f64(self.steps);
        self.began + n * self.first + self.growth * n * (n - 1.0) / 2.0
    }

    /// Root of the sum of the steps' times.
    fn steps_done(&self, now: f64) -> f64 {
        let elapsed = (now - self.began).max(0.0);
        let linear = self.first - self.growth / 2.0;
        // This form of the root holds without growth, too.
        2.0 * elapsed / (linear + (linear * linear + 2.0 * self.growth * elapsed).sqrt())
    }

    /// Whole steps done at a time.
    pub(super) fn whole_steps(&self, now: f64) -> u64 {
        to_count(self.steps_done(now) + ROUNDING).min(self.steps)
    }

    /// The step under way is the last one.
    pub(super) fn end_after_current_step(&mut self, now: f64) {
        self.steps = to_count((self.steps_done(now) - ROUNDING).ceil()).clamp(1, self.steps);
    }
}

/// Share of a step by which the computed end of a step may differ.
const ROUNDING: f64 = 1e-6;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "steps are few and not negative")]
fn to_count(steps: f64) -> u64 {
    steps as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_at_and_between_their_ends() {
        for growth in [0.0, 1e-6, 0.001] {
            let batch = Batch { began: 5.0, steps: 100, prompt_tokens: 0, first: 0.02, growth };
            for k in 1..=100 {
                let end = Batch { steps: k, ..batch }.end();
                assert_eq!(batch.whole_steps(end), k, "at the end of step {k}");
                assert_eq!(batch.whole_steps(end - 0.005), k - 1, "in step {k}");
                let mut short = batch;
                short.end_after_current_step(end - 0.005);
                assert_eq!(short.steps, k, "the step under way is finished");
                short = batch;
                short.end_after_current_step(end);
                assert_eq!(short.steps, k, "no further one is begun");
            }
        }
    }
}
