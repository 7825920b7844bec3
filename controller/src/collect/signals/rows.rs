//! Rows of an answer: values with pod, model or queue.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use wva_objects::servers::ServerKind;
use wva_runtime::prometheus::{Series, Sink};

use super::cache::{CacheConfig, CacheRow, CacheScope};
use super::router::{RouterFigure, RouterSignal};
use super::{Query, Signal, named, router};
use crate::collect::filter::{ReadNames, SeriesFilter};
use crate::collect::histogram::Bucket;
use crate::collect::pod_model::PodModel;
use crate::collect::work::{Counter, EngineKey, WorkRow};

/// An absent label is empty, as in Prometheus. Labels without escapes are those of the text: most series of an answer need
/// no copy.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Labels<'a> {
    #[serde(rename = "__name__", borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    pod: Cow<'a, str>,
    /// Alternative to `pod`.
    #[serde(borrow)]
    pod_name: Cow<'a, str>,
    #[serde(borrow)]
    model_name: Cow<'a, str>,
    #[serde(borrow)]
    target_model_name: Cow<'a, str>,
    #[serde(borrow)]
    inference_pool: Cow<'a, str>,
    #[serde(borrow)]
    signal: Cow<'a, str>,
    /// State of the requests that Triton counts.
    #[serde(borrow)]
    request_type: Cow<'a, str>,
    /// Why requests wait or are refused in vLLM.
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    kv_cache_size_tokens: Cow<'a, str>,
    #[serde(borrow)]
    num_gpu_blocks: Cow<'a, str>,
    #[serde(borrow)]
    block_size: Cow<'a, str>,
    #[serde(borrow)]
    mamba_block_size: Cow<'a, str>,
    /// Data-parallel engine of vLLM.
    #[serde(borrow)]
    engine: Cow<'a, str>,
    /// Data-parallel engine of `SGLang`.
    #[serde(borrow)]
    dp_rank: Cow<'a, str>,
    /// Server in its pod, which the query derives.
    #[serde(borrow)]
    wva_server: Cow<'a, str>,
    /// Upper bound of a bucket.
    #[serde(borrow)]
    le: Cow<'a, str>,
}

impl Labels<'_> {
    /// Value of the label that tells the meanings of one metric name apart.
    fn state(&self) -> &str {
        present(&self.request_type).unwrap_or(&self.reason)
    }
}

/// What tells the queues at endpoint pickers apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    pub namespace: Arc<str>,
    /// `target_model_name`, else `model_name`. `None`: names of no managed model, which count for their pool.
    pub model: Option<Arc<str>>,
    /// `None` for pickers of early releases.
    pub pool: Option<Arc<str>>,
    /// The metric has its later name.
    pub is_later_name: bool,
    /// The value is in bytes, else in requests.
    pub is_bytes: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RouterRow {
    pub figure: RouterFigure,
    pub namespace: Arc<str>,
    /// Name of the model or InferencePool.
    pub name: Arc<str>,
    /// The metric has its later name.
    pub is_later_name: bool,
    pub value: f64,
}

/// Completed requests within the window of the query. A model has several, of which the greatest counts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompletedRow {
    pub namespace: Arc<str>,
    pub model: Arc<str>,
    pub requests: f64,
}

/// Observations of a model within the window of the query, up to a bound.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BucketRow {
    pub namespace: Arc<str>,
    pub model: Arc<str>,
    /// Observed by the router, else by the model servers.
    pub at_router: bool,
    pub bucket: Bucket,
}

/// Rows of one answer. A series with a NaN or infinite value, or without the labels of its query, gives no row.
#[derive(Debug)]
pub(crate) struct Rows {
    query: Query,
    pub(crate) names: ReadNames,
    pub(crate) pods: Vec<(Signal, PodModel, f64)>,
    /// Servers other than vLLM.
    pub(crate) servers: Vec<(PodModel, ServerKind)>,
    pub(crate) caches: Vec<CacheRow>,
    /// Sums over the replicas of a picker.
    pub(crate) queues: BTreeMap<QueueKey, f64>,
    pub(crate) routers: Vec<RouterRow>,
    pub(crate) completed: Vec<CompletedRow>,
    pub(crate) work: Vec<WorkRow>,
    pub(crate) buckets: Vec<BucketRow>,
    /// Warning of the answer that series may be missing.
    pub(crate) partial: Option<String>,
}

impl Rows {
    pub(crate) fn new(query: Query, filter: Arc<SeriesFilter>) -> Self {
        Self {
            query,
            names: ReadNames::new(filter),
            pods: Vec::new(),
            servers: Vec::new(),
            caches: Vec::new(),
            queues: BTreeMap::new(),
            routers: Vec::new(),
            completed: Vec::new(),
            work: Vec::new(),
            buckets: Vec::new(),
            partial: None,
        }
    }

    /// Running or waiting requests, whose names tell the server.
    fn add_in_flight(&mut self, namespace: &str, pod: &str, labels: &Labels<'_>, value: f64) -> Option<()> {
        let series = named::find(&labels.name, labels.state())?;
        let signals: &[Signal] = match series.counter {
            Counter::Running => &[Signal::Running],
            Counter::Waiting => &[Signal::Waiting],
            // It is 0, in place of both.
            Counter::PromptTokens => &[Signal::Running, Signal::Waiting],
            _ => return None,
        };
        let key = self.names.pod(namespace, pod, &labels.model_name)?.key;
        if series.server != ServerKind::Vllm {
            self.servers.push((key.clone(), series.server));
        }
        for signal in signals {
            let signal = if series.is_part { signal.part()? } else { *signal };
            self.pods.push((signal, key.clone(), value));
        }
        Some(())
    }

    /// A queue, or another figure of a router.
    fn add_router(&mut self, namespace: &str, labels: &Labels<'_>, value: f64) -> Option<()> {
        let signal = router::find(&labels.name)?;
        let is_later_name = router::is_later_name(&labels.name);
        let model = present(&labels.target_model_name).or_else(|| present(&labels.model_name));
        let pool = present(&labels.inference_pool);
        let RouterSignal::Other(figure) = signal else {
            let model = self.names.model(namespace, model?);
            let pool = pool.and_then(|pool| self.names.pool(namespace, pool));
            let (namespace, _) = model.as_ref().or(pool.as_ref())?;
            let key = QueueKey {
                namespace: namespace.clone(),
                model: model.map(|(_, model)| model),
                pool: pool.map(|(_, pool)| pool),
                is_later_name,
                is_bytes: signal == RouterSignal::QueueBytes,
            };
            *self.queues.entry(key).or_default() += value;
            return Some(());
        };
        let (namespace, name) = match figure {
            RouterFigure::Running => self.names.model(namespace, model?)?,
            RouterFigure::Saturation => self.names.pool(namespace, pool?)?,
        };
        self.routers.push(RouterRow { figure, namespace, name, is_later_name, value });
        Some(())
    }

    fn add(&mut self, labels: &Labels<'_>, value: f64) -> Option<()> {
        let namespace = present(&labels.namespace)?;
        let pod = || present(&labels.pod).or_else(|| present(&labels.pod_name));
        match self.query {
            Query::CacheConfig => {
                let (cache, scope) = if labels.signal == TOKENS {
                    (cache_of_tokens(value)?, CacheScope::Engine)
                } else {
                    cache_config(labels)?
                };
                let engine = present(&labels.engine).unwrap_or(&labels.dp_rank);
                // They have no model.
                let of = self.names.pod(namespace, pod()?, "")?;
                let engine = self.names.engine(&of, engine, &labels.wva_server)?;
                let PodModel { namespace, pod, .. } = of.key;
                self.caches.push(CacheRow { namespace, pod, engine, cache, scope });
            }
            Query::SchedulerQueue => self.add_router(namespace, labels, value)?,
            Query::Completed(_) => {
                let (namespace, model) = self.names.model(namespace, present(&labels.model_name)?)?;
                self.completed.push(CompletedRow { namespace, model, requests: value });
            }
            Query::Running if labels.signal.is_empty() => {
                self.add_in_flight(namespace, pod()?, labels, value)?;
            }
            Query::Work | Query::WorkBefore => {
                let (counter, rank, is_part) = if labels.signal == AGE {
                    (Counter::Age, 0, false)
                } else {
                    let series = named::find(&labels.name, labels.state())?;
                    (series.counter, series.rank, series.is_part)
                };
                let of = self.names.pod(namespace, pod()?, &labels.model_name)?;
                let engine = self.names.engine(&of, &labels.engine, &labels.wva_server)?;
                let engine = EngineKey { pod: of.key, engine };
                self.work.push(WorkRow { counter, rank, is_part, engine, value });
            }
            Query::TimeToFirstToken | Query::InterTokenLatency => {
                let model = present(&labels.target_model_name).or_else(|| present(&labels.model_name))?;
                let bucket = Bucket { bound: labels.le.parse().ok()?, count: value };
                let (namespace, model) = self.names.model(namespace, model)?;
                let at_router = labels.signal == ROUTER;
                self.buckets.push(BucketRow { namespace, model, at_router, bucket });
            }
            query => {
                let signal = query.signal(&labels.signal)?;
                let key = self.names.pod(namespace, pod()?, &labels.model_name)?.key;
                self.pods.push((signal, key, value));
            }
        }
        Some(())
    }
}

impl Sink for Rows {
    type Labels<'a> = Labels<'a>;

    fn push(&mut self, series: Series<Labels<'_>>) {
        if series.value.is_finite() {
            let _ = self.add(&series.labels, series.value);
        }
    }
}

/// Labels `signal` of series that functions left without a name.
const TOKENS: &str = "tokens";
const AGE: &str = "age";
const ROUTER: &str = "router";

fn present(label: &str) -> Option<&str> {
    Some(label).filter(|value| !value.is_empty())
}

/// Size that vLLM reports in labels. It writes `None` until it has measured its memory. Releases with tokens report those of
/// an engine, and blocks are always the sum of a server's engines. With Mamba layers, the blocks do not show the tokens.
fn cache_config(labels: &Labels<'_>) -> Option<(CacheConfig, CacheScope)> {
    let number = |label: &str| label.parse().ok().filter(|n| *n > 0);
    if let Some(tokens) = number(&labels.kv_cache_size_tokens) {
        return Some((CacheConfig::of_tokens(tokens), CacheScope::Engine));
    }
    if number(&labels.mamba_block_size).is_some() {
        return None;
    }
    let cache = CacheConfig {
        num_gpu_blocks: number(&labels.num_gpu_blocks)?,
        block_size: number(&labels.block_size)?,
    };
    Some((cache, CacheScope::Server))
}

/// A cache whose size is known in tokens.
fn cache_of_tokens(tokens: f64) -> Option<CacheConfig> {
    let is_count = tokens >= 1.0 && tokens <= f64::from(u32::MAX) && tokens.fract() == 0.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is checked above")]
    is_count.then_some(CacheConfig::of_tokens(tokens as u32))
}
