//! What a series of an answer says: of which pod, model or queue it is, and its value.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Query, Signal};
use crate::collect::prometheus::answer::{Label, Labels, Sink};
use crate::collect::work::{Counter, Rank};

/// A series belongs to a pod and, where vLLM says so, to a model.
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

/// What one endpoint picker's series says of a model's queue.
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

/// The series of one answer, as far as they say something. NaN and infinities are absent values, and a series without
/// a namespace or a pod belongs to nobody.
#[derive(Debug)]
pub(crate) struct Rows {
    query: Query,
    /// The same few names again and again.
    names: HashSet<Arc<str>>,
    /// Values of pods.
    pub(crate) pods: Vec<(Signal, PodModel, f64)>,
    /// Caches by namespace and pod.
    pub(crate) caches: Vec<(Arc<str>, Arc<str>, CacheConfig)>,
    /// Queues of endpoint pickers.
    pub(crate) queues: Vec<QueueRow>,
    /// Completed requests by namespace and model.
    pub(crate) completed: Vec<(Arc<str>, Arc<str>, f64)>,
    /// Counters of pods.
    pub(crate) work: Vec<(Counter, Rank, f64)>,
    /// Why some series may be lacking, where the answer says so.
    pub(crate) partial: Option<String>,
}

impl Rows {
    /// Of the answer to a query.
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

    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let new: Arc<str> = name.into();
        self.names.insert(new.clone());
        new
    }

    fn pod_model(&mut self, namespace: &str, pod: &str, labels: &Labels) -> PodModel {
        let model_name = self.name(labels.get(Label::ModelName).unwrap_or_default());
        PodModel { namespace: self.name(namespace), pod: pod.into(), model_name }
    }

    fn take(&mut self, labels: &Labels, value: f64) -> Option<()> {
        let namespace = labels.get(Label::Namespace)?;
        let pod = || labels.get(Label::Pod).or_else(|| labels.get(Label::PodName));
        match self.query {
            Query::CacheConfig => {
                let cache = cache_config(labels)?;
                let (namespace, pod) = (self.name(namespace), pod()?.into());
                self.caches.push((namespace, pod, cache));
            }
            Query::SchedulerQueue => {
                let model = labels.get(Label::TargetModelName).or_else(|| labels.get(Label::ModelName))?;
                let metric = labels.get(Label::Name)?;
                let (namespace, model) = (self.name(namespace), self.name(model));
                let pool = labels.get(Label::InferencePool).map(|pool| self.name(pool));
                let (later, bytes) = (metric.starts_with("llm_d_epp"), metric.ends_with("_bytes"));
                self.queues.push(QueueRow { namespace, model, pool, later, bytes, value });
            }
            Query::Completed(_) => {
                let model = labels.get(Label::ModelName)?;
                let (namespace, model) = (self.name(namespace), self.name(model));
                self.completed.push((namespace, model, value));
            }
            Query::Work | Query::WorkBefore => {
                let counter = Counter::named(labels.get(Label::Signal)?)?;
                let pod = self.pod_model(namespace, pod()?, labels);
                let engine = self.name(labels.get(Label::Engine).unwrap_or_default());
                self.work.push((counter, Rank { pod, engine }, value));
            }
            query => {
                let signal = query.signal(labels)?;
                let key = self.pod_model(namespace, pod()?, labels);
                self.pods.push((signal, key, value));
            }
        }
        Some(())
    }
}

impl Sink for Rows {
    fn series(&mut self, labels: &Labels, value: f64) {
        if value.is_finite() {
            // What says nothing is left out.
            let _ = self.take(labels, value);
        }
    }
}

/// vLLM writes `None` until it has measured how much memory is left.
fn cache_config(labels: &Labels) -> Option<CacheConfig> {
    let number = |label| labels.get(label)?.parse().ok().filter(|n| *n > 0);
    Some(CacheConfig { num_gpu_blocks: number(Label::NumGpuBlocks)?, block_size: number(Label::BlockSize)? })
}
