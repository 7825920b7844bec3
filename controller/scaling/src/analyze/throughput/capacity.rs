//! What a replica can do: requests a second, from the times of its engine's steps and the shape of the requests.

use super::learning::Times;
use crate::units::finite;

/// Share of the KV cache that is planned to be used.
const KV: f64 = 0.8;

/// The least time between two tokens that is planned for beyond a step that runs nothing, in parts of that: an objective
/// that asks for less cannot be met by more replicas.
const BEYOND: f64 = 0.1;

/// Mean tokens of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) input: f64,
    /// Above 0.
    pub(super) output: f64,
}

/// What bounds the sequences that run at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Room {
    /// Tokens of KV cache, where they are known.
    pub(super) kv_tokens: Option<f64>,
    /// `--max-num-seqs`.
    pub(super) max_seqs: f64,
    /// Objective between two tokens, in seconds.
    pub(super) itl: Option<f64>,
}

/// Sequences that a replica may run at once.
pub(super) fn running(times: Times, shape: Shape, room: Room) -> f64 {
    let kv = room.kv_tokens.map_or(f64::INFINITY, |tokens| KV * tokens / (shape.input + shape.output / 2.0));
    let each = times.b + times.c * shape.input / shape.output;
    let itl = room.itl.map_or(f64::INFINITY, |itl| ((itl - times.a) / each).max(BEYOND * times.a / each));
    kv.min(room.max_seqs).min(itl).max(1.0)
}

/// Seconds of an engine that a request takes where so many run at once.
pub(super) fn work(times: Times, shape: Shape, running: f64) -> f64 {
    finite(shape.input * times.c + shape.output * (times.b + times.a / running))
}

/// Seconds to the first token of a request that need not wait for others: half of a step that is under way, and the one
/// that computes its prompt beside what runs.
pub(super) fn first_token(times: Times, shape: Shape, running: f64) -> f64 {
    finite(gap(times, shape, running) / 2.0 + times.a + running * times.b + shape.input * times.c)
}

/// Seconds between two tokens of a request where so many run at once and prompts come with them.
pub(super) fn gap(times: Times, shape: Shape, running: f64) -> f64 {
    finite(times.a + running * (times.b + times.c * shape.input / shape.output))
}
