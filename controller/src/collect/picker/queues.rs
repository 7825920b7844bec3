//! Queues at endpoint pickers, by model, as the engine reads them. The task that asks the pickers writes them as a whole;
//! what it no longer asks for grows too old to count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use wva_scaling::snapshot::{QueueFigures, SchedulerQueue, WakeObstacle};
use wva_scaling::units::Amount;

use super::endpoint::{Answers, PodAnswer};
use super::{PERIOD, PickerKey};
use crate::collect::totals::QueueTotals;
use crate::model::keys::ModelKey;

/// How long an answer counts: a pod that is asked twice a second has missed several by then.
const COUNTS: Duration = PERIOD.saturating_mul(6);
/// How long a picker may take to show its pods and to answer for the first time.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// The queue of each model that pickers are asked about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Queues {
    seen: BTreeMap<ModelKey, QueueSample>,
    /// Models whose queue some pod of a picker has not shown lately.
    partial: BTreeSet<ModelKey>,
    /// Whether pickers would queue requests for models at zero.
    pickers: BTreeMap<PickerKey, FlowControl>,
}

/// Flow control of a picker.
#[derive(Clone, Debug, PartialEq)]
struct FlowControl {
    /// Why it wakes no model.
    obstacle: Option<WakeObstacle>,
    /// Models whose requests it may report under another name.
    unnamed: BTreeSet<String>,
}

/// A model's queue at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct QueueSample {
    waiting: QueueTotals,
    /// The oldest answer that is in it.
    at: Instant,
}

impl Queues {
    /// Adds the queues of these models at the pods of one picker, as far as they count.
    pub(super) fn add(
        &mut self,
        namespace: &str,
        models: &BTreeSet<String>,
        answers: &Answers,
        now: Instant,
    ) {
        for model in models {
            let key = ModelKey::new(namespace, model);
            let samples: Vec<QueueSample> =
                answers.values().filter_map(|a| sample_of(a, model, now)).collect();
            if answers.is_empty() || samples.len() < answers.len() {
                self.partial.insert(key.clone());
            }
            let all = samples.into_iter().chain(self.seen.remove(&key)).reduce(QueueSample::and);
            self.seen.extend(all.map(|seen| (key, seen)));
        }
    }

    /// Notes the flow control that the pods of a picker show, which is asked `since` then. The last page of a pod counts
    /// as long as the pod exists.
    pub(super) fn note(&mut self, picker: PickerKey, answers: &Answers, since: Instant, now: Instant) {
        let pages = || answers.values().filter_map(|answer| answer.page.as_ref()).map(|(_, page)| page);
        let failed = answers.values().any(|answer| answer.failed)
            || now.saturating_duration_since(since) >= FIRST_ANSWER;
        let obstacle = if pages().any(|page| page.has_flow_control) {
            None
        } else if pages().next().is_some() {
            Some(WakeObstacle::NoFlowControl)
        } else if failed {
            Some(WakeObstacle::Unreadable)
        } else {
            Some(WakeObstacle::NotRead)
        };
        let unnamed = pages().flat_map(|page| &page.unnamed).cloned().collect();
        self.pickers.insert(picker, FlowControl { obstacle, unnamed });
    }

    /// Notes a picker that is not asked because there are too many.
    pub(super) fn note_excess(&mut self, picker: PickerKey) {
        let obstacle = Some(WakeObstacle::Unreadable);
        self.pickers.insert(picker, FlowControl { obstacle, unnamed: BTreeSet::new() });
    }

    /// Why requests at a picker would not wake a model.
    pub(super) fn obstacle(&self, picker: &PickerKey, model: &str) -> Option<WakeObstacle> {
        let Some(known) = self.pickers.get(picker) else { return Some(WakeObstacle::NotRead) };
        known.obstacle.or_else(|| known.unnamed.contains(model).then_some(WakeObstacle::NameNotReported))
    }

    /// The same with this flow control of the picker `epp` of a namespace.
    #[cfg(test)]
    pub(crate) fn with_flow_control(mut self, namespace: &str, obstacle: Option<WakeObstacle>) -> Self {
        let picker = PickerKey { namespace: namespace.into(), service: "epp".into() };
        self.pickers.insert(picker, FlowControl { obstacle, unnamed: BTreeSet::new() });
        self
    }

    /// One model, just looked at, however long a test takes. Flow control of its picker was seen.
    #[cfg(test)]
    pub(crate) fn testing(namespace: &str, model: &str, size: f64) -> Self {
        let at = Instant::now() + Duration::from_hours(1);
        let seen = QueueSample { waiting: QueueTotals { size, bytes: 0.0 }, at };
        let seen = [(ModelKey::new(namespace, model), seen)].into();
        Self { seen, ..Self::default() }.with_flow_control(namespace, None)
    }

    /// The models that requests wait for.
    pub(crate) fn waiting(&self) -> BTreeSet<ModelKey> {
        self.seen.iter().filter(|(_, seen)| seen.waiting.is_any()).map(|(key, _)| key.clone()).collect()
    }

    /// Whether pickers are asked about a model, and all their pods have shown its queue lately.
    pub(super) fn is_whole(&self, key: &ModelKey, now: Instant) -> bool {
        !self.partial.contains(key) && self.seen.get(key).is_some_and(|seen| counts(seen.at, now))
    }

    /// A model's queue, or the one that Prometheus shows `elsewhere`: of two values the greater counts.
    pub(crate) fn with(&self, key: &ModelKey, elsewhere: SchedulerQueue, now: Instant) -> SchedulerQueue {
        let Some(seen) = self.seen.get(key).filter(|seen| counts(seen.at, now)) else { return elsewhere };
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

impl QueueSample {
    /// Pods of a picker have parts of one queue.
    fn and(self, other: Self) -> Self {
        Self { waiting: self.waiting.plus(other.waiting), at: self.at.min(other.at) }
    }
}

/// The queue of a model at a pod, where it counts.
fn sample_of(answer: &PodAnswer, model: &str, now: Instant) -> Option<QueueSample> {
    let (at, page) = answer.page.as_ref()?;
    let waiting = page.waiting.get(model).filter(|_| counts(*at, now))?;
    Some(QueueSample { waiting: *waiting, at: *at })
}

fn counts(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) <= COUNTS
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::collect::picker::page::PickerPage;

    fn answers(at: Instant, pods: &[(&str, f64)]) -> Answers {
        let page = |size: f64| {
            let waiting = QueueTotals { size, bytes: 10.0 * size };
            [("m".to_owned(), waiting), ("other".to_owned(), QueueTotals::default())].into()
        };
        let answer =
            |size| PickerPage { waiting: page(size), has_flow_control: true, ..PickerPage::default() };
        pods.iter().map(|(pod, size)| ((*pod).into(), answered(at, answer(*size)))).collect()
    }

    fn answered(at: Instant, page: PickerPage) -> PodAnswer {
        PodAnswer { page: Some((at, page)), failed: false }
    }

    #[test]
    fn a_picker_wakes_a_model_once_its_flow_control_was_seen() {
        let then = Instant::now();
        let key = PickerKey { namespace: "ns".into(), service: "epp".into() };
        let obstacle = |answers: &[PodAnswer], after: u64| {
            let pods = answers.iter().enumerate().map(|(i, a)| (i.to_string().into(), a.clone())).collect();
            let mut queues = Queues::default();
            queues.note(key.clone(), &pods, then, then + Duration::from_secs(after));
            queues.obstacle(&key, "m")
        };
        let shows =
            |has_flow_control| answered(then, PickerPage { has_flow_control, ..PickerPage::default() });
        let unnamed =
            PickerPage { has_flow_control: true, unnamed: ["m".to_owned()].into(), ..PickerPage::default() };
        let failed = PodAnswer { failed: true, ..PodAnswer::default() };
        assert_eq!(obstacle(&[], 9), Some(WakeObstacle::NotRead));
        assert_eq!(obstacle(&[PodAnswer::default()], 9), Some(WakeObstacle::NotRead));
        assert_eq!(obstacle(&[], 10), Some(WakeObstacle::Unreadable));
        assert_eq!(obstacle(slice::from_ref(&failed), 0), Some(WakeObstacle::Unreadable));
        assert_eq!(obstacle(&[shows(false)], 0), Some(WakeObstacle::NoFlowControl));
        assert_eq!(obstacle(&[shows(true), shows(false), failed], 100), None);
        assert_eq!(obstacle(&[PodAnswer { failed: true, ..shows(true) }], 3600), None, "it was seen");
        assert_eq!(obstacle(&[shows(true), answered(then, unnamed)], 0), Some(WakeObstacle::NameNotReported));
        let unknown = Queues::default().obstacle(&key, "m");
        assert_eq!(unknown, Some(WakeObstacle::NotRead), "it is not asked");
    }

    fn models() -> BTreeSet<String> {
        ["m".to_owned(), "other".to_owned()].into()
    }

    fn known(size: f64, bytes: f64) -> SchedulerQueue {
        let amount = |value: f64| Amount::try_from(value).unwrap();
        SchedulerQueue::Known(QueueFigures { size: amount(size), bytes: amount(bytes) })
    }

    fn key(namespace: &str, model: &str) -> ModelKey {
        ModelKey::new(namespace, model)
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
        assert_eq!(later.with(&key("ns", "m"), SchedulerQueue::Absent, now), SchedulerQueue::Absent);
        assert_eq!(later.waiting(), [].into());
        // Of several parts the oldest is what counts.
        let (mut parts, newest) = (answers(then, &[("a", 2.0)]), then + COUNTS);
        parts.extend(answers(newest, &[("b", 1.0)]));
        let mut together = Queues::default();
        together.add("ns", &models(), &parts, newest);
        assert_eq!(together.with(&key("ns", "m"), SchedulerQueue::Absent, newest), known(3.0, 30.0));
        assert_eq!(together.with(&key("ns", "m"), SchedulerQueue::Absent, now), SchedulerQueue::Absent);
    }

    #[test]
    fn a_queue_is_whole_where_every_pod_has_said_what_waits() {
        let then = Instant::now();
        let now = then + COUNTS;
        let (m, late) = (key("ns", "m"), now + Duration::from_millis(1));
        let whole = |pickers: &[Answers], now: Instant| {
            let mut queues = Queues::default();
            for answers in pickers {
                queues.add("ns", &models(), answers, now);
            }
            queues.is_whole(&m, now)
        };
        let both = answers(then, &[("a", 0.0), ("b", 1.0)]);
        assert!(whole(slice::from_ref(&both), now));
        assert!(!whole(slice::from_ref(&both), late), "that was long ago");
        assert!(!whole(&[], now), "nobody is asked");
        assert!(!whole(&[Answers::new()], now), "there is no pod");
        assert!(!whole(&[both.clone(), Answers::new()], now), "another picker has none");
        let mut hung = both.clone();
        hung.insert("c".into(), PodAnswer { failed: true, ..PodAnswer::default() });
        assert!(!whole(&[hung], now), "one has given no answer");
        let mut before = both;
        before.insert("c".into(), answered(then, PickerPage::default()));
        assert!(!whole(&[before], now), "one was asked about other models");
    }
}
