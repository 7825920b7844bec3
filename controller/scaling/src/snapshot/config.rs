//! The settings that rules read, as a snapshot carries them: the entries of the global config maps, unresolved, and
//! the plain settings beside them. What is left out has the default of the settings table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;

use crate::units::{Amount, Fraction, Millis, PositiveFraction};

/// Settings of one cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// Entries of the saturation map by key: `default`, and overrides that name a model.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub saturation: BTreeMap<String, SaturationEntry>,
    /// Entries of the scale-to-zero map by key: `default`, and overrides that name a model.
    #[serde(alias = "scale_to_zero", skip_serializing_if = "BTreeMap::is_empty")]
    pub scale_to_zero: BTreeMap<String, ScaleToZeroEntry>,
    /// `WVA_SCALE_TO_ZERO`: what holds where no entry says whether a model may go to 0.
    pub scale_to_zero_default: bool,
    /// `WVA_LIMITED_MODE`: every model is limited to what the inventory has left.
    pub limited_mode: bool,
    /// `WVA_DECISION_HOLD`: how long a decision is kept without progress.
    pub decision_hold: GoDuration,
    /// `WVA_PENDING_GRACE`: how long a replica may take to become ready before it is stuck.
    pub pending_grace: GoDuration,
    /// How old a sample may be.
    pub metrics_age: MetricsAge,
    /// GPUs by accelerator. `None`: nothing is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inventory: Option<BTreeMap<String, Inventory>>,
}

impl Default for Config {
    fn default() -> Self {
        let ten_minutes = GoDuration::from_secs(600);
        Self {
            saturation: BTreeMap::new(),
            scale_to_zero: BTreeMap::new(),
            scale_to_zero_default: false,
            limited_mode: false,
            decision_hold: ten_minutes,
            pending_grace: ten_minutes,
            metrics_age: MetricsAge::default(),
            inventory: None,
        }
    }
}

/// Ages at which a sample counts for less. Each is the last age of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MetricsAge {
    /// Up to here a sample counts.
    pub fresh: GoDuration,
    /// Up to here it counts, but forbids scale-down.
    pub stale: GoDuration,
    /// Up to here the replica's load is unknown and forbids scale-down; beyond, the sample is missing.
    pub unavailable: GoDuration,
}

impl Default for MetricsAge {
    fn default() -> Self {
        Self {
            fresh: GoDuration::from_secs(60),
            stale: GoDuration::from_secs(120),
            unavailable: GoDuration::from_secs(300),
        }
    }
}

/// GPUs of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inventory {
    /// GPUs the cluster has.
    pub limit: u64,
    /// GPUs that pods ask for, ours or not, placed or not. What kept scale-ups will still ask for is not in it:
    /// whether a decision is kept is decided here, and added here.
    #[serde(default)]
    pub used: u64,
}

/// One entry of the saturation map. A field left out is inherited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SaturationEntry {
    /// The model an override is for. `None` in the entry `default`.
    #[serde(
        rename = "modelID",
        alias = "model_id",
        alias = "modelId",
        skip_serializing_if = "Option::is_none"
    )]
    pub model_id: Option<String>,
    /// The namespace an override is for. `None`: every namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// KV use at which a replica is saturated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_cache_threshold: Option<Fraction>,
    /// Waiting requests at which a replica is saturated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_length_threshold: Option<Amount>,
    /// Mean spare KV below which the model grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_spare_trigger: Option<Fraction>,
    /// Mean spare queue below which the model grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_spare_trigger: Option<Amount>,
    /// Limit this model to what the inventory has left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_limiter: Option<bool>,
    /// Which analyzer decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub analyzer_name: Option<AnalyzerName>,
    /// Share of the supply at which the token analyzer grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_up_threshold: Option<PositiveFraction>,
    /// Share of the supply below which the token analyzer shrinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down_boundary: Option<PositiveFraction>,
    /// Objective between tokens, for the throughput analyzer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itl_slo: Option<Millis>,
    /// Objective to the first token, for the throughput analyzer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_slo: Option<Millis>,
    /// Share of a replica's throughput that is planned with, for the throughput analyzer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<PositiveFraction>,
    /// How long the greatest need is held, for the throughput analyzer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<GoDuration>,
    /// In how much time a backlog is worked off, for the throughput analyzer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<GoDuration>,
    /// One replica more while the trend is steep, for the throughput analyzer.
    #[serde(skip_serializing_if = "Option::is_none")]
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
            scale_up_threshold: own.scale_up_threshold.or(base.scale_up_threshold),
            scale_down_boundary: own.scale_down_boundary.or(base.scale_down_boundary),
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
    /// Percentages of KV use and queue length (`""`).
    #[default]
    #[serde(rename = "")]
    Percentage,
    /// Tokens (`saturation`).
    #[serde(rename = "saturation")]
    Tokens,
    /// Throughput (`throughput`).
    #[serde(rename = "throughput")]
    Throughput,
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

/// One entry of the scale-to-zero map. A field left out is inherited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScaleToZeroEntry {
    /// The model an override is for. `None` in the entry `default`.
    #[serde(
        rename = "modelID",
        alias = "model_id",
        alias = "modelId",
        skip_serializing_if = "Option::is_none"
    )]
    pub model_id: Option<String>,
    /// The namespace an override is for. `None`: every namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether the model may go to 0.
    #[serde(alias = "enable_scale_to_zero", skip_serializing_if = "Option::is_none")]
    pub enable_scale_to_zero: Option<bool>,
    /// How long nothing may have happened before it does.
    #[serde(alias = "retention_period", skip_serializing_if = "Option::is_none")]
    pub retention_period: Option<GoDuration>,
}
