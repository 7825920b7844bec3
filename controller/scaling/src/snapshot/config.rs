//! Settings of a snapshot: entries as in one ConfigMap, and plain settings. The controller writes one fully resolved entry
//! per model. Omitted settings have the defaults of the settings table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;
use wva_crds::entries::{SaturationEntry, ScaleToZeroEntry};

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
    /// `WVA_SCALE_TO_ZERO`: default for models without a scale-to-zero entry.
    pub scale_to_zero_default: bool,
    /// `WVA_LIMITED_MODE`: limits every model to the free GPUs of the inventory.
    pub limited_mode: bool,
    /// `WVA_DECISION_HOLD`: time for which a decision holds without progress.
    pub decision_hold: GoDuration,
    /// `WVA_PENDING_GRACE`: time that a replica may take to become ready before it counts as stuck.
    pub pending_grace: GoDuration,
    /// Age limits of samples.
    pub metrics_age: MetricsAge,
    /// GPUs by accelerator. `None`: no limit.
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

/// Age limits of samples, each inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MetricsAge {
    /// Greatest age of a sample that counts fully.
    pub fresh: GoDuration,
    /// Greatest age of a sample that counts, but forbids scale-down.
    pub stale: GoDuration,
    /// Greatest age of a sample that does not count, but still forbids scale-down. An older sample is missing.
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
    /// GPUs of the cluster.
    pub limit: u64,
    /// GPUs that all pods request, scheduled or not. GPUs of earlier scale-ups without pods are not included: `decide` adds
    /// them.
    #[serde(default)]
    pub used: u64,
}
