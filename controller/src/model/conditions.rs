//! Conditions of a VariantAutoscaling, without times.

use wva_crds::{ConditionReason, ConditionStatus, ConditionType};

/// A condition without its transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionDraft {
    /// Status.
    pub status: ConditionStatus,
    /// Reason.
    pub reason: ConditionReason,
    /// Message for people.
    pub message: String,
}

impl ConditionDraft {
    pub(crate) fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }
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
    /// `SignalFollowed`.
    pub signal_followed: ConditionDraft,
    /// `NeedMet`.
    pub need_met: ConditionDraft,
}

impl Conditions {
    /// The condition of a type.
    #[must_use]
    pub const fn get(&self, type_: ConditionType) -> &ConditionDraft {
        match type_ {
            ConditionType::Ready => &self.ready,
            ConditionType::TargetResolved => &self.target_resolved,
            ConditionType::MetricsAvailable => &self.metrics_available,
            ConditionType::OptimizationReady => &self.optimization_ready,
            ConditionType::SignalFollowed => &self.signal_followed,
            ConditionType::NeedMet => &self.need_met,
        }
    }

    /// Each with its type, in the order of the status.
    pub fn all(&self) -> impl Iterator<Item = (ConditionType, &ConditionDraft)> {
        ConditionType::ALL.into_iter().map(|type_| (type_, self.get(type_)))
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
