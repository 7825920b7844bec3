//! Tests of queues by model.

use std::slice;

use super::*;
use crate::collect::picker::page::PickerPage;
use crate::collect::picker::refused::{self, RefusedCounts};

fn answers(at: Instant, pods: &[(&str, f64)]) -> Answers {
    let page = |size: f64| {
        let waiting = QueueTotals { size, bytes: 10.0 * size };
        [("m".to_owned(), waiting), ("other".to_owned(), QueueTotals::default())].into()
    };
    let answer = |size| PickerPage {
        waiting: page(size),
        flow_control: FlowControlState::On,
        ..PickerPage::default()
    };
    pods.iter().map(|(pod, size)| ((*pod).into(), answered(at, answer(*size)))).collect()
}

fn answered(at: Instant, page: PickerPage) -> PodAnswer {
    PodAnswer { page: Some((at, page)), ..PodAnswer::default() }
}

#[test]
fn picker_can_wake_a_model_once_flow_control_is_seen() {
    let then = Instant::now();
    let key = PickerKey::service("ns", "epp");
    let obstacle = |answers: &[PodAnswer], after: u64| {
        let pods = answers.iter().enumerate().map(|(i, a)| (i.to_string().into(), a.clone())).collect();
        let mut queues = Queues::default();
        queues.set_flow_control(key.clone(), &pods, false, then, then + Duration::from_secs(after));
        queues.obstacle(&key, "m", false)
    };
    let state = |flow_control| answered(then, PickerPage { flow_control, ..PickerPage::default() });
    let shows = |is_on| state(if is_on { FlowControlState::On } else { FlowControlState::Off });
    let unnamed = PickerPage {
        flow_control: FlowControlState::On,
        unnamed: ["m".to_owned()].into(),
        ..PickerPage::default()
    };
    let failed = PodAnswer::default().failed();
    assert_eq!(obstacle(&[], 9), Some(WakeObstacle::NotRead));
    assert_eq!(obstacle(&[PodAnswer::default()], 9), Some(WakeObstacle::NotRead));
    assert_eq!(obstacle(&[], 10), Some(WakeObstacle::Unreadable));
    assert_eq!(obstacle(slice::from_ref(&failed), 0), Some(WakeObstacle::Unreadable));
    assert_eq!(obstacle(&[shows(false)], 0), Some(WakeObstacle::NoFlowControl));
    assert_eq!(obstacle(&[shows(true), shows(false), failed], 100), None);
    let not_yet = state(FlowControlState::NotYetShown);
    assert_eq!(obstacle(slice::from_ref(&not_yet), 0), Some(WakeObstacle::FlowControlNotShown));
    assert_eq!(obstacle(&[not_yet.clone(), shows(false)], 0), Some(WakeObstacle::NoFlowControl));
    assert_eq!(obstacle(&[not_yet, shows(true)], 0), None);
    let fails_since = shows(true).failed();
    assert_eq!(obstacle(slice::from_ref(&fails_since), 60), None, "it was seen a minute ago");
    assert_eq!(obstacle(&[fails_since], 61), Some(WakeObstacle::Unreadable));
    assert_eq!(obstacle(&[shows(true)], 61), None, "it is read only every half minute");
    let mut at_zero = Queues::default();
    let pods = [("0".into(), shows(true))].into();
    at_zero.set_flow_control(key.clone(), &pods, true, then, then + Duration::from_secs(61));
    assert_eq!(at_zero.obstacle(&key, "m", false), Some(WakeObstacle::Unreadable), "no page for a minute");
    assert_eq!(obstacle(&[shows(true), answered(then, unnamed)], 0), Some(WakeObstacle::NameNotReported));
    let unknown = Queues::default().obstacle(&key, "m", false);
    assert_eq!(unknown, Some(WakeObstacle::NotRead), "the picker is not polled");
}

fn query() -> PickerQuery {
    let models = ["m".to_owned(), "other".to_owned()].into();
    PickerQuery { models, ..PickerQuery::default() }
}

fn known(size: f64, bytes: f64) -> SchedulerQueue {
    let amount = |value: f64| Amount::try_from(value).unwrap();
    SchedulerQueue::Known(QueueFigures {
        size: amount(size),
        bytes: amount(bytes),
        ..QueueFigures::default()
    })
}

fn key(namespace: &str, model: &str) -> ModelKey {
    ModelKey::new(namespace, model)
}

#[test]
fn sums_the_queue_over_the_replicas_of_a_picker() {
    let now = Instant::now();
    let mut queues = Queues::default();
    queues.add("ns", &query(), &answers(now, &[("a", 2.0), ("b", 1.0)]), now);
    assert_eq!(queues.max_with(&key("ns", "m"), SchedulerQueue::Absent, now), known(3.0, 30.0));
    assert_eq!(queues.max_with(&key("ns", "other"), SchedulerQueue::Unknown, now), known(0.0, 0.0));
    assert_eq!(queues.waiting(), [key("ns", "m")].into());
    // A model of the same name in another namespace is a different model.
    assert_eq!(queues.max_with(&key("theirs", "m"), SchedulerQueue::Unknown, now), SchedulerQueue::Unknown);
}

#[test]
fn takes_the_maximum_of_picker_and_prometheus() {
    let now = Instant::now();
    let mut queues = Queues::default();
    queues.add("ns", &query(), &answers(now, &[("a", 2.0)]), now);
    assert_eq!(queues.max_with(&key("ns", "m"), known(5.0, 1.0), now), known(5.0, 20.0));
}

#[test]
fn ignores_expired_answers() {
    let then = Instant::now();
    let now = then + MAX_AGE + Duration::from_millis(1);
    let mut queues = Queues::default();
    queues.add("ns", &query(), &answers(then, &[("a", 2.0)]), then);
    assert_eq!(queues.max_with(&key("ns", "m"), SchedulerQueue::Absent, now), SchedulerQueue::Absent);
    let mut later = Queues::default();
    later.add("ns", &query(), &answers(then, &[("a", 2.0)]), now);
    assert_eq!(later.max_with(&key("ns", "m"), SchedulerQueue::Absent, now), SchedulerQueue::Absent);
    assert_eq!(later.waiting(), [].into());
    // Of several parts the oldest counts.
    let (mut parts, newest) = (answers(then, &[("a", 2.0)]), then + MAX_AGE);
    parts.extend(answers(newest, &[("b", 1.0)]));
    let mut together = Queues::default();
    together.add("ns", &query(), &parts, newest);
    assert_eq!(together.max_with(&key("ns", "m"), SchedulerQueue::Absent, newest), known(3.0, 30.0));
    assert_eq!(together.max_with(&key("ns", "m"), SchedulerQueue::Absent, now), SchedulerQueue::Absent);
}

#[test]
fn queue_is_complete_if_every_pod_answered_recently() {
    let then = Instant::now();
    let now = then + MAX_AGE;
    let (m, late) = (key("ns", "m"), now + Duration::from_millis(1));
    let is_complete = |pickers: &[Answers], now: Instant| {
        let mut queues = Queues::default();
        for answers in pickers {
            queues.add("ns", &query(), answers, now);
        }
        queues.is_complete(&m, now)
    };
    let both = answers(then, &[("a", 0.0), ("b", 1.0)]);
    assert!(is_complete(slice::from_ref(&both), now));
    assert!(!is_complete(slice::from_ref(&both), late), "the answers have expired");
    assert!(!is_complete(&[], now), "no picker is polled");
    assert!(!is_complete(&[Answers::new()], now), "the picker has no pods");
    assert!(!is_complete(&[both.clone(), Answers::new()], now), "another picker has no pods");
    let mut hung = both.clone();
    hung.insert("c".into(), PodAnswer::default().failed());
    assert!(!is_complete(&[hung], now), "one pod did not answer");
    let mut before = both;
    before.insert("c".into(), answered(then, PickerPage::default()));
    assert!(!is_complete(&[before], now), "one pod was polled for other models");
}

#[test]
fn refused_requests_of_all_pods_count_until_they_expire() {
    let now = Instant::now();
    let mut pods = answers(now, &[("a", 0.0), ("b", 0.0)]);
    for (answer, count) in pods.values_mut().zip([2.0, 3.0]) {
        let by_model = [("m".to_owned(), count), ("other".to_owned(), 0.0)].into();
        let counts = RefusedCounts { by_model, started: Some(1.0), ..RefusedCounts::default() };
        answer.refused.add(counts, |_, _| Some(1.0), now);
    }
    let mut queues = Queues::default();
    queues.add("ns", &query(), &pods, now);
    let refused = |key: &ModelKey, prometheus, now| match queues.max_with(key, prometheus, now) {
        SchedulerQueue::Known(figures) => Some((figures.refused.get(), figures.size.get())),
        _ => None,
    };
    let m = key("ns", "m");
    assert_eq!(refused(&m, SchedulerQueue::Unknown, now), Some((3.0, 0.0)));
    assert_eq!(refused(&m, known(5.0, 1.0), now + MAX_AGE * 2), Some((3.0, 5.0)), "the queue has expired");
    let late = now + refused::MAX_AGE + Duration::from_millis(1);
    assert_eq!(refused(&m, SchedulerQueue::Unknown, late), None);
    assert_eq!(queues.waiting(), [m.clone()].into(), "the other model has none");
    let counts = queues.refused_counts(&m).unwrap();
    let counts: Vec<_> = counts.iter().map(|c| (c.pod.as_str(), c.count)).collect();
    assert_eq!(counts, [("a", 2), ("b", 3)]);
}

#[test]
fn requests_during_a_wake_fail_only_where_they_are_held() {
    let now = Instant::now();
    let failed_at = |flow_control, waking: &str| {
        let mut pods = answers(now, &[("a", 0.0)]);
        let answer = pods.get_mut("a").unwrap();
        answer.page.as_mut().unwrap().1.flow_control = flow_control;
        let counts = RefusedCounts { by_model: [("m".to_owned(), 2.0)].into(), ..RefusedCounts::default() };
        answer.refused.add(counts, |_, _| Some(1.0), now);
        let mut queues = Queues::default();
        queues.add(
            "ns",
            &PickerQuery { waking: [waking.to_owned()].into(), ..PickerQuery::default() },
            &pods,
            now,
        );
        queues.failed_at(&key("ns", "m"))
    };
    assert_eq!(failed_at(FlowControlState::On, "m"), Some(now));
    assert_eq!(failed_at(FlowControlState::On, "other"), None);
    assert_eq!(
        failed_at(FlowControlState::Off, "m"),
        None,
        "such a picker fails every request until a replica is ready"
    );
}

#[test]
fn refused_requests_are_enough_if_all_pods_count_them() {
    let (now, key) = (Instant::now(), PickerKey::service("ns", "epp"));
    let obstacle = |pages: &[PickerPage], may_fail| {
        let answers = pages.iter().enumerate();
        let answers = answers.map(|(i, page)| (i.to_string().into(), answered(now, page.clone()))).collect();
        let mut queues = Queues::default();
        queues.set_flow_control(key.clone(), &answers, false, now, now);
        queues.obstacle(&key, "m", may_fail)
    };
    let picker = PickerPage { is_picker: true, ..PickerPage::default() };
    let no_flow_control = Some(WakeObstacle::NoFlowControl);
    assert_eq!(obstacle(slice::from_ref(&picker), false), no_flow_control);
    assert_eq!(obstacle(slice::from_ref(&picker), true), None);
    assert_eq!(obstacle(&[picker.clone(), PickerPage::default()], true), no_flow_control);
    let not_yet = PickerPage { flow_control: FlowControlState::NotYetShown, ..picker.clone() };
    assert_eq!(obstacle(slice::from_ref(&not_yet), false), Some(WakeObstacle::FlowControlNotShown));
    assert_eq!(obstacle(&[not_yet], true), None, "with flow control or without, requests are seen");
    let unnamed = PickerPage { unnamed: ["m".to_owned()].into(), ..picker };
    assert_eq!(obstacle(&[unnamed], true), Some(WakeObstacle::NameNotReported));
    assert_eq!(obstacle(&[], true), Some(WakeObstacle::NotRead));
}

#[test]
fn counts_of_the_last_leader_stay_until_a_pod_answers() {
    let now = Instant::now();
    let known =
        |pod: &str, count| RefusedCount { pod: pod.to_owned(), started: 1000, count, all_names: false };
    let last_leader = [("m".to_owned(), vec![known("a", 7), known("b", 8)])].into();
    let query = PickerQuery { last_leader, ..query() };
    let counts = |answers: &Answers| {
        let mut queues = Queues::default();
        queues.add("ns", &query, answers, now);
        queues.refused_counts(&key("ns", "m")).unwrap().to_vec()
    };
    assert_eq!(counts(&Answers::new()), [known("a", 7), known("b", 8)], "the pods are not listed yet");
    let mut answers = answers(now, &[("a", 0.0), ("c", 0.0)]);
    assert_eq!(counts(&answers), [known("a", 7)], "the second pod is gone");
    let by_model = [("m".to_owned(), 9.0)].into();
    let newer = RefusedCounts { by_model, started: Some(1.0), ..RefusedCounts::default() };
    answers.get_mut("a").unwrap().refused.add(newer, |_, _| Some(7.0), now);
    assert_eq!(counts(&answers), [known("a", 9)]);
    assert_eq!(Queues::default().refused_counts(&key("ns", "m")), None, "no picker is polled");
}
