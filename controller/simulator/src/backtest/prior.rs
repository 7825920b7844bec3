//! What the counters say of the times of a step, without a simulation: where the fit starts, and what it stays near to.

use super::fit::PARAMETERS;
use super::history::{Cell, History};
use super::steps::{StepTimes, regress};
use crate::fleet::engine::Engine;

/// Residual of a time that is off from the regression by its error.
const WEIGHT: f64 = 0.05;

/// Times of a step with their errors.
pub(super) struct Prior {
    times: StepTimes,
    /// Errors of the times, by their logarithm: of the fixed time, of a sequence, of a prompt token, of a cached token.
    errors: [f64; PARAMETERS],
    /// Tokens that a sequence has in the cache, the mean.
    length: f64,
    /// Time of a cached token that is assumed: its effect is that of a sequence if all are about as long.
    per_cached_token: f64,
}

impl Prior {
    pub(super) fn new(history: &History, guess: &Engine) -> Option<Self> {
        let times = regress(&history.points)?;
        let sum = |value: fn(&Cell) -> f32| history.cells.iter().map(|c| f64::from(value(c))).sum::<f64>();
        let requests = sum(|c| c.first_tokens).max(1.0);
        let length = (sum(|c| c.prompt_tokens) + 0.5 * sum(|c| c.generated)) / requests;
        let (prompt, share) = (sum(|c| c.prompt_tokens) / requests, times.prompt_share);
        let errors = [
            0.03,
            // Sequences wait for prompts, long ones over several steps.
            0.1 + 0.8 * share + prompt / 8000.0,
            // Long prompts span scrapes, and few of them hide in the other times.
            0.15 + prompt / 20_000.0 + 0.02 / share.max(0.001),
            1.0,
        ];
        Some(Self { times, errors, length, per_cached_token: guess.per_cached_token })
    }

    pub(super) fn engine(&self, guess: Engine) -> Engine {
        let StepTimes { step, per_sequence, per_prompt_token, .. } = self.times;
        let per_sequence = (per_sequence - self.length * self.per_cached_token).max(0.2 * per_sequence);
        Engine { step, per_sequence, per_prompt_token, ..guess }
    }

    pub(super) fn residual(&self, engine: &Engine) -> [f64; PARAMETERS] {
        let StepTimes { step, per_sequence, per_prompt_token, .. } = self.times;
        let off = [
            engine.step / step,
            (engine.per_sequence + self.length * engine.per_cached_token) / per_sequence,
            engine.per_prompt_token / per_prompt_token,
            engine.per_cached_token / self.per_cached_token,
        ];
        std::array::from_fn(|i| WEIGHT * off[i].ln() / self.errors[i])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::steps::Point;
    use crate::scenario::engines::QWEN3_32B_H100;

    /// 1,000 prompt tokens and 200 generated ones a request, on this engine.
    fn history(engine: &Engine) -> History {
        let cell = Cell { first_tokens: 1.0, prompt_tokens: 1000.0, generated: 200.0, ..Cell::default() };
        let point = |i: u16| {
            let (sequences, prompts) = (f64::from(1 + i % 19), f64::from(i % 7) * 500.0);
            let cached = 1100.0 * sequences * engine.per_cached_token;
            let without = engine.step + sequences * engine.per_sequence + cached;
            let gap = without / (1.0 - engine.per_prompt_token * prompts / 15.0);
            #[expect(clippy::cast_possible_truncation, reason = "as the counters are kept")]
            let row = [gap, sequences, prompts, 15.0 * sequences / gap].map(|value| value as f32);
            Point::from(row)
        };
        History { cells: vec![cell; 10], points: (0..300).map(point).collect(), ..History::default() }
    }

    #[test]
    fn the_engine_of_the_counters_is_the_real_one() {
        let real = QWEN3_32B_H100;
        let prior = Prior::new(&history(&real), &real).unwrap();
        let engine = prior.engine(Engine { step: 1.0, per_prompt_token: 1.0, ..real });
        for (own, real) in [
            (engine.step, real.step),
            (engine.per_sequence, real.per_sequence),
            (engine.per_prompt_token, real.per_prompt_token),
        ] {
            assert!((own / real - 1.0).abs() < 0.05, "{engine:?}");
        }
        let off = |engine: Engine| prior.residual(&engine).iter().map(|r| r * r).sum::<f64>();
        assert!(off(engine) < off(engine.slowed_by(1.1)) && off(engine) < off(engine.slowed_by(0.9)));
    }
}
