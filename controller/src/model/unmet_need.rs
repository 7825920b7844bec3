//! Why a variant does not get the replicas that its model needs.

/// Reason of the condition `NeedMet` while it is False.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnmetReason {
    AtMaximum,
    LimitedByGpus,
    LimitedByQuota,
    YieldsTo,
    WaitingForQuota,
    Stuck,
    NotCarriedOut,
    SignalNotFollowed,
    Paused,
    Fixed,
    RecommendOnly,
    ObjectiveOutOfReach,
}

impl UnmetReason {
    pub(crate) const ALL: [Self; 12] = [
        Self::AtMaximum,
        Self::LimitedByGpus,
        Self::LimitedByQuota,
        Self::YieldsTo,
        Self::WaitingForQuota,
        Self::Stuck,
        Self::NotCarriedOut,
        Self::SignalNotFollowed,
        Self::Paused,
        Self::Fixed,
        Self::RecommendOnly,
        Self::ObjectiveOutOfReach,
    ];

    /// Its text in the API.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::AtMaximum => "AtMaximum",
            Self::LimitedByGpus => "LimitedByGPUs",
            Self::LimitedByQuota => "LimitedByQuota",
            Self::YieldsTo => "YieldsTo",
            Self::WaitingForQuota => "WaitingForQuota",
            Self::Stuck => "Stuck",
            Self::NotCarriedOut => "NotCarriedOut",
            Self::SignalNotFollowed => "SignalNotFollowed",
            Self::Paused => "Paused",
            Self::Fixed => "Fixed",
            Self::RecommendOnly => "RecommendOnly",
            Self::ObjectiveOutOfReach => "ObjectiveOutOfReach",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }

    /// Whether an event of its own reports the end. The others are problems of the variant, or a mode that a person
    /// set.
    pub(crate) const fn is_limit(self) -> bool {
        matches!(self, Self::AtMaximum | Self::LimitedByGpus | Self::LimitedByQuota | Self::YieldsTo)
    }
}
