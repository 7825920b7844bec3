//! Conditions of a VariantAutoscaling, without times.

/// Condition types in the order of the status.
pub(crate) const TYPES: [&str; 6] =
    ["Ready", "TargetResolved", "MetricsAvailable", "OptimizationReady", SIGNAL_FOLLOWED, NEED_MET];
/// Type of the condition that an autoscaler follows the target.
pub const SIGNAL_FOLLOWED: &str = "SignalFollowed";
/// Type of the condition that what is decided covers what the model needs.
pub const NEED_MET: &str = "NeedMet";

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// `True`.
    True,
    /// `False`.
    False,
    /// `Unknown`.
    Unknown,
}

impl ConditionStatus {
    const ALL: [Self; 3] = [Self::True, Self::False, Self::Unknown];

    /// Its text in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// A condition without its transition time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionDraft {
    /// Status.
    pub status: ConditionStatus,
    /// Reason, from the closed set of the API.
    pub reason: &'static str,
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
    /// Each with its type, in the order of the status.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &ConditionDraft)> {
        let Self { ready, target_resolved, metrics_available, optimization_ready, signal_followed, need_met } =
            self;
        TYPES
            .into_iter()
            .zip([ready, target_resolved, metrics_available, optimization_ready, signal_followed, need_met])
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
