//! The figures reasons rest on: what the analyzers counted, what the safety net holds, and why an analysis failed.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The load of a model as the percentage analyzer sees it, with the thresholds it is held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Load {
    /// Mean of `kvCacheThreshold - kv` over the replicas that are not saturated; 0 where there is none.
    pub mean_spare_kv: f64,
    /// The same of the queue.
    pub mean_spare_queue: f64,
    /// Replicas that are not saturated.
    pub non_saturated: u32,
    /// Replicas that report.
    pub reporting: u32,
    /// The threshold of KV use.
    pub kv_cache_threshold: f64,
    /// The threshold of the queue.
    pub queue_length_threshold: f64,
    /// The least mean spare KV.
    pub kv_spare_trigger: f64,
    /// The least mean spare queue.
    pub queue_spare_trigger: f64,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "mean spare KV {} (at least {}), mean spare queue {} (at least {}), {} of {} replicas below the \
             thresholds of {} and {}",
            figure(self.mean_spare_kv),
            figure(self.kv_spare_trigger),
            figure(self.mean_spare_queue),
            figure(self.queue_spare_trigger),
            self.non_saturated,
            self.reporting,
            figure(self.kv_cache_threshold),
            figure(self.queue_length_threshold),
        )
    }
}

/// A model's tokens as the token analyzer counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tokens {
    /// Tokens that are in use or wait.
    pub demand: f64,
    /// Tokens the ready replicas hold.
    pub supply: f64,
    /// Tokens the ready and pending replicas hold.
    pub anticipated: f64,
    /// Tokens that are lacking.
    pub required: f64,
    /// Tokens that are spare.
    pub spare: f64,
    /// Tokens one replica of this variant holds.
    pub per_replica: f64,
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "demand {} tokens, supply {} ({} with pending replicas), required {}, spare {}, {} a replica",
            figure(self.demand),
            figure(self.supply),
            figure(self.anticipated),
            figure(self.required),
            figure(self.spare),
            figure(self.per_replica),
        )
    }
}

/// What the safety net holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FallbackSource {
    /// The target of the last cycle.
    PreviousDesired,
    /// What the workload has.
    CurrentReplicas,
}

impl FallbackSource {
    /// The value of `fallbackSource` in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PreviousDesired => "previous-desired",
            Self::CurrentReplicas => "current-replicas",
        }
    }
}

/// Why an analysis failed for a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "cause")]
pub enum AnalysisError {
    /// No replica reports a sample that counts.
    #[error(
        "no replica reports metrics that count ({ready} ready): check that Prometheus answers and that a \
         ServiceMonitor selects the model's Service"
    )]
    NoMetrics {
        /// Ready replicas of the model.
        ready: u32,
    },
    /// A replica whose capacity nothing tells.
    #[error(
        "nothing tells the KV cache size of pod {pod}: it reports no vllm:cache_config_info, and its arguments no \
         --num-gpu-blocks-override"
    )]
    NoCapacity {
        /// The pod.
        pod: String,
    },
}

/// A figure as a person reads it: at most 4 decimals, none that is 0.
pub(crate) fn figure(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Writes what variants share as if it were each one's own.
pub(super) fn shared<S: Serializer>(load: &Arc<Load>, serializer: S) -> Result<S::Ok, S::Error> {
    load.as_ref().serialize(serializer)
}

/// The same where there may be none.
#[expect(clippy::ref_option, reason = "serde hands over the field as it is")]
pub(super) fn any_shared<S: Serializer>(load: &Option<Arc<Load>>, serializer: S) -> Result<S::Ok, S::Error> {
    load.as_deref().serialize(serializer)
}
