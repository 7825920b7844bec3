//! What waits at endpoint pickers, by model, as the engine reads it. Written by the task that asks them, whole; what is
//! not asked any more grows old and counts no longer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use wva_scaling::snapshot::{QueueFigures, SchedulerQueue};
use wva_scaling::units::Amount;

use super::endpoint::Answers;
use super::page::Waiting;
use super::{ModelKey, PERIOD};

/// How long an answer counts: a pod that is asked twice a second has missed several by then.
const COUNTS: Duration = PERIOD.saturating_mul(6);

/// What waits for each model that is asked about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Queues(BTreeMap<ModelKey, Seen>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    waiting: Waiting,
    /// The oldest answer that is in it.
    at: Instant,
}

impl Queues {
    /// Adds what the pods of one picker said of these models of its namespace, as far as it counts.
    pub(super) fn add(
        &mut self,
        namespace: &str,
        models: &BTreeSet<String>,
        answers: &Answers,
        now: Instant,
    ) {
        for (at, waiting) in answers.values().filter(|(at, _)| counts(*at, now)) {
            for model in models {
                let more = waiting.get(model).copied().unwrap_or_default();
                self.0
                    .entry((namespace.to_owned(), model.clone()))
                    .and_modify(|seen| {
                        *seen = Seen { waiting: seen.waiting.plus(more), at: seen.at.min(*at) };
                    })
                    .or_insert(Seen { waiting: more, at: *at });
            }
        }
    }

    /// One model, just looked at.
    #[cfg(test)]
    pub(crate) fn testing(namespace: &str, model: &str, size: f64) -> Self {
        let seen = Seen { waiting: Waiting { size, bytes: 0.0 }, at: Instant::now() };
        Self([((namespace.to_owned(), model.to_owned()), seen)].into())
    }

    /// The models that requests wait for.
    pub(crate) fn waiting(&self) -> BTreeSet<ModelKey> {
        let waits = |seen: &Seen| seen.waiting.size > 0.0 || seen.waiting.bytes > 0.0;
        self.0.iter().filter(|(_, seen)| waits(seen)).map(|(key, _)| key.clone()).collect()
    }

    /// What is known of a model's queue, `elsewhere` being what Prometheus has: of two figures the greater counts.
    pub(crate) fn with(&self, key: &ModelKey, elsewhere: SchedulerQueue, now: Instant) -> SchedulerQueue {
        let Some(seen) = self.0.get(key).filter(|seen| counts(seen.at, now)) else { return elsewhere };
        let before = match elsewhere {
            SchedulerQueue::Known(figures) => figures,
            SchedulerQueue::Absent | SchedulerQueue::Unknown => QueueFigures::default(),
        };
        let greater = |a: f64, b: Amount| Amount::try_from(a.max(b.get())).unwrap_or(b);
        SchedulerQueue::Known(QueueFigures {
            size: greater(seen.waiting.size, before.size),
            bytes: greater(seen.waiting.bytes, before.bytes),
        })
    }
}

fn counts(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) <= COUNTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(at: Instant, pods: &[(&str, f64)]) -> Answers {
        let page = |size: f64| [("m".to_owned(), Waiting { size, bytes: 10.0 * size })].into();
        pods.iter().map(|(pod, size)| ((*pod).into(), (at, page(*size)))).collect()
    }

    fn models() -> BTreeSet<String> {
        ["m".to_owned(), "other".to_owned()].into()
    }

    fn known(size: f64, bytes: f64) -> SchedulerQueue {
        let amount = |value: f64| Amount::try_from(value).unwrap();
        SchedulerQueue::Known(QueueFigures { size: amount(size), bytes: amount(bytes) })
    }

    fn key(namespace: &str, model: &str) -> ModelKey {
        (namespace.to_owned(), model.to_owned())
    }

    #[test]
    fn replicas_of_a_picker_have_parts_of_one_queue() {
        let now = Instant::now();
        let mut queues = Queues::default();
        queues.add("ns", &models(), &answers(now, &[("a", 2.0), ("b", 1.0)]), now);
        assert_eq!(queues.with(&key("ns", "m"), SchedulerQueue::Absent, now), known(3.0, 30.0));
        assert_eq!(queues.with(&key("ns", "other"), SchedulerQueue::Unknown, now), known(0.0, 0.0));
        assert_eq!(queues.waiting(), [key("ns", "m")].into());
        // Another namespace's model of the same name is another one.
        assert_eq!(queues.with(&key("theirs", "m"), SchedulerQueue::Unknown, now), SchedulerQueue::Unknown);
    }

    #[test]
    fn of_picker_and_prometheus_the_greater_counts() {
        let now = Instant::now();
        let mut queues = Queues::default();
        queues.add("ns", &models(), &answers(now, &[("a", 2.0)]), now);
        assert_eq!(queues.with(&key("ns", "m"), known(5.0, 1.0), now), known(5.0, 20.0));
    }

    #[test]
    fn what_was_said_long_ago_says_nothing() {
        let then = Instant::now();
        let now = then + COUNTS + Duration::from_millis(1);
        let mut queues = Queues::default();
        queues.add("ns", &models(), &answers(then, &[("a", 2.0)]), then);
        assert_eq!(queues.with(&key("ns", "m"), SchedulerQueue::Absent, now), SchedulerQueue::Absent);
        let mut later = Queues::default();
        later.add("ns", &models(), &answers(then, &[("a", 2.0)]), now);
        assert_eq!(later, Queues::default());
    }
}
