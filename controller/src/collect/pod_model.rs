//! What tells the series of pods apart.

use std::sync::Arc;

/// A pod and the model that it serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodModel {
    pub namespace: Arc<str>,
    /// Name of the pod, perhaps with the suffix of a rank.
    pub pod: Arc<str>,
    /// `model_name` of the series; empty if absent.
    pub model_name: Arc<str>,
}
