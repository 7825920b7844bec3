//! Steps of an engine as the counters of its pods show them: between two scrapes, the mean time between tokens, the
//! sequences in the batch, and the prompt tokens. A regression over them gives the times of a step without a simulation,
//! so neither queues nor the arrangement of the requests disturb it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a pod did between two scrapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "[f32; 4]", into = "[f32; 4]")]
#[schemars(with = "[f32; 4]")]
pub struct Point {
    /// Mean time between two tokens, seconds.
    pub gap: f32,
    /// Generating sequences, the mean over the time.
    pub sequences: f32,
    /// Prompt tokens.
    pub prompt_tokens: f32,
    /// Times between two tokens.
    pub gaps: f32,
}

impl From<[f32; 4]> for Point {
    fn from([gap, sequences, prompt_tokens, gaps]: [f32; 4]) -> Self {
        Self { gap, sequences, prompt_tokens, gaps }
    }
}

impl From<Point> for [f32; 4] {
    fn from(Point { gap, sequences, prompt_tokens, gaps }: Point) -> Self {
        [gap, sequences, prompt_tokens, gaps]
    }
}

/// Points that are kept of a chunk, at most: more do not change the regression.
pub const MOST_POINTS: usize = 1500;
/// Points with fewer tokens are chance.
pub const FEWEST_GAPS: f64 = 30.0;
/// Fewest points of a regression.
const FEWEST_POINTS: usize = 40;
/// Relative residual beyond which a point counts less.
const USUAL: f64 = 0.03;
const ROUNDS: usize = 20;
/// Scales of the unknowns, for the solution of the equations.
const SCALES: [f64; 3] = [0.02, 0.000_2, 0.000_06];

/// Times of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTimes {
    /// Fixed time, seconds.
    pub step: f64,
    /// Time of each sequence with the tokens that it has in the cache, seconds.
    pub per_sequence: f64,
    /// Time of each prompt token, seconds.
    pub per_prompt_token: f64,
    /// Share of the time between tokens in which prompts are computed, 0 to 1.
    pub prompt_share: f64,
}

/// Least squares with weights that follow the residuals. `None`: too few points, or loads that are all alike.
#[must_use]
pub fn regress(points: &[Point]) -> Option<StepTimes> {
    let rows: Vec<Row> = points.iter().filter_map(Row::new).collect();
    if rows.len() < FEWEST_POINTS {
        return None;
    }
    let mut weights: Vec<f64> = rows.iter().map(|row| row.weight).collect();
    let mut times = [0.0; 3];
    for _ in 0..ROUNDS {
        times = solve(&rows, &weights)?;
        for (row, weight) in rows.iter().zip(&mut weights) {
            *weight = row.weight_after(times);
        }
    }
    let [step, per_sequence, per_prompt_token] = times;
    let all: f64 = rows.iter().map(|row| row.weight * row.gap).sum();
    let prompts: f64 = rows.iter().map(|row| row.weight * row.known[2] * per_prompt_token).sum();
    let is_physical = step > 0.0 && per_sequence > 0.0 && per_prompt_token > 0.0;
    is_physical.then(|| StepTimes { step, per_sequence, per_prompt_token, prompt_share: prompts / all })
}

/// An equation: `gap = step + sequences * per_sequence + prompts * per_prompt_token`.
struct Row {
    gap: f64,
    known: [f64; 3],
    weight: f64,
}

impl Row {
    fn new(point: &Point) -> Option<Self> {
        let [gap, sequences, prompts, gaps] = <[f32; 4]>::from(*point).map(f64::from);
        let is_usable = gap > 0.0 && gaps >= FEWEST_GAPS && sequences > 0.0;
        is_usable.then(|| Self {
            gap,
            known: [1.0, sequences, sequences * prompts / gaps],
            weight: gaps.sqrt(),
        })
    }

    fn weight_after(&self, times: [f64; 3]) -> f64 {
        let expected: f64 = self.known.iter().zip(times).map(|(known, time)| known * time).sum();
        let residual = (self.gap / expected.max(1e-6)).ln().abs() / USUAL;
        self.weight / residual.max(1.0)
    }
}

fn solve(rows: &[Row], weights: &[f64]) -> Option<[f64; 3]> {
    let mut equations = [[0.0; 4]; 3];
    for (row, weight) in rows.iter().zip(weights) {
        // Errors are relative to the time.
        let weight = weight / (row.gap * row.gap);
        let known: [f64; 3] = std::array::from_fn(|i| row.known[i] * SCALES[i]);
        for (equation, own) in equations.iter_mut().zip(known) {
            for (cell, other) in equation.iter_mut().zip(known) {
                *cell += weight * own * other;
            }
            equation[3] += weight * own * row.gap;
        }
    }
    let solution = eliminate(equations)?;
    Some(std::array::from_fn(|i| solution[i] * SCALES[i]))
}

/// Gaussian elimination of a positive definite matrix. `None`: it is singular.
pub(super) fn eliminate<const N: usize, const M: usize>(mut rows: [[f64; M]; N]) -> Option<[f64; N]> {
    for i in 0..N {
        let pivot = rows[i][i];
        if pivot.is_nan() || pivot.abs() < 1e-12 {
            return None;
        }
        let own = rows[i];
        for (_, row) in rows.iter_mut().enumerate().filter(|(j, _)| *j != i) {
            let factor = row[i] / pivot;
            for (cell, own) in row.iter_mut().zip(own) {
                *cell -= factor * own;
            }
        }
    }
    let solution: [f64; N] = std::array::from_fn(|i| rows[i][N] / rows[i][i]);
    solution.iter().all(|x| x.is_finite()).then_some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(times: StepTimes) -> Vec<Point> {
        let point = |i: u16| {
            let (sequences, prompt_tokens) = (f32::from(1 + i % 23), f32::from(i % 7) * 400.0);
            // gap = step + n * seq + n * prompts / gaps * prompt, with gaps = 15 n / gap.
            let without = times.step + f64::from(sequences) * times.per_sequence;
            let gap = without / (1.0 - times.per_prompt_token * f64::from(prompt_tokens) / 15.0);
            #[expect(clippy::cast_possible_truncation, reason = "as the counters are kept")]
            let gap = gap as f32;
            Point { gap, sequences, prompt_tokens, gaps: 15.0 * sequences / gap }
        };
        (0..400).map(point).collect()
    }

    #[test]
    fn times_of_a_step_are_found() {
        let times =
            StepTimes { step: 0.017, per_sequence: 0.000_3, per_prompt_token: 0.000_06, prompt_share: 0.0 };
        let mut points = points(times);
        // Some pods stood still.
        for point in points.iter_mut().step_by(17) {
            point.gap *= 3.0;
        }
        let found = regress(&points).unwrap();
        for (own, real) in [
            (found.step, times.step),
            (found.per_sequence, times.per_sequence),
            (found.per_prompt_token, times.per_prompt_token),
        ] {
            assert!((own / real - 1.0).abs() < 0.02, "{found:?}");
        }
    }

    #[test]
    fn loads_that_are_all_alike_tell_nothing() {
        let point = Point { gap: 0.02, sequences: 4.0, prompt_tokens: 100.0, gaps: 3000.0 };
        assert_eq!(regress(&[point; 100]), None);
        assert_eq!(regress(&[point; 3]), None);
    }
}
