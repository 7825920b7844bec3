//! Floor under the need of a model whose requests come in recurring bursts. A mean over a minute hides a burst of five
//! seconds, and replicas start more slowly, so replicas for the next burst stay.
//!
//! Bursts are steps of 15 s rougher than chance makes them: mean square of successive differences by the variance of a
//! Poisson count (von Neumann's ratio). Where first tokens are measured, bursts count only while requests are late.

use super::arrivals::STEP;
use crate::snapshot::Lateness;
use crate::units::{count, to_finite, to_u32};

/// Two minutes.
const MIN_STEPS: usize = 8;
/// The greatest changes do not count: a step of the load has one or two.
const SINGLE_CHANGES: usize = 4;
/// Von Neumann's ratio from which on arrivals are bursts. Poisson arrivals have 1.
const BURST_ROUGHNESS: f64 = 6.0;
/// Interval between scrapes beyond which many steps of 15 s have no scrape of their own, seconds.
const LONG_INTERVAL: f64 = 1.4 * STEP;
/// Standard deviations of a Poisson count that are chance.
const CHANCE_DEVIATIONS: f64 = 2.0;
/// Prompts of a step are computed in `STEP / PROMPT_URGENCY` seconds.
const PROMPT_URGENCY: f64 = 1.5;
/// The floor starts at this share of late requests.
const LATE_SHARE_ON: f64 = 0.01;
/// The floor ends below this share. Less than half of the start, because the floor itself lowers the share.
const LATE_SHARE_OFF: f64 = LATE_SHARE_ON / 4.0;

/// How requests occupy a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Occupancy {
    /// Time from the first token to the last.
    pub(super) decode_seconds: f64,
    /// Share of the engine's work for prompts, 0 to 1.
    pub(super) prompt_share: f64,
}

impl Occupancy {
    /// Requests per second that the fleet must be able to serve for the last one of these steps: short prompts at once,
    /// tokens over the stay of a request.
    pub(super) fn need(self, steps: &[f64]) -> f64 {
        let width = self.width(STEP, steps.len());
        let tokens = steps[steps.len() - width..].iter().sum::<f64>() / (count(width) * STEP);
        let prompts = PROMPT_URGENCY * steps.last().copied().unwrap_or_default() / STEP;
        to_finite(self.weighed(prompts, tokens))
    }

    /// Steps that a request stays: one that runs for a minute occupies its place in four.
    fn width(self, length: f64, steps: usize) -> usize {
        (to_u32((self.decode_seconds / length).ceil()) as usize).clamp(1, steps.max(1)).min(steps)
    }

    fn weighed(self, prompts: f64, tokens: f64) -> f64 {
        tokens.max(prompts * self.prompt_share + tokens * (1.0 - self.prompt_share))
    }
}

/// `before`: the floor applied in the last cycle.
pub(super) fn has_burst_floor(lateness: Option<Lateness>, before: bool) -> bool {
    let share = lateness.and_then(Lateness::share);
    share.is_none_or(|share| share >= if before { LATE_SHARE_OFF } else { LATE_SHARE_ON })
}

/// Requests per second to keep replicas for; 0: no recurring bursts. `steps`: arrivals, oldest first. Between scrapes that
/// are `interval` seconds apart, arrivals are spread evenly, so a burst shows only in longer steps.
pub(super) fn burst_floor(steps: &[f64], interval: f64, occupancy: Occupancy) -> f64 {
    if interval > LONG_INTERVAL {
        let pairs = steps.rchunks_exact(2).rev().map(|pair| pair.iter().sum()).collect::<Vec<f64>>();
        return floor_of(&pairs, 2.0 * STEP, occupancy);
    }
    floor_of(steps, STEP, occupancy)
}

/// `length` of a step in seconds.
fn floor_of(steps: &[f64], length: f64, occupancy: Occupancy) -> f64 {
    if steps.len() < MIN_STEPS || roughness(steps) < BURST_ROUGHNESS {
        return 0.0;
    }
    let greatest = |width: usize| {
        let sums = steps.windows(width).map(|window| above_chance(window.iter().sum()));
        sums.fold(0.0, f64::max) / (count(width) * length)
    };
    let (prompts, tokens) = (PROMPT_URGENCY * greatest(1), greatest(occupancy.width(length, steps.len())));
    to_finite(occupancy.weighed(prompts, tokens))
}

fn above_chance(requests: f64) -> f64 {
    (requests - CHANCE_DEVIATIONS * requests.max(0.0).sqrt()).max(0.0)
}

fn roughness(steps: &[f64]) -> f64 {
    let mut squares: Vec<f64> = steps.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).collect();
    squares.sort_by(f64::total_cmp);
    squares.truncate(squares.len().saturating_sub(SINGLE_CHANGES));
    let mean = steps.iter().sum::<f64>() / count(steps.len());
    squares.iter().sum::<f64>() / (2.0 * count(squares.len().max(1)) * mean.max(0.25))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::amount;

    const SHORT: Occupancy = Occupancy { decode_seconds: 5.0, prompt_share: 1.0 };

    /// A burst of so many requests in every fourth step.
    fn bursts(requests: f64) -> Vec<f64> {
        (0..20).map(|i| if i % 4 == 0 { requests } else { 0.0 }).collect()
    }

    #[test]
    fn keeps_replicas_for_recurring_bursts() {
        // 100 less two deviations of 10, in ten seconds.
        assert!((burst_floor(&bursts(100.0), STEP, SHORT) - 8.0).abs() < 1e-9);
        let no_prompts = Occupancy { prompt_share: 0.0, ..SHORT };
        assert!((burst_floor(&bursts(100.0), STEP, no_prompts) - 80.0 / 15.0).abs() < 1e-9);
    }

    #[test]
    fn spreads_long_requests_over_their_stay() {
        let long = Occupancy { decode_seconds: 60.0, prompt_share: 0.0 };
        assert!((burst_floor(&bursts(100.0), STEP, long) - 80.0 / 60.0).abs() < 1e-9);
    }

    #[test]
    fn ignores_steps_ramps_and_noise() {
        let step: Vec<f64> = (0..20).map(|i| if i < 10 { 15.0 } else { 60.0 }).collect();
        let ramp: Vec<f64> = (0..20).map(|i| 3.0 * f64::from(i)).collect();
        let noise: Vec<f64> = (0..20).map(|i| 40.0 + [0.0, 6.0, -7.0, 5.0, -4.0][i % 5]).collect();
        for steps in [step, ramp, noise, vec![0.0; 20], bursts(100.0)[..7].to_vec()] {
            assert!(burst_floor(&steps, STEP, SHORT).abs() < 1e-9, "{steps:?}");
        }
    }

    #[test]
    fn counts_only_while_requests_are_late() {
        let late = |share: f64| Some(Lateness { requests: amount(1000.0), late: amount(1000.0 * share) });
        let few = Some(Lateness { requests: amount(99.0), late: amount(0.0) });
        for (lateness, before, wanted) in [
            (None, false, true),
            (few, false, true),
            (late(0.009), false, false),
            (late(0.01), false, true),
            (late(0.003), true, true),
            (late(0.002), true, false),
        ] {
            assert_eq!(has_burst_floor(lateness, before), wanted, "{lateness:?} {before}");
        }
    }
}
