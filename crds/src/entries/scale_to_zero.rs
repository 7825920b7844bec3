//! Entries of the scale-to-zero map: whether and when a model scales to zero. Snapshot files have the same entries, also
//! with camel-case keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EndpointPicker;
use super::fields::{non_empty_text, non_null};
use super::units::PositiveDuration;
use crate::GoDuration;

/// Default maximum retention period (`WVA_MAX_RETENTION_PERIOD`): 7 days.
pub const MAX_RETENTION: GoDuration = GoDuration::from_secs(7 * 24 * 3600);

/// One entry of the scale-to-zero map. Missing fields are inherited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(
    deny_unknown_fields,
    title = "Scale-to-zero entry",
    description = "One entry of a scale-to-zero ConfigMap: whether all models (key `default`) or one model may scale to zero. Missing fields are inherited."
)]
pub struct ScaleToZeroEntry {
    /// Model of this entry, as in `spec.modelID` of its variants. Not used in the entry `default`.
    #[serde(alias = "modelID", alias = "modelId")]
    #[serde(deserialize_with = "non_empty_text", skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// Namespace of this entry. Default: every namespace that reads this map.
    #[serde(deserialize_with = "non_empty_text", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether the model may scale to zero. Default: the setting `WVA_SCALE_TO_ZERO`.
    #[serde(alias = "enableScaleToZero")]
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub enable_scale_to_zero: Option<bool>,
    /// Whether the model may scale to zero although its endpoint picker has no flow control. The picker then answers requests with an error until the model has a replica; the first one wakes it. Default false.
    #[serde(alias = "allowFailedRequests")]
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub allow_failed_requests: Option<bool>,
    /// Time without completed requests before the model scales to zero, a Go duration above 0. Default 10m; more than 24h causes a warning.
    #[serde(alias = "retentionPeriod")]
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "10m"))]
    pub retention_period: Option<PositiveDuration>,
    /// Pods of the model's endpoint picker, if its InferencePool does not name them or there is none: a Service or labels of pods in the model's namespace, such as `https://epp:9443` or `app=epp,role=active`. Scheme and port default to those of the pod. The model's pools still select its pods.
    #[serde(alias = "endpointPicker")]
    #[serde(deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
    pub endpoint_picker: Option<EndpointPicker>,
}

impl ScaleToZeroEntry {
    /// Merges layers, the least specific first, without the names of a model and its endpoint picker.
    #[must_use]
    pub fn merge<'a>(layers: impl IntoIterator<Item = &'a Self>) -> Self {
        let entry = layers.into_iter().fold(Self::default(), |base, entry| entry.layered_over(base));
        Self { model_id: None, namespace: None, endpoint_picker: None, ..entry }
    }

    /// This entry with missing fields from the less specific `base`.
    #[must_use]
    pub fn layered_over(&self, base: Self) -> Self {
        Self {
            model_id: self.model_id.clone().or(base.model_id),
            namespace: self.namespace.clone().or(base.namespace),
            enable_scale_to_zero: self.enable_scale_to_zero.or(base.enable_scale_to_zero),
            allow_failed_requests: self.allow_failed_requests.or(base.allow_failed_requests),
            retention_period: self.retention_period.or(base.retention_period),
            endpoint_picker: self.endpoint_picker.clone().or(base.endpoint_picker),
        }
    }
}

/// Scale-to-zero settings of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleToZero {
    /// Whether the model may scale to zero.
    pub enabled: bool,
    /// Whether requests may fail while the model is at zero.
    pub allow_failed_requests: bool,
    /// Idle time before it scales to zero.
    pub retention: GoDuration,
}

impl ScaleToZero {
    /// Settings without any entry; `enabled` is the setting `WVA_SCALE_TO_ZERO`.
    #[must_use]
    pub const fn with_default(enabled: bool) -> Self {
        Self { enabled, allow_failed_requests: false, retention: GoDuration::from_secs(600) }
    }

    /// Overrides these settings with those of a more specific entry.
    #[must_use]
    pub fn with(self, entry: &ScaleToZeroEntry) -> Self {
        Self {
            enabled: entry.enable_scale_to_zero.unwrap_or(self.enabled),
            allow_failed_requests: entry.allow_failed_requests.unwrap_or(self.allow_failed_requests),
            retention: entry.retention_period.map_or(self.retention, PositiveDuration::get),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{SETTINGS, Value};

    #[test]
    fn maximum_is_the_default_of_its_setting() {
        let row = SETTINGS.iter().find(|setting| setting.key == "WVA_MAX_RETENTION_PERIOD").unwrap();
        assert_eq!(row.kind.parse(row.default.unwrap()), Ok(Value::Duration(MAX_RETENTION)));
    }
}
