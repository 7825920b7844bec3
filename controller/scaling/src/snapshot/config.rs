//! The settings that rules read, as a snapshot carries them: entries as in one config map, and the plain settings
//! beside them. The controller writes an entry for each model in which nothing is inherited any more. What is left out
//! has the default of the settings table.

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
