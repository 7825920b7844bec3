//! Namespaces are isolated: variants and retention periods of another namespace change no targets or steps here.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

const MAP: &str = "wva-model-scale-to-zero-config";
/// Global saturation map. The percentage analyzer reads no counters, which hang in some of these tests.
const SATURATION: &str = "wva/wva-saturation-scaling-config";

#[derive(Clone, Debug)]
struct OtherVariant {
    has_workload: bool,
    /// Whether it serves the model that both namespaces have.
    shares_model: bool,
    is_enabled: bool,
    retention: u32,
}

fn other_variant() -> impl Strategy<Value = OtherVariant> {
    (any::<bool>(), any::<bool>(), prop::bool::weighted(0.9), 1..700_000_u32).prop_map(
        |(has_workload, shares_model, is_enabled, retention)| OtherVariant {
            has_workload,
            shares_model,
            is_enabled,
            retention,
        },
    )
}

/// The window of a query for completed requests, in seconds, and its namespaces.
fn window(expression: &str) -> (f64, Vec<String>) {
    let between = |begin: &str, end: &str| {
        let (_, rest) = expression.split_once(begin).unwrap();
        rest.split_once(end).unwrap().0.to_owned()
    };
    let length = between("[", "]");
    let seconds = match length.strip_suffix("ms") {
        Some(millis) => millis.parse::<f64>().unwrap() / 1000.0,
        None => length.trim_end_matches('s').parse().unwrap(),
    };
    let names = between("namespace=", "}").trim_matches(['~', '"']).to_owned();
    (seconds, names.split('|').map(str::to_owned).collect())
}

/// No requests run. The last request of every model completed `ago` seconds before now.
fn idle_since(ago: u32) -> FakeReply {
    FakeReply::by(move |expression| {
        if expression.contains("last_over_time") {
            let (seconds, names) = window(expression);
            let value = u32::from(seconds > f64::from(ago));
            let of = |namespace| (json!({"namespace": namespace, "model_name": "m"}), value);
            return FakeReply::series(names.into_iter().map(of));
        }
        let mut all = Vec::new();
        if expression.contains("flow_control") {
            all.extend(["ns", "other"].map(|namespace| (queue_size(namespace, "m"), "0")));
            return FakeReply::series(all);
        }
        for (namespace, name) in [("ns", "a-0"), ("ns", "a-1"), ("other", "v0-0")] {
            let named = ["vllm:num_requests_running", "vllm:num_requests_waiting"]
                .map(|metric| pod_metric(name, metric));
            let others = ["age", "kv", "queue"].map(|signal| pod_signal(name, signal));
            for mut labels in named.into_iter().chain(others) {
                labels["namespace"] = json!(namespace);
                all.push((labels, "0"));
            }
        }
        FakeReply::series(all)
    })
}

/// Target, reason and steps of namespace `ns` in each cycle, next to variants of another namespace.
async fn decided(retention: u32, ago: u32, others: &[OtherVariant]) -> Vec<String> {
    let mut cluster = cluster(json!({}));
    let mut feed = Feed::new();
    let entry = |is_enabled: bool, retention: u32| {
        format!("enable_scale_to_zero: {is_enabled}\nretention_period: {retention}s")
    };
    feed.put(SATURATION, &[("default", "analyzerName: percentage")]);
    feed.put(&format!("ns/{MAP}"), &[("default", &entry(true, retention))]);
    let mut entries = Vec::new();
    for (i, other) in others.iter().enumerate() {
        let name = format!("v{i}");
        let model = if other.shares_model { "m".to_owned() } else { format!("m{i}") };
        cluster.variant(&name, &model, json!({"metadata": {"namespace": "other"}}));
        if other.has_workload {
            cluster.ready_deployment_in("other", &name, 1);
        }
        entries.push((name, format!("model_id: {model}\n{}", entry(other.is_enabled, other.retention))));
    }
    let entries: Vec<_> = entries.iter().map(|(key, entry)| (key.as_str(), entry.as_str())).collect();
    feed.put(&format!("other/{MAP}"), &entries);
    let mut bench = Bench::new(cluster, idle_since(ago)).await;
    bench.wait_for_answers(Duration::from_secs(8));
    bench.engine.sources.maps = feed.maps();
    let mut cycles = Vec::new();
    for _ in 0..3 {
        bench.turn().await;
        bench.state.decider.memory.evidence.age(Duration::from_secs(u64::from(retention) + 1));
        let published = bench.published();
        let decision = |v: &Arc<PublishedVariant>| {
            v.decision.as_ref().map(|d| (d.key.name.clone(), d.target(), d.reason().code()))
        };
        let ours = published.variants.iter().filter(|(key, _)| key.namespace == "ns");
        let steps = published.steps.iter().filter(|due| due.variant.namespace == "ns");
        let targets: Vec<_> = ours.map(|(_, v)| decision(v)).collect();
        let steps: Vec<_> = steps.map(|due| (due.step.from, due.step.to)).collect();
        cycles.push(format!("{targets:?} {steps:?}"));
    }
    cycles
}

#[test]
fn other_namespaces_change_no_decision() {
    // Fewer cases than other properties: each runs six cycles with an HTTP server.
    let config = ProptestConfig::default();
    let config = ProptestConfig { cases: config.cases.div_ceil(32), ..config };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let others = prop::collection::vec(other_variant(), 0..60);
    let result =
        TestRunner::new(config).run(&(1..600_000_u32, 1..30_u32, others), |(retention, share, others)| {
            // From a tenth of the retention period to three times as long ago.
            let ago = retention.saturating_mul(share) / 10;
            let (alone, together) = runtime.block_on(async {
                (decided(retention, ago, &[]).await, decided(retention, ago, &others).await)
            });
            prop_assert_eq!(alone, together);
            Ok(())
        });
    result.unwrap();
}

#[tokio::test]
async fn an_idle_model_goes_to_zero_next_to_many_periods() {
    let many = |i: u32| OtherVariant {
        has_workload: true,
        shares_model: false,
        is_enabled: true,
        retention: 600_000 + i,
    };
    let others: Vec<OtherVariant> = (0..40).map(many).collect();
    let cycles = decided(20, 25, &others).await;
    assert!(cycles[1].contains("0, \"NoRequests\"") && cycles[2].contains("(2, 0)"), "{cycles:?}");
}

#[tokio::test]
async fn a_window_is_queried_only_for_namespaces_that_use_it() {
    let mut cluster = cluster(json!({}));
    let mut feed = Feed::new();
    let entry = "enable_scale_to_zero: true\nretention_period:";
    feed.put(&format!("wva/{MAP}"), &[("default", &format!("{entry} 10m"))]);
    for (namespace, period) in [("b", "20m"), ("c", "10m"), ("ghosts", "30m")] {
        cluster.variant("v", "m", json!({"metadata": {"namespace": namespace}}));
        if namespace != "ghosts" {
            cluster.ready_deployment_in(namespace, "v", 1);
        }
        feed.put(&format!("{namespace}/{MAP}"), &[("default", &format!("{entry} {period}"))]);
    }
    let mut bench = Bench::new(cluster, busy()).await;
    bench.engine.sources.maps = feed.maps();
    bench.turn().await;
    let before = bench.fake.queries();
    bench.count().await;
    let mut asked: Vec<_> = bench.fake.expressions().split_off(before).iter().map(|e| window(e)).collect();
    // The queries are concurrent.
    asked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    assert_eq!(asked, [(600.0, names(&["c", "ns"])), (1200.0, names(&["b"]))]);
}

#[tokio::test]
async fn loads_are_acted_on_while_counts_hang() {
    let steady = load_of([("a-0", "m", 0.4), ("a-1", "m", 0.4)]);
    let mut bench = Bench::new(cluster(json!({})), on("last_over_time", FakeReply::Hang, steady)).await;
    bench.wait_for_answers(Duration::from_mins(10));
    let mut feed = Feed::new();
    feed.put(SATURATION, &[("default", "analyzerName: percentage")]);
    feed.put(&format!("wva/{MAP}"), &[("default", "enable_scale_to_zero: true")]);
    bench.engine.sources.maps = feed.maps();
    let millis = Duration::from_millis;
    bench.configure(|c| (c.fetch_interval, c.cache_ttl, c.interval) = (millis(50), millis(20), millis(100)));
    let mut running = bench.run();
    running.until(|p| p.variants.len() == 1).await;
    running.until_asked(|fake| fake.hanging() > 0).await;
    running.fake.set_reply(on("last_over_time", FakeReply::Hang, busy()));
    running.until(|p| p.variants.values().all(|v| v.signal() == Some(3))).await;
    running.end().await;
}
