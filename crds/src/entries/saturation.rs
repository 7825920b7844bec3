//! Entries of the saturation map: thresholds of the analyzers for all models (`default`) or one model. Snapshot files have
//! the same entries, also with Go spelling of their keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields::{non_empty_text, non_null};
use super::units::{Amount, Fraction, Millis, PositiveDuration, PositiveFraction, SloTarget, schema};

/// One entry of the saturation map. Missing fields are inherited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(
    deny_unknown_fields,
    title = "Saturation entry",
    description = "One entry of a saturation ConfigMap: thresholds for all models (key `default`) or for one model. Missing fields are inherited."
)]
pub struct SaturationEntry {
    /// Model of this entry, as in `spec.modelID` of its variants. Not used in the entry `default`.
    #[serde(rename = "model_id", alias = "modelID", alias = "modelId")]
    #[serde(deserialize_with = "non_empty_text", skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// Namespace of this entry. Default: every namespace that reads this map.
    #[serde(deserialize_with = "non_empty_text", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// KV cache use at which a replica is saturated, 0 to 1. Default 0.8.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0.8))]
    pub kv_cache_threshold: Option<Fraction>,
    /// Waiting requests at which a replica is saturated, 0 or more. Default 5.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 5))]
    pub queue_length_threshold: Option<Amount>,
    /// Mean spare KV cache below which the model scales up, 0 to 1 and at most kvCacheThreshold. Default 0.1.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0.1))]
    pub kv_spare_trigger: Option<Fraction>,
    /// Mean spare queue, in requests, below which the model scales up, 0 or more. Default 3.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 3))]
    pub queue_spare_trigger: Option<Amount>,
    /// Whether the model is limited to the free GPUs of the inventory. Default false.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub enable_limiter: Option<bool>,
    /// Analyzer that decides: `percentage` (or empty), `token` (or `saturation`) or `throughput`. Default `percentage`.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = ""))]
    pub analyzer_name: Option<AnalyzerName>,
    /// Analyzer whose targets are shown for comparison and never published; names as in analyzerName. The same analyzer as there shows nothing. Default: none.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub shadow_analyzer: Option<AnalyzerName>,
    /// Token analyzer: share of the supply above which the model scales up, above scaleDownBoundary and at most 1. Default 0.85.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0.85))]
    pub scale_up_threshold: Option<PositiveFraction>,
    /// Token analyzer: share of the supply below which the model scales down, above 0 and below scaleUpThreshold. Default 0.7.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0.7))]
    pub scale_down_boundary: Option<PositiveFraction>,
    /// Ignored. The token analyzer always uses the cheapest capacity first (`costAware`).
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "costAware"))]
    pub optimizer: Option<Optimizer>,
    /// Throughput analyzer: objective for the inter-token latency in milliseconds, above 0. Default: the objective of a service class, if any.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub itl_slo: Option<Millis>,
    /// Throughput analyzer: objective for the time to first token in milliseconds, above 0. Default: the objective of a service class, if any.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub ttft_slo: Option<Millis>,
    /// Throughput analyzer: share of the requests within ttftSlo and itlSlo that is to be kept, in percent, from 90 to 99.9. wva keeps a reserve for it. Default: no reserve.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub slo_target: Option<SloTarget>,
    /// Throughput analyzer: share of a replica's throughput to plan with, above 0 and at most 1. Default 0.95, or 0.85 without itlSlo.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub utilization: Option<PositiveFraction>,
    /// Throughput analyzer: how long the highest demand is held, a Go duration above 0. Default 5m, or the measured time from a decision to a serving replica if that is longer.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub hold: Option<PositiveDuration>,
    /// Throughput analyzer: time to drain a backlog, a Go duration above 0. Default 2m.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "2m"))]
    pub drain: Option<PositiveDuration>,
    /// Throughput analyzer: one extra replica while load rises steeply: `on`, `off` or `auto` (if the cold start is long). Default auto.
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "auto"))]
    pub warm_spare: Option<WarmSpare>,
}

impl SaturationEntry {
    /// This entry with missing fields from the less specific `base`.
    #[must_use]
    pub fn layered_over(&self, base: Self) -> Self {
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
            slo_target: own.slo_target.or(base.slo_target),
            utilization: own.utilization.or(base.utilization),
            hold: own.hold.or(base.hold),
            drain: own.drain.or(base.drain),
            warm_spare: own.warm_spare.or(base.warm_spare),
        }
    }
}

/// Analyzers by their names in entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AnalyzerName {
    /// Percentage analyzer: KV cache use and queue length (`percentage` or `""`).
    #[default]
    #[serde(rename = "", alias = "percentage")]
    Percentage,
    /// Token analyzer (`token` or `saturation`).
    #[serde(rename = "saturation", alias = "token")]
    Token,
    /// Throughput analyzer (`throughput`).
    #[serde(rename = "throughput")]
    Throughput,
}

impl AnalyzerName {
    /// Name in metrics and traces, which is never empty.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Percentage => "percentage",
            Self::Token => "saturation",
            Self::Throughput => "throughput",
        }
    }
}

/// How the token analyzer chooses variants by cost. Both values mean the same, because the exact search was removed: it
/// cost more under rising load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Optimizer {
    /// Scales up the cheapest capacity first and scales down the most expensive first.
    #[default]
    CostAware,
    /// Accepted for compatibility.
    Exact,
}

/// Decides when the throughput analyzer keeps an extra replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WarmSpare {
    /// The analyzer keeps one if the cold start is long.
    #[default]
    Auto,
    /// The analyzer always keeps one.
    On,
    /// The analyzer never keeps one.
    Off,
}

schema!(AnalyzerName, {
    "type": "string",
    "enum": [AnalyzerName::Percentage, AnalyzerName::Token, AnalyzerName::Throughput, "percentage", "token"],
});
schema!(Optimizer, { "type": "string", "enum": [Optimizer::CostAware, Optimizer::Exact] });
schema!(WarmSpare, { "type": "string", "enum": [WarmSpare::Auto, WarmSpare::On, WarmSpare::Off] });
