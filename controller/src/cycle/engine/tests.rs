//! Engine tests with watch caches filled by hand and a fake Prometheus.

mod cycles;
mod early;
mod isolation;
mod latencies;
mod logs;
mod restart;
mod running;
mod sampling;
mod waking;
mod zero;

use std::collections::BTreeMap;
use std::time::Instant;

use futures::StreamExt;
use jiff::Timestamp;
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use wva_fakes::prometheus::{FakePrometheus, FakeReply};
use wva_runtime::Availability;
use wva_runtime::prometheus::{Prometheus, PrometheusConfig};
use wva_scaling::{FallbackSource, VariantKey};

use super::*;
use crate::collect::picker::Queues;
use crate::collect::sample::Samples;
use crate::collect::sample::tests::{pod_metric, pod_signal, queue_size};
use crate::collect::signals::Query;
use crate::config::ConfigReloads;
use crate::config::testing::Feed;
use crate::fixture::Cluster;
use crate::model::published::PublishedVariant;

const GLOBAL: &str = "wva/wva-saturation-scaling-config";

/// A client with a timeout of two seconds and a limit of a megabyte.
fn client(fake: &FakePrometheus) -> Prometheus {
    let config = PrometheusConfig { base_url: fake.url(), ..PrometheusConfig::default() };
    Prometheus::new(config).unwrap().with_timeout(Duration::from_secs(2)).with_limit(1 << 20)
}

/// An engine with a cluster and a fake Prometheus, run cycle by cycle.
struct Bench {
    cluster: Cluster,
    fake: FakePrometheus,
    engine: Engine,
    state: State,
    queues: watch::Sender<Arc<Queues>>,
}

impl Bench {
    async fn new(cluster: Cluster, answers: FakeReply) -> Self {
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
                synced: SyncStatus::default(),
                prometheus: PrometheusSource { client: client(&fake), extra_matchers: String::new() },
                pickers,
                metrics_api: watch::channel(MetricsApi::Served).1,
                refusals: watch::channel(Arc::default()).1,
                ownership: Ownership::default(),
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

    /// Variant `a` with two busy replicas.
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

    /// Sets the number of requests that wait for a model at its endpoint picker.
    fn show_waiting(&self, namespace: &str, model: &str, waiting: f64) {
        self.show(Queues::testing(namespace, model, waiting));
    }

    /// Adds a pool of the pods with this label `app`.
    fn with_pool(self, app: &str) -> Self {
        let pickers = self.engine.sources.pickers.with_pool(app);
        let engine = Engine { sources: Sources { pickers, ..self.engine.sources }, ..self.engine };
        Self { engine, ..self }
    }

    fn wait_for_answers(&mut self, timeout: Duration) {
        self.engine.sources.prometheus.client = client(&self.fake).with_timeout(timeout);
    }

    /// Runs a round of queries and a cycle. Returns the first published variant.
    async fn turn(&mut self) -> Arc<PublishedVariant> {
        self.fetch().await;
        self.count().await;
        self.engine.run_cycle(&mut self.state);
        self.variant()
    }

    async fn fetch(&mut self) {
        let round = self.state.sampler.full_round(self.engine.inputs()).await;
        self.state.sampler.add_round(self.engine.inputs(), round);
    }

    async fn count(&mut self) {
        let mut counts =
            self.state.sampler.query_counts(self.engine.inputs(), self.state.stepper.namespaces_to_zero());
        while let Some(answer) = counts.next().await {
            self.state.sampler.add_count(answer);
        }
        self.state.sampler.end_counts();
    }

    fn published(&self) -> Arc<Published> {
        self.engine.published.borrow().clone().unwrap()
    }

    fn variant(&self) -> Arc<PublishedVariant> {
        self.published().variants.values().next().unwrap().clone()
    }

    fn steps(&self) -> Vec<(u32, u32)> {
        self.published().steps.iter().map(|due| (due.step.from, due.step.to)).collect()
    }

    fn run(self) -> Running {
        let (changed, shutdown) = (Arc::new(Notify::new()), CancellationToken::new());
        let (reader, wake, end) = (self.engine.published.subscribe(), changed.clone(), shutdown.clone());
        let engine = self.engine;
        let task = tokio::spawn(async move { engine.run(&wake, end).await });
        Running { cluster: self.cluster, fake: self.fake, reader, changed, shutdown, task }
    }
}

struct Running {
    cluster: Cluster,
    fake: FakePrometheus,
    reader: crate::Reader,
    changed: Arc<Notify>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), String>>,
}

impl Running {
    /// Waits for a publication that meets a condition.
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

    /// Stops the engine, which clears the publication.
    async fn end(mut self) {
        self.shutdown.cancel();
        in_time(self.reader.wait_for(Option::is_none)).await.unwrap();
        in_time(self.task).await.unwrap().unwrap();
    }
}

/// Waits with a generous timeout.
async fn in_time<F: Future>(awaited: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(8), awaited).await.expect("in time")
}

/// Variant `a` of model `m` with 2 ready replicas.
fn cluster(extra: Value) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.variant("a", "m", extra).deployment("a", 2, 2).pod("a-0", "a").pod("a-1", "a");
    cluster
}

/// The same value for every query about both pods of `a`.
fn both(value: &str) -> FakeReply {
    let all = [("a-0", "kv"), ("a-0", "queue"), ("a-1", "kv"), ("a-1", "queue")];
    FakeReply::series(all.map(|(pod, signal)| (pod_signal(pod, signal), value)))
}

/// KV cache usage by pod and model, with samples one second old and empty queues.
fn load_of(pods: impl Into<Vec<(&'static str, &'static str, f64)>>) -> FakeReply {
    let pods = pods.into();
    FakeReply::by(move |query| {
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
        FakeReply::series(all)
    })
}

/// Load that requires one more replica.
fn busy() -> FakeReply {
    load_of([("a-0", "m", 0.78), ("a-1", "m", 0.78)])
}

fn down() -> FakeReply {
    FakeReply::Body(503, "no healthy upstream".to_owned())
}

/// `answers` to queries that contain this word, else `other`.
fn on(word: &'static str, answers: FakeReply, other: FakeReply) -> FakeReply {
    FakeReply::by(move |query| if query.contains(word) { answers.clone() } else { other.clone() })
}

fn mode(mode: &str) -> Value {
    json!({"metadata": {"annotations": {"wva.llmd.ai/mode": mode}}})
}

/// A status target written some minutes ago.
fn alloc(replicas: u32, minutes_ago: i64) -> Value {
    let last_run = Timestamp::now() - jiff::SignedDuration::from_mins(minutes_ago);
    json!({"numReplicas": replicas, "accelerator": "", "lastRunTime": last_run.to_string()})
}

fn reasons(v: &PublishedVariant) -> [&'static str; 3] {
    let c = &v.conditions;
    [c.ready.reason.as_str(), c.metrics_available.reason.as_str(), c.optimization_ready.reason.as_str()]
}

/// Whether each published variant is the same object as before.
fn same(before: &Published, after: &Published) -> Vec<bool> {
    after.variants.iter().map(|(key, v)| Arc::ptr_eq(v, &before.variants[key])).collect()
}
