//! What keeps the autoscaler of a variant from carrying out steps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why the autoscaler does not carry out steps in a direction. The texts name the object and the field, such as
/// `HPA chat: behavior.scaleUp.selectPolicy is Disabled`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ScaleObstacles {
    /// No step up is carried out, so other variants get the need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<String>,
    /// No step down is carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
}

impl ScaleObstacles {
    /// True if both directions are free.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.up.is_none() && self.down.is_none()
    }
}
