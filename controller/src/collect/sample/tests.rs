//! Values that come, stay and age, signal by signal and namespace by namespace.

use serde_json::{Value, json};
use wva_scaling::snapshot::QueueFigures;
use wva_scaling::units::Amount;

use super::*;
use crate::collect::prometheus::QueryError;
use crate::collect::signals::tests::rows;

/// An answer to one query with these series.
pub(crate) fn answer(query: Query, series: &[(Value, &str)]) -> Answer {
    Answer { query, scope: Scope::All, rows: Ok(rows(query, series)) }
}

/// A query that failed.
pub(crate) fn failed(query: Query) -> Answer {
    let error = QueryError::Refused { url: "http://p".into(), status: 503, message: "down".into() };
    Answer { query, scope: Scope::All, rows: Err(error) }
}

/// Labels of a pod in `ns` that serves `m`.
pub(crate) fn pod(name: &str) -> Value {
    json!({"namespace": "ns", "pod": name, "model_name": "m"})
}

/// The same for one of two signals.
pub(crate) fn pod_signal(name: &str, signal: &str) -> Value {
    json!({"namespace": "ns", "pod": name, "model_name": "m", "signal": signal})
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
fn a_failed_query_keeps_the_last_value_and_lets_it_age() {
    let mut s = Samples::default();
    let t0 = Instant::now();
    s.take_in(t0, vec![kv("0.7"), age("5")]);
    let t1 = t0 + seconds(30);
    s.take_in(t1, vec![failed(Query::SampleAge), failed(Query::KvUsage)]);
    let seen = only(&s).kv.unwrap();
    assert!((seen.value - 0.7).abs() < 1e-9);
    assert_eq!(seen.age(t1), seconds(35));
    assert!(s.last_error().is_some_and(|e| e.contains("503: down")));
    s.take_in(t1, vec![kv("0.7"), age("5")]);
    assert_eq!(s.last_error(), None);
}

#[test]
fn a_window_over_an_ended_series_does_not_make_it_young_again() {
    let mut s = Samples::default();
    let t0 = Instant::now();
    s.take_in(t0, vec![kv("0.7"), age("1")]);
    let t1 = t0 + seconds(30);
    s.take_in(t1, vec![answer(Query::SampleAge, &[]), kv("0.7")]);
    assert_eq!(only(&s).kv.unwrap().age(t1), seconds(31));
}

#[test]
fn a_value_whose_age_nobody_says_is_never_older_than_its_window() {
    let mut s = Samples::default();
    let t0 = Instant::now();
    s.take_in(t0, vec![kv("0.7"), age("1")]);
    // The query for ages alone fails, for an hour.
    let later = t0 + Duration::from_hours(1);
    s.take_in(later, vec![kv("0.7"), failed(Query::SampleAge)]);
    assert_eq!(only(&s).kv.unwrap().age(later), WINDOW);
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
    let mut s = Samples::default();
    let (t0, tokens) =
        (Instant::now(), [(pod_signal("a", "input"), "512"), (pod_signal("a", "output"), "128")]);
    s.take_in(
        t0,
        vec![
            answer(Query::Tokens, &tokens),
            answer(Query::PrefixHitRate, &[(pod("a"), "0.25")]),
            kv("0.5"),
            age("0"),
        ],
    );
    let values = |l: PodLoad| [l.mean_input, l.mean_output, l.prefix_hit_rate].map(|o| o.map(|o| o.value));
    assert_eq!(values(only(&s)), [Some(512.0), Some(128.0), Some(0.25)]);
    // Without a request in the window they are 0 / 0: the last ones are kept.
    let none = [(pod_signal("a", "input"), "NaN"), (pod_signal("a", "output"), "64")];
    s.take_in(t0 + seconds(30), vec![answer(Query::Tokens, &none)]);
    assert_eq!(values(only(&s)), [Some(512.0), Some(64.0), Some(0.25)]);
    assert_eq!(only(&s).youngest(), Some(t0), "a mean is no sign of life");
}

#[test]
fn a_part_that_fails_costs_only_its_own_namespaces_an_answer() {
    let mut s = Samples::default();
    let of = |namespace: &str, answer: Answer| Answer { scope: Scope::one(namespace), ..answer };
    s.take_in(Instant::now(), vec![of("ns", kv("0.5")), of("other", failed(Query::KvUsage))]);
    let answered = ["ns", "other", "third"].map(|namespace| s.answered(Query::KvUsage, namespace));
    assert_eq!(answered, [true, false, false]);
    assert!(!s.answered(Query::Queue, "ns"));
    assert!(s.last_error().is_some());
}

#[test]
fn what_a_partial_answer_lacks_is_unknown() {
    let mut s = Samples::default();
    let mut partial = kv("0.5");
    if let Ok(rows) = &mut partial.rows {
        rows.partial = Some("store b is down".to_owned());
    }
    s.take_in(Instant::now(), vec![partial]);
    assert!(only(&s).kv.is_some() && !s.answered(Query::KvUsage, "ns"));
    assert_eq!(s.partial_answer("ns"), Some("store b is down"));
    s.take_in(Instant::now(), vec![kv("0.5")]);
    assert_eq!((s.partial_answer("ns"), s.partial_answers().len()), (None, 0));
}

#[test]
fn of_several_engines_the_least_cache_counts_and_a_new_config_replaces_the_old() {
    let mut s = Samples::default();
    let t0 = Instant::now();
    let cache = |blocks: &str| {
        (json!({"namespace": "ns", "pod": "a", "num_gpu_blocks": blocks, "block_size": "16"}), "1")
    };
    let blocks = |s: &Samples| s.caches().next().map(|c| c.2.value.num_gpu_blocks);
    s.take_in(t0, vec![answer(Query::CacheConfig, &[cache("1000"), cache("900"), cache("2000")])]);
    assert_eq!(blocks(&s), Some(900));
    s.take_in(t0 + seconds(30), vec![answer(Query::CacheConfig, &[cache("4000")])]);
    assert_eq!(blocks(&s), Some(4000), "it was started anew with more memory");
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
    s.take_in(t0, vec![answer(Query::SchedulerQueue, &[])]);
    assert_eq!(now(&s, seconds(0)), SchedulerQueue::Absent);
    let (size, bytes) = ("llm_d_epp_flow_control_queue_size", "llm_d_epp_flow_control_queue_bytes");
    // The same queue under its older name, too.
    let older = of("inference_extension_flow_control_queue_size", "3");
    s.take_in(t0, vec![answer(Query::SchedulerQueue, &[of(size, "3"), of(bytes, "2048"), older])]);
    let figure = |n: f64| Amount::try_from(n).unwrap();
    let known = SchedulerQueue::Known(QueueFigures { size: figure(3.0), bytes: figure(2048.0) });
    assert_eq!(now(&s, seconds(0)), known);
    assert_eq!(s.scheduler_queue("elsewhere", "m", &ages, t0).queue, SchedulerQueue::Absent);
    for lacking in [failed(Query::SchedulerQueue), answer(Query::SchedulerQueue, &[])] {
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
        let cache = json!({"namespace": "ns", "pod": "a", "num_gpu_blocks": "10", "block_size": "16"});
        s.take_in(t0, vec![kv("0.5"), age("0"), answer(Query::CacheConfig, &[(cache, "1")])]);
        s.clean(t0 + seconds(after), (seconds(60), seconds(300)), |_, _| exists);
        assert_eq!(
            (s.iter().count(), s.caches().count()),
            (usize::from(kept), usize::from(kept)),
            "{after} s"
        );
    }
}

#[test]
fn a_round_for_some_namespaces_leaves_the_others_as_they_were() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    let later = |seconds| t0 + Duration::from_secs(seconds);
    s.take_in(t0, vec![kv("0.7"), age("0"), answer(Query::Tokens, &[])]);
    let only_ns = || Scope::one("ns");
    let part = |mut answer: Answer| {
        answer.scope = only_ns();
        answer
    };
    s.take_in_part(later(5), only_ns(), vec![part(failed(Query::KvUsage)), part(answer(Query::Queue, &[]))]);
    assert_eq!((s.taken(), s.taken_in("ns"), s.taken_in("other")), (Some(t0), Some(later(5)), Some(t0)));
    assert!(!s.answered(Query::KvUsage, "ns") && s.answered(Query::KvUsage, "other"));
    assert!(s.answered(Query::Queue, "ns") && !s.answered(Query::Queue, "other"));
    assert!(s.answered(Query::Tokens, "ns"), "it was not asked again");
    s.take_in(later(9), vec![kv("0.7")]);
    assert_eq!((s.taken_in("ns"), s.answered(Query::Queue, "ns")), (Some(later(9)), false));
}

#[test]
fn what_runs_and_waits_is_as_old_as_its_scrape() {
    let (t0, mut s) = (Instant::now() + Duration::from_hours(1), Samples::default());
    let in_flight = |values: [&str; 3]| {
        let rows: Vec<_> = ["running", "waiting", "age"]
            .map(|signal| pod_signal("a", signal))
            .into_iter()
            .zip(values)
            .collect();
        answer(Query::Running, &rows)
    };
    s.take_in(t0, vec![in_flight(["2", "3", "7"])]);
    let load = only(&s);
    let at = t0.checked_sub(Duration::from_secs(7)).unwrap();
    assert_eq!(load.running, Some(Observed { value: 2.0, at }));
    assert_eq!(load.queue(), Some(Observed { value: 3.0, at }));
    // The longest queue of the last minute counts where it was longer.
    let queue = answer(Query::Queue, &[(pod("a"), "5")]);
    s.take_in(t0, vec![in_flight(["2", "3", "7"]), queue]);
    assert_eq!(only(&s).queue().map(|o| o.value), Some(5.0));
}

#[test]
fn a_queue_that_was_shown_once_and_is_not_any_more_is_missed() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    let queue = || {
        let name = "llm_d_epp_flow_control_queue_size";
        let labels = json!({"__name__": name, "namespace": "ns", "target_model_name": "m"});
        answer(Query::SchedulerQueue, &[(labels, "0")])
    };
    s.take_in(t0, vec![answer(Query::SchedulerQueue, &[])]);
    assert!(s.shows_queue("ns", "m"), "there never was one");
    s.take_in(t0, vec![queue()]);
    assert!(s.shows_queue("ns", "m"));
    for missing in [answer(Query::SchedulerQueue, &[]), failed(Query::SchedulerQueue)] {
        s.take_in(t0 + Duration::from_secs(1), vec![missing]);
        assert!(!s.shows_queue("ns", "m"));
    }
    s.take_in_part(t0 + Duration::from_secs(2), Scope::one("ns"), vec![queue()]);
    assert!(s.shows_queue("ns", "m"));
}

#[test]
fn a_window_that_fails_costs_its_own_namespaces_their_count() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    let window = |n| Retention::new(seconds(n));
    let of = |namespace: &str| (json!({"namespace": namespace, "model_name": "m"}), "0");
    let counted = |n, namespaces: &[&str]| {
        answer(Query::Completed(window(n)), &namespaces.iter().map(|n| of(n)).collect::<Vec<_>>())
    };
    s.take_completed(t0, counted(9, &["ns", "other"]));
    s.take_completed(t0, counted(20, &["other"]));
    let at = |s: &Samples, namespace, n| s.completed(namespace, "m", window(n)).map(|seen| seen.at);
    assert_eq!((at(&s, "ns", 9), at(&s, "ns", 10), at(&s, "other", 10)), (Some(t0), None, Some(t0)));
    let later = t0 + seconds(5);
    s.take_in(later, vec![kv("0.7")]);
    assert_eq!(at(&s, "ns", 9), Some(t0), "loads leave counts as they were");
    let only_ns = |answer: Answer| Answer { scope: Scope::one("ns"), ..answer };
    s.take_completed(later, only_ns(failed(Query::Completed(window(9)))));
    assert_eq!((at(&s, "ns", 9), at(&s, "other", 9)), (None, Some(t0)));
    let mut partial = only_ns(counted(9, &["ns"]));
    if let Ok(rows) = &mut partial.rows {
        rows.partial = Some("store b is down".to_owned());
    }
    s.take_completed(later, partial);
    assert_eq!((at(&s, "ns", 9), s.partial_answer("ns")), (None, Some("store b is down")));
    assert_eq!(s.partial_answer("other"), None);
    s.forget_windows(|asked| asked == window(20));
    assert_eq!((at(&s, "other", 9), s.partial_answers().len()), (Some(t0), 0), "the longer one is left");
}
