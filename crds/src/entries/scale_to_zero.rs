//! Entries of the scale-to-zero map: whether a model may go to 0, and after how long. A snapshot file holds the same
//! entries and may spell their keys in camel case, too.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::read::{given, text};
use super::units::PositiveDuration;
use crate::GoDuration;

/// Longest retention period where the setting `WVA_MAX_RETENTION_PERIOD` says nothing: 7 days.
pub const MAX_RETENTION: GoDuration = GoDuration::from_secs(7 * 24 * 3600);

/// One entry of the scale-to-zero map. A field left out is inherited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(
    title = "Scale-to-zero entry",
    description = "One entry of a scale-to-zero ConfigMap: whether all models (key `default`), or the model that it names, may go to 0 replicas. A field left out is inherited."
)]
pub struct ScaleToZeroEntry {
    /// The model that this entry is for, as `spec.modelID` of its variants names it. Left out in the entry `default`.
    #[serde(alias = "modelID", alias = "modelId")]
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// The namespace that this entry is for. Left out: every namespace that reads this map.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether the model may go to 0. Default: the setting `WVA_SCALE_TO_ZERO`.
    #[serde(alias = "enableScaleToZero")]
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub enable_scale_to_zero: Option<bool>,
    /// How long no request may have completed before it does: a Go duration above 0, default 10m; above 24h warns.
    #[serde(alias = "retentionPeriod")]
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "10m"))]
    pub retention_period: Option<PositiveDuration>,
}

impl ScaleToZeroEntry {
    /// This entry, with what it leaves out from a less specific one.
    #[must_use]
    pub fn over(&self, base: Self) -> Self {
        Self {
            model_id: self.model_id.clone().or(base.model_id),
            namespace: self.namespace.clone().or(base.namespace),
            enable_scale_to_zero: self.enable_scale_to_zero.or(base.enable_scale_to_zero),
            retention_period: self.retention_period.or(base.retention_period),
        }
    }
}

/// Whether a model may go to 0, and after how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleToZero {
    /// It may.
    pub enabled: bool,
    /// How long nothing may have happened before it does.
    pub retention: GoDuration,
}

impl ScaleToZero {
    /// What holds where no entry says anything: `enabled` is the setting `WVA_SCALE_TO_ZERO`.
    #[must_use]
    pub const fn unless_said(enabled: bool) -> Self {
        Self { enabled, retention: GoDuration::from_secs(600) }
    }

    /// These settings with what a more specific entry says.
    #[must_use]
    pub fn with(self, entry: &ScaleToZeroEntry) -> Self {
        Self {
            enabled: entry.enable_scale_to_zero.unwrap_or(self.enabled),
            retention: entry.retention_period.map_or(self.retention, PositiveDuration::get),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{SETTINGS, Value};

    #[test]
    fn the_maximum_is_the_default_of_its_setting() {
        let row = SETTINGS.iter().find(|setting| setting.key == "WVA_MAX_RETENTION_PERIOD").unwrap();
        assert_eq!(row.kind.parse(row.default.unwrap()), Ok(Value::Duration(MAX_RETENTION)));
    }
}
