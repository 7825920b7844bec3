//! Values that come, stay and age, signal by signal and namespace by namespace.

use serde_json::{Value, json};
use wva_scaling::snapshot::QueueFigures;
use wva_scaling::units::Amount;

use super::*;
use crate::collect::prometheus::QueryError;
use crate::collect::signals::tests::rows;

/// An answer to one query with these series.
pub(crate) fn answer(query: Query, series: &[(Value, impl ToString + Clone)]) -> Answer {
    Answer { query, scope: Scope::All, rows: Ok(rows(query, series)) }
}

pub(crate) fn no_series(query: Query) -> Answer {
    answer(query, &[] as &[(Value, &str)])
}

/// A query that failed.
pub(crate) fn failed(query: Query) -> Answer {
    let error = QueryError::Refused { url: "http://p".into(), status: 503, message: "down".into() };
    Answer { query, scope: Scope::All, rows: Err(error) }
}

/// The same answer, for one namespace.
fn within(namespace: &str, answer: Answer) -> Answer {
    Answer { scope: Scope::one(namespace), ..answer }
}

/// The same answer, which may lack some series.
pub(crate) fn partial(mut answer: Answer) -> Answer {
    answer.rows.as_mut().unwrap().partial = Some("store b is down".to_owned());
    answer
}

/// Labels of a pod in `ns` that serves `m`.
fn pod(name: &str) -> Value {
    json!({"namespace": "ns", "pod": name, "model_name": "m"})
}

/// The same for one of several signals.
pub(crate) fn pod_signal(name: &str, signal: &str) -> Value {
    json!({"namespace": "ns", "pod": name, "model_name": "m", "signal": signal})
}

/// The size of the cache of a pod in `ns`.
pub(crate) fn cache(pod: &str, blocks: &str) -> (Value, &'static str) {
    (json!({"namespace": "ns", "pod": pod, "num_gpu_blocks": blocks, "block_size": "16"}), "1")
}

/// Labels of the queue of a model at an endpoint picker.
pub(crate) fn queue_size(namespace: &str, model: &str) -> Value {
    json!({"__name__": "llm_d_epp_flow_control_queue_size", "namespace": namespace, "target_model_name": model})
}

fn kv(value: &str) -> Answer {
    answer(Query::KvUsage, &[(pod("a"), value)])
}

fn age(seconds: &str) -> Answer {
    answer(Query::SampleAge, &[(pod_signal("a", "kv"), seconds)])
}

fn only(samples: &Samples) -> PodLoad {
    samples.iter().next().map(|(_, l)| *l).unwrap_or_default()
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_value_that_is_not_scraped_again_stays_and_ages() {
    for (after, answers, age_then, error) in [
        (30, [failed(Query::SampleAge), failed(Query::KvUsage)], seconds(35), true),
        // A window over an ended series does not make it young again.
        (30, [no_series(Query::SampleAge), kv("0.7")], seconds(35), false),
        // One of unknown age is never older than its window.
        (3600, [kv("0.7"), failed(Query::SampleAge)], WINDOW, true),
    ] {
        let (t0, mut s) = (Instant::now(), Samples::default());
        s.take_in(t0, vec![kv("0.7"), age("5")]);
        let later = t0 + seconds(after);
        s.take_in(later, answers.into());
        let seen = only(&s).kv.unwrap();
        assert!((seen.value - 0.7).abs() < 1e-9);
        assert_eq!(seen.age(later), age_then);
        assert_eq!(s.last_error().is_some_and(|e| e.contains("503: down")), error);
        s.take_in(later, vec![kv("0.7"), age("5")]);
        assert_eq!(s.last_error(), None);
    }
}

#[test]
fn half_the_targets_keep_what_they_had_and_age() {
    let mut s = Samples::default();
    let t0 = Instant::now();
    let both = |value| answer(Query::Queue, &[(pod("a"), value), (pod("b"), value)]);
    let ages = answer(Query::SampleAge, &[(pod_signal("a", "queue"), "0"), (pod_signal("b", "queue"), "0")]);
    s.take_in(t0, vec![both("9"), ages]);
    let t1 = t0 + seconds(60);
    let age = answer(Query::SampleAge, &[(pod_signal("a", "queue"), "0")]);
    s.take_in(t1, vec![answer(Query::Queue, &[(pod("a"), "1")]), age]);
    let seen: Vec<_> = s.iter().map(|(_, l)| l.queue.map(|o| (o.value, o.age(t1)))).collect();
    assert_eq!(seen, [Some((1.0, seconds(0))), Some((9.0, seconds(60)))]);
}

#[test]
fn means_are_kept_beside_the_load_of_their_pod_and_model() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    let tokens = |input, output| {
        answer(Query::Tokens, &[(pod_signal("a", "input"), input), (pod_signal("a", "output"), output)])
    };
    let rate = answer(Query::PrefixHitRate, &[(pod("a"), "0.25")]);
    s.take_in(t0, vec![tokens("512", "128"), rate, kv("0.5"), age("0")]);
    let values = |l: PodLoad| [l.mean_input, l.mean_output, l.prefix_hit_rate].map(|o| o.map(|o| o.value));
    assert_eq!(values(only(&s)), [Some(512.0), Some(128.0), Some(0.25)]);
    // Without a request in the window they are 0 / 0: the last ones are kept.
    s.take_in(t0 + seconds(30), vec![tokens("NaN", "64")]);
    assert_eq!(values(only(&s)), [Some(512.0), Some(64.0), Some(0.25)]);
    assert_eq!(only(&s).youngest(), Some(t0), "a mean is no sign of life");
}

#[test]
fn a_part_that_fails_costs_only_its_own_namespaces_an_answer() {
    let mut s = Samples::default();
    s.take_in(Instant::now(), vec![within("ns", kv("0.5")), within("other", failed(Query::KvUsage))]);
    let answered = ["ns", "other", "third"].map(|namespace| s.answered(Query::KvUsage, namespace));
    assert_eq!(answered, [true, false, false]);
    assert!(!s.answered(Query::Queue, "ns"));
    assert!(s.last_error().is_some());
}

#[test]
fn what_a_partial_answer_lacks_is_unknown() {
    let mut s = Samples::default();
    s.take_in(Instant::now(), vec![partial(kv("0.5"))]);
    assert!(only(&s).kv.is_some() && !s.answered(Query::KvUsage, "ns") && s.last_error().is_none());
    assert_eq!(s.partial_answer("ns"), Some("store b is down"));
    s.take_in(Instant::now(), vec![kv("0.5")]);
    assert_eq!((s.partial_answer("ns"), s.partial_answers().len()), (None, 0));
}

#[test]
fn of_several_engines_the_least_cache_counts_and_a_new_config_replaces_the_old() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    let blocks = |s: &Samples| s.caches().next().map(|pod| pod.cache.value.num_gpu_blocks);
    let three = ["1000", "900", "2000"].map(|blocks| cache("a", blocks));
    s.take_in(t0, vec![answer(Query::CacheConfig, &three)]);
    assert_eq!(blocks(&s), Some(900));
    s.take_in(t0 + seconds(30), vec![answer(Query::CacheConfig, &[cache("a", "4000")])]);
    assert_eq!(blocks(&s), Some(4000), "it was started again with more memory");
}

#[test]
fn a_queue_is_known_then_unknown_and_never_absent_again_while_it_may_come_back() {
    let mut s = Samples::default();
    let t0 = Instant::now();
    let of = |name: &str, value: &'static str| {
        (json!({"__name__": name, "namespace": "ns", "target_model_name": "m"}), value)
    };
    let ages = MetricsAge::default();
    let seen = |s: &Samples, at: Duration| s.scheduler_queue("ns", "m", &ages, t0 + at);
    let now = |s: &Samples, at: Duration| seen(s, at).queue;
    assert_eq!(now(&s, seconds(0)), SchedulerQueue::Unknown, "nobody was asked");
    s.take_in(t0, vec![failed(Query::SchedulerQueue)]);
    assert_eq!(now(&s, seconds(0)), SchedulerQueue::Unknown, "nobody answered");
    s.take_in(t0, vec![no_series(Query::SchedulerQueue)]);
    assert_eq!(now(&s, seconds(0)), SchedulerQueue::Absent);
    let (size, bytes) = ("llm_d_epp_flow_control_queue_size", "llm_d_epp_flow_control_queue_bytes");
    // The same queue under its older name, too.
    let older = of("inference_extension_flow_control_queue_size", "3");
    s.take_in(t0, vec![answer(Query::SchedulerQueue, &[of(size, "3"), of(bytes, "2048"), older])]);
    let figure = |n: f64| Amount::try_from(n).unwrap();
    let known = SchedulerQueue::Known(QueueFigures { size: figure(3.0), bytes: figure(2048.0) });
    assert_eq!(now(&s, seconds(0)), known);
    assert_eq!(s.scheduler_queue("elsewhere", "m", &ages, t0).queue, SchedulerQueue::Absent);
    for lacking in [failed(Query::SchedulerQueue), no_series(Query::SchedulerQueue)] {
        s.take_in(t0 + seconds(60), vec![lacking]);
        assert_eq!(seen(&s, seconds(60)), SeenQueue { queue: known, late: false });
        assert_eq!(seen(&s, seconds(120)), SeenQueue { queue: known, late: true });
        assert_eq!(now(&s, seconds(121)), SchedulerQueue::Unknown);
    }
    let t1 = seconds(122);
    s.take_in(t0 + t1, vec![answer(Query::SchedulerQueue, &[of(size, "-1")])]);
    assert_eq!(now(&s, t1), SchedulerQueue::Unknown, "no length of a queue");
    let clean = |s: &mut Samples, at: Duration| s.clean(t0 + at, (seconds(60), seconds(300)), |_, _| true);
    clean(&mut s, t1 + QUEUE_GONE);
    assert_eq!(now(&s, t1 + QUEUE_GONE), SchedulerQueue::Unknown);
    clean(&mut s, t1 + QUEUE_GONE + seconds(1));
    assert_eq!(now(&s, t1 + QUEUE_GONE), SchedulerQueue::Absent, "nothing is left of its endpoint picker");
}

#[test]
fn what_is_gone_is_forgotten_before_what_is_only_silent() {
    let t0 = Instant::now();
    for (after, exists, kept) in
        [(60, false, true), (61, false, false), (300, true, true), (301, true, false)]
    {
        let mut s = Samples::default();
        s.take_in(t0, vec![kv("0.5"), age("0"), answer(Query::CacheConfig, &[cache("a", "10")])]);
        s.clean(t0 + seconds(after), (seconds(60), seconds(300)), |_, _| exists);
        assert_eq!([s.iter().count(), s.caches().count()], [usize::from(kept); 2], "{after} s");
    }
}

#[test]
fn a_round_for_some_namespaces_leaves_the_others_as_they_were() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    s.take_in(t0, vec![kv("0.7"), age("0"), no_series(Query::Tokens)]);
    let part = [failed(Query::KvUsage), no_series(Query::Queue)].map(|answer| within("ns", answer));
    let (t1, t2) = (t0 + seconds(5), t0 + seconds(9));
    s.take_in_part(t1, Scope::one("ns"), part.into());
    assert_eq!((s.taken(), s.taken_in("ns"), s.taken_in("other")), (Some(t0), Some(t1), Some(t0)));
    assert!(!s.answered(Query::KvUsage, "ns") && s.answered(Query::KvUsage, "other"));
    assert!(s.answered(Query::Queue, "ns") && !s.answered(Query::Queue, "other"));
    assert!(s.answered(Query::Tokens, "ns"), "it was not asked again");
    s.take_in(t2, vec![kv("0.7")]);
    assert_eq!((s.taken_in("ns"), s.answered(Query::Queue, "ns")), (Some(t2), false));
}

#[test]
fn what_runs_and_waits_is_as_old_as_its_scrape() {
    let (t0, mut s) = (Instant::now() + Duration::from_hours(1), Samples::default());
    let in_flight = || {
        let rows = [("running", "2"), ("waiting", "3"), ("age", "7")];
        answer(Query::Running, &rows.map(|(signal, value)| (pod_signal("a", signal), value)))
    };
    s.take_in(t0, vec![in_flight()]);
    let at = t0.checked_sub(seconds(7)).unwrap();
    assert_eq!(only(&s).running, Some(Observed { value: 2.0, at }));
    assert_eq!(only(&s).queue(), Some(Observed { value: 3.0, at }));
    // The longest queue of the last minute counts where it was longer.
    s.take_in(t0, vec![in_flight(), answer(Query::Queue, &[(pod("a"), "5")])]);
    assert_eq!(only(&s).queue().map(|o| o.value), Some(5.0));
}

#[test]
fn a_queue_that_was_shown_once_and_is_not_any_more_is_missed() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    let queue = || answer(Query::SchedulerQueue, &[(queue_size("ns", "m"), "0")]);
    s.take_in(t0, vec![no_series(Query::SchedulerQueue)]);
    assert!(s.shows_queue("ns", "m"), "there never was one");
    s.take_in(t0, vec![queue()]);
    assert!(s.shows_queue("ns", "m"));
    for missing in [no_series(Query::SchedulerQueue), failed(Query::SchedulerQueue)] {
        s.take_in(t0 + seconds(1), vec![missing]);
        assert!(!s.shows_queue("ns", "m"));
    }
    s.take_in_part(t0 + seconds(2), Scope::one("ns"), vec![queue()]);
    assert!(s.shows_queue("ns", "m"));
}

#[test]
fn a_window_that_fails_costs_its_own_namespaces_their_count() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    let window = |n| Retention::new(seconds(n));
    let of = |namespace: &&str| (json!({"namespace": namespace, "model_name": "m"}), "0");
    let counted = |n, namespaces: &[&str]| {
        answer(Query::Completed(window(n)), &namespaces.iter().map(of).collect::<Vec<_>>())
    };
    s.take_completed(t0, counted(9, &["ns", "other"]));
    s.take_completed(t0, counted(20, &["other"]));
    let at = |s: &Samples, namespace, n| s.completed(namespace, "m", window(n)).map(|seen| seen.at);
    assert_eq!((at(&s, "ns", 9), at(&s, "ns", 10), at(&s, "other", 10)), (Some(t0), None, Some(t0)));
    let later = t0 + seconds(5);
    s.take_in(later, vec![kv("0.7")]);
    assert_eq!(at(&s, "ns", 9), Some(t0), "loads leave counts as they were");
    s.take_completed(later, within("ns", failed(Query::Completed(window(9)))));
    assert_eq!((at(&s, "ns", 9), at(&s, "other", 9)), (None, Some(t0)));
    s.take_completed(later, within("ns", partial(counted(9, &["ns"]))));
    assert_eq!((at(&s, "ns", 9), s.partial_answer("ns")), (None, Some("store b is down")));
    assert_eq!(s.partial_answer("other"), None);
    s.forget_windows(|asked| asked == window(20));
    assert_eq!((at(&s, "other", 9), s.partial_answers().len()), (Some(t0), 0), "the longer one is left");
}
