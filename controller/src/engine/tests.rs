//! Cycles over watch caches fed by hand and a fake Prometheus: what is published when signals fail, after a restart,
//! and while Prometheus hangs.

use prometheus::Registry;
use serde_json::{Value, json};
use wva_scaling::FallbackSource;

use super::*;
use crate::collect::prometheus::tests::{Answers, FakePrometheus, vector};
use crate::collect::sample::tests::failed;
use crate::collect::scope::Scope;
use crate::collect::signals::Query;
use crate::fixture::Cluster;
use crate::published::PublishedVariant;
use crate::watches::Sight;

fn config() -> EngineConfig {
    let minutes = Duration::from_mins;
    EngineConfig {
        interval: minutes(60),
        fetch_interval: minutes(60),
        cache_ttl: minutes(60),
        cleanup_interval: minutes(1),
        fresh: minutes(1),
        stale: minutes(2),
        unavailable: minutes(5),
        decision_hold: minutes(10),
        pending_grace: minutes(10),
        limited_mode: false,
        early_scale_up: true,
        proactive: false,
        scale_to_zero: false,
        max_retention: Duration::from_hours(168),
        actuation: Actuation::Signal,
    }
}

fn configured(change: impl FnOnce(&mut EngineConfig)) -> watch::Receiver<EngineConfig> {
    let mut config = config();
    change(&mut config);
    watch::channel(config).1
}

fn engine(cluster: &Cluster, prometheus: Prometheus) -> Engine {
    Engine {
        watches: cluster.watches(),
        maps: crate::maps::testing::Feed::new().maps(),
        synced: Synced::default(),
        prometheus,
        pickers: Pickers::testing().0,
        refusals: watch::channel(Arc::default()).1,
        ownership: Ownership::default(),
        namespace: None,
        config: watch::channel(config()).1,
        telemetry: Telemetry::register(&Registry::new()).unwrap(),
        progress: CycleProgress::default(),
        published: watch::channel(None).0,
    }
}

/// Variant `a` of model `m` with 2 ready replicas.
fn cluster(extra: Value) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.variant("a", "m", extra).deployment("a", 2, 2).pod("a-0", "a").pod("a-1", "a");
    cluster
}

fn both(value: &str) -> String {
    let one = |(pod, signal)| {
        let labels = json!({"namespace": "ns", "pod": pod, "model_name": "m", "signal": signal});
        json!({"metric": labels, "value": [1, value]})
    };
    let all = [("a-0", "kv"), ("a-0", "queue"), ("a-1", "kv"), ("a-1", "queue")];
    vector(&json!(all.map(one)))
}

/// KV .78, queue 0, a second old: one replica more is needed.
fn busy(query: &str) -> (u16, String) {
    (
        200,
        both(if query.contains("timestamp") {
            "1"
        } else if query.contains("kv_cache") {
            "0.78"
        } else {
            "0"
        }),
    )
}

fn down(_: &str) -> (u16, String) {
    (503, "no healthy upstream".to_owned())
}

fn variant(engine: &Engine) -> Arc<PublishedVariant> {
    let published = engine.published.borrow().clone().unwrap();
    published.variants.values().next().unwrap().clone()
}

/// One round of queries and a cycle.
async fn turn(engine: &Engine, state: &mut State) -> Arc<PublishedVariant> {
    let fetched = engine.fetch(state).await;
    engine.take_in(state, fetched);
    count(engine, state).await;
    engine.cycle(state);
    variant(engine)
}

/// The counts that are due.
async fn count(engine: &Engine, state: &mut State) {
    let mut counts = engine.count(state);
    while let Some(counted) = counts.next().await {
        state.take_count(counted);
    }
    state.end_count();
}

fn reasons(v: &PublishedVariant) -> [&'static str; 3] {
    let c = &v.conditions;
    [c.ready.reason, c.metrics_available.reason, c.optimization_ready.reason]
}

#[tokio::test]
async fn a_failed_prometheus_keeps_values_and_then_the_target() {
    let cluster = cluster(json!({}));
    let fake = FakePrometheus::start(Answers::By(busy)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    assert_eq!(turn(&engine, &mut state).await.signal(), Some(3));
    // A moment later the values are still known.
    fake.now(Answers::By(down));
    let v = turn(&engine, &mut state).await;
    assert_eq!((v.signal(), reasons(&v)), (Some(3), ["Ready", "PrometheusError", "SaturationOnlyMode"]));
    assert!(v.conditions.metrics_available.message.contains("the last values of 2 replica(s)"));
    // And when all are too old.
    state.samples = Samples::default();
    let v = turn(&engine, &mut state).await;
    assert_eq!((v.signal(), reasons(&v)), (Some(3), ["SafetyNet", "PrometheusError", "SafetyNet"]));
    assert_eq!(v.decision.as_ref().unwrap().safety_net, Some(FallbackSource::PreviousDesired));
    // An empty answer is no error, and no idle model either.
    fake.now(Answers::Says(200, vector(&json!([]))));
    let v = turn(&engine, &mut state).await;
    assert_eq!((v.signal(), reasons(&v)), (Some(3), ["SafetyNet", "MetricsMissing", "SafetyNet"]));
}

#[tokio::test]
async fn each_variant_has_its_own_decision_whatever_the_order_of_the_models() {
    let mut cluster = Cluster::new();
    cluster.variant("a", "z", json!({})).deployment("a", 1, 1);
    cluster.variant("b", "y", json!({}));
    cluster.variant("c", "x", json!({})).deployment("c", 3, 3);
    let fake = FakePrometheus::start(Answers::Says(200, vector(&json!([])))).await;
    let engine = engine(&cluster, fake.client());
    turn(&engine, &mut State::default()).await;
    let published = engine.published.borrow().clone().unwrap();
    let of = |v: &PublishedVariant| v.decision.as_ref().map(|d| (d.variant.clone(), d.current));
    let decided: Vec<_> = published.variants.values().map(|v| of(v)).collect();
    assert_eq!(decided, [Some(("a".to_owned(), 1)), None, Some(("c".to_owned(), 3))]);
}

#[tokio::test]
async fn what_has_not_changed_is_published_again_and_not_anew() {
    let mut cluster = cluster(json!({}));
    cluster.variant("b", "other", json!({})).deployment("b", 1, 1);
    let fake = FakePrometheus::start(Answers::Says(200, vector(&json!([])))).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    turn(&engine, &mut state).await;
    let before = engine.published.borrow().clone().unwrap();
    cluster.deployment("b", 4, 4);
    turn(&engine, &mut state).await;
    let after = engine.published.borrow().clone().unwrap();
    let same: Vec<_> = after.variants.iter().map(|(key, v)| Arc::ptr_eq(v, &before.variants[key])).collect();
    assert_eq!(same, [true, false]);
    assert_eq!(after.variants.values().map(|v| v.current).collect::<Vec<_>>(), [Some(2), Some(4)]);
}

#[tokio::test]
async fn a_query_that_fails_costs_no_other_signal() {
    for (failing, told) in [
        ("timestamp", "MetricsFound"),
        ("num_requests_waiting", "PrometheusError"),
        ("num_requests_running", "MetricsFound"),
    ] {
        let cluster = cluster(json!({}));
        let fake = FakePrometheus::start(Answers::By(busy)).await;
        let engine = engine(&cluster, fake.client());
        let mut state = State::default();
        let mut fetched = engine.fetch(&mut state).await;
        for answer in &mut fetched.answers {
            if answer.query.expression(&Scope::All, "").contains(failing) {
                *answer = failed(answer.query);
            }
        }
        engine.take_in(&mut state, fetched);
        engine.cycle(&mut state);
        let v = variant(&engine);
        assert_eq!((v.signal(), v.conditions.metrics_available.reason), (Some(3), told), "{failing}");
    }
}

#[tokio::test]
async fn a_map_changes_what_the_next_cycle_decides() {
    let cluster = cluster(json!({}));
    let fake = FakePrometheus::start(Answers::By(busy)).await;
    let mut feed = crate::maps::testing::Feed::new();
    let engine = Engine { maps: feed.maps(), ..engine(&cluster, fake.client()) };
    let (global, local) = ("wva/wva-saturation-scaling-config", "ns/wva-saturation-scaling-config");
    let with = async |feed: &mut crate::maps::testing::Feed, path: &str, entry: &str| {
        feed.put(path, &[("default", entry)]);
        let v = turn(&engine, &mut State::default()).await;
        (v.signal(), v.conditions.optimization_ready.reason)
    };
    assert_eq!(with(&mut feed, global, "").await, (Some(3), "SaturationOnlyMode"));
    assert_eq!(with(&mut feed, global, "kvCacheThreshold: 0.95").await, (Some(2), "SaturationOnlyMode"));
    assert_eq!(with(&mut feed, local, "kvSpareTrigger: 0.3").await, (Some(3), "SaturationOnlyMode"));
    // What the model's tokens are nobody knows here, so that the analyzer says that it cannot.
    let tokens = with(&mut feed, local, "analyzerName: saturation").await;
    assert_eq!(tokens, (Some(2), "MetricsUnavailable"));
    let published = engine.published.borrow().clone().unwrap();
    let decided = decide(&published.snapshot).decisions;
    assert_eq!(published.variants.values().next().unwrap().decision.as_ref(), decided.first());
    feed.delete(global);
    feed.delete(local);
    assert_eq!(with(&mut feed, global, "kvSpareTrigger: 7").await, (Some(3), "InvalidConfiguration"));
    assert_eq!(variant(&engine).conditions.ready.reason, "Ready", "what the defaults say is published");
}

#[tokio::test]
async fn nan_is_absent_and_never_a_load() {
    let cluster = cluster(json!({}));
    let fake = FakePrometheus::start(Answers::Says(200, both("NaN"))).await;
    let engine = engine(&cluster, fake.client());
    let v = turn(&engine, &mut State::default()).await;
    assert_eq!(reasons(&v), ["MetricsUnavailable", "MetricsMissing", "MetricsUnavailable"]);
    assert_eq!(v.signal(), Some(2));
}

#[tokio::test]
async fn changes_of_what_is_published_are_counted_by_direction_and_reason() {
    let mut cluster = cluster(json!({}));
    let fake = FakePrometheus::start(Answers::Says(200, both("0"))).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    let counts = |engine: &Engine| -> Vec<(&'static str, &'static str, u64)> {
        let published = engine.published.borrow().clone().unwrap();
        published.scalings.iter().map(|((_, direction, reason), n)| (*direction, *reason, *n)).collect()
    };
    turn(&engine, &mut state).await;
    assert_eq!(counts(&engine), [], "a first target is no change");
    fake.now(Answers::By(busy));
    turn(&engine, &mut state).await;
    turn(&engine, &mut state).await;
    let up = ("up", "SpareBelowTarget", 1);
    assert_eq!(counts(&engine).iter().filter(|c| c.0 == "up").copied().collect::<Vec<_>>(), [up]);
    let mode = |mode: &str| json!({"metadata": {"annotations": {"wva.llmd.ai/mode": mode}}});
    cluster.variant("a", "m", mode("fixed=7"));
    turn(&engine, &mut state).await;
    assert!(counts(&engine).contains(&("up", "Fixed", 1)));
    let before = counts(&engine);
    for to in ["recommend", "auto"] {
        cluster.variant("a", "m", mode(to));
        turn(&engine, &mut state).await;
        assert_eq!(counts(&engine), before, "{to}: nothing was published on one side of the change");
    }
    cluster.without_deployment("a");
    turn(&engine, &mut state).await;
    assert_eq!(counts(&engine), [], "a variant without a target has no series");
}

#[tokio::test]
async fn of_a_workload_that_nobody_has_looked_for_nothing_is_said() {
    let last_run = Timestamp::now().to_string();
    let alloc = json!({"numReplicas": 5, "accelerator": "", "lastRunTime": last_run});
    let target = json!({"scaleTargetRef": {"apiVersion": "leaderworkerset.x-k8s.io/v1"}});
    let mut cluster = Cluster::new();
    let extra = json!({"spec": target, "status": {"desiredOptimizedAlloc": alloc}});
    cluster.variant_of("a", "LeaderWorkerSet", "l", "m", extra).leader_worker_set("l", 2, 2, json!({}));
    let fake = FakePrometheus::start(Answers::By(down)).await;
    cluster.leader_worker_sets_are(Sight::Unknown);
    let mut engine = engine(&cluster, fake.client());
    let mut state = State::default();
    let fetched = engine.fetch(&mut state).await;
    engine.take_in(&mut state, fetched);
    engine.cycle(&mut state);
    assert!(engine.published.borrow().as_ref().unwrap().variants.is_empty());
    cluster.leader_worker_sets_are(Sight::Seen);
    engine.watches = cluster.watches();
    let v = turn(&engine, &mut state).await;
    assert_eq!((v.signal(), v.conditions.ready.reason), (Some(5), "SafetyNet"), "the target of its status");
}

/// A bound that the token analyzer observed of a model.
fn observed(model: &str) -> Remembered {
    Remembered {
        namespace: "ns".to_owned(),
        model_id: model.to_owned(),
        accelerator: "H100".to_owned(),
        output: wva_scaling::snapshot::OutputBucket::Short,
        k2: vec![wva_scaling::units::Amount::try_from(9000.0).unwrap()],
    }
}

#[tokio::test]
async fn what_was_observed_and_measured_is_known_in_the_next_cycle() {
    use wva_scaling::units::Amount;
    let cluster = cluster(json!({}));
    let fake = FakePrometheus::start(Answers::By(busy)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    turn(&engine, &mut state).await;
    state.observed = vec![observed("m")];
    let (managed, at) = (engine.managed(), (Instant::now(), Timestamp::now()));
    let remembered = state.memory.of(&managed[0], at.0, at.1);
    let measured = wva_scaling::VariantState {
        desired: 3,
        current: 2,
        desired_age: wva_crds::GoDuration::default(),
        capacity: Some(12800.0),
    };
    remembered.decided(measured, wva_scaling::snapshot::Mode::Auto, false, at.0);
    for _ in 0..2 {
        turn(&engine, &mut state).await;
        let snapshot = engine.published.borrow().clone().unwrap().snapshot.clone();
        let capacity = snapshot.models[0].variants[0].remembered_capacity.map(Amount::get);
        assert_eq!((capacity, &snapshot.remembered), (Some(12800.0), &state.observed));
        assert_eq!(state.observed.len(), 1);
    }
}

#[tokio::test]
async fn what_was_observed_of_a_model_that_nobody_declares_any_more_is_forgotten() {
    let cluster = cluster(json!({}));
    let fake = FakePrometheus::start(Answers::By(busy)).await;
    let engine = engine(&cluster, fake.client());
    let mut state = State::default();
    turn(&engine, &mut state).await;
    state.observed = vec![observed("gone"), observed("m")];
    turn(&engine, &mut state).await;
    let models: Vec<&str> = state.observed.iter().map(|r| r.model_id.as_str()).collect();
    assert_eq!(models, ["m"]);
}

/// Waits for a publication, longer than any that is right takes.
async fn until(reader: &mut crate::Reader, wanted: impl FnMut(&Option<Arc<Published>>) -> bool) {
    tokio::time::timeout(Duration::from_secs(8), reader.wait_for(wanted)).await.expect("in time").unwrap();
}

mod early;
mod isolation;
mod logged;
mod restart;
mod running;
mod sampling;
mod waking;
mod zero;
