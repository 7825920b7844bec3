//! Conditions of a VariantAutoscaling, without times.

/// Condition types in the order of the status.
pub(crate) const TYPES: [&str; 4] = ["Ready", "TargetResolved", "MetricsAvailable", "OptimizationReady"];

/// A condition without its transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionDraft {
    /// Whether its status is `True`, else `False`.
    pub is_true: bool,
    /// Reason, from the closed set of the API.
    pub reason: &'static str,
    /// Message for people.
    pub message: String,
}

/// The conditions of one variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// `Ready`.
    pub ready: ConditionDraft,
    /// `TargetResolved`.
    pub target_resolved: ConditionDraft,
    /// `MetricsAvailable`.
    pub metrics_available: ConditionDraft,
    /// `OptimizationReady`.
    pub optimization_ready: ConditionDraft,
}

impl Conditions {
    /// With their types, in the order of [`TYPES`].
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, &ConditionDraft)> {
        let drafts = [&self.ready, &self.target_resolved, &self.metrics_available, &self.optimization_ready];
        TYPES.into_iter().zip(drafts)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VariantError {
    /// The text names all violations.
    Invalid(String),
    /// An older VariantAutoscaling has the same target.
    Conflict {
        /// Name of the older one.
        with: String,
        /// Kind and name.
        target: String,
    },
}
