//! Capacity of an engine. A step with `n` running sequences takes `a + n * b` seconds, plus `c` seconds for each
//! computed prompt token.

use super::learning::Times;
use crate::units::to_finite;

/// Planned share of the KV cache, 0 to 1.
const PLANNED_KV_SHARE: f64 = 0.8;

/// Smallest planned gap beyond an empty step, as a share of that step. More replicas cannot meet an objective below it.
const MIN_GAP_BEYOND_STEP: f64 = 0.1;

/// Gap between two tokens that is planned where no objective is stated, seconds: people read more slowly.
const DEFAULT_GAP: f64 = 0.1;
/// Greatest share of [`DEFAULT_GAP`] that an empty step may take: the batch needs the rest. For a longer step, twice
/// its time is planned.
const DEFAULT_GAP_ROOM: f64 = 0.75;

/// Mean tokens of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RequestShape {
    /// Prompt tokens, which the KV cache holds.
    pub(super) input: f64,
    /// Prompt tokens that the engine computes: a cache has the others.
    pub(super) computed: f64,
    pub(super) output: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ConcurrencyLimits {
    /// KV cache size in tokens, if known.
    pub(super) kv_tokens: Option<f64>,
    /// `--max-num-seqs`.
    pub(super) max_seqs: f64,
    /// Objective, seconds.
    pub(super) itl: Option<f64>,
}

/// Planned gap between two tokens without an objective, seconds.
pub(super) fn default_gap(times: Times) -> f64 {
    if times.a <= DEFAULT_GAP_ROOM * DEFAULT_GAP { DEFAULT_GAP } else { 2.0 * times.a }
}

/// Planned concurrent sequences, at least 1: the smallest of the limits by KV cache, arguments and objective.
pub(super) fn concurrency(times: Times, shape: RequestShape, limits: ConcurrencyLimits) -> f64 {
    let kv = limits
        .kv_tokens
        .map_or(f64::INFINITY, |tokens| PLANNED_KV_SHARE * tokens / (shape.input + shape.output / 2.0));
    let each = times.b + times.c * shape.computed / shape.output;
    let least = MIN_GAP_BEYOND_STEP * times.a / each;
    let itl = limits.itl.map_or(f64::INFINITY, |itl| ((itl - times.a) / each).max(least));
    kv.min(limits.max_seqs).min(itl).max(1.0)
}

/// Prompts that a step of a prefill pod computes at once, at least 1. `batch` is the number of prompt tokens of a step.
pub(super) fn prompts_at_once(shape: RequestShape, limits: ConcurrencyLimits, batch: f64) -> f64 {
    let kv =
        limits.kv_tokens.map_or(f64::INFINITY, |tokens| PLANNED_KV_SHARE * tokens / shape.input.max(1.0));
    (batch / shape.computed.max(1.0)).max(1.0).min(kv).min(limits.max_seqs).max(1.0)
}

/// Seconds, for `at_once` prompts in a step.
pub(super) fn prompt_work(times: Times, shape: RequestShape, at_once: f64) -> f64 {
    to_finite(shape.computed * times.c + times.b + times.a / at_once)
}

/// Engine time of a request with `running` concurrent sequences, seconds: `I * c + O * (b + a / running)` with
/// `I` computed tokens.
pub(super) fn work(times: Times, shape: RequestShape, running: f64) -> f64 {
    to_finite(shape.computed * times.c + shape.output * (times.b + times.a / running))
}

/// Time to first token of a request without queueing, seconds: half of the present step, then the step that computes its
/// prompt.
pub(super) fn time_to_first_token(times: Times, shape: RequestShape, running: f64) -> f64 {
    to_finite(token_gap(times, shape, running) / 2.0 + times.a + running * times.b + shape.computed * times.c)
}

/// Mean inter-token gap with `running` concurrent sequences and the prompts that they bring, seconds:
/// `a + running * (b + c * I / O)`.
pub(super) fn token_gap(times: Times, shape: RequestShape, running: f64) -> f64 {
    to_finite(times.a + running * (times.b + times.c * shape.computed / shape.output))
}
