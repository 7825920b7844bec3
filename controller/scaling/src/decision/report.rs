//! What a decision saw of its variant and model. Its steps are made before it. Conditions, events and series show it;
//! publishing and the memory read the mode and the counts.

use crate::decision::{Bounds, SignalGaps};
use crate::reason::{Activity, WaitingReplicas};
use crate::snapshot::{AnalyzerName, Attainment, Mode, RouterLoad, WakeObstacle};

/// Circumstances of one decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Accelerator, or `unresolved`.
    pub accelerator: String,
    /// Configured analyzer.
    pub analyzer: AnalyzerName,
    /// Mode annotation of the variant.
    pub mode: Mode,
    /// Bounds of the target.
    pub bounds: Bounds,
    /// Earlier target that ended without being carried out.
    pub not_carried_out: Option<u32>,
    /// Replicas of the variant.
    pub replicas: ReplicaReport,
    /// All variants of the model.
    pub model: ModelReport,
}

/// Replicas of a variant as the decision counted them.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaReport {
    /// Ready replicas, at most `current`.
    pub ready: u32,
    /// Replicas whose sample counts.
    pub reporting: u32,
    /// Replicas whose sample is too old to count, but not missing.
    pub stale: u32,
    /// Replicas of `reporting` that lack a main signal.
    pub signal_gaps: SignalGaps,
    /// Replicas that do not become ready keep the variant from growing.
    pub stuck: bool,
    /// Replicas that a scheduling gate or a ResourceQuota holds back.
    pub waiting_for_quota: Option<WaitingReplicas>,
}

/// Model of a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReport {
    /// Every variant of the model has 0 replicas.
    pub is_at_zero: bool,
    /// Scale to zero is on.
    pub scale_to_zero: bool,
    /// Keeps the model from scaling to zero, or from waking up, although scale to zero is on.
    pub wake_obstacle: Option<WakeObstacle>,
    /// Keeps the model, which has replicas, from zero although scale to zero is on.
    pub activity: Option<Activity>,
    /// Measured shares within the objectives of the model.
    pub attainment: Attainment,
    /// Load of the model at the router.
    pub router: Option<RouterLoad>,
}

impl ModelReport {
    /// Why requests would not wake the model, where that matters.
    #[must_use]
    pub fn not_wakeable(&self) -> Option<String> {
        let obstacle = self.wake_obstacle?;
        let state = if self.scale_to_zero { "Scale to zero is on" } else { "The model is at 0 replicas" };
        Some(format!("{state}, but {obstacle}"))
    }
}
