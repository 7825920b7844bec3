//! Settings of a cycle. Those of a model stand at the model. Omitted settings have the defaults of the settings table.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;
use wva_crds::entries::{Priority, SaturationEntry, ScaleToZeroEntry};

use super::{FileEntries, QuotaLimit};

/// Settings of one cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// Entries by key: `default`, and overrides that name a model. Only in files.
    #[serde(skip_serializing)]
    #[schemars(with = "BTreeMap<String, SaturationEntry>")]
    pub saturation: FileEntries<SaturationEntry>,
    /// Entries by key: `default`, and overrides that name a model. Only in files.
    #[serde(alias = "scale_to_zero", skip_serializing)]
    #[schemars(with = "BTreeMap<String, ScaleToZeroEntry>")]
    pub scale_to_zero: FileEntries<ScaleToZeroEntry>,
    /// `WVA_SCALE_TO_ZERO`, for models whose settings do not say.
    pub scale_to_zero_default: bool,
    /// `WVA_LIMITED_MODE`.
    pub limited_mode: bool,
    /// `WVA_DECISION_HOLD`.
    pub decision_hold: GoDuration,
    /// `WVA_PENDING_GRACE`.
    pub pending_grace: GoDuration,
    /// Age limits of samples.
    pub metrics_age: MetricsAge,
    /// GPUs by accelerator. `None`: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inventory: Option<BTreeMap<String, Inventory>>,
    /// ResourceQuotas that limit the variants. Each resource of each quota is listed once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<QuotaLimit>,
    /// The limiter is on, and the controller may not read ResourceQuotas.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub quotas_forbidden: bool,
    /// Best service class priority by model, which counts within a namespace. 1 is the best.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub priorities: BTreeMap<String, Priority>,
    /// Best priority of the service classes that are bound to a namespace, by namespace and model. It counts against models
    /// of every namespace.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub namespace_priorities: BTreeMap<String, BTreeMap<String, Priority>>,
}

impl Default for Config {
    fn default() -> Self {
        let ten_minutes = GoDuration::from_secs(600);
        Self {
            saturation: FileEntries::default(),
            scale_to_zero: FileEntries::default(),
            scale_to_zero_default: false,
            limited_mode: false,
            decision_hold: ten_minutes,
            pending_grace: ten_minutes,
            metrics_age: MetricsAge::default(),
            inventory: None,
            quotas: Vec::new(),
            quotas_forbidden: false,
            priorities: BTreeMap::new(),
            namespace_priorities: BTreeMap::new(),
        }
    }
}

/// Each inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricsAge {
    /// A younger sample counts fully.
    pub fresh: GoDuration,
    /// A younger sample counts, but forbids scale-down.
    pub stale: GoDuration,
    /// A younger sample does not count, but forbids scale-down. An older one is missing.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// GPUs of the cluster.
    pub limit: u64,
    /// GPUs that all pods request, scheduled or not. `decide` adds earlier scale-ups without pods.
    #[serde(default)]
    pub used: u64,
}
