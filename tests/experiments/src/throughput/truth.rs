//! The emulated engine, and what follows from it: how long a request keeps it busy, and how many replicas a load takes.

use wva_testbed::Engine;

/// What the analyzer has to find out.
pub(super) const ENGINE: Engine = Engine { a: 0.015, b: 0.000_5, c: 0.000_05 };
/// What it believes at first.
pub(super) const BELIEVED: Engine = Engine { a: 0.025, b: 0.000_23, c: 0.000_1 };
/// Tokens a request generates.
pub(super) const OUTPUT: u32 = 128;
/// Tokens of a replica's cache, of which the analyzer plans to use so much.
const CACHE: f64 = 65_536.0;
const USED: f64 = 0.8;
/// Sequences at once, at most: vLLM's default.
const MOST: f64 = 256.0;
/// Share of a replica that is planned with where there is no objective.
const PLANNED: f64 = 0.85;

/// Requests of one shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Truth {
    input: f64,
    output: f64,
}

impl Truth {
    /// With prompts of so many tokens.
    pub(super) fn of(prompt: u32) -> Self {
        Self { input: f64::from(prompt), output: f64::from(OUTPUT) }
    }

    /// Seconds that a request keeps an engine with these times busy, where as many run at once as are planned.
    pub(super) fn work(self, engine: Engine) -> f64 {
        let running = (USED * CACHE / (self.input + self.output / 2.0)).min(MOST);
        self.input * engine.c + self.output * (engine.b + engine.a / running)
    }

    /// Replicas that so many requests a second take.
    pub(super) fn needed(self, rate: f64) -> u64 {
        let replicas = (rate * self.work(ENGINE) / PLANNED).ceil().max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and a few")]
        let replicas = replicas as u64;
        replicas
    }
}
