//! The emulated engine, the work of a request, and the replicas that a load needs.

use wva_testbed::Engine;

/// True times, which the analyzer must learn.
pub(super) const ENGINE: Engine = Engine { a: 0.015, b: 0.000_5, c: 0.000_05 };
/// Initial estimate of the analyzer.
pub(super) const BELIEVED: Engine = Engine { a: 0.025, b: 0.000_23, c: 0.000_1 };
/// Output tokens per request.
pub(super) const OUTPUT: u32 = 128;
/// KV cache of a replica in tokens, and the share that the analyzer plans to use.
const CACHE: f64 = 65_536.0;
const USED: f64 = 0.8;
/// Maximum number of running sequences: vLLM's default.
const MOST: f64 = 256.0;
/// Planned share of a replica without an objective, 0..=1.
const PLANNED: f64 = 0.85;

/// Requests of one shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Truth {
    input: f64,
    output: f64,
}

impl Truth {
    /// Requests with this number of prompt tokens.
    pub(super) fn new(prompt: u32) -> Self {
        Self { input: f64::from(prompt), output: f64::from(OUTPUT) }
    }

    /// Engine seconds per request with these times, at the planned number of running requests.
    pub(super) fn work(self, engine: Engine) -> f64 {
        let running = (USED * CACHE / (self.input + self.output / 2.0)).min(MOST);
        self.input * engine.c + self.output * (engine.b + engine.a / running)
    }

    /// Replicas needed for this number of requests per second.
    pub(super) fn needed(self, rate: f64) -> u64 {
        let replicas = (rate * self.work(ENGINE) / PLANNED).ceil().max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and a few")]
        let replicas = replicas as u64;
        replicas
    }
}
