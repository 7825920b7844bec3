//! When samples are fetched, what is asked for, and when what is gone is forgotten.

use super::*;

/// Runs an engine until a condition holds of how many queries it has made.
async fn run_until(engine: Engine, fake: &FakePrometheus, wanted: impl Fn(usize) -> bool) {
    let (changed, shutdown) = (Notify::new(), CancellationToken::new());
    let end = shutdown.clone();
    let running = tokio::spawn(async move { engine.run(&changed, end).await });
    let enough = async {
        while !wanted(fake.queries()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(8), enough).await.expect("in time");
    shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(8), running).await.expect("in time").unwrap().unwrap();
}

#[tokio::test]
async fn a_sample_that_is_young_is_not_fetched_again() {
    let cluster = cluster(json!({}));
    for (ttl, age, young) in [(30, 29, true), (30, 30, false), (60, 30, true), (60, 60, false)] {
        let fake = FakePrometheus::start(Answers::By(busy)).await;
        let mut engine = engine(&cluster, fake.client());
        engine.config = configured(|c| c.cache_ttl = Duration::from_secs(ttl));
        let Some(began) = Instant::now().checked_sub(Duration::from_secs(age)) else { continue };
        let mut state = State { asked: Some(began), ..State::default() };
        assert_eq!(engine.is_young(&state, TIMER_ERROR), young, "{ttl} {age}");
        state.asked = None;
        assert!(!engine.is_young(&state, TIMER_ERROR), "there is none");
    }
}

#[tokio::test]
async fn rounds_follow_each_other_at_the_interval_unless_the_sample_is_young() {
    let cluster = cluster(json!({}));
    let millis = Duration::from_millis;
    let fake = FakePrometheus::start(Answers::By(busy)).await;
    let mut often = engine(&cluster, fake.client());
    often.config = configured(|c| (c.fetch_interval, c.cache_ttl) = (millis(20), millis(20)));
    run_until(often, &fake, |queries| queries >= 24).await;
    // With a sample that stays young, cycles and fetches alike leave Prometheus alone.
    let fake = FakePrometheus::start(Answers::By(busy)).await;
    let mut young = engine(&cluster, fake.client());
    young.config = configured(|c| (c.fetch_interval, c.interval) = (millis(20), millis(20)));
    let mut reader = young.published.subscribe();
    let cycles = tokio::spawn(async move {
        for _ in 0..20 {
            reader.changed().await.unwrap();
        }
    });
    run_until(young, &fake, |_| cycles.is_finished()).await;
    assert_eq!(fake.queries(), Query::ALL.len());
}

#[tokio::test]
async fn a_namespaced_install_asks_for_its_namespace_and_others_for_all() {
    for (namespace, matcher) in [(None, None), (Some("prod"), Some("namespace=\"prod\""))] {
        let cluster = cluster(json!({}));
        let fake = FakePrometheus::start(Answers::By(busy)).await;
        let mut engine = engine(&cluster, fake.client());
        engine.namespace = namespace.map(str::to_owned);
        let answers = engine.fetch(&mut State::default()).await.answers;
        assert!(answers.iter().all(|a| a.rows.is_ok()));
        let asked = fake.expressions();
        assert_eq!(asked.len(), Query::ALL.len());
        let scoped = asked.iter().filter(|e| e.contains("namespace=")).count();
        assert_eq!(scoped, matcher.map_or(0, |_| asked.len()), "{asked:?}");
        assert!(matcher.is_none_or(|m| asked.iter().all(|e| e.contains(m))), "{asked:?}");
    }
}

#[tokio::test]
async fn a_large_install_is_asked_for_in_parts_and_a_failing_part_costs_only_its_own() {
    let mut cluster = cluster(json!({}));
    for namespace in ["big-1", "big-2"] {
        cluster.variant("v", "m", json!({"metadata": {"namespace": namespace}}));
        cluster.workload_in(namespace, "v", 15_000);
    }
    let down_for_one = Answers::Made(Arc::new(|query: &str| {
        if query.contains("big-1") { (503, "no".to_owned()) } else { (200, vector(&json!([]))) }
    }));
    let fake = FakePrometheus::start(down_for_one).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    let fetched = engine.fetch(&mut state).await;
    engine.take_in(&mut state, fetched);
    assert_eq!(fake.queries(), 2 * Query::ALL.len());
    let kv = fake.expressions().into_iter().filter(|e| e.contains("max_over_time(vllm:kv"));
    let mut kv: Vec<String> = kv.collect();
    kv.sort();
    assert!(kv[0].contains("{namespace=\"big-1\"}") && kv[1].contains("{namespace=~\"big-2|ns\"}"), "{kv:?}");
    let answered = ["big-1", "big-2", "ns"].map(|ns| state.samples.answered(Query::KvUsage, ns));
    assert_eq!(answered, [false, true, true]);
}

#[tokio::test]
async fn when_others_have_too_many_series_only_ours_are_asked_for() {
    let cluster = cluster(json!({}));
    let fake = FakePrometheus::start(Answers::Floods).await;
    let engine = engine(&cluster, fake.client().timeout(Duration::from_mins(1)));
    let mut state = State::default();
    let fetched = engine.fetch(&mut state).await;
    engine.take_in(&mut state, fetched);
    assert!(state.samples.last_error().is_some_and(|e| e.contains("longer than")));
    fake.now(Answers::By(busy));
    let before = fake.queries();
    engine.fetch(&mut state).await;
    let asked = fake.expressions().split_off(before);
    assert_eq!(asked.len(), Query::ALL.len());
    assert!(asked.iter().all(|e| e.contains("namespace=\"ns\"")), "{asked:?}");
}

#[tokio::test]
async fn an_answer_that_may_lack_some_series_counts_as_far_as_it_goes() {
    let cluster = cluster(json!({}));
    let partial = Answers::Made(Arc::new(|query: &str| {
        let mut answer: Value = serde_json::from_str(&busy(query).1).unwrap();
        answer["warnings"] = json!(["store b did not answer"]);
        (200, answer.to_string())
    }));
    let fake = FakePrometheus::start(partial).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    let v = turn(&engine, &mut state).await;
    assert_eq!(v.signal(), Some(3));
    assert!(state.samples.last_error().is_none() && !state.samples.answered(Query::KvUsage, "ns"));
    let shown = |v: &PublishedVariant| v.conditions.metrics_available.clone();
    assert!(
        shown(&v).holds && shown(&v).message.contains("in part (store b did not answer)"),
        "{:?}",
        shown(&v)
    );
    assert_eq!(state.partial_answers.len(), 1);
    fake.now(Answers::By(busy));
    let v = turn(&engine, &mut state).await;
    assert!(!shown(&v).message.contains("in part"));
    assert!(state.partial_answers.is_empty());
}

/// A replica that is full, of 16,000 tokens, with requests that wait.
fn full(query: &str) -> (u16, String) {
    let one = |signal: &str, value: &str| {
        let labels = json!({"namespace": "ns", "pod": "a-0", "model_name": "m", "signal": signal,
            "num_gpu_blocks": "1000", "block_size": "16"});
        json!({"metric": labels, "value": [1, value]})
    };
    let all = match query {
        q if q.contains("timestamp") => vec![one("kv", "1"), one("queue", "1")],
        q if q.contains("generation_tokens") => vec![one("input", "512"), one("output", "128")],
        q if q.contains("usage_perc") => vec![one("", "0.5")],
        q if q.contains("waiting") => vec![one("", "9")],
        q if q.contains("cache_config") => vec![one("", "1")],
        _ => vec![],
    };
    (200, vector(&json!(all)))
}

#[tokio::test]
async fn a_sample_is_observed_once_however_many_cycles_it_serves() {
    // A bound is remembered of a known accelerator alone.
    let cluster =
        cluster(json!({"metadata": {"labels": {"inference.optimization/acceleratorName": "H100"}}}));
    let fake = FakePrometheus::start(Answers::By(full)).await;
    let mut engine = engine(&cluster, fake.client());
    let mut feed = crate::maps::testing::Feed::new();
    feed.put("wva/wva-saturation-scaling-config", &[("default", "analyzerName: saturation")]);
    engine.maps = feed.maps();
    let mut state = State::default();
    let observed = |state: &State| state.observed.iter().map(|r| r.k2.len()).collect::<Vec<_>>();
    turn(&engine, &mut state).await;
    assert_eq!(observed(&state), [1]);
    engine.cycle(&mut state);
    assert_eq!(observed(&state), [1], "the same sample");
    fake.now(Answers::By(down));
    turn(&engine, &mut state).await;
    assert_eq!(observed(&state), [1], "and none was to be had");
    fake.now(Answers::By(full));
    turn(&engine, &mut state).await;
    assert_eq!(observed(&state), [2]);
}

#[tokio::test]
async fn what_is_gone_is_forgotten_at_the_interval() {
    let mut cluster = cluster(json!({}));
    let fake = FakePrometheus::start(Answers::By(busy)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    turn(&engine, &mut state).await;
    cluster.without_pod("a-1");
    let (kept, t0) = (|s: &State| s.samples.iter().count(), Instant::now());
    let first = state.cleaned.unwrap();
    for (after, left) in [(30, 2), (59, 2), (61, 1), (200, 1), (400, 0)] {
        engine.clean(&mut state, t0 + Duration::from_secs(after));
        assert_eq!(kept(&state), left, "{after} s");
    }
    assert!(state.cleaned.is_some_and(|at| at > first));
}

/// KV cache use by pod, each sample a second old and nothing waiting.
fn pods(kv: &'static [(&'static str, f64)]) -> Answers {
    Answers::Made(Arc::new(move |query: &str| {
        let value = |kv: f64| match query {
            q if q.contains("timestamp") => 1.0,
            q if q.contains("kv_cache") => kv,
            _ => 0.0,
        };
        let one = |(pod, kv): &(&str, f64), signal: &str| {
            let labels = json!({"namespace": "ns", "pod": pod, "model_name": "m", "signal": signal});
            json!({"metric": labels, "value": [1, value(*kv).to_string()]})
        };
        let all: Vec<Value> = kv.iter().flat_map(|pod| ["kv", "queue"].map(|s| one(pod, s))).collect();
        (200, vector(&json!(all)))
    }))
}

#[tokio::test]
async fn half_of_the_targets_are_no_half_of_the_load() {
    let mut cluster = cluster(json!({}));
    cluster.deployment("a", 4, 4).pod("a-2", "a").pod("a-3", "a");
    let fake =
        FakePrometheus::start(pods(&[("a-0", 0.58), ("a-1", 0.58), ("a-2", 0.58), ("a-3", 0.58)])).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    assert_eq!(turn(&engine, &mut state).await.signal(), Some(4));
    fake.now(pods(&[("a-0", 0.05), ("a-1", 0.05)]));
    state.samples = Samples::default();
    let v = turn(&engine, &mut state).await;
    assert_eq!((v.signal(), v.decision.as_ref().unwrap().reason().code()), (Some(4), "ScrapeGap"));
    fake.now(pods(&[("a-0", 0.05), ("a-1", 0.05), ("a-2", 0.05), ("a-3", 0.05)]));
    assert_eq!(turn(&engine, &mut state).await.signal(), Some(3), "all say so");
}

#[tokio::test]
async fn no_broken_prometheus_looks_idle() {
    let too_big =
        json!({"status": "success", "data": {"resultType": "vector", "result": [], "x": "y".repeat(1000)}});
    for answers in [
        Answers::By(down),
        Answers::Says(200, vector(&json!([]))),
        Answers::Says(200, both("NaN")),
        Answers::Says(200, "{\"status\":".to_owned()),
        Answers::Says(200, too_big.to_string()),
        Answers::Hangs,
        Answers::Trickles,
        Answers::Floods,
    ] {
        let cluster = cluster(json!({}));
        let fake = FakePrometheus::start(Answers::By(busy)).await;
        let engine = engine(&cluster, fake.client().timeout(Duration::from_millis(500)));
        let mut state = State::default();
        assert_eq!(turn(&engine, &mut state).await.signal(), Some(3));
        fake.now(answers);
        assert_eq!(turn(&engine, &mut state).await.signal(), Some(3), "the last values are kept");
        state.samples = Samples::default();
        let v = turn(&engine, &mut state).await;
        assert_eq!(v.signal(), Some(3), "and then the target");
        assert_eq!(v.decision.as_ref().unwrap().safety_net, Some(FallbackSource::PreviousDesired));
    }
}
