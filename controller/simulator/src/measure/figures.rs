//! Figures of a run in tables, JSON and reports, each with a name.

use super::{Minute, Tally};
use crate::fleet::engine::to_f64;

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Name in JSON.
    pub key: &'static str,
    /// Title in tables.
    pub title: &'static str,
    /// Digits after the decimal point in tables.
    pub digits: usize,
    /// Description in reports.
    pub help: &'static str,
}

macro_rules! figures {
    ($($key:literal, $title:literal, $digits:literal, $help:literal;)*) => {
        /// All figures, in the order of the table.
        pub const FIGURES: &[Figure] = &[$(Figure { key: $key, title: $title, digits: $digits, help: $help }),*];
    };
}

figures! {
    "attainment", "in SLO %", 2, "requests that both objectives were kept for, of all that arrived";
    "ttftAttainment", "TTFT %", 2, "requests whose first token came in time";
    "itlAttainment", "ITL %", 2, "requests whose mean time between tokens was kept";
    "ttftP50", "TTFT p50 s", 3, "median time to the first token of those served";
    "ttftP99", "TTFT p99 s", 2, "99th percentile of the time to the first token";
    "itlP50", "ITL p50 ms", 1, "median of the requests' mean time between tokens";
    "itlP99", "ITL p99 ms", 1, "99th percentile of it";
    "errors", "errors %", 2, "requests that were not served";
    "gpuHours", "GPU h", 1, "hours that GPUs were held";
    "cost", "cost", 1, "replica-hours by the cost of a replica";
    "moves", "moves", 0, "changes of a variant's replicas";
    "flaps", "flaps", 0, "changes against one in the other direction in the 10 minutes before";
    "minutesOver", "min. over", 0, "minutes in which fewer requests than the objective's share were in SLO";
    "recovery", "recovery s", 0, "mean time from a step up of the load to three minutes in a row within the objective";
}

/// The values of [`FIGURES`]; NaN if there is no value.
pub type Figures = Vec<f64>;

/// Longest time between a change and its reversal.
const FLAP_SECONDS: f64 = 600.0;

impl Tally {
    /// `steps_up`: times at which the load jumped, seconds.
    #[must_use]
    pub fn figures(&self, steps_up: &[f64]) -> Figures {
        let all = to_f64(self.arrived());
        let share = |n: u64| 100.0 * to_f64(n) / all;
        vec![
            share(self.good),
            share(self.ttft_kept),
            share(self.itl_kept),
            self.ttft.quantile(0.5),
            self.ttft.quantile(0.99),
            1000.0 * self.itl.quantile(0.5),
            1000.0 * self.itl.quantile(0.99),
            share(self.lost.iter().sum()),
            self.gpu_hours,
            self.cost,
            to_f64(self.moves.len() as u64),
            to_f64(self.flaps()),
            to_f64(self.minutes.iter().filter(|m| !self.is_within_objective(m)).count() as u64),
            self.recovery(steps_up),
        ]
    }

    fn is_within_objective(&self, minute: &Minute) -> bool {
        f64::from(minute.good) >= self.objectives.attainment * f64::from(minute.arrived)
    }

    fn flaps(&self) -> u64 {
        let mut flaps = 0;
        for (i, this) in self.moves.iter().enumerate() {
            let before = self.moves[..i].iter().rev().find(|m| m.variant == this.variant);
            let turned = before
                .is_some_and(|b| this.at - b.at <= FLAP_SECONDS && (b.to > b.from) != (this.to > this.from));
            flaps += u64::from(turned);
        }
        flaps
    }

    /// Mean seconds after a step. A step without recovery counts until the next step or the end.
    fn recovery(&self, steps_up: &[f64]) -> f64 {
        let end = 60.0 * to_f64(self.minutes.len() as u64);
        let ends = steps_up.iter().skip(1).copied().chain([end]);
        let times = steps_up.iter().zip(ends).map(|(step, end)| self.recovery_time(*step, end) - step);
        times.sum::<f64>() / to_f64(steps_up.len() as u64)
    }

    fn recovery_time(&self, step: f64, end: f64) -> f64 {
        let mut good = 0;
        for (i, minute) in (0_u32..).zip(&self.minutes) {
            let begins = 60.0 * f64::from(i);
            if begins < step || begins >= end {
                continue;
            }
            good = if self.is_within_objective(minute) { good + 1 } else { 0 };
            if good == 3 {
                return begins - 120.0;
            }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Move, Objectives};
    use super::*;
    use crate::fleet::LossReason;
    use crate::fleet::server::{Request, ServedRequest};

    fn tally() -> Tally {
        Tally::new(Objectives { ttft: 1.0, itl: 0.05, attainment: 0.9 })
    }

    fn served(arrived: f64, ttft: f64, itl: f64) -> ServedRequest {
        let first_token = arrived + ttft;
        ServedRequest {
            request: Request { arrived, input: 10, output: 11 },
            first_token,
            ended: first_token + 10.0 * itl,
        }
    }

    fn figure(tally: &Tally, key: &str, steps: &[f64]) -> f64 {
        tally.figures(steps)[FIGURES.iter().position(|f| f.key == key).unwrap()]
    }

    #[track_caller]
    fn is(got: f64, want: f64) {
        assert!((got - want).abs() < 1e-9, "{got}, not {want}");
    }

    #[test]
    fn a_request_counts_where_both_objectives_are_kept() {
        let mut tally = tally();
        for (ttft, itl) in [(0.5, 0.04), (1.5, 0.04), (0.5, 0.06), (1.5, 0.06)] {
            tally.count_served(&served(0.0, ttft, itl));
        }
        tally.count_lost(0.0, LossReason::Refused);
        is(figure(&tally, "attainment", &[]), 20.0);
        is(figure(&tally, "ttftAttainment", &[]), 40.0);
        is(figure(&tally, "itlAttainment", &[]), 40.0);
        is(figure(&tally, "errors", &[]), 20.0);
    }

    #[test]
    fn a_reversal_within_ten_minutes_is_a_flap() {
        let mut tally = tally();
        let moved = |at, variant, from, to| Move { at, variant, from, to };
        tally.moves = vec![
            moved(0.0, 0, 1, 3),
            moved(60.0, 1, 3, 2),
            moved(120.0, 0, 3, 2),
            moved(900.0, 0, 2, 3),
            moved(960.0, 0, 3, 4),
        ];
        is(figure(&tally, "moves", &[]), 5.0);
        is(figure(&tally, "flaps", &[]), 1.0);
    }

    #[test]
    fn recovery_is_the_first_of_three_good_minutes_after_a_step() {
        let mut tally = tally();
        let good = [1, 1, 0, 0, 1, 0, 1, 1, 1, 1, 0, 0];
        for (i, good) in (0_u32..).zip(good) {
            tally.count_served(&served(60.0 * f64::from(i), if good == 1 { 0.1 } else { 9.0 }, 0.01));
        }
        is(figure(&tally, "minutesOver", &[]), 5.0);
        is(figure(&tally, "recovery", &[120.0]), 240.0);
        is(figure(&tally, "recovery", &[120.0, 600.0]), 180.0);
        assert!(figure(&tally, "recovery", &[]).is_nan());
    }
}
