//! Model servers and the metrics that they export, as one table. A pod's server shows in the names of its metrics; no
//! setting names it.

mod groups;
mod identity;
mod table;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use groups::{PodGroup, ServingPods};
pub use identity::{INSTANCE_PORT, server_in_pod};
pub use table::{MODEL_SERVERS, ModelServer};

/// Software that serves a model.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    /// vLLM, of either engine.
    #[default]
    Vllm,
    /// `SGLang`.
    Sglang,
    /// `TensorRT-LLM` with `trtllm-serve`.
    TensorrtLlm,
    /// Triton with the backend of `TensorRT-LLM`.
    Triton,
}

/// What a metric shows. A histogram has the name without `_bucket`, `_sum` and `_count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerSignal {
    /// Gauge: share of the KV cache in use, 0 to 1.
    KvUsage,
    /// Gauge: waiting requests.
    Waiting,
    /// Gauge: running requests.
    Running,
    /// Gauge: 1 if an engine is awake, 0 if it sleeps.
    Awake,
    /// Counter that is 0 until the first request, of servers that export the gauges of requests only from then on.
    NoRequestYet,
    /// Gauge whose labels are the size of the KV cache: `kv_cache_size_tokens`, or `num_gpu_blocks` and `block_size`.
    CacheConfig,
    /// Gauge: size of the KV cache in tokens.
    CacheTokens,
    /// Gauge: size of the KV cache in blocks.
    CacheBlocks,
    /// Gauge: tokens in a block.
    BlockTokens,
    /// Counter: prompt tokens of the requests in [`ServerSignal::InputCount`].
    InputSum,
    /// Counter: requests.
    InputCount,
    /// Counter: generated tokens of the requests in [`ServerSignal::OutputCount`].
    OutputSum,
    /// Counter: requests.
    OutputCount,
    /// Counter: prompt tokens found in the prefix cache.
    PrefixHits,
    /// Counter: prompt tokens looked up in the prefix cache.
    PrefixLookups,
    /// Counter: finished requests.
    Completed,
    /// Counter: requests that a full queue refused.
    Refused,
    /// Counter: prompt tokens.
    PromptTokens,
    /// Counter: those of them that a cache had, so that the engine did not compute them.
    CachedTokens,
    /// Counter: generated tokens.
    GeneratedTokens,
    /// Histogram: time to compute a prompt, seconds.
    PrefillTime,
    /// Histogram: time between two tokens, seconds.
    TokenGap,
    /// Histogram: time to the first token, seconds.
    FirstToken,
}

/// Metric of a model server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerMetric {
    /// Name.
    pub name: &'static str,
    /// Label and value that select the series, if the name has others.
    pub label: Option<(&'static str, &'static str)>,
}

impl ServerKind {
    /// Row of the server in the table.
    #[must_use]
    pub fn row(self) -> &'static ModelServer {
        // The table has a row for each kind: a test compares them.
        MODEL_SERVERS.iter().find(|row| row.kind == self).unwrap_or(&MODEL_SERVERS[0])
    }

    /// Current metric of a signal, as messages name it: without a label if there is one; that of vLLM if this server has
    /// none.
    #[must_use]
    pub fn metric(self, signal: ServerSignal) -> ServerMetric {
        let of = |kind: Self| {
            let metrics = kind.row().metrics(signal);
            metrics.iter().find(|metric| metric.label.is_none()).or(metrics.first()).copied()
        };
        of(self).or_else(|| of(Self::Vllm)).unwrap_or(ServerMetric::named(""))
    }

    /// Server that a command line or an image name mentions.
    #[must_use]
    pub fn named_in(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let names = |row: &&ModelServer| row.words.iter().any(|word| text.contains(word));
        // Triton's images also name TensorRT-LLM.
        MODEL_SERVERS.iter().rev().find(names).map(|row| row.kind)
    }

    /// Whether it is vLLM, which a snapshot does not mention.
    #[must_use]
    pub fn is_vllm(&self) -> bool {
        *self == Self::Vllm
    }
}

impl ServerMetric {
    /// Every series of this name.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        Self { name, label: None }
    }

    /// The series of this name with this label.
    #[must_use]
    pub const fn labelled(name: &'static str, label: &'static str, value: &'static str) -> Self {
        Self { name, label: Some((label, value)) }
    }

    /// Whether it counts the waiting requests of one reason, which are also in the metric of all.
    #[must_use]
    pub fn is_by_reason(&self) -> bool {
        self.label.is_some_and(|(label, _)| label == "reason")
    }
}

/// Writes the metric as a selector of PromQL.
impl fmt::Display for ServerMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.label {
            Some((label, value)) => write!(f, "{}{{{label}=\"{value}\"}}", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// Metrics of a signal over all servers, those of vLLM first and current names before older ones.
pub fn server_metrics(signal: ServerSignal) -> impl Iterator<Item = (ServerKind, ServerMetric)> {
    MODEL_SERVERS.iter().flat_map(move |row| row.metrics(signal).iter().map(|metric| (row.kind, *metric)))
}

/// All series of a signal: alternatives of which one counts, and parts that are added to it.
pub fn server_series(signal: ServerSignal) -> impl Iterator<Item = (ServerKind, ServerMetric)> {
    server_metrics(signal).chain(server_parts(signal))
}

/// Metrics that are added to those of [`server_metrics`], over all servers.
pub fn server_parts(signal: ServerSignal) -> impl Iterator<Item = (ServerKind, ServerMetric)> {
    MODEL_SERVERS.iter().flat_map(move |row| row.parts(signal).map(|metric| (row.kind, metric)))
}

#[cfg(test)]
mod tests;
