//! Fits the time of an engine step: `a` seconds fixed, `b` per running sequence and `c` per prompt token. Recursive
//! least squares in units of the prior, so that the three times have equal weight.

use super::arrivals::EngineInterval;
use super::prompts::prompt_equation;
use crate::snapshot::{Curve, Role, SpeedEstimate, StepTimes};
use crate::units::{Amount, amount, seconds, to_duration, to_finite};
use wva_objects::engine_args::EngineArgs;

/// Prior of `a`, `b` and `c`: 25 ms, 0.23 ms, 0.1 ms.
const PRIOR: [f64; 3] = [0.025, 0.000_23, 0.000_1];
/// Bounds of each time, as multiples of its prior.
const MIN_OF_PRIOR: f64 = 0.05;
const MAX_OF_PRIOR: f64 = 20.0;
const FORGETTING: f64 = 0.998;
/// Relative deviation of measured from expected times that resets the fit.
const RESET_DEVIATION: f64 = 0.25;
/// Factor of old weights at a reset.
const RESET_WEIGHT: f64 = 0.2;
/// Weight of the newest step in the ratio of measured to expected time.
const RATIO_WEIGHT: f64 = 0.25;
/// Seconds to which samples of busy engines, and of single requests, are scaled: all hardware has the same weight.
pub(super) const BUSY_SCALE: f64 = 15.0;
pub(super) const SINGLE_SCALE: f64 = 7.5;
/// Bound of a residual (Huber loss), scaled seconds.
const HUBER: f64 = 5.0;
/// Seconds.
pub(super) const MIN_MEASURED: f64 = 0.001;
/// Mean running sequences of a busy engine.
const BUSY: f64 = 3.0;
/// Smallest running sequences at both ends of a busy interval.
const BUSY_AT_ENDS: f64 = 2.0;
const MIN_SAMPLES: f64 = 4.0;
/// Seconds without a sample after which the assumed throughput grows by a tenth per interval, up to twice the fitted
/// one.
const LOOSENS_AFTER: f64 = 900.0;
const LOOSENING_INTERVAL: f64 = 600.0;

/// Times of a step, in seconds: see [`StepTimes`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    pub(super) a: f64,
    pub(super) b: f64,
    pub(super) c: f64,
}

impl Times {
    pub(super) fn to_array(self) -> [f64; 3] {
        [self.a, self.b, self.c]
    }
}

/// Equation of the fit: `measured = coefficients * (a, b, c)`.
pub(super) struct Equation {
    /// Seconds.
    pub(super) measured: f64,
    pub(super) coefficients: [f64; 3],
    /// Weight: seconds to which the equation is scaled.
    pub(super) scale: f64,
}

impl Equation {
    fn expected(&self, times: Times) -> f64 {
        to_finite(
            self.coefficients
                .iter()
                .zip(times.to_array())
                .map(|(coefficient, time)| coefficient * time)
                .sum(),
        )
    }
}

/// `estimate` of an earlier leader is the prior.
pub(super) fn new_curve(accelerator: &str, engine_args: &[String], estimate: Option<SpeedEstimate>) -> Curve {
    let prior = estimate.map_or(PRIOR, |k| clamped([k.times.a, k.times.b, k.times.c].map(f64::from)));
    let [a, b, c] = prior.map(amount);
    Curve {
        accelerator: accelerator.into(),
        engine_args: engine_args.join(" ").into(),
        prior: StepTimes { a, b, c },
        samples: estimate.map_or_else(Amount::default, |k| k.samples),
        ratio: amount(1.0),
        ..Curve::default()
    }
}

pub(super) fn matches(curve: &Curve, accelerator: &str, engine_args: &[String]) -> bool {
    let mut rest = Some(&*curve.engine_args);
    for (i, arg) in engine_args.iter().enumerate() {
        rest = rest.and_then(|rest| if i == 0 { Some(rest) } else { rest.strip_prefix(' ') });
        rest = rest.and_then(|rest| rest.strip_prefix(arg.as_str()));
    }
    *curve.accelerator == *accelerator && rest == Some("")
}

fn clamped(times: [f64; 3]) -> [f64; 3] {
    let mut times = times;
    for (time, prior) in times.iter_mut().zip(PRIOR) {
        *time = time.clamp(MIN_OF_PRIOR * prior, MAX_OF_PRIOR * prior);
    }
    times
}

fn prior(curve: &Curve) -> [f64; 3] {
    clamped([curve.prior.a, curve.prior.b, curve.prior.c].map(f64::from))
}

/// What an interval of an engine shows.
pub(super) struct Measurement {
    /// Index among the pods of the memory.
    pub(super) pod: usize,
    equations: [Option<Equation>; 2],
    /// Measured by expected time. `None`: it shows nothing.
    pub(super) pace: Option<f64>,
}

/// Compares the intervals with the curve.
pub(super) fn measure<'a>(
    curve: &Curve,
    intervals: impl Iterator<Item = &'a EngineInterval>,
) -> Vec<Measurement> {
    let fitted = fitted_times(curve);
    let rule = EquationRule::of(curve);
    let measurement = |interval: &EngineInterval| {
        let equations = rule.equations(interval, fitted);
        let usable = || equations.iter().flatten();
        let measured: f64 = usable().map(|equation| equation.measured).sum();
        let expected: f64 = usable().map(|equation| equation.expected(fitted)).sum();
        let pace = (expected > 0.0).then(|| (measured / expected).clamp(0.01, 100.0));
        Measurement { pod: interval.pod, equations, pace }
    };
    intervals.map(measurement).collect()
}

/// `elapsed`: seconds since the last update.
pub(super) fn update<'a>(
    curve: &mut Curve,
    measurements: impl Iterator<Item = &'a Measurement> + Clone,
    elapsed: f64,
) {
    let fitted = fitted_times(curve);
    let equations = measurements.flat_map(|measurement| measurement.equations.iter().flatten());
    if equations.clone().next().is_none() {
        curve.quiet = to_duration(seconds(curve.quiet) + elapsed);
        return;
    }
    reset_if_wrong(curve, equations.clone(), fitted);
    for equation in equations {
        add_equation(curve, equation, fitted);
    }
    curve.quiet = to_duration(0.0);
}

/// Selects the equations that the intervals of a curve give.
enum EquationRule {
    Whole,
    /// Most prompt tokens of a step.
    Prefill(f64),
    Decode,
}

impl EquationRule {
    fn of(curve: &Curve) -> Self {
        match curve.role {
            None => Self::Whole,
            Some(Role::Decode) => Self::Decode,
            Some(Role::Prefill) => {
                let args = EngineArgs::on(&curve.accelerator, &[curve.engine_args.to_string()]);
                Self::Prefill(args.batched_tokens())
            }
        }
    }

    fn equations(&self, interval: &EngineInterval, fitted: Times) -> [Option<Equation>; 2] {
        let equations = match self {
            Self::Whole => equations(interval, fitted),
            Self::Prefill(batch) => [prompt_equation(interval, *batch), None],
            // vLLM counts the whole prompt at the decode pod, which computes one token of it.
            Self::Decode => {
                equations(&EngineInterval { prompt: 0.0, prefill_seconds: 0.0, ..*interval }, fitted)
            }
        };
        // A hanging engine uses time without work.
        equations.map(|equation| equation.filter(|equation| equation.expected(fitted) > 0.0))
    }
}

/// Reduces the weight of the past, and scales the prior by the same ratio: usually all three times deviate together. At
/// least one equation.
fn reset_if_wrong<'a>(curve: &mut Curve, equations: impl Iterator<Item = &'a Equation>, fitted: Times) {
    let ratio = |e: &Equation| (e.measured / e.expected(fitted).max(f64::MIN_POSITIVE)).clamp(0.01, 100.0);
    // The median: one faulty engine of many must not decide.
    let mut ratios: Vec<f64> = equations.map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let median = f64::midpoint(ratios[(ratios.len() - 1) / 2], ratios[ratios.len() / 2]);
    let before = curve.ratio.get().clamp(0.01, 100.0);
    let now = before + RATIO_WEIGHT * (median - before);
    curve.ratio = amount(now);
    if !(1.0 / (1.0 + RESET_DEVIATION)..=1.0 + RESET_DEVIATION).contains(&now) {
        let old = prior(curve);
        let new = clamped(old.map(|time| time * now));
        change_prior(curve, old, new);
        curve.ratio = amount(1.0);
    }
}

/// Converts the sums to units of the new prior, and reduces their weight.
fn change_prior(curve: &mut Curve, old: [f64; 3], new: [f64; 3]) {
    let [a, b, c] = [0, 1, 2].map(|i| new[i] / old[i]);
    for (sum, factor) in curve.normal.iter_mut().zip([a * a, a * b, a * c, b * b, b * c, c * c]) {
        *sum = amount(RESET_WEIGHT * factor * sum.get());
    }
    for (sum, factor) in curve.right.iter_mut().zip([a, b, c]) {
        *sum = amount(RESET_WEIGHT * factor * sum.get());
    }
    curve.weight = amount(RESET_WEIGHT * curve.weight.get());
    let [a, b, c] = new.map(amount);
    curve.prior = StepTimes { a, b, c };
}

/// One equation of a busy engine, up to two of single requests.
fn equations(interval: &EngineInterval, fitted: Times) -> [Option<Equation>; 2] {
    let running = f64::midpoint(interval.running_before, interval.running_after);
    let least = interval.running_before.min(interval.running_after);
    let changed = (interval.running_after - interval.running_before).abs();
    if running < BUSY {
        let is_usable = |e: &Equation| e.measured > MIN_MEASURED && e.coefficients[0] > 0.0;
        let tokens = Some(token_equation(interval, running, fitted));
        [prefill_equation(interval, running).filter(is_usable), tokens.filter(is_usable)]
    } else if least >= BUSY_AT_ENDS && changed <= running / 2.0 + 2.0 {
        [Some(busy_equation(interval, running)), None]
    } else {
        [None, None]
    }
}

/// All steps, in the share of the time with a running request.
fn busy_equation(interval: &EngineInterval, running: f64) -> Equation {
    let measured = interval.seconds * (1.0 - (-running).exp());
    let coefficients = [interval.generated / running, interval.generated, interval.prompt];
    Equation { measured, coefficients, scale: BUSY_SCALE }
}

/// Prompts of single requests. vLLM counts a prompt when it is computed, but its time when the request ends. If these
/// are different intervals, the equation is unusable.
fn prefill_equation(interval: &EngineInterval, running: f64) -> Option<Equation> {
    let coefficients = [interval.prefills, interval.prefills * running, interval.prompt];
    let measured = interval.prefill_seconds;
    (interval.prompt > 0.0).then_some(Equation { measured, coefficients, scale: SINGLE_SCALE })
}

/// Tokens of single requests, without the time of other prompts. With speculative decoding one gap covers all tokens of
/// a step. The first token belongs to the prefill.
fn token_equation(interval: &EngineInterval, running: f64, fitted: Times) -> Equation {
    let tokens = interval.gaps.max(interval.generated - interval.prefills);
    let without_prompts = (1.0 - fitted.c * interval.prompt / interval.seconds).clamp(0.0, 1.0);
    let coefficients = [tokens, tokens * (1.0 + running), 0.0];
    Equation { measured: interval.gap_seconds * without_prompts, coefficients, scale: SINGLE_SCALE }
}

fn add_equation(curve: &mut Curve, equation: &Equation, fitted: Times) {
    // Scaled by the greater of both times, so that no equation exceeds its weight.
    let expected = equation.expected(fitted);
    let scale = equation.scale / equation.measured.max(expected);
    let prior = prior(curve);
    let mut x = equation.coefficients;
    for (coefficient, prior) in x.iter_mut().zip(prior) {
        *coefficient = to_finite(*coefficient * prior * scale);
    }
    let residual = (equation.measured - expected).abs() * scale;
    let weight = if residual > HUBER { HUBER / residual } else { 1.0 };
    let products = [x[0] * x[0], x[0] * x[1], x[0] * x[2], x[1] * x[1], x[1] * x[2], x[2] * x[2]];
    let grow = |old: Amount, new: f64| amount(to_finite(old.get() * FORGETTING + weight * new));
    for (sum, new) in curve.normal.iter_mut().zip(products) {
        *sum = grow(*sum, new);
    }
    for (sum, coefficient) in curve.right.iter_mut().zip(x) {
        *sum = grow(*sum, coefficient * equation.measured * scale);
    }
    curve.weight = grow(curve.weight, 1.0);
    curve.samples = amount(curve.samples.get() + 1.0);
}

/// Every time is within its bounds.
pub(super) fn fitted_times(curve: &Curve) -> Times {
    let prior = prior(curve);
    let mut solution = [1.0; 3];
    let mut fixed = [None; 3];
    for _ in 0..3 {
        let Some(solved) = solve(curve, fixed) else { break };
        solution = solved;
        let limits = |i: usize| (MIN_OF_PRIOR * PRIOR[i] / prior[i], MAX_OF_PRIOR * PRIOR[i] / prior[i]);
        let is_outside = |i: &usize| {
            let (low, high) = limits(*i);
            fixed[*i].is_none() && !(low..=high).contains(&solution[*i])
        };
        let Some(i) = (0..3).find(is_outside) else { break };
        let (low, high) = limits(i);
        fixed[i] = Some(solution[i].clamp(low, high));
    }
    let [a, b, c] = clamped([solution[0] * prior[0], solution[1] * prior[1], solution[2] * prior[2]]);
    Times { a, b, c }
}

pub(super) fn is_learned(curve: &Curve) -> bool {
    curve.samples.get() >= MIN_SAMPLES
}

/// 1 to 2, after a long time without samples: an outdated pessimistic curve must not keep the fleet too large.
pub(super) fn loosening(curve: &Curve) -> f64 {
    let over = seconds(curve.quiet) - LOOSENS_AFTER;
    if over < 0.0 { 1.0 } else { 1.1_f64.powf((over / LOOSENING_INTERVAL).floor().min(10.0) + 1.0).min(2.0) }
}

/// Ridge towards the prior. `fixed` times keep their value. `None`: no finite solution.
fn solve(curve: &Curve, fixed: [Option<f64>; 3]) -> Option<[f64; 3]> {
    let n = curve.normal.map(f64::from);
    let mut rows = [[n[0], n[1], n[2]], [n[1], n[3], n[4]], [n[2], n[4], n[5]]];
    let mut right = curve.right.map(f64::from);
    // The prior weighs as much as three samples.
    let ridge = (n[0] + n[3] + n[5]) / curve.weight.get();
    let ridge = if ridge.is_finite() && ridge > 0.0 { ridge } else { 1.0 };
    for (i, (row, right)) in rows.iter_mut().zip(&mut right).enumerate() {
        row[i] += ridge;
        *right += ridge;
        if let Some(value) = fixed[i] {
            *row = [0.0; 3];
            row[i] = 1.0;
            *right = value;
        }
    }
    // Cramer's rule. The matrix is positive definite except for the fixed rows.
    let all = determinant(rows);
    let solution = [0, 1, 2].map(|i| {
        let mut replaced = rows;
        replaced.iter_mut().zip(right).for_each(|(row, right)| row[i] = right);
        determinant(replaced) / all
    });
    solution.iter().all(|x| x.is_finite()).then_some(solution)
}

fn determinant([a, b, c]: [[f64; 3]; 3]) -> f64 {
    let minor = |i: usize, j: usize| b[i] * c[j] - b[j] * c[i];
    a[0] * minor(1, 2) - a[1] * minor(0, 2) + a[2] * minor(0, 1)
}
