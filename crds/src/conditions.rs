//! Conditions of a VariantAutoscaling: their types, statuses and reasons, and which of them go together.

use std::fmt;

use ConditionReason as R;

/// Type of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionType {
    /// Sum of the others that wva is responsible for.
    Ready,
    /// The workload exists.
    TargetResolved,
    /// Prometheus has the metrics that the analysis needs.
    MetricsAvailable,
    /// The target follows from an analysis.
    OptimizationReady,
    /// An autoscaler follows the target.
    SignalFollowed,
    /// What is decided covers what the model needs.
    NeedMet,
}

impl ConditionType {
    /// All types, in the order of the status.
    pub const ALL: [Self; 6] = [
        Self::Ready,
        Self::TargetResolved,
        Self::MetricsAvailable,
        Self::OptimizationReady,
        Self::SignalFollowed,
        Self::NeedMet,
    ];

    /// Text in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::TargetResolved => "TargetResolved",
            Self::MetricsAvailable => "MetricsAvailable",
            Self::OptimizationReady => "OptimizationReady",
            Self::SignalFollowed => "SignalFollowed",
            Self::NeedMet => "NeedMet",
        }
    }

    /// Whether the name belongs to wva. Conditions of other types belong to others.
    #[must_use]
    pub fn is_known(name: &str) -> bool {
        Self::ALL.into_iter().any(|type_| type_.as_str() == name)
    }

    /// Whether a condition of this type may have this status with this reason.
    #[must_use]
    pub fn allows(self, status: ConditionStatus, reason: ConditionReason) -> bool {
        let is_doubt = self == Self::SignalFollowed && status == ConditionStatus::Unknown;
        self.reasons(status).contains(&reason) || (is_doubt && SIGNAL_PROBLEMS.contains(&reason))
    }

    /// Reasons of this type with a status, the most important first. `SignalFollowed` is also Unknown with each of its
    /// False reasons, until the problem has lasted.
    #[must_use]
    pub const fn reasons(self, status: ConditionStatus) -> &'static [ConditionReason] {
        use ConditionStatus::{False, True, Unknown};
        match (self, status) {
            (Self::Ready, True) => &READY,
            (Self::Ready, False) => &NOT_READY,
            (Self::Ready, Unknown) => &[],
            (Self::OptimizationReady, Unknown) => &[R::SafetyNet],
            (Self::TargetResolved, True) => &[R::TargetFound],
            (Self::TargetResolved, False) => &[R::TargetNotFound],
            (Self::TargetResolved, Unknown) => &[R::TargetNotReadable, R::SkippedProcessing],
            (Self::MetricsAvailable, True) => &[R::MetricsFound, R::ScaleFromZero],
            (Self::MetricsAvailable, False) => &[R::PrometheusError, R::MetricsStale, R::MetricsMissing],
            (Self::MetricsAvailable, Unknown) => &[R::SkippedProcessing],
            (Self::OptimizationReady, True) => &[
                R::InvalidConfiguration,
                R::ScaleFromZeroMode,
                R::OptimizationSucceeded,
                R::SaturationOnlyMode,
            ],
            (Self::OptimizationReady, False) => &[
                R::InvalidConfiguration,
                R::SkippedProcessing,
                R::SafetyNet,
                R::MetricsUnavailable,
                R::NotWakeable,
            ],
            (Self::SignalFollowed, True) => &[R::Followed, R::AtZero, R::ScaledDirectly],
            (Self::SignalFollowed, False) => &SIGNAL_PROBLEMS,
            (Self::SignalFollowed, Unknown) => &[R::NotPublished, R::NotVisible],
            (Self::NeedMet, True) => &[R::Covered, R::AtZero],
            (Self::NeedMet, False) => &UNMET,
            (Self::NeedMet, Unknown) => &[R::NotAnalyzed],
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

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
    /// All statuses.
    pub const ALL: [Self; 3] = [Self::True, Self::False, Self::Unknown];

    /// Text in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    /// Reads the text in the API.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Reason of a condition. `docs/reference/events-conditions-reasons.md` says what to do about each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ConditionReason {
            $($(#[$doc])* $name,)*
        }

        impl ConditionReason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Text in the API.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// Nothing is wrong.
    Ready = "Ready",
    /// The object, or every threshold for its model, violates a rule.
    InvalidConfiguration = "InvalidConfiguration",
    /// An older variant has the same target.
    TargetConflict = "TargetConflict",
    /// The workload does not exist or cannot be read.
    DeploymentNotFound = "DeploymentNotFound",
    /// The analysis failed without an earlier target to hold.
    MetricsUnavailable = "MetricsUnavailable",
    /// The model is at 0 replicas, and its requests are not seen.
    NotWakeable = "NotWakeable",
    /// The analysis failed, and the last target is held.
    SafetyNet = "SafetyNet",
    /// Replicas do not become ready.
    Stuck = "Stuck",
    /// The replicas made no progress towards the target.
    NotCarriedOut = "NotCarriedOut",
    /// No autoscaler follows the target.
    SignalNotFollowed = "SignalNotFollowed",
    /// A scheduling gate or a quota holds replicas back.
    WaitingForQuota = "WaitingForQuota",
    /// The mode `paused` decides.
    Paused = "Paused",
    /// The mode `recommend` publishes nothing.
    RecommendOnly = "RecommendOnly",
    /// The mode `fixed=N` decides.
    Fixed = "Fixed",
    /// The workload exists.
    TargetFound = "TargetFound",
    /// The workload does not exist.
    TargetNotFound = "TargetNotFound",
    /// The workload cannot be read, so that nothing is known of it.
    TargetNotReadable = "TargetNotReadable",
    /// There was no decision, so that nothing was looked at.
    SkippedProcessing = "SkippedProcessing",
    /// Replicas report metrics.
    MetricsFound = "MetricsFound",
    /// The model is at 0 replicas, or was just woken.
    ScaleFromZero = "ScaleFromZero",
    /// Prometheus gives no answer.
    PrometheusError = "PrometheusError",
    /// The metrics are too old.
    MetricsStale = "MetricsStale",
    /// No replica reports metrics.
    MetricsMissing = "MetricsMissing",
    /// The percentage analyzer decided.
    SaturationOnlyMode = "SaturationOnlyMode",
    /// The token or the throughput analyzer decided.
    OptimizationSucceeded = "OptimizationSucceeded",
    /// The model is at 0 replicas, or was just woken.
    ScaleFromZeroMode = "ScaleFromZeroMode",
    /// An autoscaler follows the target.
    Followed = "Followed",
    /// The workload is at 0 replicas.
    AtZero = "AtZero",
    /// The controller scales the workload.
    ScaledDirectly = "ScaledDirectly",
    /// No target is published.
    NotPublished = "NotPublished",
    /// ScaledObjects cannot be read.
    NotVisible = "NotVisible",
    /// Nothing scales the workload.
    NoAutoscaler = "NoAutoscaler",
    /// An autoscaler of this variant scales another workload.
    WrongTarget = "WrongTarget",
    /// Autoscalers overwrite each other.
    SeveralAutoscalers = "SeveralAutoscalers",
    /// The autoscaler is paused.
    AutoscalerPaused = "AutoscalerPaused",
    /// The autoscaler does not read the target.
    OtherMetric = "OtherMetric",
    /// The autoscaler selects another series.
    OtherVariant = "OtherVariant",
    /// The autoscaler multiplies or divides the target.
    WrongMetricTarget = "WrongMetricTarget",
    /// The target is outside the bounds of the autoscaler.
    OutsideBounds = "OutsideBounds",
    /// The autoscaler does not act.
    AutoscalerInactive = "AutoscalerInactive",
    /// KEDA uses `spec.fallback`.
    AutoscalerFallback = "AutoscalerFallback",
    /// Nothing serves external metrics.
    MetricsApiMissing = "MetricsAPIMissing",
    /// The server of external metrics does not answer.
    MetricsApiUnavailable = "MetricsAPIUnavailable",
    /// The server of external metrics has no value.
    NoMetricValue = "NoMetricValue",
    /// The autoscaler received another value.
    ValueDiffers = "ValueDiffers",
    /// The workload has other replicas than the autoscaler asks for.
    WorkloadNotScaled = "WorkloadNotScaled",
    /// Another metric asks for more replicas.
    OtherMetricWins = "OtherMetricWins",
    /// The autoscaler asks for another number without a visible cause.
    WishDiffers = "WishDiffers",
    /// The target covers the need.
    Covered = "Covered",
    /// The need is not known.
    NotAnalyzed = "NotAnalyzed",
    /// The variant is at its maximum.
    AtMaximum = "AtMaximum",
    /// No GPUs are left.
    LimitedByGpus = "LimitedByGPUs",
    /// A quota leaves too little.
    LimitedByQuota = "LimitedByQuota",
    /// A model with a better priority takes the GPUs or the quota.
    YieldsTo = "YieldsTo",
    /// More replicas do not help.
    ObjectiveOutOfReach = "ObjectiveOutOfReach",
    /// Fewer requests than `sloTarget` asks for were within the objectives.
    SloTargetMissed = "SloTargetMissed",
}

impl ConditionReason {
    /// Reads the text in the API.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }
}

impl fmt::Display for ConditionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `Ready=True`: the most important trouble, or none.
const READY: [R; 16] = [
    R::SignalNotFollowed,
    R::WaitingForQuota,
    R::Paused,
    R::RecommendOnly,
    R::Fixed,
    R::SafetyNet,
    R::AtMaximum,
    R::LimitedByGpus,
    R::LimitedByQuota,
    R::YieldsTo,
    R::Stuck,
    R::NotCarriedOut,
    R::ObjectiveOutOfReach,
    R::SloTargetMissed,
    R::InvalidConfiguration,
    R::Ready,
];

const NOT_READY: [R; 9] = [
    R::InvalidConfiguration,
    R::TargetConflict,
    R::DeploymentNotFound,
    R::WaitingForQuota,
    R::MetricsUnavailable,
    R::NotWakeable,
    R::Stuck,
    R::NotCarriedOut,
    R::SafetyNet,
];

const SIGNAL_PROBLEMS: [R; 18] = [
    R::NoAutoscaler,
    R::WrongTarget,
    R::SeveralAutoscalers,
    R::AutoscalerPaused,
    R::OtherMetric,
    R::OtherVariant,
    R::WrongMetricTarget,
    R::OutsideBounds,
    R::AutoscalerInactive,
    R::AutoscalerFallback,
    R::MetricsApiMissing,
    R::MetricsApiUnavailable,
    R::NoMetricValue,
    R::ValueDiffers,
    R::WorkloadNotScaled,
    R::OtherMetricWins,
    R::WishDiffers,
    R::NotCarriedOut,
];

const UNMET: [R; 13] = [
    R::AtMaximum,
    R::LimitedByGpus,
    R::LimitedByQuota,
    R::YieldsTo,
    R::WaitingForQuota,
    R::Stuck,
    R::NotCarriedOut,
    R::SignalNotFollowed,
    R::Paused,
    R::Fixed,
    R::RecommendOnly,
    R::ObjectiveOutOfReach,
    R::SloTargetMissed,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_belongs_to_a_condition() {
        let texts: BTreeSet<&str> = R::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(texts.len(), R::ALL.len(), "two reasons have one text");
        for reason in R::ALL {
            assert_eq!(R::parse(reason.as_str()), Some(*reason));
            let used = ConditionType::ALL
                .iter()
                .any(|type_| ConditionStatus::ALL.iter().any(|status| type_.allows(*status, *reason)));
            assert!(used, "{reason}");
        }
        assert_eq!(R::parse("Melted"), None);
    }

    #[test]
    fn reasons_and_statuses_that_do_not_go_together() {
        use ConditionStatus::{False, True, Unknown};
        assert!(ConditionType::OptimizationReady.allows(False, R::SafetyNet));
        assert!(!ConditionType::OptimizationReady.allows(True, R::SafetyNet), "a failed analysis");
        assert!(ConditionType::SignalFollowed.allows(Unknown, R::ValueDiffers), "in doubt");
        assert!(!ConditionType::NeedMet.allows(Unknown, R::AtMaximum));
        assert!(!ConditionType::is_known("Ready2") && ConditionType::is_known("NeedMet"));
    }
}
