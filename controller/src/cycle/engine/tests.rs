//! Cycles over watch caches fed by hand and a fake Prometheus: what is published when signals fail, after a restart,
//! and while Prometheus hangs.

mod cycles;
mod early;
mod isolation;
mod logged;
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
use wva_runtime::Availability;
use wva_scaling::{FallbackSource, VariantKey};

use super::*;
use crate::collect::picker::Queues;
use crate::collect::prometheus::tests::{FakePrometheus, FakeReply};
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
        self.engine.sources.prometheus = self.fake.client().with_timeout(timeout);
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
fn both(value: &str) -> FakeReply {
    let all = [("a-0", "kv"), ("a-0", "queue"), ("a-1", "kv"), ("a-1", "queue")];
    FakeReply::series(all.map(|(pod, signal)| (pod_signal(pod, signal), value)))
}

/// KV cache use by pod and model, each sample a second old and nothing waiting.
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

/// One replica more is needed.
fn busy() -> FakeReply {
    load_of([("a-0", "m", 0.78), ("a-1", "m", 0.78)])
}

fn down() -> FakeReply {
    FakeReply::Body(503, "no healthy upstream".to_owned())
}

/// `other`, but for queries that hold this word.
fn on(word: &'static str, answers: FakeReply, other: FakeReply) -> FakeReply {
    FakeReply::by(move |query| if query.contains(word) { answers.clone() } else { other.clone() })
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

/// Whether the variants are the ones that were published before, each as it is.
fn same(before: &Published, after: &Published) -> Vec<bool> {
    after.variants.iter().map(|(key, v)| Arc::ptr_eq(v, &before.variants[key])).collect()
}
