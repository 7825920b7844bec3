//! Equation of the prompts that a prefill pod computed.

use super::arrivals::EngineInterval;
use super::learning::{BUSY_SCALE, Equation, MIN_MEASURED, SINGLE_SCALE};

/// Exponent between an idle and a full engine. Of 1, 2, 3, 4 and 6, 4 came nearest to the work of simulated engines.
const EXPONENT: i32 = 4;

/// `batch`: most prompt tokens of a step.
///
/// No counter of vLLM shows how long an engine was busy. `prefill_seconds` counts a step once for each prompt in it, so
/// by Little's law it shows the mean number of prompts inside: the busy share of an idle engine, the prompts in a step
/// of a full one. Between both it is interpolated.
pub(super) fn prompt_equation(interval: &EngineInterval<'_>, batch: f64) -> Option<Equation> {
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
