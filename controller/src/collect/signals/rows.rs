//! The rows of an answer: each series with its pod, model or queue.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;

use super::{Query, Signal};
use crate::collect::prometheus::Series;
use crate::collect::prometheus::answer::Sink;
use crate::collect::work::{Counter, Rank};

/// The labels that queries read. Empty where a series has none, which is the same to Prometheus.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Labels {
    #[serde(rename = "__name__")]
    name: String,
    namespace: String,
    pod: String,
    /// The older name of `pod`.
    pod_name: String,
    model_name: String,
    target_model_name: String,
    inference_pool: String,
    /// Added by a query that asks for several signals at once.
    signal: String,
    num_gpu_blocks: String,
    block_size: String,
    /// One of the data-parallel engines of a server.
    engine: String,
}

/// The pod of a series and, where vLLM names it, the model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodModel {
    /// Namespace of the pod.
    pub namespace: Arc<str>,
    /// Pod name as the series has it; it may carry a rank suffix.
    pub pod: Arc<str>,
    /// `model_name` of the series; empty where it has none.
    pub model_name: Arc<str>,
}

/// Size of a KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CacheConfig {
    /// Blocks on the GPUs; at least 1.
    pub num_gpu_blocks: u32,
    /// Tokens a block holds; at least 1.
    pub block_size: u32,
}

/// A series of a model's queue at an endpoint picker.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueueRow {
    /// Namespace of the endpoint picker.
    pub namespace: Arc<str>,
    /// `target_model_name`, else `model_name`.
    pub model: Arc<str>,
    /// The InferencePool; pickers of the first releases do not name it.
    pub pool: Option<Arc<str>>,
    /// It has the later name of the metric.
    pub later: bool,
    /// Bytes rather than requests.
    pub bytes: bool,
    /// The value; finite.
    pub value: f64,
}

/// The KV cache of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheRow {
    /// Namespace of the pod.
    pub namespace: Arc<str>,
    /// Pod name as the series has it; it may carry a rank suffix.
    pub pod: Arc<str>,
    /// Size of its cache.
    pub cache: CacheConfig,
}

/// Requests that a model completed within the window of the query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompletedRow {
    /// Namespace of its pods.
    pub namespace: Arc<str>,
    /// `model_name`.
    pub model: Arc<str>,
    /// How many; finite.
    pub requests: f64,
}

/// The rows of one answer. A series that is NaN or infinite, or lacks the labels of its query, gives no row.
#[derive(Debug)]
pub(crate) struct Rows {
    query: Query,
    /// Each name once: an answer repeats a few of them thousands of times.
    names: HashSet<Arc<str>>,
    /// Values of pods.
    pub(crate) pods: Vec<(Signal, PodModel, f64)>,
    /// Caches of pods.
    pub(crate) caches: Vec<CacheRow>,
    /// Queues of endpoint pickers.
    pub(crate) queues: Vec<QueueRow>,
    /// Completed requests of models.
    pub(crate) completed: Vec<CompletedRow>,
    /// Counters of pods.
    pub(crate) work: Vec<(Counter, Rank, f64)>,
    /// Why series may be lacking, where the answer reports it.
    pub(crate) partial: Option<String>,
}

impl Rows {
    /// No rows yet of the answer to a query.
    pub(crate) fn of(query: Query) -> Self {
        Self {
            query,
            names: HashSet::new(),
            pods: Vec::new(),
            caches: Vec::new(),
            queues: Vec::new(),
            completed: Vec::new(),
            work: Vec::new(),
            partial: None,
        }
    }

    /// The shared copy of a name.
    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let new: Arc<str> = name.into();
        self.names.insert(new.clone());
        new
    }

    fn pod_model(&mut self, namespace: &str, pod: &str, labels: &Labels) -> PodModel {
        let model_name = self.name(&labels.model_name);
        PodModel { namespace: self.name(namespace), pod: pod.into(), model_name }
    }

    fn take(&mut self, labels: &Labels, value: f64) -> Option<()> {
        let namespace = present(&labels.namespace)?;
        let pod = || present(&labels.pod).or_else(|| present(&labels.pod_name));
        match self.query {
            Query::CacheConfig => {
                let cache = cache_config(labels)?;
                let (namespace, pod) = (self.name(namespace), pod()?.into());
                self.caches.push(CacheRow { namespace, pod, cache });
            }
            Query::SchedulerQueue => {
                let model = present(&labels.target_model_name).or_else(|| present(&labels.model_name))?;
                let metric = present(&labels.name)?;
                let (namespace, model) = (self.name(namespace), self.name(model));
                let pool = present(&labels.inference_pool).map(|pool| self.name(pool));
                let (later, bytes) = (metric.starts_with("llm_d_epp"), metric.ends_with("_bytes"));
                self.queues.push(QueueRow { namespace, model, pool, later, bytes, value });
            }
            Query::Completed(_) => {
                let model = present(&labels.model_name)?;
                let (namespace, model) = (self.name(namespace), self.name(model));
                self.completed.push(CompletedRow { namespace, model, requests: value });
            }
            Query::Work | Query::WorkBefore => {
                let counter = Counter::named(&labels.signal)?;
                let pod = self.pod_model(namespace, pod()?, labels);
                let engine = self.name(&labels.engine);
                self.work.push((counter, Rank { pod, engine }, value));
            }
            query => {
                let signal = query.signal(&labels.signal)?;
                let key = self.pod_model(namespace, pod()?, labels);
                self.pods.push((signal, key, value));
            }
        }
        Some(())
    }
}

impl Sink for Rows {
    type Labels = Labels;

    fn series(&mut self, series: Series<Labels>) {
        if series.value.is_finite() {
            // A series without the labels of its query gives no row.
            let _ = self.take(&series.labels, series.value);
        }
    }
}

/// The value of a label that the series has.
fn present(label: &str) -> Option<&str> {
    Some(label).filter(|value| !value.is_empty())
}

/// vLLM writes `None` until it has measured how much memory is left.
fn cache_config(labels: &Labels) -> Option<CacheConfig> {
    let number = |label: &str| label.parse().ok().filter(|n| *n > 0);
    Some(CacheConfig {
        num_gpu_blocks: number(&labels.num_gpu_blocks)?,
        block_size: number(&labels.block_size)?,
    })
}
