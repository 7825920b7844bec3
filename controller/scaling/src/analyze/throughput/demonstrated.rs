//! What replicas demonstrably do: a slow replica does not set the throughput of the others, the planned throughput is not
//! below what they serve, and an objective below the time of an empty step is out of reach.

use super::arrivals::EngineInterval;
use super::capacity::RequestShape;
use super::engine_speed::EngineSpeed;
use super::learning::{self, Measurement, Times};
use crate::snapshot::{Curve, PodHistory, Role};
use crate::units::{amount, mean};

/// A replica is slow if its steps take this multiple of the time of the others.
const SLOW: f64 = 2.0;
/// Weight of the newest interval in the pace of a pod.
const PACE_WEIGHT: f64 = 0.5;
/// Weight of the newest step in the proven busy share while it rises, and its decay for each step.
const PROVEN_WEIGHT: f64 = 0.25;
const PROVEN_DECAY: f64 = 0.998;
/// An interval shows that an objective was met if it had this part of its prompts.
const PROMPT_SHARE: f64 = 0.7;
/// A busy share up to here is within the error of a fit.
const FIT_ERROR: f64 = 1.1;
/// An objective is within reach again from this multiple of an empty step.
const REACH_AGAIN: f64 = 1.1;

/// Records how long the steps of each pod take.
pub(super) fn record_paces(pods: &mut [PodHistory], measurements: &[Measurement]) {
    for Measurement { pod, pace, .. } in measurements {
        let Some(pace) = *pace else { continue };
        let before = pods[*pod].pace.map_or(pace, f64::from);
        pods[*pod].pace = Some(amount(before + PACE_WEIGHT * (pace - before)));
    }
}

/// Marks the slow ones of the pods of a curve. The reference is the median, of an even number the faster one: two pods have
/// no median.
pub(super) fn mark_slow(pods: &mut [PodHistory], is_of_curve: impl Fn(usize) -> bool) {
    let with_pace = |(i, pod): (usize, &PodHistory)| pod.pace.filter(|_| is_of_curve(i)).map(f64::from);
    let mut paces: Vec<f64> = pods.iter().enumerate().filter_map(with_pace).collect();
    paces.sort_by(f64::total_cmp);
    let Some(reference) = paces.get(paces.len().saturating_sub(1) / 2) else { return };
    for (_, pod) in pods.iter_mut().enumerate().filter(|(i, _)| is_of_curve(*i)) {
        pod.is_slow = pod.pace.is_some_and(|pace| pace.get() > SLOW * reference);
    }
}

/// `objective`: seconds. An engine whose tokens came in time shows that it is within reach.
pub(super) fn update_reach<'a>(
    curve: &mut Curve,
    intervals: impl Iterator<Item = &'a EngineInterval>,
    objective: Option<f64>,
) {
    let Some(objective) = objective.filter(|_| curve.role != Some(Role::Prefill)) else {
        curve.itl_out_of_reach = false;
        return;
    };
    if !learning::is_learned(curve) {
        return;
    }
    let Times { a, .. } = learning::fitted_times(curve);
    let least = if curve.itl_out_of_reach { REACH_AGAIN * a } else { a };
    let mut gaps = intervals.filter_map(token_gap);
    curve.itl_out_of_reach = objective < least && !gaps.any(|gap| gap <= objective);
}

/// Mean seconds between two tokens.
fn token_gap(interval: &EngineInterval) -> Option<f64> {
    (interval.gaps > 0.0).then(|| interval.gap_seconds / interval.gaps)
}

/// Records how much of its time an engine would need for what it did while it met the `objective` (seconds), by the planned
/// times and concurrency.
pub(super) fn record_proven<'a>(
    curve: &mut Curve,
    engine: &EngineSpeed,
    shape: RequestShape,
    intervals: impl Iterator<Item = &'a EngineInterval>,
    objective: Option<f64>,
    steps: f64,
) {
    let Times { a, b, c } = engine.times;
    let objective = objective.filter(|_| !curve.itl_out_of_reach);
    // Tokens come fast while no prompt is computed between them.
    let has_prompts = |interval: &EngineInterval| {
        interval.prompt * shape.output >= PROMPT_SHARE * shape.computed * interval.generated
    };
    let is_met = |interval: &&EngineInterval| {
        objective.is_none_or(|objective| {
            has_prompts(interval) && token_gap(interval).is_some_and(|gap| gap <= objective)
        })
    };
    let busy = |interval: &EngineInterval| {
        (interval.prompt * c + interval.generated * (b + a / engine.running)) / interval.seconds
    };
    let shares: Vec<f64> = intervals.filter(is_met).map(busy).collect();
    let decayed = PROVEN_DECAY.powf(steps) * curve.proven.get();
    let now = mean(shares.into_iter()).unwrap_or_default();
    let weight = 1.0 - (1.0 - PROVEN_WEIGHT).powf(steps);
    let risen = curve.proven.get() + weight * (now - curve.proven.get());
    curve.proven = amount(decayed.max(risen));
}

/// Factor of the planned throughput, at least 1.
pub(super) fn proven_factor(curve: &Curve) -> f64 {
    (curve.proven.get() / FIT_ERROR).max(1.0)
}
