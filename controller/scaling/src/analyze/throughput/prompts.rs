//! Prompts: the share that engines compute, and the equation of those that a prefill pod computed.

use super::arrivals::EngineInterval;
use super::learning::{BUSY_SCALE, Equation, MIN_MEASURED, SINGLE_SCALE};
use crate::snapshot::{PromptShare, Role, ThroughputMemory};
use crate::units::{amount, to_finite};
use crate::view::ModelView;

/// Exponent between an idle and a full engine. Of 1, 2, 3, 4 and 6, 4 came nearest to the work of simulated engines.
const EXPONENT: i32 = 4;

/// Time after which prompt tokens count about a third, seconds: that of the mean lengths of requests.
const SHARE_SECONDS: f64 = 300.0;

/// Records how many prompt tokens the engines computed, once a server counts those of its cache.
pub(super) fn record_share(
    model: &ModelView,
    memory: &mut ThroughputMemory,
    intervals: &[EngineInterval],
    passed: f64,
) {
    // vLLM counts the whole prompt at the decode pod as well.
    let is_receiving = |i: &&EngineInterval| model.variants[i.variant].variant.role != Some(Role::Decode);
    let (mut computed, mut cached) = (0.0, 0.0);
    for interval in intervals.iter().filter(is_receiving) {
        computed += interval.prompt;
        cached += interval.cached;
    }
    let PromptShare { computed: before, all } = memory.prompts;
    if cached <= 0.0 && all.get() <= 0.0 {
        return;
    }
    let fades = (-passed / SHARE_SECONDS).exp();
    memory.prompts = PromptShare {
        computed: amount(to_finite(fades * before.get() + computed)),
        all: amount(to_finite(fades * all.get() + computed + cached)),
    };
}

/// Share of the prompt tokens that engines compute, 0 to 1.
pub(super) fn computed_share(memory: &ThroughputMemory) -> f64 {
    let PromptShare { computed, all } = memory.prompts;
    if all.get() > 0.0 { (computed.get() / all.get()).min(1.0) } else { 1.0 }
}

/// `batch`: most prompt tokens of a step.
///
/// No counter of vLLM shows how long an engine was busy. `prefill_seconds` counts a step once for each prompt in it, so
/// by Little's law it shows the mean number of prompts inside: the busy share of an idle engine, the prompts in a step
/// of a full one. Between both it is interpolated.
pub(super) fn prompt_equation(interval: &EngineInterval, batch: f64) -> Option<Equation> {
    if interval.prefills < 1.0 || interval.prompt <= 0.0 {
        return None;
    }
    let at_once = (batch * interval.prefills / interval.prompt).max(1.0);
    let busy = if interval.is_queueing {
        1.0
    } else {
        busy_share(interval.prefill_seconds / interval.seconds, at_once)
    };
    let measured = busy * interval.seconds;
    let shared = if interval.is_queueing {
        at_once
    } else {
        (interval.prefill_seconds / measured).clamp(1.0, at_once)
    };
    let steps = (interval.prefills / shared).max(interval.prompt / batch);
    let scale = if interval.is_queueing { BUSY_SCALE } else { SINGLE_SCALE };
    let equation = Equation { measured, coefficients: [steps, interval.prefills, interval.prompt], scale };
    (measured > MIN_MEASURED && steps.is_finite()).then_some(equation)
}

/// Root of `busy * (1 + (at_once - 1) * busy^4) = inside`, by bisection.
fn busy_share(inside: f64, at_once: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let middle: f64 = f64::midpoint(low, high);
        if middle * (1.0 + (at_once - 1.0) * middle.powi(EXPONENT)) < inside {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolates_between_an_idle_and_a_full_engine() {
        assert!((busy_share(0.05, 8.0) - 0.05).abs() < 0.001, "prompts rarely meet");
        assert!((busy_share(8.0, 8.0) - 1.0).abs() < 1e-9, "every step is full");
        assert!((busy_share(20.0, 8.0) - 1.0).abs() < 1e-9, "no more than all the time");
        assert!((busy_share(0.5, 1.0) - 0.5).abs() < 1e-9, "one prompt a step");
    }
}
