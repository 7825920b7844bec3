//! When and for what samples are queried, and when they are dropped.

use super::*;

#[tokio::test]
async fn a_recent_sample_is_not_fetched_again() {
    let mut bench = Bench::busy().await;
    for (ttl, age, is_recent) in [(30, 29, true), (30, 30, false), (60, 30, true), (60, 60, false)] {
        bench.configure(|c| c.cache_ttl = Duration::from_secs(ttl));
        let Some(began) = Instant::now().checked_sub(Duration::from_secs(age)) else { continue };
        bench.state.sampler.rounds.last = Some(began);
        assert_eq!(
            bench.state.sampler.is_recent(bench.engine.inputs().config, TIMER_TOLERANCE),
            is_recent,
            "{ttl} {age}"
        );
        bench.state.sampler.rounds.last = None;
        assert!(!bench.state.sampler.is_recent(bench.engine.inputs().config, TIMER_TOLERANCE), "no sample");
    }
}

#[tokio::test]
async fn rounds_follow_the_interval_unless_the_sample_is_recent() {
    let millis = Duration::from_millis;
    let mut often = Bench::busy().await;
    often.configure(|c| (c.fetch_interval, c.cache_ttl) = (millis(20), millis(20)));
    let often = often.run();
    often.until_asked(|fake| fake.queries() >= 24).await;
    often.end().await;
    // While the sample is recent, neither cycles nor timers query Prometheus.
    let mut young = Bench::busy().await;
    young.configure(|c| (c.fetch_interval, c.interval) = (millis(20), millis(20)));
    let mut young = young.run();
    young.cycles(20).await;
    assert_eq!(young.fake.queries(), Query::ALL.len());
    young.end().await;
}

#[tokio::test]
async fn a_partial_answer_is_reported_and_incomplete() {
    let partial = json!({"status": "success", "warnings": ["store b is down"],
        "data": {"resultType": "vector", "result": []}});
    let partial = FakeReply::Body(200, partial.to_string());
    let mut bench = Bench::new(cluster(json!({})), on("num_requests_running", partial, busy())).await;
    bench.wait_for_answers(Duration::from_secs(8));
    let message = bench.turn().await.conditions.metrics_available.message.clone();
    assert!(message.contains("partial results (store b is down)"), "{message}");
    assert!(!bench.state.sampler.samples.has_answer(Query::Running, "ns"), "missing series are unknown");
}

#[tokio::test]
async fn queries_name_the_managed_namespaces() {
    let mut bench = Bench::new(Cluster::new(), busy()).await;
    bench.fetch().await;
    assert_eq!(bench.fake.queries(), 0, "nothing is managed");
    let mut bench = Bench::busy().await;
    bench.fetch().await;
    let asked = bench.fake.expressions();
    assert_eq!(asked.len(), Query::ALL.len());
    assert!(
        asked.iter().all(|e| e.contains("{namespace=\"ns\"") || e.contains(", namespace=\"ns\"")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn a_new_variant_is_read_before_its_first_cycle() {
    let mut bench = Bench::busy().await;
    bench.turn().await;
    assert!(bench.state.sampler.has_read_all(bench.engine.inputs()));
    bench.cluster.variant("b", "m", json!({}));
    bench.cluster.ready_deployment_in("ns", "b", 1);
    assert!(!bench.state.sampler.has_read_all(bench.engine.inputs()));
    let round = bench.state.sampler.full_round(bench.engine.inputs()).await;
    assert!(!bench.state.sampler.has_read_all(bench.engine.inputs()), "its answers are on the way");
    bench.state.sampler.add_round(bench.engine.inputs(), round);
    assert!(bench.state.sampler.has_read_all(bench.engine.inputs()));
}

#[tokio::test]
async fn a_failing_part_of_a_large_install_affects_no_other() {
    let mut cluster = cluster(json!({}));
    for namespace in ["big-1", "big-2"] {
        cluster.variant("v", "m", json!({"metadata": {"namespace": namespace}}));
        cluster.ready_deployment_in(namespace, "v", 15_000);
    }
    let mut bench = Bench::new(cluster, on("big-1", down(), FakeReply::no_series())).await;
    bench.fetch().await;
    assert_eq!(bench.fake.queries(), 2 * Query::ALL.len());
    let kv = bench.fake.expressions().into_iter().filter(|e| e.contains("max_over_time(vllm:kv"));
    let mut kv: Vec<String> = kv.collect();
    kv.sort();
    assert!(kv[0].contains("{namespace=\"big-1\"}") && kv[1].contains("{namespace=~\"big-2|ns\"}"), "{kv:?}");
    let answered =
        ["big-1", "big-2", "ns"].map(|ns| bench.state.sampler.samples.has_answer(Query::KvUsage, ns));
    assert_eq!(answered, [false, true, true]);
}

#[tokio::test]
async fn a_namespace_whose_series_break_a_query_affects_no_other() {
    // Two hundred thousand series, series with which a query has no result, and a query that does not end.
    let refused = FakeReply::Body(422, json!({"status": "error", "error": "duplicate labels"}).to_string());
    for (broken, name) in [(FakeReply::Flood, "flood"), (refused, "refused"), (FakeReply::Hang, "hang")] {
        let mut cluster = cluster(json!({}));
        for namespace in ["bad", "good-1", "good-2"] {
            cluster.variant("v", "m", json!({"metadata": {"namespace": namespace}}));
            cluster.ready_deployment_in(namespace, "v", 1);
        }
        let mut bench = Bench::new(cluster, on("bad", broken, FakeReply::no_series())).await;
        let timeout = if name == "hang" { 1 } else { 60 };
        bench.wait_for_answers(Duration::from_secs(timeout));
        let mut answered = Vec::new();
        for _ in 0..2 {
            bench.fetch().await;
            let samples = &bench.state.sampler.samples;
            answered.push(["bad", "good-1", "good-2", "ns"].map(|ns| samples.has_answer(Query::KvUsage, ns)));
        }
        assert_eq!(answered, [[false; 4], [false, true, true, true]], "{name}");
        let before = bench.fake.queries();
        let mut rounds = Vec::new();
        for _ in 0..3 {
            bench.fetch().await;
            rounds.push((bench.fake.queries() - before) / Query::ALL.len());
        }
        assert_eq!(rounds, [1, 2, 4], "the others are one query again, and it is left out for two rounds");
        let error = |namespace: &str| bench.state.sampler.samples.load_error(namespace).is_some();
        assert_eq!(
            ["bad", "good-1"].map(error),
            [true, false],
            "{name}: it knows why, also between its rounds"
        );
    }
}

/// A saturated replica of 16,000 tokens with waiting requests.
fn full() -> FakeReply {
    FakeReply::by(|query| {
        let one = |signal: &str, value: &'static str| {
            let mut labels = pod_signal("a-0", signal);
            labels["num_gpu_blocks"] = json!("1000");
            labels["block_size"] = json!("16");
            (labels, value)
        };
        FakeReply::series(match query {
            q if q.contains("timestamp") => vec![one("kv", "1"), one("queue", "1")],
            q if q.contains("generation_tokens") => vec![one("input", "512"), one("output", "128")],
            q if q.contains("usage_perc") => vec![one("", "0.5")],
            q if q.contains("waiting") => vec![one("", "9")],
            q if q.contains("cache_config") => vec![one("", "1")],
            _ => vec![],
        })
    })
}

#[tokio::test]
async fn a_sample_is_observed_once_across_cycles() {
    // Bounds are only remembered for known accelerators.
    let labels = json!({"metadata": {"labels": {"inference.optimization/acceleratorName": "H100"}}});
    let mut bench = Bench::new(cluster(labels), full()).await;
    let mut feed = Feed::new();
    feed.put(GLOBAL, &[("default", "analyzerName: saturation")]);
    bench.engine.sources.maps = feed.maps();
    let observed = |bench: &Bench| {
        bench.state.decider.control_loop.observed().iter().map(|r| r.k2.len()).collect::<Vec<_>>()
    };
    bench.turn().await;
    assert_eq!(observed(&bench), [1]);
    bench.engine.run_cycle(&mut bench.state);
    assert_eq!(observed(&bench), [1], "the same sample");
    bench.fake.set_reply(down());
    bench.turn().await;
    assert_eq!(observed(&bench), [1], "no new sample");
    bench.fake.set_reply(full());
    bench.turn().await;
    assert_eq!(observed(&bench), [2]);
}

#[tokio::test]
async fn samples_of_removed_pods_are_dropped_at_the_interval() {
    let mut bench = Bench::busy().await;
    bench.turn().await;
    bench.cluster.without_pod("a-1");
    let (t0, first) = (Instant::now(), bench.state.sampler.cleaned.unwrap());
    for (after, left) in [(30, 2), (59, 2), (61, 1), (200, 1), (400, 0)] {
        bench.state.sampler.drop_old_samples(bench.engine.inputs(), t0 + Duration::from_secs(after));
        assert_eq!(bench.state.sampler.samples.iter().count(), left, "{after} s");
    }
    assert!(bench.state.sampler.cleaned.is_some_and(|at| at > first));
}

#[tokio::test]
async fn a_broken_prometheus_never_looks_idle() {
    let too_big =
        json!({"status": "success", "data": {"resultType": "vector", "result": [], "x": "y".repeat(1000)}});
    for answers in [
        down(),
        FakeReply::no_series(),
        both("NaN"),
        FakeReply::Body(200, "{\"status\":".to_owned()),
        FakeReply::Body(200, too_big.to_string()),
        FakeReply::Hang,
        FakeReply::Trickle,
        FakeReply::Flood,
    ] {
        let mut bench = Bench::busy().await;
        bench.wait_for_answers(Duration::from_millis(500));
        assert_eq!(bench.turn().await.signal(), Some(3));
        bench.fake.set_reply(answers);
        assert_eq!(bench.turn().await.signal(), Some(3), "the last values are kept");
        bench.state.sampler.samples = Samples::default();
        let v = bench.turn().await;
        assert_eq!(v.signal(), Some(3), "then the target is kept");
        assert_eq!(v.decision.as_ref().unwrap().safety_net(), Some(FallbackSource::PreviousDesired));
    }
}
