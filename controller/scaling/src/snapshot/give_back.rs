//! Replicas that were given back to a model with a better priority.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wva_crds::GoDuration;

/// The last time that a variant gave a replica back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GaveBack {
    /// Namespace of the model that got it.
    pub namespace: String,
    /// Model that got it.
    #[serde(rename = "modelID")]
    pub model_id: String,
    /// Time since then.
    pub ago: GoDuration,
}

impl GaveBack {
    /// For this long the GPUs are kept for that model: its need may change from cycle to cycle while the pods end.
    pub const KEPT_FOR: Duration = Duration::from_mins(1);

    pub(crate) fn is_kept(&self) -> bool {
        self.ago.get() <= Self::KEPT_FOR
    }
}
