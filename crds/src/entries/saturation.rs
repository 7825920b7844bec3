//! Entries of the saturation map: the thresholds of the analyzers, for all models (`default`) or for one. A snapshot
//! file holds the same entries and may spell their keys the Go way, too.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::read::{given, text};
use super::units::{Amount, Fraction, Millis, PositiveDuration, PositiveFraction, schema};

/// One entry of the saturation map. A field left out is inherited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(
    title = "Saturation entry",
    description = "One entry of a saturation ConfigMap: thresholds for all models (key `default`), or for the model that it names. A field left out is inherited."
)]
pub struct SaturationEntry {
    /// The model that this entry is for, as `spec.modelID` of its variants names it. Left out in the entry `default`.
    #[serde(rename = "model_id", alias = "modelID", alias = "modelId")]
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// The namespace that this entry is for. Left out: every namespace that reads this map.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// KV cache use at which a replica is saturated: a share from 0 to 1, default 0.8.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0.8))]
    pub kv_cache_threshold: Option<Fraction>,
    /// Waiting requests at which a replica is saturated: 0 or more, default 5.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 5))]
    pub queue_length_threshold: Option<Amount>,
    /// Mean spare KV cache below which the model grows: a share from 0 to 1, at most kvCacheThreshold, default 0.1.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0.1))]
    pub kv_spare_trigger: Option<Fraction>,
    /// Mean spare queue, in requests, below which the model grows: 0 or more, default 3.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 3))]
    pub queue_spare_trigger: Option<Amount>,
    /// Whether the model is limited to the GPUs that the inventory has left: default false.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub enable_limiter: Option<bool>,
    /// Which analyzer decides: empty for percentages, `saturation` for tokens, `throughput`; default empty.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = ""))]
    pub analyzer_name: Option<AnalyzerName>,
    /// Which analyzer's targets are shown beside those that are decided, and never published: a name as in analyzerName; the same as there shows none. Default: none.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub shadow_analyzer: Option<AnalyzerName>,
    /// Token analyzer: share of the supply above which it grows, above 0 to 1 and above scaleDownBoundary, default 0.85.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0.85))]
    pub scale_up_threshold: Option<PositiveFraction>,
    /// Token analyzer: share of the supply below which it shrinks, above 0 to 1 and below scaleUpThreshold, default 0.7.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0.7))]
    pub scale_down_boundary: Option<PositiveFraction>,
    /// Ignored: the token analyzer always fills the cheapest capacity first (`costAware`).
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "costAware"))]
    pub optimizer: Option<Optimizer>,
    /// Throughput analyzer: objective between two tokens in milliseconds, above 0. Default: that of a service class, else none.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub itl_slo: Option<Millis>,
    /// Throughput analyzer: objective to the first token in milliseconds, above 0. Default: that of a service class, else none.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub ttft_slo: Option<Millis>,
    /// Throughput analyzer: share of a replica's throughput to plan with, above 0 to 1. Default 0.95, and 0.85 without itlSlo.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub utilization: Option<PositiveFraction>,
    /// Throughput analyzer: how long the greatest need is held, a Go duration above 0, default 5m.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "5m"))]
    pub hold: Option<PositiveDuration>,
    /// Throughput analyzer: in how much time a backlog is worked off, a Go duration above 0, default 2m.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "2m"))]
    pub drain: Option<PositiveDuration>,
    /// Throughput analyzer: one replica more while the trend is steep; `auto` where the cold start is long, `on`, `off`; default auto.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "auto"))]
    pub warm_spare: Option<WarmSpare>,
}

impl SaturationEntry {
    /// This entry over a less specific one: a field it leaves out is that of `base`.
    #[must_use]
    pub fn over(&self, base: Self) -> Self {
        let own = self.clone();
        Self {
            model_id: own.model_id.or(base.model_id),
            namespace: own.namespace.or(base.namespace),
            kv_cache_threshold: own.kv_cache_threshold.or(base.kv_cache_threshold),
            queue_length_threshold: own.queue_length_threshold.or(base.queue_length_threshold),
            kv_spare_trigger: own.kv_spare_trigger.or(base.kv_spare_trigger),
            queue_spare_trigger: own.queue_spare_trigger.or(base.queue_spare_trigger),
            enable_limiter: own.enable_limiter.or(base.enable_limiter),
            analyzer_name: own.analyzer_name.or(base.analyzer_name),
            shadow_analyzer: own.shadow_analyzer.or(base.shadow_analyzer),
            scale_up_threshold: own.scale_up_threshold.or(base.scale_up_threshold),
            scale_down_boundary: own.scale_down_boundary.or(base.scale_down_boundary),
            optimizer: own.optimizer.or(base.optimizer),
            itl_slo: own.itl_slo.or(base.itl_slo),
            ttft_slo: own.ttft_slo.or(base.ttft_slo),
            utilization: own.utilization.or(base.utilization),
            hold: own.hold.or(base.hold),
            drain: own.drain.or(base.drain),
            warm_spare: own.warm_spare.or(base.warm_spare),
        }
    }
}

/// The analyzers, by the name an entry gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AnalyzerName {
    /// Percentages of KV use and queue length (`""` or `percentage`).
    #[default]
    #[serde(rename = "", alias = "percentage")]
    Percentage,
    /// Tokens (`saturation` or `token`).
    #[serde(rename = "saturation", alias = "token")]
    Tokens,
    /// Throughput (`throughput`).
    #[serde(rename = "throughput")]
    Throughput,
}

impl AnalyzerName {
    /// A word for metrics and traces: entries leave the name of percentages empty.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Percentage => "percentage",
            Self::Tokens => "saturation",
            Self::Throughput => "throughput",
        }
    }
}

/// How the token analyzer chooses between variants by their cost. Both words mean the same since the search for the least
/// cost of one cycle was removed: over a ramp it cost more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Optimizer {
    /// The variants whose capacity costs least are filled first, the dearest are emptied first.
    #[default]
    CostAware,
    /// Accepted in entries that were written for it.
    Exact,
}

/// When the throughput analyzer keeps one replica more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WarmSpare {
    /// Where the cold start is long.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

schema!(AnalyzerName, {
    "type": "string",
    "enum": [AnalyzerName::Percentage, AnalyzerName::Tokens, AnalyzerName::Throughput, "percentage", "token"],
});
schema!(Optimizer, { "type": "string", "enum": [Optimizer::CostAware, Optimizer::Exact] });
schema!(WarmSpare, { "type": "string", "enum": [WarmSpare::Auto, WarmSpare::On, WarmSpare::Off] });
