//! When the pods of a picker are queried: a backoff for those without useful answers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::PERIOD;

/// Wait until the next request to a useless pod while a model is at zero.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
/// Longest time to the next request if the answer is invalid or too long, or no model is at zero.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// The page of an endpoint picker.
    Useful,
    /// No answer, or the page of another program.
    Useless,
    /// The answer is not a metrics page, or is too long.
    Invalid,
}

#[derive(Debug, Default)]
pub(super) struct Schedule(BTreeMap<Box<str>, NextRequest>);

#[derive(Debug)]
struct NextRequest {
    at: Instant,
    /// Consecutive useless answers.
    useless: u32,
}

impl Schedule {
    pub(super) fn is_due(&self, pod: &str, now: Instant) -> bool {
        // Ticks are not exact.
        self.0.get(pod).is_none_or(|next| next.at <= now + PERIOD / 5)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.0.retain(|pod, _| exists(pod));
    }

    /// `is_urgent`: a model of the picker is at zero or wakes.
    pub(super) fn record(&mut self, pod: Box<str>, answer: AnswerKind, is_urgent: bool, now: Instant) {
        let next = self.0.entry(pod).or_insert(NextRequest { at: now, useless: 0 });
        let longest = if is_urgent && answer != AnswerKind::Invalid { LONGEST_WAIT } else { LONGEST_PAUSE };
        let wait = match answer {
            AnswerKind::Useful if is_urgent => PERIOD,
            AnswerKind::Useful => LONGEST_PAUSE,
            AnswerKind::Useless | AnswerKind::Invalid => {
                PERIOD.saturating_mul(1 << next.useless.min(6)).min(longest)
            }
        };
        next.useless = if answer == AnswerKind::Useful { 0 } else { next.useless.saturating_add(1) };
        next.at = now + wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backs_off_from_useless_pods() {
        let waits = |answer: AnswerKind, is_urgent: bool| {
            let (mut schedule, now) = (Schedule::default(), Instant::now());
            let mut wait = || {
                schedule.record("p".into(), answer, is_urgent, now);
                schedule.0["p"].at.duration_since(now).as_millis()
            };
            [wait(), wait(), wait(), wait(), wait(), wait(), wait(), wait()]
        };
        assert_eq!(waits(AnswerKind::Useful, true), [500; 8]);
        assert_eq!(waits(AnswerKind::Useful, false), [30_000; 8]);
        assert_eq!(waits(AnswerKind::Useless, true), [500, 1000, 2000, 3000, 3000, 3000, 3000, 3000]);
        let rarely = [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000];
        assert_eq!(waits(AnswerKind::Useless, false), rarely);
        assert_eq!(waits(AnswerKind::Invalid, true), rarely);
    }
}
