//! Reserve of a model with `sloTarget`: replicas beyond the usual load, so that the stated share of its requests meets a
//! fleet that can serve them.
//!
//! A replica starts more slowly than a burst lasts, so what the arrivals of this moment need is known too late. The model
//! remembers what each request needed of the fleet, as a ratio to the usual load, and keeps replicas for the share of the
//! target. Scrapes do not show what happens between them, so the measured latencies correct the ratio: more while more
//! requests are late than the target allows, less while fewer are.

use super::Demand;
use super::arrivals::STEP;
use super::bursts::Occupancy;
use crate::reason::TargetFigures;
use crate::snapshot::{Lateness, Model, Reserve, ReserveEstimate, ThroughputMemory, WindowShares, percent};
use crate::units::{Fraction, amount, count, seconds, to_duration, to_finite, to_u32};
use crate::view::ModelView;

/// Ranges of ratios, the upper end of the first, and the width of the others.
const RANGES: usize = 32;
const FIRST_RATIO: f64 = 0.5;
const RATIO_STEP: f64 = 1.12;
/// Half-life of the remembered requests, seconds: what was needed once a day stays for that day.
const RATIO_HALF_LIFE: f64 = 86_400.0;
/// Time constant of the usual load, seconds: it follows the hours of a day.
const USUAL_SECONDS: f64 = 1800.0;
/// Added to the reserve for each doubling of the late requests, and the limits of the factor.
const CORRECTION: f64 = 0.5;
const MIN_CORRECTION: f64 = 0.7;
const MAX_CORRECTION: f64 = 3.0;
/// Late requests that are added to those measured and to those allowed: a few late ones soon raise the reserve, and it takes
/// a long history without them to lower it.
const ASSUMED_LATE: f64 = 5.0;
const ASSUMED_LATE_BELOW: f64 = 300.0;
/// Steps that show a usual load.
const USUAL_STEPS: f64 = 4.0;
/// What arrived in the newest step is not known before the scrapes after it.
const OPEN_STEPS: usize = 1;
/// Steps of an earlier leader that count, at most: a day.
const RESTORED_STEPS: f64 = 5760.0;
/// Longest history without which no replica is removed, steps.
const MAX_FIRST_STEPS: f64 = 240.0;

/// What is kept for the target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReservePlan {
    /// Requests per second that the fleet is to be able to serve.
    pub(super) rate: f64,
    /// What the sentence shows; replicas differ by variant.
    pub(super) figures: TargetFigures,
}

impl ReservePlan {
    pub(super) fn has_history(self) -> bool {
        self.figures.learning_seconds <= 0.0
    }
}

/// 0: no target is stated.
pub(super) fn rate(kept: Option<ReservePlan>) -> f64 {
    kept.map_or(0.0, |kept| kept.rate)
}

/// A model under a target.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    /// Share of requests, 0 to 1.
    pub(super) share: f64,
    /// Throughput of one replica, requests per second.
    pub(super) unit: f64,
    /// How a request occupies a replica.
    pub(super) occupancy: Occupancy,
    /// The model with its measured latencies.
    pub(super) model: &'a Model,
}

impl Demand {
    /// What is kept for `sloTarget`. `None`: it is not stated.
    pub(super) fn keep(
        &self,
        model: &ModelView,
        memory: &mut ThroughputMemory,
        unit: f64,
        occupancy: Occupancy,
    ) -> Option<ReservePlan> {
        let share = model.settings.throughput.slo_target? / 100.0;
        let target = Target { share, unit, occupancy, model: model.model };
        Some(target.keep(&mut memory.reserve, &self.per_step, self.new_steps))
    }
}

/// What a new leader starts with. `None`: no step was observed.
pub(crate) fn reserve_estimate(reserve: &Reserve, share: f64) -> Option<ReserveEstimate> {
    let ratio = upper_ratio(kept_range(reserve, share)?);
    Some(ReserveEstimate { usual: reserve.usual, ratio: amount(ratio), steps: reserve.steps })
}

/// Starts from what an earlier leader learned: its requests needed that ratio.
fn restore(reserve: &mut Reserve, known: ReserveEstimate) {
    (reserve.usual, reserve.steps) = (known.usual, known.steps);
    let requests = known.usual.get() * known.steps.get().min(RESTORED_STEPS) * STEP;
    // The ratio is the upper end of its range.
    reserve.ratios[range_of(0.99 * known.ratio.get())] = amount(to_finite(requests));
}

impl Target<'_> {
    /// Adds the `new` steps at the end of `steps`, which are arrivals, oldest first.
    pub(super) fn keep(&self, reserve: &mut Reserve, steps: &[f64], new: usize) -> ReservePlan {
        reserve.ratios.resize(RANGES, amount(0.0));
        if reserve.steps.get() <= 0.0 {
            let known = self.model.variants.iter().filter_map(|variant| variant.reserve_estimate);
            let longest = known.max_by(|a, b| a.steps.get().total_cmp(&b.steps.get()));
            if let Some(known) = longest {
                restore(reserve, known);
            }
        }
        let end = steps.len().saturating_sub(OPEN_STEPS);
        for i in end.saturating_sub(new)..end {
            self.add(reserve, &steps[..=i]);
        }
        let range = kept_range(reserve, self.share);
        let factor = range.map_or(0.0, upper_ratio) * self.correction();
        let rate = (reserve.usual.get() + self.unit) * factor - self.unit;
        let first_steps = (1.0 / (1.0 - self.share)).min(MAX_FIRST_STEPS);
        let attainment = self.model.attainment;
        let least = |of: fn(WindowShares) -> Option<Fraction>| {
            let shares = attainment.by_objective().map(|(_, shares)| of(shares));
            shares.into_iter().flatten().map(percent).min_by(f64::total_cmp)
        };
        ReservePlan {
            rate: to_finite(rate.max(0.0)),
            figures: TargetFigures {
                percent: 100.0 * self.share,
                hour: least(|shares| shares.hour),
                day: least(|shares| shares.day),
                replicas: 0.0,
                needed_seconds_ago: seconds(reserve.needed_ago),
                learning_seconds: ((first_steps - reserve.steps.get()) * STEP).max(0.0),
            },
        }
    }

    /// Adds the last one of these steps.
    fn add(&self, reserve: &mut Reserve, steps: &[f64]) {
        let Some(last) = steps.last() else { return };
        let (usual, known) = (reserve.usual.get(), reserve.steps.get());
        if known >= USUAL_STEPS {
            let ratio = (self.occupancy.need(steps) + self.unit) / (usual + self.unit);
            let fading = (-STEP / RATIO_HALF_LIFE).exp2();
            for requests in &mut reserve.ratios {
                *requests = amount(requests.get() * fading);
            }
            let range = range_of(ratio);
            reserve.ratios[range] = amount(reserve.ratios[range].get() + last);
            let is_needed = kept_range(reserve, self.share).is_some_and(|kept| range >= kept);
            let ago = if is_needed { 0.0 } else { seconds(reserve.needed_ago) + STEP };
            reserve.needed_ago = to_duration(ago);
        }
        let weight = (1.0 / (known + 1.0)).max(STEP / USUAL_SECONDS);
        reserve.usual = amount(usual + weight * (last / STEP - usual));
        reserve.steps = amount(known + 1.0);
    }

    /// Factor by the late requests, of the objective that is kept less. 1 while as many are late as the target allows.
    fn correction(&self) -> f64 {
        let allowed = 1.0 - self.share;
        let ratio = |lateness: Lateness| {
            let (late, may_be) = (lateness.late.get(), allowed * lateness.requests.get());
            let assumed = if late > may_be { ASSUMED_LATE } else { ASSUMED_LATE_BELOW };
            (late + assumed) / (may_be + assumed)
        };
        let measured = [self.model.lateness, self.model.itl_lateness].into_iter().flatten().map(ratio);
        let greatest = measured.max_by(f64::total_cmp).unwrap_or(1.0);
        (1.0 + CORRECTION * greatest.log2()).clamp(MIN_CORRECTION, MAX_CORRECTION)
    }
}

fn range_of(ratio: f64) -> usize {
    let above = ((ratio / FIRST_RATIO).ln() / RATIO_STEP.ln()).ceil();
    (to_u32(above.max(0.0)) as usize).min(RANGES - 1)
}

fn upper_ratio(range: usize) -> f64 {
    FIRST_RATIO * RATIO_STEP.powf(count(range))
}

/// Range of ratios that a share of the requests does not exceed. A short history shows its greatest one. `None`: no
/// request is known.
fn kept_range(reserve: &Reserve, share: f64) -> Option<usize> {
    let all: f64 = reserve.ratios.iter().map(|requests| requests.get()).sum();
    let wanted = all * share * (1.0 + 1.0 / reserve.steps.get().max(1.0));
    let mut sum = 0.0;
    let mut greatest = None;
    for (range, requests) in reserve.ratios.iter().enumerate().filter(|(_, n)| n.get() > 0.0) {
        sum += requests.get();
        greatest = Some(range);
        if sum >= wanted {
            break;
        }
    }
    greatest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Variant;

    const SHORT: Occupancy = Occupancy { decode_seconds: 5.0, prompt_share: 0.0 };

    fn target(share: f64, model: &Model) -> Target<'_> {
        Target { share, unit: 1.0, occupancy: SHORT, model }
    }

    /// Adds these arrivals of steps, one after the other.
    fn kept(
        share: f64,
        model: &Model,
        reserve: &mut Reserve,
        arrivals: impl IntoIterator<Item = f64>,
    ) -> ReservePlan {
        let mut last = None;
        let mut steps = vec![0.0];
        for arrived in arrivals {
            steps.push(arrived);
            last = Some(target(share, model).keep(reserve, &steps, 1));
        }
        last.unwrap()
    }

    /// 15 requests a step, and 150 in each of these steps.
    fn bursts(steps: usize, every: usize) -> impl Iterator<Item = f64> {
        (1..=steps).map(move |i| if i % every == 0 { 150.0 } else { 15.0 })
    }

    #[test]
    fn replicas_for_the_share_of_the_target_are_kept() {
        let model = Model::default();
        let rate = |share, every| kept(share, &model, &mut Reserve::default(), bursts(2000, every)).rate;
        // Nearly a third of the requests come in the bursts of every 25th step, a twentieth in those of every 200th.
        assert!((10.0..13.0).contains(&rate(0.95, 25)), "{}", rate(0.95, 25));
        assert!((10.0..13.0).contains(&rate(0.99, 200)), "{}", rate(0.99, 200));
        assert!(rate(0.9, 200) < 2.0, "{}", rate(0.9, 200));
        let calm = kept(0.99, &model, &mut Reserve::default(), [15.0; 2000]).rate;
        assert!((0.9..1.3).contains(&calm), "{calm}");
    }

    #[test]
    fn no_replica_is_removed_before_the_share_can_be_seen() {
        let model = Model::default();
        let learning = |share, steps| {
            kept(share, &model, &mut Reserve::default(), bursts(steps, 9)).figures.learning_seconds
        };
        assert!((learning(0.99, 40) - 900.0).abs() < 1.0, "{}", learning(0.99, 40));
        assert!(learning(0.99, 100) < 1.0 && learning(0.9, 10) < 1.0);
        assert!((learning(0.999, 240)).abs() < 1.0, "at most an hour: {}", learning(0.999, 240));
    }

    #[test]
    fn a_reserve_of_the_day_stays_and_an_unneeded_one_fades() {
        const DAY: usize = 5760;
        let model = Model::default();
        // A burst of a quarter of an hour each day, for three days, then none.
        let day = |burst: f64| (0..DAY).map(move |i| if i < 60 { burst } else { 15.0 });
        let mut reserve = Reserve::default();
        let daily = kept(0.99, &model, &mut reserve, (0..3).flat_map(|_| day(150.0)));
        assert!(daily.rate > 5.0, "{daily:?}");
        let later = kept(0.99, &model, &mut reserve, (0..6).flat_map(|_| day(15.0)));
        assert!(later.rate < 2.0, "{later:?}");
        assert!(
            later.figures.needed_seconds_ago < 60.0,
            "what is kept now is needed in each step: {later:?}"
        );
    }

    #[test]
    fn late_requests_correct_the_reserve() {
        let counted = |late: f64| Lateness { requests: amount(1e5), late: amount(late) };
        let rate = |ttft: Option<f64>, itl: Option<f64>| {
            let (lateness, itl_lateness) = (ttft.map(counted), itl.map(counted));
            let model = Model { lateness, itl_lateness, ..Model::default() };
            kept(0.99, &model, &mut Reserve::default(), bursts(2000, 25)).rate
        };
        let unknown = rate(None, None);
        assert!((rate(Some(1000.0), None) - unknown).abs() < 0.1, "as many as allowed");
        assert!(rate(Some(4000.0), None) > 1.5 * unknown);
        assert!(rate(Some(10.0), Some(4000.0)) > 1.5 * unknown, "the objective that is kept less counts");
        assert!(rate(Some(10.0), None) < unknown);
    }

    #[test]
    fn a_new_leader_starts_with_what_was_kept() {
        let model = Model::default();
        let mut reserve = Reserve::default();
        let before = kept(0.99, &model, &mut reserve, bursts(4000, 25));
        let known = reserve_estimate(&reserve, 0.99).unwrap();
        let variant = Variant { reserve_estimate: Some(known), ..Variant::default() };
        let model = Model { variants: vec![variant], ..Model::default() };
        let after = kept(0.99, &model, &mut Reserve::default(), [15.0]);
        assert!((after.rate / before.rate - 1.0).abs() < 0.02, "{before:?} {after:?}");
        assert!(after.has_history());
        assert_eq!(reserve_estimate(&Reserve::default(), 0.99), None);
    }
}
