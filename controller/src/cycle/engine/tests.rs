//! Cycles over watch caches fed by hand and a fake Prometheus: what is published when signals fail, after a restart,
//! and while Prometheus hangs.

use std::collections::BTreeMap;
use std::time::Instant;

use futures::StreamExt;
use jiff::Timestamp;
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use wva_runtime::Availability;
use wva_scaling::snapshot::Remembered;
use wva_scaling::{FallbackSource, VariantKey, decide};

use super::*;
use crate::collect::picker::Queues;
use crate::collect::prometheus::tests::{Answers, FakePrometheus};
use crate::collect::sample::Samples;
use crate::collect::sample::tests::{pod_signal, queue_size};
use crate::collect::signals::Query;
use crate::config::ConfigReloads;
use crate::config::testing::Feed;
use crate::fixture::Cluster;
use crate::model::published::PublishedVariant;

const GLOBAL: &str = "wva/wva-saturation-scaling-config";

/// An engine over a cluster and a fake Prometheus, cycle by cycle.
struct Bench {
    cluster: Cluster,
    fake: FakePrometheus,
    engine: Engine,
    state: State,
    /// What endpoint pickers show.
    queues: watch::Sender<Arc<Queues>>,
}

impl Bench {
    async fn new(cluster: Cluster, answers: Answers) -> Self {
        let fake = FakePrometheus::start(answers).await;
        let minutes = Duration::from_mins;
        let (pickers, queues) = Pickers::testing();
        let config = EngineConfig {
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
        };
        let engine = Engine {
            sources: Sources {
                watches: cluster.watches(),
                maps: Feed::new().maps(),
                synced: Synced::default(),
                prometheus: fake.client(),
                pickers,
                refusals: watch::channel(Arc::default()).1,
                ownership: Ownership::default(),
                namespace: None,
            },
            config: watch::channel(config).1,
            metrics: EngineMetrics {
                telemetry: Telemetry::register(&Registry::new()).unwrap(),
                reloads: ConfigReloads::register(&Registry::new()).unwrap(),
            },
            progress: CycleProgress::default(),
            published: watch::channel(None).0,
        };
        Self { cluster, fake, engine, state: State::default(), queues }
    }

    /// Variant `a`, both of whose replicas are busy.
    async fn busy() -> Self {
        Self::new(cluster(json!({})), busy()).await
    }

    fn configure(&mut self, change: impl FnOnce(&mut EngineConfig)) -> watch::Sender<EngineConfig> {
        let mut config = *self.engine.config.borrow();
        change(&mut config);
        let (settings, config) = watch::channel(config);
        self.engine.config = config;
        settings
    }

    fn show(&self, shown: Queues) {
        self.queues.send_replace(Arc::new(shown));
    }

    /// Has requests wait for a model at its endpoint picker.
    fn show_waiting(&self, namespace: &str, model: &str, waiting: f64) {
        self.show(Queues::testing(namespace, model, waiting));
    }

    /// Has a pool hold the pods with this label `app`.
    fn with_pool(self, app: &str) -> Self {
        let pickers = self.engine.sources.pickers.with_pool(app);
        let engine = Engine { sources: Sources { pickers, ..self.engine.sources }, ..self.engine };
        Self { engine, ..self }
    }

    /// Gives Prometheus so much time for an answer.
    fn wait_for_answers(&mut self, timeout: Duration) {
        self.engine.sources.prometheus = self.fake.client().timeout(timeout);
    }

    /// One round of queries and a cycle: what is published of the first variant.
    async fn turn(&mut self) -> Arc<PublishedVariant> {
        self.fetch().await;
        self.count().await;
        self.engine.cycle(&mut self.state);
        self.variant()
    }

    /// One round of queries.
    async fn fetch(&mut self) {
        let fetched = self.engine.fetch(&mut self.state).await;
        self.engine.take_in(&mut self.state, fetched);
    }

    /// The counts that are due.
    async fn count(&mut self) {
        let mut counts = self.engine.count(&mut self.state);
        while let Some(counted) = counts.next().await {
            self.state.sampling.take_count(counted);
        }
        self.state.sampling.end_count();
    }

    fn published(&self) -> Arc<Published> {
        self.engine.published.borrow().clone().unwrap()
    }

    /// What is published of the first variant.
    fn variant(&self) -> Arc<PublishedVariant> {
        self.published().variants.values().next().unwrap().clone()
    }

    /// The steps to carry out.
    fn steps(&self) -> Vec<(u32, u32)> {
        self.published().steps.iter().map(|due| (due.step.from, due.step.to)).collect()
    }

    /// Starts the loop of the engine.
    fn run(self) -> Running {
        let (changed, shutdown) = (Arc::new(Notify::new()), CancellationToken::new());
        let (reader, wake, end) = (self.engine.published.subscribe(), changed.clone(), shutdown.clone());
        let engine = self.engine;
        let task = tokio::spawn(async move { engine.run(&wake, end).await });
        Running { cluster: self.cluster, fake: self.fake, reader, changed, shutdown, task }
    }
}

/// An engine that runs until the test ends it.
struct Running {
    cluster: Cluster,
    fake: FakePrometheus,
    reader: crate::Reader,
    changed: Arc<Notify>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), String>>,
}

impl Running {
    /// Waits until something is published of which this holds.
    async fn until(&mut self, wanted: impl Fn(&Published) -> bool) {
        let published = self.reader.wait_for(|p| p.as_ref().is_some_and(|p| wanted(p)));
        in_time(published).await.unwrap();
    }

    async fn until_asked(&self, wanted: impl Fn(&FakePrometheus) -> bool) {
        in_time(async {
            while !wanted(&self.fake) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    async fn cycles(&mut self, n: u32) {
        for _ in 0..n {
            in_time(self.reader.changed()).await.unwrap();
        }
    }

    /// Ends it, which takes back what is published.
    async fn end(mut self) {
        self.shutdown.cancel();
        in_time(self.reader.wait_for(Option::is_none)).await.unwrap();
        in_time(self.task).await.unwrap().unwrap();
    }
}

/// Waits longer than anything that is right takes.
async fn in_time<F: Future>(awaited: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(8), awaited).await.expect("in time")
}

/// Variant `a` of model `m` with 2 ready replicas.
fn cluster(extra: Value) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.variant("a", "m", extra).deployment("a", 2, 2).pod("a-0", "a").pod("a-1", "a");
    cluster
}

/// The same value for everything that is asked about both pods of `a`.
fn both(value: &str) -> Answers {
    let all = [("a-0", "kv"), ("a-0", "queue"), ("a-1", "kv"), ("a-1", "queue")];
    Answers::series(all.map(|(pod, signal)| (pod_signal(pod, signal), value)))
}

/// KV cache use by pod and model, each sample a second old and nothing waiting.
fn load_of(pods: impl Into<Vec<(&'static str, &'static str, f64)>>) -> Answers {
    let pods = pods.into();
    Answers::by(move |query| {
        let all = pods.iter().flat_map(|(name, model, kv)| {
            let value = match query {
                q if q.contains("timestamp") => 1.0,
                q if q.contains("kv_cache") => *kv,
                _ => 0.0,
            };
            ["kv", "queue"].map(|signal| {
                let mut labels = pod_signal(name, signal);
                labels["model_name"] = json!(model);
                (labels, value)
            })
        });
        Answers::series(all)
    })
}

/// One replica more is needed.
fn busy() -> Answers {
    load_of([("a-0", "m", 0.78), ("a-1", "m", 0.78)])
}

fn down() -> Answers {
    Answers::Says(503, "no healthy upstream".to_owned())
}

/// `other`, but for queries that hold this word.
fn on(word: &'static str, answers: Answers, other: Answers) -> Answers {
    Answers::by(move |query| if query.contains(word) { answers.clone() } else { other.clone() })
}

fn mode(mode: &str) -> Value {
    json!({"metadata": {"annotations": {"wva.llmd.ai/mode": mode}}})
}

/// A status with a target of so many minutes ago.
fn alloc(replicas: u32, minutes_ago: i64) -> Value {
    let last_run = Timestamp::now() - jiff::SignedDuration::from_mins(minutes_ago);
    json!({"numReplicas": replicas, "accelerator": "", "lastRunTime": last_run.to_string()})
}

fn reasons(v: &PublishedVariant) -> [&'static str; 3] {
    let c = &v.conditions;
    [c.ready.reason, c.metrics_available.reason, c.optimization_ready.reason]
}

#[tokio::test]
async fn a_failed_prometheus_keeps_values_and_then_the_target() {
    let mut bench = Bench::busy().await;
    assert_eq!(bench.turn().await.signal(), Some(3));
    // A moment later the values are still known.
    bench.fake.now(down());
    let v = bench.turn().await;
    assert_eq!((v.signal(), reasons(&v)), (Some(3), ["Ready", "PrometheusError", "SaturationOnlyMode"]));
    assert!(v.conditions.metrics_available.message.contains("the last values of 2 replica(s)"));
    // And when all are too old.
    bench.state.sampling.samples = Samples::default();
    let v = bench.turn().await;
    assert_eq!((v.signal(), reasons(&v)), (Some(3), ["SafetyNet", "PrometheusError", "SafetyNet"]));
    assert_eq!(v.decision.as_ref().unwrap().safety_net, Some(FallbackSource::PreviousDesired));
    // An empty answer is no error, and no idle model either.
    bench.fake.now(Answers::no_series());
    let v = bench.turn().await;
    assert_eq!((v.signal(), reasons(&v)), (Some(3), ["SafetyNet", "MetricsMissing", "SafetyNet"]));
}

#[tokio::test]
async fn each_variant_has_its_own_decision_whatever_the_order_of_the_models() {
    let mut cluster = Cluster::new();
    cluster.variant("a", "z", json!({})).deployment("a", 1, 1);
    cluster.variant("b", "y", json!({}));
    cluster.variant("c", "x", json!({})).deployment("c", 3, 3);
    let mut bench = Bench::new(cluster, Answers::no_series()).await;
    bench.turn().await;
    let of = |v: &PublishedVariant| v.decision.as_ref().map(|d| (d.variant.clone(), d.current));
    let decided: Vec<_> = bench.published().variants.values().map(|v| of(v)).collect();
    assert_eq!(decided, [Some(("a".to_owned(), 1)), None, Some(("c".to_owned(), 3))]);
}

/// Whether the variants are the ones that were published before, each as it is.
fn same(before: &Published, after: &Published) -> Vec<bool> {
    after.variants.iter().map(|(key, v)| Arc::ptr_eq(v, &before.variants[key])).collect()
}

#[tokio::test]
async fn what_has_not_changed_is_published_again_and_not_anew() {
    let mut cluster = cluster(json!({}));
    cluster.variant("b", "other", json!({})).deployment("b", 1, 1);
    let mut bench = Bench::new(cluster, Answers::no_series()).await;
    bench.turn().await;
    let before = bench.published();
    bench.cluster.deployment("b", 4, 4);
    bench.turn().await;
    let after = bench.published();
    assert_eq!(same(&before, &after), [true, false]);
    assert_eq!(after.variants.values().map(|v| v.current).collect::<Vec<_>>(), [Some(2), Some(4)]);
}

#[tokio::test]
async fn a_query_that_fails_costs_no_other_signal() {
    for (failing, told) in [
        ("timestamp", "MetricsFound"),
        ("num_requests_waiting", "PrometheusError"),
        ("num_requests_running", "MetricsFound"),
    ] {
        let v = Bench::new(cluster(json!({})), on(failing, down(), busy())).await.turn().await;
        assert_eq!((v.signal(), v.conditions.metrics_available.reason), (Some(3), told), "{failing}");
    }
}

#[tokio::test]
async fn a_map_changes_what_the_next_cycle_decides() {
    let mut bench = Bench::busy().await;
    let mut feed = Feed::new();
    bench.engine.sources.maps = feed.maps();
    let local = "ns/wva-saturation-scaling-config";
    let mut check = async |feed: &mut Feed, path: &str, entry: &str, signal: u32, reason: &str| {
        feed.put(path, &[("default", entry)]);
        bench.state = State::default();
        let v = bench.turn().await;
        assert_eq!((v.signal(), v.conditions.optimization_ready.reason), (Some(signal), reason), "{entry}");
        let decided = decide(&bench.published().snapshot).decisions;
        assert_eq!(v.decision.as_ref(), decided.first());
        assert_eq!(v.conditions.ready.reason == "Ready", reason != "MetricsUnavailable");
    };
    check(&mut feed, GLOBAL, "", 3, "SaturationOnlyMode").await;
    check(&mut feed, GLOBAL, "kvCacheThreshold: 0.95", 2, "SaturationOnlyMode").await;
    check(&mut feed, local, "kvSpareTrigger: 0.3", 3, "SaturationOnlyMode").await;
    // The tokens of the model are not known here, so that the analyzer fails.
    check(&mut feed, local, "analyzerName: saturation", 2, "MetricsUnavailable").await;
    feed.delete(GLOBAL);
    feed.delete(local);
    // What the defaults say is published.
    check(&mut feed, GLOBAL, "kvSpareTrigger: 7", 3, "InvalidConfiguration").await;
}

#[tokio::test]
async fn nan_is_absent_and_never_a_load() {
    let v = Bench::new(cluster(json!({})), both("NaN")).await.turn().await;
    assert_eq!(reasons(&v), ["MetricsUnavailable", "MetricsMissing", "MetricsUnavailable"]);
    assert_eq!(v.signal(), Some(2));
}

#[tokio::test]
async fn changes_of_what_is_published_are_counted_by_direction_and_reason() {
    let mut bench = Bench::new(cluster(json!({})), both("0")).await;
    let counts = |bench: &Bench| -> Vec<(&'static str, &'static str, u64)> {
        bench.published().scalings.iter().map(|((_, way, reason), n)| (*way, *reason, *n)).collect()
    };
    bench.turn().await;
    assert_eq!(counts(&bench), [], "a first target is no change");
    bench.fake.now(busy());
    bench.turn().await;
    bench.turn().await;
    assert_eq!(counts(&bench), [("up", "SpareBelowTarget", 1)]);
    bench.cluster.variant("a", "m", mode("fixed=7"));
    bench.turn().await;
    let before = counts(&bench);
    assert!(before.contains(&("up", "Fixed", 1)));
    for to in ["recommend", "auto"] {
        bench.cluster.variant("a", "m", mode(to));
        bench.turn().await;
        assert_eq!(counts(&bench), before, "{to}: nothing was published on one side of the change");
    }
    bench.cluster.without_deployment("a");
    bench.turn().await;
    assert_eq!(counts(&bench), [], "a variant without a target has no series");
}

#[tokio::test]
async fn of_a_workload_that_nobody_has_looked_for_nothing_is_said() {
    let target = json!({"scaleTargetRef": {"apiVersion": "leaderworkerset.x-k8s.io/v1"}});
    let mut cluster = Cluster::new();
    let extra = json!({"spec": target, "status": {"desiredOptimizedAlloc": alloc(5, 0)}});
    cluster.variant_of("a", "LeaderWorkerSet", "l", "m", extra).leader_worker_set("l", 2, 2, json!({}));
    cluster.leader_worker_sets_are(Availability::Unknown);
    let mut bench = Bench::new(cluster, down()).await;
    bench.fetch().await;
    bench.engine.cycle(&mut bench.state);
    assert!(bench.published().variants.is_empty());
    bench.cluster.leader_worker_sets_are(Availability::Watched);
    bench.engine.sources.watches = bench.cluster.watches();
    let v = bench.turn().await;
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
    let mut bench = Bench::busy().await;
    bench.turn().await;
    // That of a model without a variant is forgotten.
    bench.state.deciding.observed = vec![observed("gone"), observed("m")];
    let (managed, at) = (bench.engine.managed(), (Instant::now(), Timestamp::now()));
    let remembered = bench.state.deciding.memory.of(&managed[0], at.0, at.1);
    let measured = wva_scaling::VariantState {
        desired: 3,
        current: 2,
        desired_age: wva_crds::GoDuration::default(),
        capacity: Some(12800.0),
    };
    remembered.decided(measured, wva_scaling::snapshot::Mode::Auto, false, at.0);
    for _ in 0..2 {
        bench.turn().await;
        let snapshot = bench.published().snapshot.clone();
        let capacity = snapshot.models[0].variants[0].remembered_capacity.map(Amount::get);
        assert_eq!((capacity, &snapshot.remembered), (Some(12800.0), &bench.state.deciding.observed));
        assert_eq!(bench.state.deciding.observed, [observed("m")]);
    }
}

mod early;
mod isolation;
mod logged;
mod restart;
mod running;
mod sampling;
mod waking;
mod zero;
