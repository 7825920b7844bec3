//! Tests of samples and their ages by signal and namespace.

use serde_json::{Value, json};
use wva_objects::servers::ServerKind;
use wva_runtime::prometheus::QueryError;
use wva_scaling::snapshot::QueueFigures;
use wva_scaling::units::Amount;

use super::update::WINDOW;
use super::*;
use crate::collect::signals::tests::rows;

const EXPIRY: SampleExpiry =
    SampleExpiry { deleted: Duration::from_mins(1), existing: Duration::from_mins(5) };

/// All namespaces of these tests.
pub(crate) fn everywhere() -> Scope {
    Scope::new(["elsewhere", "ns", "other", "prod"])
}

/// An answer to one query with these series.
pub(crate) fn answer(query: Query, series: &[(Value, impl ToString + Clone)]) -> Answer {
    Answer { query, scope: everywhere(), rows: Ok(rows(query, series)) }
}

pub(crate) fn no_series(query: Query) -> Answer {
    answer(query, &[] as &[(Value, &str)])
}

/// A query that failed.
pub(crate) fn failed(query: Query) -> Answer {
    let error = QueryError::Refused { url: "http://p".into(), status: 503, message: "down".into() };
    Answer { query, scope: everywhere(), rows: Err(error) }
}

/// The answer for one namespace.
fn within(namespace: &str, answer: Answer) -> Answer {
    Answer { scope: Scope::one(namespace), ..answer }
}

/// The answer with a warning of missing series.
pub(crate) fn partial(mut answer: Answer) -> Answer {
    answer.rows.as_mut().unwrap().partial = Some("store b is down".to_owned());
    answer
}

fn is_down() -> Incomplete {
    Incomplete::Warning("store b is down".to_owned())
}

/// Labels of a pod in `ns` that serves `m`.
fn pod(name: &str) -> Value {
    json!({"namespace": "ns", "pod": name, "model_name": "m"})
}

/// Labels of a pod in `ns` for one of several signals.
pub(crate) fn pod_signal(name: &str, signal: &str) -> Value {
    json!({"namespace": "ns", "pod": name, "model_name": "m", "signal": signal})
}

/// Labels of a pod in `ns` for a metric under its own name.
pub(crate) fn pod_metric(name: &str, metric: &str) -> Value {
    json!({"namespace": "ns", "pod": name, "model_name": "m", "__name__": metric})
}

/// Series of the cache size of a pod in `ns`.
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
fn value_without_new_scrape_stays_and_ages() {
    for (after, answers, age_then, error) in [
        (30, [failed(Query::SampleAge), failed(Query::KvUsage)], seconds(35), true),
        // A window over an ended series gives no newer time.
        (30, [no_series(Query::SampleAge), kv("0.7")], seconds(35), false),
        // A value of unknown age is never older than its window.
        (3600, [kv("0.7"), failed(Query::SampleAge)], WINDOW, true),
    ] {
        let (t0, mut s) = (Instant::now(), Samples::default());
        s.add_round(t0, vec![kv("0.7"), age("5")]);
        let later = t0 + seconds(after);
        s.add_round(later, answers.into());
        let seen = only(&s).kv.unwrap();
        assert!((seen.value - 0.7).abs() < 1e-9);
        assert_eq!(seen.age(later), age_then);
        assert_eq!(s.last_error().is_some_and(|e| e.contains("503: down")), error);
        s.add_round(later, vec![kv("0.7"), age("5")]);
        assert_eq!(s.last_error(), None);
    }
}

#[test]
fn missing_pods_keep_their_values_and_age() {
    let mut s = Samples::default();
    let t0 = Instant::now();
    let both = |value| answer(Query::Queue, &[(pod("a"), value), (pod("b"), value)]);
    let ages = answer(Query::SampleAge, &[(pod_signal("a", "queue"), "0"), (pod_signal("b", "queue"), "0")]);
    s.add_round(t0, vec![both("9"), ages]);
    let t1 = t0 + seconds(60);
    let age = answer(Query::SampleAge, &[(pod_signal("a", "queue"), "0")]);
    s.add_round(t1, vec![answer(Query::Queue, &[(pod("a"), "1")]), age]);
    let seen: Vec<_> = s.iter().map(|(_, l)| l.queue.map(|o| (o.value, o.age(t1)))).collect();
    assert_eq!(seen, [Some((1.0, seconds(0))), Some((9.0, seconds(60)))]);
}

#[test]
fn keeps_means_with_the_load_of_their_pod() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    let tokens = |input, output| {
        answer(Query::Tokens, &[(pod_signal("a", "input"), input), (pod_signal("a", "output"), output)])
    };
    let rate = answer(Query::PrefixHitRate, &[(pod("a"), "0.25")]);
    s.add_round(t0, vec![tokens("512", "128"), rate, kv("0.5"), age("0")]);
    let values = |l: PodLoad| [l.mean_input, l.mean_output, l.prefix_hit_rate].map(|o| o.map(|o| o.value));
    assert_eq!(values(only(&s)), [Some(512.0), Some(128.0), Some(0.25)]);
    // Without a request in the window they are 0 / 0: the last ones are kept.
    s.add_round(t0 + seconds(30), vec![tokens("NaN", "64")]);
    assert_eq!(values(only(&s)), [Some(512.0), Some(64.0), Some(0.25)]);
    assert_eq!(only(&s).newest(), Some(t0), "a mean does not show a live server");
}

#[test]
fn failed_scope_affects_only_its_namespaces() {
    let mut s = Samples::default();
    s.add_round(Instant::now(), vec![within("ns", kv("0.5")), within("other", failed(Query::KvUsage))]);
    let answered = ["ns", "other", "third"].map(|namespace| s.has_answer(Query::KvUsage, namespace));
    assert_eq!(answered, [true, false, false]);
    assert!(!s.has_answer(Query::Queue, "ns"));
    assert!(s.last_error().is_some());
}

#[test]
fn partial_answer_leaves_missing_series_unknown() {
    let mut s = Samples::default();
    s.add_round(Instant::now(), vec![partial(kv("0.5"))]);
    assert!(only(&s).kv.is_some() && !s.has_answer(Query::KvUsage, "ns") && s.last_error().is_none());
    assert_eq!(s.incomplete_answer("ns"), Some(&is_down()));
    s.add_round(Instant::now(), vec![kv("0.5")]);
    assert_eq!((s.incomplete_answer("ns"), s.incomplete_answers().len()), (None, 0));
}

#[test]
fn counts_engines_and_their_smallest_cache_until_a_new_config() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    let found = |s: &Samples| {
        let EngineCaches { smallest, engines } = s.caches().next().unwrap().cache.value;
        (smallest.num_gpu_blocks, engines)
    };
    let of = |label: &str, engine: &str, blocks: &str| {
        let (mut labels, value) = cache("a", blocks);
        labels[label] = json!(engine);
        (labels, value)
    };
    let tokens = |label: &str, engine: &str, tokens: f64| {
        (json!({"namespace": "ns", "pod": "a", "signal": "tokens", label: engine}), tokens)
    };
    // Each reports the blocks of both. The server has restarted with less memory.
    let three = [of("engine", "0", "2000"), of("engine", "1", "4000"), of("engine", "1", "1800")];
    s.add_round(t0, vec![answer(Query::CacheConfig, &three)]);
    assert_eq!(found(&s), (900, 2));
    s.add_round(
        t0 + seconds(15),
        vec![answer(Query::CacheConfig, &["0", "1", "2"].map(|rank| tokens("dp_rank", rank, 700.0)))],
    );
    assert_eq!(found(&s), (700, 3), "ranks of SGLang");
    s.add_round(t0 + seconds(30), vec![answer(Query::CacheConfig, &[cache("a", "4000")])]);
    assert_eq!(found(&s), (4000, 1), "restarted with more memory");
}

#[test]
fn servers_of_one_replica_share_its_requests() {
    let now = Instant::now();
    let at = |seconds_ago: u64| now.checked_sub(seconds(seconds_ago)).unwrap();
    let seen = |value, seconds_ago| Some(TimedValue { value, at: at(seconds_ago) });
    let load = |kv, count, age| PodLoad {
        kv: seen(kv, age),
        queue: seen(count, age),
        running: seen(count, age),
        waiting: seen(count, age),
        mean_input: seen(count, age),
        ..PodLoad::default()
    };
    let values = |l: PodLoad| [l.kv, l.queue, l.running, l.waiting, l.mean_input].map(|o| o.map(|o| o.value));
    let oldest = at(60);
    // The second has three times the cache.
    let both = PodLoad::combine(&[(load(0.25, 1.0, 5), 1.0), (load(0.75, 3.0, 9), 3.0)], oldest);
    assert_eq!(values(both), [Some(0.625), Some(4.0), Some(4.0), Some(4.0), Some(2.5)]);
    assert_eq!(both.kv.unwrap().at, at(9), "as old as the oldest");
    // An old value hides no newer one; whether the server is idle is unknown by its age.
    let old = PodLoad::combine(&[(load(0.25, 1.0, 5), 1.0), (load(0.75, 3.0, 61), 1.0)], oldest);
    assert_eq!(values(old), [Some(0.25), Some(1.0), Some(4.0), Some(4.0), Some(1.0)]);
    assert_eq!((old.kv.unwrap().at, old.running.unwrap().at), (at(5), at(61)));
    let silent = PodLoad { running: None, ..load(0.75, 3.0, 5) };
    let unknown = PodLoad::combine(&[(load(0.25, 1.0, 5), 1.0), (silent, 1.0)], oldest);
    assert_eq!(unknown.running, None, "without one of them the sum is unknown");
}

#[test]
fn missing_queue_is_unknown_until_it_expires() {
    let mut s = Samples::default();
    let t0 = Instant::now();
    let series = |name: &str, value: &'static str| {
        (json!({"__name__": name, "namespace": "ns", "target_model_name": "m"}), value)
    };
    let ages = MetricsAge::default();
    let queue_at = |s: &Samples, at: Duration| s.scheduler_queue("ns", "m", &ages, t0 + at);
    let now = |s: &Samples, at: Duration| queue_at(s, at).queue;
    assert_eq!(now(&s, seconds(0)), SchedulerQueue::Unknown, "no query was made");
    s.add_round(t0, vec![failed(Query::SchedulerQueue)]);
    assert_eq!(now(&s, seconds(0)), SchedulerQueue::Unknown, "the query failed");
    s.add_round(t0, vec![no_series(Query::SchedulerQueue)]);
    assert_eq!(now(&s, seconds(0)), SchedulerQueue::Absent);
    let (size, bytes) = ("llm_d_epp_flow_control_queue_size", "llm_d_epp_flow_control_queue_bytes");
    // The same queue under its older name.
    let older = series("inference_extension_flow_control_queue_size", "3");
    s.add_round(t0, vec![answer(Query::SchedulerQueue, &[series(size, "3"), series(bytes, "2048"), older])]);
    let figure = |n: f64| Amount::try_from(n).unwrap();
    let known = SchedulerQueue::Known(QueueFigures {
        size: figure(3.0),
        bytes: figure(2048.0),
        ..QueueFigures::default()
    });
    assert_eq!(now(&s, seconds(0)), known);
    assert_eq!(s.scheduler_queue("elsewhere", "m", &ages, t0).queue, SchedulerQueue::Absent);
    for answer in [failed(Query::SchedulerQueue), no_series(Query::SchedulerQueue)] {
        s.add_round(t0 + seconds(60), vec![answer]);
        assert_eq!(queue_at(&s, seconds(60)), QueueState { queue: known, is_late: false });
        assert_eq!(queue_at(&s, seconds(120)), QueueState { queue: known, is_late: true });
        assert_eq!(now(&s, seconds(121)), SchedulerQueue::Unknown);
    }
    let t1 = seconds(122);
    s.add_round(t0 + t1, vec![answer(Query::SchedulerQueue, &[series(size, "-1")])]);
    assert_eq!(now(&s, t1), SchedulerQueue::Unknown, "-1 is not a length");
    let clean = |s: &mut Samples, at: Duration| s.remove_expired(t0 + at, EXPIRY, |_, _| true);
    clean(&mut s, t1 + QUEUE_EXPIRY);
    assert_eq!(now(&s, t1 + QUEUE_EXPIRY), SchedulerQueue::Unknown);
    clean(&mut s, t1 + QUEUE_EXPIRY + seconds(1));
    assert_eq!(now(&s, t1 + QUEUE_EXPIRY), SchedulerQueue::Absent, "its endpoint picker no longer exists");
}

#[test]
fn deleted_pods_expire_before_silent_ones() {
    let t0 = Instant::now();
    for (after, exists, remains) in
        [(60, false, true), (61, false, false), (300, true, true), (301, true, false)]
    {
        let mut s = Samples::default();
        s.add_round(t0, vec![kv("0.5"), age("0"), answer(Query::CacheConfig, &[cache("a", "10")])]);
        s.remove_expired(t0 + seconds(after), EXPIRY, |_, _| exists);
        assert_eq!([s.iter().count(), s.caches().count()], [usize::from(remains); 2], "{after} s");
    }
}

#[test]
fn partial_round_leaves_other_namespaces_unchanged() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    s.add_round(t0, vec![kv("0.7"), age("0"), no_series(Query::Tokens)]);
    let part = [failed(Query::KvUsage), no_series(Query::Queue)].map(|answer| within("ns", answer));
    let (t1, t2) = (t0 + seconds(5), t0 + seconds(9));
    s.add_partial_round(t1, Scope::one("ns"), part.into());
    assert_eq!(
        (s.last_round(), s.last_round_for("ns"), s.last_round_for("other")),
        (Some(t0), Some(t1), Some(t0))
    );
    assert!(!s.has_answer(Query::KvUsage, "ns") && s.has_answer(Query::KvUsage, "other"));
    assert!(s.has_answer(Query::Queue, "ns") && !s.has_answer(Query::Queue, "other"));
    assert!(s.has_answer(Query::Tokens, "ns"), "it was not queried again");
    s.add_round(t2, vec![kv("0.7")]);
    assert_eq!((s.last_round_for("ns"), s.has_answer(Query::Queue, "ns")), (Some(t2), false));
}

#[test]
fn requests_in_flight_have_the_age_of_their_scrape() {
    let (t0, mut s) = (Instant::now() + Duration::from_hours(1), Samples::default());
    let in_flight = || {
        let [running, waiting] =
            ["vllm:num_requests_running", "vllm:num_requests_waiting"].map(|metric| pod_metric("a", metric));
        answer(Query::Running, &[(running, "2"), (waiting, "3"), (pod_signal("a", "age"), "7")])
    };
    s.add_round(t0, vec![in_flight()]);
    let at = t0.checked_sub(seconds(7)).unwrap();
    assert_eq!(only(&s).running, Some(TimedValue { value: 2.0, at }));
    assert_eq!(only(&s).queue(), Some(TimedValue { value: 3.0, at }));
    // The longest queue of the last minute counts where it was longer.
    s.add_round(t0, vec![in_flight(), answer(Query::Queue, &[(pod("a"), "5")])]);
    assert_eq!(only(&s).queue().map(|o| o.value), Some(5.0));
}

#[test]
fn server_of_a_pod_is_that_of_its_newest_names() {
    let mut s = Samples::default();
    let round = |metric: &str| vec![answer(Query::Running, &[(pod_metric("a", metric), "1")])];
    for (metric, server) in [
        ("vllm:num_requests_running", ServerKind::Vllm),
        ("sglang:num_running_reqs", ServerKind::Sglang),
        ("trtllm_num_requests_running", ServerKind::TensorrtLlm),
        ("vllm:num_requests_running", ServerKind::Vllm),
    ] {
        s.add_round(Instant::now(), round(metric));
        assert_eq!(only(&s).server, server);
        s.add_round(Instant::now(), vec![kv("0.5")]);
        assert_eq!(only(&s).server, server, "a round without running requests");
    }
}

#[test]
fn notices_queue_that_is_no_longer_reported() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    let queue = || answer(Query::SchedulerQueue, &[(queue_size("ns", "m"), "0")]);
    s.add_round(t0, vec![no_series(Query::SchedulerQueue)]);
    assert!(s.shows_queue("ns", "m"), "no round ever had it");
    s.add_round(t0, vec![queue()]);
    assert!(s.shows_queue("ns", "m"));
    for missing in [no_series(Query::SchedulerQueue), failed(Query::SchedulerQueue)] {
        s.add_round(t0 + seconds(1), vec![missing]);
        assert!(!s.shows_queue("ns", "m"));
    }
    s.add_partial_round(t0 + seconds(2), Scope::one("ns"), vec![queue()]);
    assert!(s.shows_queue("ns", "m"));
}

#[test]
fn failed_window_affects_only_its_namespaces() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    let window = |n| Retention::new(seconds(n));
    let of = |namespace: &&str| (json!({"namespace": namespace, "model_name": "m"}), "0");
    let counted = |n, namespaces: &[&str]| {
        answer(Query::Completed(window(n)), &namespaces.iter().map(of).collect::<Vec<_>>())
    };
    s.add_completed(t0, counted(9, &["ns", "other"]));
    s.add_completed(t0, counted(20, &["other"]));
    let at = |s: &Samples, namespace, n| s.completed(namespace, "m", window(n)).map(|seen| seen.at);
    assert_eq!((at(&s, "ns", 9), at(&s, "ns", 10), at(&s, "other", 10)), (Some(t0), None, Some(t0)));
    let later = t0 + seconds(5);
    s.add_round(later, vec![kv("0.7")]);
    assert_eq!(at(&s, "ns", 9), Some(t0), "loads leave counts as they were");
    s.add_completed(later, within("ns", failed(Query::Completed(window(9)))));
    assert_eq!((at(&s, "ns", 9), at(&s, "other", 9)), (None, Some(t0)));
    s.add_completed(later, within("ns", partial(counted(9, &["ns"]))));
    assert_eq!((at(&s, "ns", 9), s.incomplete_answer("ns")), (None, Some(&is_down())));
    assert_eq!(s.incomplete_answer("other"), None);
    s.remove_windows(|queried| queried == window(20));
    assert_eq!((at(&s, "other", 9), s.incomplete_answers().len()), (Some(t0), 0), "the longer one is left");
}

mod service;

/// Clients cancelled all requests after their first tokens, so that none has finished.
#[test]
fn cancelled_requests_keep_a_model_from_zero() {
    let (t0, mut s) = (Instant::now(), Samples::default());
    let window = Retention::new(seconds(600));
    let of_model = json!({"namespace": "ns", "model_name": "m"});
    let mut started = of_model.clone();
    started["signal"] = json!("first tokens");
    for series in [[(of_model.clone(), "0"), (started.clone(), "3")], [(started, "3"), (of_model, "0")]] {
        s.add_completed(t0, answer(Query::Completed(window), &series));
        assert_eq!(s.completed("ns", "m", window).map(|sample| sample.value), Some(3.0));
    }
}
