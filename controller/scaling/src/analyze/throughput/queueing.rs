//! Engines for a part of the requests: prompts wait for a free pod (Erlang C), running sequences fill places (Little's
//! law).

use super::learning::Times;
use crate::units::to_finite;

/// Share of the prompts that may start too late.
const MAX_LATE_SHARE: f64 = 0.01;
/// Minimum share of the first token's objective for waiting.
const MIN_SLACK_SHARE: f64 = 0.1;
/// Planned share of a prefill pod's time, without an objective.
const DEFAULT_PREFILL_SHARE: f64 = 0.7;
/// Standard deviations of the running sequences for which there are places: 95 % of the time.
const RUNNING_DEVIATIONS: f64 = 1.65;
const MAX_ENGINES: f64 = 10_000.0;

/// Part of each request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RequestPart {
    Prefill {
        /// Engine time of a prompt, seconds.
        work: f64,
        /// Planned share of an engine's time.
        planned: f64,
        /// Seconds that a prompt may wait. `None`: no objective.
        slack: Option<f64>,
    },
    Decode {
        times: Times,
        /// Tokens.
        output: f64,
        /// Concurrent sequences of an engine.
        running: f64,
        /// Planned share of those places.
        planned: f64,
    },
}

/// Seconds that a prompt may wait before its own step and the first step of the decode pod.
pub(super) fn slack(objective: f64, steps: f64) -> f64 {
    (objective - steps).max(MIN_SLACK_SHARE * objective)
}

impl RequestPart {
    /// Fewest engines for so many requests a second, at least 1.
    pub(super) fn engines(&self, rate: f64) -> f64 {
        let mut engines = (rate / self.max_rate(1.0)).floor().clamp(1.0, MAX_ENGINES);
        while engines < MAX_ENGINES && !self.can_serve(rate, engines) {
            engines += 1.0;
        }
        engines
    }

    /// Requests per second, by bisection.
    pub(super) fn rate(&self, engines: f64) -> f64 {
        let (mut low, mut high) = (0.0, self.max_rate(engines));
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if self.can_serve(middle, engines) {
                low = middle;
            } else {
                high = middle;
            }
        }
        to_finite(low)
    }

    fn max_rate(&self, engines: f64) -> f64 {
        match *self {
            Self::Prefill { work, planned, .. } => engines * planned / work,
            Self::Decode { times, output, running, planned } => {
                let sequences = planned * running;
                engines * sequences / (output * (times.a + sequences * times.b))
            }
        }
    }

    fn can_serve(&self, rate: f64, engines: f64) -> bool {
        match *self {
            Self::Prefill { work, planned, slack: None } => {
                rate * work <= engines * planned.min(DEFAULT_PREFILL_SHARE)
            }
            Self::Prefill { work, planned, slack: Some(slack) } => {
                let load = rate * work;
                // Allen and Cunneen, with exponential service: no counter shows the spread of prompts.
                load < planned * engines
                    && erlang_c(engines, load) * (-slack * (engines - load) / work).exp() <= MAX_LATE_SHARE
            }
            Self::Decode { times, output, running, planned } => {
                let share = rate * output * times.b / engines;
                let sequences = rate * output * times.a / (1.0 - share);
                share < 1.0
                    && sequences <= planned * engines * running
                    && sequences + RUNNING_DEVIATIONS * sequences.sqrt() <= engines * running
            }
        }
    }
}

/// Probability that a request waits, with a load in Erlang below the number of servers.
fn erlang_c(servers: f64, load: f64) -> f64 {
    let (mut blocked, mut n) = (1.0, 1.0);
    while n <= servers {
        blocked = load * blocked / (n + load * blocked);
        n += 1.0;
    }
    servers * blocked / (servers - load * (1.0 - blocked))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFILL: RequestPart = RequestPart::Prefill { work: 0.5, planned: 0.95, slack: Some(0.4) };
    const DECODE: RequestPart = RequestPart::Decode {
        times: Times { a: 0.02, b: 0.0002, c: 0.0 },
        output: 300.0,
        running: 100.0,
        planned: 0.95,
    };

    #[test]
    fn erlang_c_is_that_of_the_textbook() {
        // Five servers at a load of 4: 0.554.
        assert!((erlang_c(5.0, 4.0) - 0.554).abs() < 0.001);
        assert!((erlang_c(1.0, 0.3) - 0.3).abs() < 1e-9);
    }

    #[test]
    fn prompts_wait_less_than_their_slack() {
        // 4 prompts a second are a load of 2. By hand: 4 engines leave 3.5 % late, 5 engines 0.6 %.
        assert!((PREFILL.engines(4.0) - 5.0).abs() < 1e-9, "{}", PREFILL.engines(4.0));
        let without = RequestPart::Prefill { work: 0.5, planned: 0.95, slack: None };
        assert!((without.engines(4.0) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn answers_have_places() {
        // 10 answers a second of 300 tokens: with 2 engines a step takes 28.6 ms and 86 run.
        assert!((DECODE.engines(10.0) - 2.0).abs() < 1e-9, "{}", DECODE.engines(10.0));
    }

    #[test]
    fn engines_serve_the_rate_they_are_asked_for() {
        for part in [PREFILL, DECODE] {
            let mut before = 0.0;
            for rate in (0..200).map(|i| 0.37 * f64::from(i)) {
                let engines = part.engines(rate);
                assert!(engines >= before && part.can_serve(rate, engines), "{part:?} {rate} {engines}");
                assert!(engines <= 1.0 || !part.can_serve(rate, engines - 1.0), "{part:?} {rate} {engines}");
                assert!(part.rate(engines) >= rate - 1e-6, "{part:?} {rate} {engines}");
                before = engines;
            }
        }
    }
}
