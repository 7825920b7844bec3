//! Codes are API: events, conditions and metrics carry them.

use super::Reason;

impl Reason {
    /// Safe as a metric label.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoChange { .. } => "NoChange",
            Self::KeptDecision { .. } => "KeptDecision",
            Self::AllSaturated { .. } => "AllSaturated",
            Self::SpareBelowTarget { .. } => "SpareBelowTarget",
            Self::ScaleDownSafe { .. } => "ScaleDownSafe",
            Self::SafetyNet { .. } => "SafetyNet",
            Self::PendingReplicas { .. } => "PendingReplicas",
            Self::Stuck { .. } => "Stuck",
            Self::WaitingForQuota { .. } => "WaitingForQuota",
            Self::StepNotSafe { .. } => "StepNotSafe",
            Self::ScrapeGap { .. } => "ScrapeGap",
            Self::MetricsStale { .. } => "MetricsStale",
            Self::SignalUnknown { .. } => "SignalUnknown",
            Self::NoProgress { .. } => "NoProgress",
            Self::SlowReplicas { .. } => "SlowReplicas",
            Self::ObjectiveOutOfReach { .. } => "ObjectiveOutOfReach",
            Self::CannotGrow { .. } => "CannotGrow",
            Self::OutOfBounds { .. } => "OutOfBounds",
            Self::Superseded { .. } => "Superseded",
            Self::NotCarriedOut { .. } => "NotCarriedOut",
            Self::DemandAboveSupply { .. } => "DemandAboveSupply",
            Self::SupplyAboveDemand { .. } | Self::CapacityAboveNeed { .. } => "SupplyAboveDemand",
            Self::ArrivalsAboveCapacity { .. } => "ArrivalsAboveCapacity",
            Self::RouterAboveCapacity { .. } => "RouterAboveCapacity",
            Self::TrendAhead { .. } => "TrendAhead",
            Self::Backlog { .. } => "Backlog",
            Self::WarmSpare { .. } => "WarmSpare",
            Self::RecurringBursts { .. } => "RecurringBursts",
            Self::ReserveForTarget { .. } => "ReserveForTarget",
            Self::SloTargetMissed { .. } => "SloTargetMissed",
            Self::HeldPeak { .. } => "HeldPeak",
            Self::NotLearnt { .. } => "NotLearnt",
            Self::SignalsMissing { .. } => "SignalsMissing",
            Self::WithinTolerance { .. } => "WithinTolerance",
            Self::NoRequests { .. } => "NoRequests",
            Self::MinimumKept {} => "MinimumKept",
            Self::RequestsWaiting { .. } => "RequestsWaiting",
            Self::RequestsRefused { .. } => "RequestsRefused",
            Self::WakeHold { .. } => "WakeHold",
            Self::LimitedBy { .. } => "LimitedBy",
            Self::LimitedByQuota { .. } => "LimitedByQuota",
            Self::YieldsTo { .. } => "YieldsTo",
            Self::AtMaximum { .. } => "AtMaximum",
            Self::AtMinimum { .. } => "AtMinimum",
            Self::Paused { .. } => "Paused",
            Self::RecommendOnly {} => "RecommendOnly",
            Self::Fixed { .. } => "Fixed",
        }
    }
}
