//! Fit of the engine: the times of a step with which a simulation of the replicas that ran shows the measured latencies,
//! found by least squares over hours of different load. Bursts and a slow engine look alike in the latencies, so each
//! arrangement of the requests has a fit of its own, near to what the counters say of the steps.

use std::ops::Range;
use std::sync::Arc;

use super::WINDOW;
use super::arrangement::{ARRANGEMENTS, Arrangement};
use super::history::History;
use super::prior::Prior;
use super::ran;
use super::requests::Drawer;
use super::shares::Shares;
use super::steps::eliminate;
use crate::fleet::engine::{Engine, StepTokens, to_f64};
use crate::fleet::server::Request;
use crate::measure::Objectives;
use crate::study::run_on_all_cores;

/// Assumptions about the engine that no series shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// `--max-num-seqs`, if known.
    pub max_seqs: Option<usize>,
    /// `--max-num-batched-tokens`.
    pub max_batched_tokens: u64,
}

/// An engine that fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The engine.
    pub engine: Engine,
    /// Arrangement of the requests that fits best over the fitted hours.
    pub arrangement: Arrangement,
    /// Root of the mean squared residual.
    pub residual: f64,
}

/// vLLM's default in its online server.
const MAX_SEQS: usize = 256;
/// KV cache of an engine that does not export its size, tokens.
const KV_TOKENS: f64 = 270_000.0;
/// Parts of the history that are simulated for the fit, and the most requests of each.
const BLOCKS: usize = 4;
const BLOCK_REQUESTS: f64 = 12_000.0;
const FEWEST_REQUESTS: f64 = 50.0;
const ITERATIONS: usize = 12;
/// Steps that are tried in an iteration, each shorter than the one before.
const RETRIES: usize = 4;
/// Weight of the mean time between tokens, by its logarithm.
const GAP_WEIGHT: f64 = 3.0;
/// Residuals beyond it hardly grow: an hour of overload is another one with each draw of the requests.
const CLIP: f64 = 0.15;
/// A fit whose residual is greater than the least by no more than this factor fits as well.
const AS_WELL: f64 = 1.15;
/// Relative error of the times of a step, of the best fit.
pub const FIT_ERROR: f64 = 0.03;
/// Fits that are kept.
const MOST_FITS: usize = 4;

/// Engines that fit a history, the best first: each with its arrangement of the requests. The others fit as well, so they
/// tell how far the figures of the first can be trusted. Empty: no hour has requests with a measured first token.
#[must_use]
pub fn fit(history: &History, limits: Limits) -> Vec<Fit> {
    let blocks = blocks(history);
    if blocks.is_empty() {
        return Vec::new();
    }
    let drawer = Drawer::new(history);
    let start = first_guess(history, limits, &blocks);
    let prior = Prior::new(history, &start);
    let problem = Problem { history, drawer: &drawer, blocks: &blocks, prior };
    let start = problem.prior.as_ref().map_or(start, |prior| prior.engine(start));
    let mut fits = run_on_all_cores(&ARRANGEMENTS, |arrangement| problem.minimize(start, *arrangement));
    fits.sort_by(|a, b| a.residual.total_cmp(&b.residual));
    let bound = AS_WELL * fits.first().map_or(0.0, |fit| fit.residual);
    fits.retain(|fit| fit.residual <= bound);
    fits.truncate(MOST_FITS);
    fits
}

/// Hours from the least to the most requests for each replica.
fn blocks(history: &History) -> Vec<Range<usize>> {
    let windows_of_hour = (super::HOUR / WINDOW) as usize;
    let count = history.window_count();
    let cells = history.cells_of_window();
    let mut hours: Vec<(f64, Range<usize>)> = Vec::new();
    for first in (0..count).step_by(windows_of_hour) {
        let mut block = first..(first + windows_of_hour).min(count);
        let sum = |block: &Range<usize>, value: fn(&super::history::Cell) -> f32| -> f64 {
            let own = history.cells.iter().take(block.end * cells).skip(block.start * cells);
            own.map(|cell| f64::from(value(cell))).sum()
        };
        let requests = sum(&block, |c| c.arrivals);
        let has_gap = sum(&block, |c| c.missing) > 0.0;
        if requests < FEWEST_REQUESTS
            || has_gap
            || Shares::new(&history.windows.ttft, block.clone()).is_none()
        {
            continue;
        }
        let load = requests / sum(&block, |c| c.replicas).max(1e-9);
        while block.len() > 2 && sum(&block, |c| c.arrivals) > BLOCK_REQUESTS {
            block.end -= 1;
        }
        hours.push((load, block));
    }
    hours.sort_by(|a, b| a.0.total_cmp(&b.0));
    let last = hours.len().saturating_sub(1);
    let mut chosen: Vec<usize> = (0..BLOCKS).map(|i| i * last / (BLOCKS - 1)).collect();
    chosen.dedup();
    let mut blocks: Vec<Range<usize>> =
        chosen.into_iter().filter_map(|i| Some(hours.get(i)?.1.clone())).collect();
    // A single hour is split, so that its loads differ.
    if let [only] = &*blocks
        && only.len() >= 6
    {
        let third = only.len() / 3;
        let (start, end) = (only.start, only.end);
        blocks = vec![start..start + third, start + third..start + 2 * third, start + 2 * third..end];
    }
    blocks
}

fn first_guess(history: &History, limits: Limits, blocks: &[Range<usize>]) -> Engine {
    let windows = &history.windows;
    let gap = blocks.iter().filter_map(|block| windows.mean_gap(block)).fold(f64::INFINITY, f64::min);
    let gap = if gap.is_finite() { gap } else { 0.02 };
    let facts = &history.engine;
    let seen = |n: f64| to_count(n);
    let max_seqs = limits.max_seqs.unwrap_or_else(|| {
        if facts.ceiling_scrapes >= 10 && facts.most_running_while_waiting >= facts.most_running {
            seen(facts.most_running).max(1)
        } else {
            seen(facts.most_running).max(MAX_SEQS)
        }
    });
    let block_size = facts.block_size.unwrap_or(16.0).max(1.0);
    let blocks_of_cache = (facts.kv_tokens.unwrap_or(KV_TOKENS) / block_size).max(1.0);
    Engine {
        step: 0.8 * gap,
        per_sequence: 0.01 * gap,
        per_prompt_token: 0.000_06,
        per_cached_token: 0.2 * gap / KV_TOKENS,
        max_seqs,
        max_batched_tokens: limits.max_batched_tokens,
        block_size: seen(block_size) as u64,
        kv_blocks: seen(blocks_of_cache) as u64,
        prefix_hit_rate: 0.0,
        tokens: StepTokens::ONE,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn to_count(value: f64) -> usize {
    value.round() as usize
}

struct Problem<'a> {
    history: &'a History,
    drawer: &'a Drawer<'a>,
    blocks: &'a [Range<usize>],
    prior: Option<Prior>,
}

impl Problem<'_> {
    fn requests(&self, arrangement: Arrangement) -> Arc<[Request]> {
        self.drawer.draw(|_| arrangement, 1)
    }

    /// Differences of the simulated to the measured latencies.
    fn residual(&self, engine: Engine, requests: &Arc<[Request]>) -> Vec<f64> {
        let objectives = Objectives::default();
        let mut all = Vec::new();
        for block in self.blocks {
            let simulated = ran::simulate(self.history, engine, requests, objectives, block.clone()).windows;
            let measured = &self.history.windows;
            let gaps = simulated.mean_gap(block).zip(measured.mean_gap(block));
            all.push(gaps.map_or(0.0, |(own, real)| GAP_WEIGHT * (own / real).ln()));
            for (own, real) in
                [(&simulated.ttft, &measured.ttft), (&simulated.request_gap, &measured.request_gap)]
            {
                let both = Shares::new(own, block.clone()).zip(Shares::new(real, block.clone()));
                match both {
                    Some((own, real)) => all.extend(own.differences(&real)),
                    None => all.extend(std::iter::repeat_n(0.0, real.bounds.len())),
                }
            }
        }
        for residual in &mut all {
            *residual = CLIP * (*residual / CLIP).tanh();
        }
        all.extend(self.prior.iter().flat_map(|prior| prior.residual(&engine)));
        all
    }

    /// Gauss-Newton with damping over the logarithms of the times.
    fn minimize(&self, start: Engine, arrangement: Arrangement) -> Fit {
        let requests = self.requests(arrangement);
        let mut engine = start;
        let mut residual = self.residual(engine, &requests);
        let mut damping = 0.1;
        for _ in 0..ITERATIONS {
            let column = |i: usize| -> Vec<f64> {
                let mut by = [0.0; PARAMETERS];
                by[i] = DIFFERENCE;
                let moved = self.residual(changed(engine, by), &requests);
                moved.iter().zip(&residual).map(|(moved, own)| (moved - own) / DIFFERENCE).collect()
            };
            let columns: Vec<Vec<f64>> = (0..PARAMETERS).map(column).collect();
            let before = norm(&residual);
            let mut better = None;
            for _ in 0..RETRIES {
                let Some(step) = newton_step(&columns, &residual, damping) else { break };
                let tried = changed(engine, step.map(|s| s.clamp(-1.0, 1.0)));
                let next = self.residual(tried, &requests);
                if norm(&next) < before {
                    better = Some((tried, next));
                    damping /= 4.0;
                    break;
                }
                damping *= 8.0;
            }
            let Some(next) = better else { break };
            (engine, residual) = next;
            if norm(&residual) > 0.99 * before {
                break;
            }
        }
        Fit { engine, arrangement, residual: norm(&residual) }
    }
}

/// Times of a step that are fitted.
pub(super) const PARAMETERS: usize = 4;
/// Step of the numeric derivative of a logarithm.
const DIFFERENCE: f64 = 0.15;

fn changed(engine: Engine, by: [f64; PARAMETERS]) -> Engine {
    Engine {
        step: engine.step * by[0].exp(),
        per_sequence: engine.per_sequence * by[1].exp(),
        per_prompt_token: engine.per_prompt_token * by[2].exp(),
        per_cached_token: engine.per_cached_token * by[3].exp(),
        ..engine
    }
}

fn norm(residual: &[f64]) -> f64 {
    let sum: f64 = residual.iter().map(|r| r * r).sum();
    (sum / to_f64(residual.len().max(1) as u64)).sqrt()
}

/// Solves `(J'J + damping * diag) x = -J'r`. `columns`: of J.
fn newton_step(columns: &[Vec<f64>], residual: &[f64], damping: f64) -> Option<[f64; PARAMETERS]> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut rows = [[0.0; PARAMETERS + 1]; PARAMETERS];
    for i in 0..PARAMETERS {
        for j in 0..PARAMETERS {
            rows[i][j] = dot(&columns[i], &columns[j]);
        }
        rows[i][i] += damping * rows[i][i] + 1e-4;
        rows[i][PARAMETERS] = -dot(&columns[i], residual);
    }
    eliminate(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newton_step_solves_a_linear_problem() {
        let columns =
            vec![vec![1.0, 0.0, 0.0, 1.0], vec![0.0, 2.0, 0.0, 0.0], vec![0.0, 0.0, 3.0, 1.0], vec![0.0; 4]];
        let residual = [-1.0, -4.0, -9.0, -4.0];
        let step = newton_step(&columns, &residual, 0.0).unwrap();
        for (got, want) in step.iter().zip([1.0, 2.0, 3.0]) {
            assert!((got - want).abs() < 1e-2, "{step:?}");
        }
        assert_eq!(newton_step(&vec![vec![f64::NAN]; 4], &[1.0], 0.0), None);
    }
}
