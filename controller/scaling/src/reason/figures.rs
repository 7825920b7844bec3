//! Figures of the reasons.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use wva_objects::servers::{ServerKind, ServerMetric, ServerSignal};

/// Load of a model and the thresholds of the percentage analyzer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// Mean of `kvCacheThreshold - kv` over unsaturated replicas; 0 if all are saturated.
    pub mean_spare_kv: f64,
    /// Mean of `queueLengthThreshold - queue`, in requests.
    pub mean_spare_queue: f64,
    /// Replicas that are not saturated.
    pub non_saturated: u32,
    /// Replicas that report.
    pub reporting: u32,
    /// KV cache use from which a replica is saturated, 0 to 1.
    pub kv_cache_threshold: f64,
    /// Waiting requests from which a replica is saturated.
    pub queue_length_threshold: f64,
    /// Mean spare KV below which the model grows, 0 to 1.
    pub kv_spare_trigger: f64,
    /// Mean spare queue below which the model grows, in requests.
    pub queue_spare_trigger: f64,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "mean spare KV {} (at least {}), mean spare queue {} (at least {}), {} of {} replicas below the \
             thresholds of {} and {}",
            format_figure(self.mean_spare_kv),
            format_figure(self.kv_spare_trigger),
            format_figure(self.mean_spare_queue),
            format_figure(self.queue_spare_trigger),
            self.non_saturated,
            self.reporting,
            format_figure(self.kv_cache_threshold),
            format_figure(self.queue_length_threshold),
        )
    }
}

/// Tokens of a model as the token analyzer counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tokens {
    /// Tokens in use or waiting.
    pub demand: f64,
    /// Capacity of the ready replicas, in tokens.
    pub supply: f64,
    /// Capacity of the ready and pending replicas, in tokens.
    pub anticipated: f64,
    /// Missing capacity, in tokens.
    pub required: f64,
    /// Spare capacity, in tokens.
    pub spare: f64,
    /// Capacity of one replica of this variant, in tokens.
    pub per_replica: f64,
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "demand {} tokens, supply {} ({} with pending replicas), required {}, spare {}, {} per replica",
            format_figure(self.demand),
            format_figure(self.supply),
            format_figure(self.anticipated),
            format_figure(self.required),
            format_figure(self.spare),
            format_figure(self.per_replica),
        )
    }
}

/// Source of the target that the safety net holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FallbackSource {
    /// Target of the last cycle.
    PreviousDesired,
    /// Current replicas of the workload.
    CurrentReplicas,
}

impl FallbackSource {
    /// Value of `fallbackSource` in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PreviousDesired => "previous-desired",
            Self::CurrentReplicas => "current-replicas",
        }
    }
}

/// Cause of a failed analysis of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "cause")]
pub enum AnalysisError {
    /// No replica has a sample that counts.
    #[error("{}", no_metrics(*.ready))]
    NoMetrics {
        /// Ready replicas of the model.
        ready: u32,
    },
    /// The KV cache size is unknown.
    #[error(
        "the KV cache size of pod {pod} is unknown: it reports no {} that shows it, and has no argument \
         --num-gpu-blocks-override",
        cache_metric(*server)
    )]
    NoCapacity {
        /// Name of the pod.
        pod: String,
        /// Model server of the pod.
        #[serde(skip_serializing_if = "ServerKind::is_vllm")]
        server: ServerKind,
    },
}

/// A model without ready replicas is starting, or its replicas are stuck: Prometheus is not the cause.
fn no_metrics(ready: u32) -> String {
    match ready {
        0 => "no replica is ready yet".to_owned(),
        _ => format!(
            "no replica reports current metrics ({ready} ready): the condition MetricsAvailable says whether Prometheus, \
             its credentials or the scraping of the pods is the cause"
        ),
    }
}

fn cache_metric(server: ServerKind) -> ServerMetric {
    let all = [ServerSignal::CacheConfig, ServerSignal::CacheTokens, ServerSignal::CacheBlocks];
    let own = all.into_iter().find_map(|signal| server.row().metrics(signal).first().copied());
    own.unwrap_or(server.metric(ServerSignal::CacheConfig))
}

/// Formats a figure with at most 3 decimals, without trailing zeros.
pub(crate) fn format_figure(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(super) fn serialize_load<S: Serializer>(load: &Arc<Load>, serializer: S) -> Result<S::Ok, S::Error> {
    load.as_ref().serialize(serializer)
}

#[expect(clippy::ref_option, reason = "the signature that serde requires")]
pub(super) fn serialize_optional_load<S: Serializer>(
    load: &Option<Arc<Load>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    load.as_deref().serialize(serializer)
}
