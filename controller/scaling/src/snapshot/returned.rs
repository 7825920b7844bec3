//! Replicas that a variant gave back to a model with a better priority.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;

/// Replicas that a variant gave back last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReturnedReplicas {
    /// Namespace of the model that lacked the GPUs.
    pub namespace: String,
    /// Model that lacked the GPUs.
    #[serde(rename = "modelID")]
    pub model_id: String,
    /// Number of replicas.
    pub replicas: u32,
    /// Time since the decision.
    pub ago: GoDuration,
}

impl ReturnedReplicas {
    /// Two cycles with the default interval. The pods end meanwhile, and the need of the other model may change.
    const KEPT_FOR: Duration = Duration::from_mins(2);

    /// Whether their GPUs are still kept for the other model.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.ago.get() <= Self::KEPT_FOR
    }
}
