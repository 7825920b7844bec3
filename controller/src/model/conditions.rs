//! Conditions of a VariantAutoscaling, without times.

/// The types of the conditions, in the order of the status.
pub(crate) const TYPES: [&str; 4] = ["Ready", "TargetResolved", "MetricsAvailable", "OptimizationReady"];

/// A condition before it has a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// True or False.
    pub holds: bool,
    /// One of the reasons of the API, a closed set.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// The conditions of one variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// `Ready`.
    pub ready: Draft,
    /// `TargetResolved`.
    pub target_resolved: Draft,
    /// `MetricsAvailable`.
    pub metrics_available: Draft,
    /// `OptimizationReady`.
    pub optimization_ready: Draft,
}

/// Why a VariantAutoscaling is set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It breaks the rules; all of what is wrong, in words.
    Invalid(String),
    /// Another one has the same target and came first.
    Conflict {
        /// The one that counts.
        with: String,
        /// The target of both.
        target: String,
    },
}
