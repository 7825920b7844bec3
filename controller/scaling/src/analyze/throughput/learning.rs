//! Learns how long a step of an engine takes: `a` seconds by itself, `b` for each running sequence and `c` for each
//! prompt token. Recursive least squares on the normal equations, in parts of the prior, so that the three weigh alike.

use super::arrivals::Span;
use crate::snapshot::{Curve, Known, StepTimes};
use crate::units::{Amount, amount, finite, seconds, span};

/// What is believed before anything is measured: 25 ms, 0.23 ms, 0.1 ms.
const PRIOR: [f64; 3] = [0.025, 0.000_23, 0.000_1];
/// Each time is within these parts of its prior.
const LEAST_OF_PRIOR: f64 = 0.05;
const MOST_OF_PRIOR: f64 = 20.0;
/// What a sample still counts when the next one comes.
const FORGETTING: f64 = 0.998;
/// Once what is measured is off by more than this share, the past is no longer true, or never was.
const SURPRISING: f64 = 0.25;
/// What the past then still counts.
const LEFT_OF_PAST: f64 = 0.2;
/// How fast the ratio of what is measured and what was expected follows, in each step.
const FOLLOWS: f64 = 0.25;
/// Seconds to which a sample is scaled, whatever the hardware: that of a busy replica, and of one with single requests.
const BUSY_SCALE: f64 = 15.0;
const SINGLE_SCALE: f64 = 7.5;
/// A residual beyond this many of those seconds counts no more than this.
const HUBER: f64 = 5.0;
/// What took less, in seconds, is not measured well.
const SHORTEST: f64 = 0.001;
/// Mean running sequences from which on a replica counts as busy.
const BUSY: f64 = 3.0;
/// The fewest at the beginning or the end of a span in which it does.
const BUSY_AT_ENDS: f64 = 2.0;
/// Samples from which on a curve is learnt.
const ENOUGH: f64 = 4.0;
/// A belief without a sample for so many seconds loosens, by a tenth in each of the following spans, up to twice.
const LOOSENS_AFTER: f64 = 900.0;
const LOOSENING_SPAN: f64 = 600.0;

/// The times of a step, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    pub(super) a: f64,
    pub(super) b: f64,
    pub(super) c: f64,
}

impl Times {
    /// a, b and c.
    pub(super) fn each(self) -> [f64; 3] {
        [self.a, self.b, self.c]
    }
}

/// One equation: what was measured in seconds, what the three times took part in it, and how much it weighs.
struct Sample {
    measured: f64,
    parts: [f64; 3],
    scale: f64,
}

impl Sample {
    fn expected(&self, by: Times) -> f64 {
        finite(self.parts.iter().zip(by.each()).map(|(part, time)| part * time).sum())
    }
}

/// A curve that nothing was learnt for yet, but by an earlier leader.
pub(super) fn begin(accelerator: &str, engine_args: &[String], known: Option<Known>) -> Curve {
    let prior = known.map_or(PRIOR, |k| bounded([k.times.a, k.times.b, k.times.c].map(f64::from)));
    let [a, b, c] = prior.map(amount);
    Curve {
        accelerator: accelerator.to_owned(),
        engine_args: engine_args.join(" "),
        prior: StepTimes { a, b, c },
        samples: known.map_or_else(Amount::default, |k| k.samples),
        ratio: amount(1.0),
        ..Curve::default()
    }
}

/// Whether a curve is of these.
pub(super) fn is_of(curve: &Curve, accelerator: &str, engine_args: &[String]) -> bool {
    let mut rest = Some(curve.engine_args.as_str());
    for (i, arg) in engine_args.iter().enumerate() {
        rest = rest.and_then(|rest| if i == 0 { Some(rest) } else { rest.strip_prefix(' ') });
        rest = rest.and_then(|rest| rest.strip_prefix(arg.as_str()));
    }
    curve.accelerator == accelerator && rest == Some("")
}

fn bounded(times: [f64; 3]) -> [f64; 3] {
    let mut times = times;
    for (time, prior) in times.iter_mut().zip(PRIOR) {
        *time = time.clamp(LEAST_OF_PRIOR * prior, MOST_OF_PRIOR * prior);
    }
    times
}

fn prior(curve: &Curve) -> [f64; 3] {
    bounded([curve.prior.a, curve.prior.b, curve.prior.c].map(f64::from))
}

/// Takes in what its replicas did, after so many seconds.
pub(super) fn learn<'a>(curve: &mut Curve, spans: impl Iterator<Item = &'a Span>, elapsed: f64) {
    let believed = times(curve);
    let samples = spans.flat_map(|span| observe(span, believed));
    // An engine that hangs takes time for nothing, which tells of no step.
    let samples: Vec<Sample> = samples.filter(|sample| sample.expected(believed) > 0.0).collect();
    if samples.is_empty() {
        curve.quiet = span(seconds(curve.quiet) + elapsed);
        return;
    }
    doubt(curve, &samples, believed);
    for sample in &samples {
        add(curve, sample, believed);
    }
    curve.quiet = span(0.0);
}

/// Where what is measured has not been what was expected, the past is forgotten but for a part, and the prior moves by as
/// much: most often all of an engine is faster or slower than was believed.
fn doubt(curve: &mut Curve, samples: &[Sample], believed: Times) {
    let ratio = |s: &Sample| (s.measured / s.expected(believed).max(f64::MIN_POSITIVE)).clamp(0.01, 100.0);
    // The median: of many engines one that is ill must not speak for all.
    let mut ratios: Vec<f64> = samples.iter().map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let median = f64::midpoint(ratios[(ratios.len() - 1) / 2], ratios[ratios.len() / 2]);
    let before = curve.ratio.get().clamp(0.01, 100.0);
    let now = before + FOLLOWS * (median - before);
    curve.ratio = amount(now);
    if !(1.0 / (1.0 + SURPRISING)..=1.0 + SURPRISING).contains(&now) {
        let old = prior(curve);
        let new = bounded(old.map(|time| time * now));
        shift(curve, old, new);
        curve.ratio = amount(1.0);
    }
}

/// Takes another prior, in parts of which the sums are from now on, and keeps a part of them.
fn shift(curve: &mut Curve, old: [f64; 3], new: [f64; 3]) {
    let [a, b, c] = [0, 1, 2].map(|i| new[i] / old[i]);
    for (sum, by) in curve.normal.iter_mut().zip([a * a, a * b, a * c, b * b, b * c, c * c]) {
        *sum = amount(LEFT_OF_PAST * by * sum.get());
    }
    for (sum, by) in curve.right.iter_mut().zip([a, b, c]) {
        *sum = amount(LEFT_OF_PAST * by * sum.get());
    }
    curve.weight = amount(LEFT_OF_PAST * curve.weight.get());
    let [a, b, c] = new.map(amount);
    curve.prior = StepTimes { a, b, c };
}

/// The equations of one span: one of a busy replica, up to two of one that serves single requests.
fn observe(span: &Span, believed: Times) -> impl Iterator<Item = Sample> {
    let running = f64::midpoint(span.running_before, span.running_after);
    let least = span.running_before.min(span.running_after);
    let changed = (span.running_after - span.running_before).abs();
    let equations = if running < BUSY {
        let says = |s: &Sample| s.measured > SHORTEST && s.parts[0] > 0.0;
        [prefills(span, running).filter(says), Some(tokens(span, running, believed)).filter(says)]
    } else if least >= BUSY_AT_ENDS && changed <= running / 2.0 + 2.0 {
        [Some(steps(span, running)), None]
    } else {
        [None, None]
    };
    equations.into_iter().flatten()
}

/// All that a busy replica did, in the share of the time in which at least one request runs.
fn steps(span: &Span, running: f64) -> Sample {
    let measured = span.seconds * (1.0 - (-running).exp());
    let parts = [span.generated / running, span.generated, span.prompt];
    Sample { measured, parts, scale: BUSY_SCALE }
}

/// The prompts of single requests. vLLM counts a prompt when it is computed, and the time that took when its request ends:
/// where requests are few that is often another span, and then neither tells anything.
fn prefills(span: &Span, running: f64) -> Option<Sample> {
    let parts = [span.prefills, span.prefills * running, span.prompt];
    (span.prompt > 0.0).then_some(Sample { measured: span.prefill_seconds, parts, scale: SINGLE_SCALE })
}

/// The tokens of single requests, without the time in which others' prompts were computed. With speculative decoding one
/// gap is observed for all tokens that a step makes of a request; the first of each request comes with its prefill.
fn tokens(span: &Span, running: f64, believed: Times) -> Sample {
    let tokens = span.gaps.max(span.generated - span.prefills);
    let without_prompts = (1.0 - believed.c * span.prompt / span.seconds).clamp(0.0, 1.0);
    let parts = [tokens, tokens * (1.0 + running), 0.0];
    Sample { measured: span.gap_seconds * without_prompts, parts, scale: SINGLE_SCALE }
}

fn add(curve: &mut Curve, sample: &Sample, believed: Times) {
    // By the greater of the two, so that no sample weighs more than its scale, however far off it is.
    let expected = sample.expected(believed);
    let scale = sample.scale / sample.measured.max(expected);
    let prior = prior(curve);
    let mut x = sample.parts;
    for (part, prior) in x.iter_mut().zip(prior) {
        *part = finite(*part * prior * scale);
    }
    let residual = (sample.measured - expected).abs() * scale;
    let weight = if residual > HUBER { HUBER / residual } else { 1.0 };
    let products = [x[0] * x[0], x[0] * x[1], x[0] * x[2], x[1] * x[1], x[1] * x[2], x[2] * x[2]];
    let grow = |old: Amount, new: f64| amount(finite(old.get() * FORGETTING + weight * new));
    for (sum, new) in curve.normal.iter_mut().zip(products) {
        *sum = grow(*sum, new);
    }
    for (sum, part) in curve.right.iter_mut().zip(x) {
        *sum = grow(*sum, part * sample.measured * scale);
    }
    curve.weight = grow(curve.weight, 1.0);
    curve.samples = amount(curve.samples.get() + 1.0);
}

/// The times that fit best, within their bounds.
pub(super) fn times(curve: &Curve) -> Times {
    let prior = prior(curve);
    let mut parts = [1.0; 3];
    let mut fixed = [None; 3];
    for _ in 0..3 {
        let Some(found) = solve(curve, fixed) else { break };
        parts = found;
        let limits = |i: usize| (LEAST_OF_PRIOR * PRIOR[i] / prior[i], MOST_OF_PRIOR * PRIOR[i] / prior[i]);
        let out = |i: &usize| {
            let (low, high) = limits(*i);
            fixed[*i].is_none() && !(low..=high).contains(&parts[*i])
        };
        let Some(worst) = (0..3).find(out) else { break };
        let (low, high) = limits(worst);
        fixed[worst] = Some(parts[worst].clamp(low, high));
    }
    let [a, b, c] = bounded([parts[0] * prior[0], parts[1] * prior[1], parts[2] * prior[2]]);
    Times { a, b, c }
}

/// Enough was measured to rely on it.
pub(super) fn is_learnt(curve: &Curve) -> bool {
    curve.samples.get() >= ENOUGH
}

/// By how much more a replica is believed to do, because nothing was measured for long.
pub(super) fn loosened(curve: &Curve) -> f64 {
    let over = seconds(curve.quiet) - LOOSENS_AFTER;
    if over < 0.0 { 1.0 } else { 1.1_f64.powf((over / LOOSENING_SPAN).floor().min(10.0) + 1.0).min(2.0) }
}

/// Solves the normal equations with the ridge for what is not fixed. `None` where no finite solution is found.
fn solve(curve: &Curve, fixed: [Option<f64>; 3]) -> Option<[f64; 3]> {
    let n = curve.normal.map(f64::from);
    let mut rows = [[n[0], n[1], n[2]], [n[1], n[3], n[4]], [n[2], n[4], n[5]]];
    let mut right = curve.right.map(f64::from);
    // The prior weighs as much as three samples, one for each time.
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
    // Cramer's rule. The matrix is positive definite but for the fixed rows.
    let all = determinant(rows);
    let found = [0, 1, 2].map(|i| {
        let mut replaced = rows;
        replaced.iter_mut().zip(right).for_each(|(row, right)| row[i] = right);
        determinant(replaced) / all
    });
    found.iter().all(|x| x.is_finite()).then_some(found)
}

fn determinant([a, b, c]: [[f64; 3]; 3]) -> f64 {
    let minor = |i: usize, j: usize| b[i] * c[j] - b[j] * c[i];
    a[0] * minor(1, 2) - a[1] * minor(0, 2) + a[2] * minor(0, 1)
}
