//! What a reason says to people: a sentence with its figures, and the gist of it without those that move by themselves.

use std::fmt;

use super::figures::figure;
use super::{FallbackSource, Reason};

impl Reason {
    /// The sentence without figures that move with every sample, or with time alone: for a status, which is to be written
    /// only when something decisive changes. What keeps a target where it is reads alike, for noise makes one of the other.
    #[must_use]
    pub fn gist(&self) -> String {
        match self {
            Self::HeldPeak { .. } | Self::WithinTolerance { .. } | Self::StepNotSafe { .. } => {
                "no change".to_owned()
            }
            Self::RequestsWaiting { .. } => "woken: requests wait in the scheduler's queue".to_owned(),
            Self::WakeHold { .. } => "woken, and held until its replica reports".to_owned(),
            Self::NotLearnt { .. } => "what a replica does is not learnt yet".to_owned(),
            Self::NotCarriedOut { desired, refused: true, .. } => format!(
                "the API server refuses {desired} replica(s), so another variant is chosen where there is one: the \
                 controller's log says why"
            ),
            Self::NotCarriedOut { desired, refused: false, .. } => format!(
                "the earlier target {desired} was not carried out: check the HPA's metric, behavior and bounds"
            ),
            Self::Paused { .. } => "paused: the last target stays".to_owned(),
            Self::Fixed { asked, .. } => format!("fixed at {asked}, within the bounds"),
            _ => self.lead().map_or_else(|| self.to_string(), str::to_owned),
        }
    }

    /// How the sentence begins, where figures follow that move.
    const fn lead(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoChange { .. } => "no change",
            Self::KeptDecision { .. } => "the earlier decision is still being carried out",
            Self::AllSaturated { .. } => "every replica is saturated",
            Self::SpareBelowTarget { .. } => "too little spare capacity",
            Self::ScaleDownSafe { .. } => "the load fits on fewer replicas",
            Self::DemandAboveSupply { .. } => "more capacity is needed",
            Self::SupplyAboveDemand { .. } => "less capacity is enough",
            Self::ArrivalsAboveCapacity { .. } => "more arrives than the replicas do",
            Self::TrendAhead { .. } => "more will arrive than the replicas do",
            Self::Backlog { .. } => "what waits takes more replicas",
            Self::WarmSpare { .. } => "a replica is kept warm while arrivals rise",
            Self::CapacityAboveNeed { .. } => "fewer replicas are enough",
            _ => return None,
        })
    }

    /// What was counted, where that follows the beginning of the sentence.
    fn counted(&self) -> Option<&dyn fmt::Display> {
        match self {
            Self::NoChange { load: Some(load), .. }
            | Self::AllSaturated { load }
            | Self::SpareBelowTarget { load }
            | Self::ScaleDownSafe { load } => Some(load),
            Self::NoChange { tokens: Some(tokens), .. }
            | Self::DemandAboveSupply { tokens }
            | Self::SupplyAboveDemand { tokens } => Some(tokens),
            Self::NoChange { flow: Some(flow), .. }
            | Self::ArrivalsAboveCapacity { flow }
            | Self::TrendAhead { flow }
            | Self::Backlog { flow }
            | Self::WarmSpare { flow }
            | Self::CapacityAboveNeed { flow } => Some(flow),
            _ => None,
        }
    }

    /// How an earlier decision ended, as a sentence.
    fn write_end(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { desired, min, max: Some(max) } => {
                write!(f, "the earlier target {desired} is outside the bounds {min}..{max} and ends")
            }
            Self::OutOfBounds { desired, min, max: None } => {
                write!(f, "the earlier target {desired} is below the minimum of {min} and ends")
            }
            Self::Superseded { desired } => {
                write!(f, "the earlier target {desired} ends, for the model needs more than that")
            }
            Self::NotCarriedOut { desired, age_seconds, refused: true } => write!(
                f,
                "the API server refuses {desired} replica(s) for {} s, so another variant is chosen where there is one: \
                 the controller's log says why",
                figure(*age_seconds)
            ),
            Self::NotCarriedOut { desired, age_seconds, refused: false } => write!(
                f,
                "the earlier target {desired} was not carried out: no progress for {} s; check the HPA's metric, \
                 behavior and bounds",
                figure(*age_seconds)
            ),
            _ => Ok(()),
        }
    }

    /// Why the target stays where it is, as a sentence.
    fn write_hold(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SafetyNet { fallback_source: FallbackSource::PreviousDesired, cause } => {
                write!(f, "the last target is held, for the analysis failed: {cause}")
            }
            Self::SafetyNet { fallback_source: FallbackSource::CurrentReplicas, cause } => {
                write!(f, "the current replicas are held, for the analysis failed: {cause}")
            }
            Self::PendingReplicas { pending } => {
                write!(f, "waits for {pending} pending replica(s) before it moves again")
            }
            Self::StepNotSafe { step, load } => {
                write!(f, "the HPA acts on no step below {step}, and {step} fewer would be too few: {load}")
            }
            Self::ScrapeGap { ready, reporting } => {
                write!(f, "not scaled down, for only {reporting} of {ready} ready replicas report metrics")
            }
            Self::MetricsStale { stale } => {
                write!(f, "not scaled down, for the metrics of {stale} replica(s) are old")
            }
            Self::WithinTolerance { step, tolerance } => {
                write!(f, "the HPA would ignore a step of {step}: its tolerance is {}", figure(*tolerance))
            }
            Self::HeldPeak { held, flow } => f.write_str(&flow.held(*held)),
            Self::NotLearnt { flow } => f.write_str(&flow.unlearnt()),
            _ => Ok(()),
        }
    }

    /// Why a model goes to zero, stays at one or is woken, as a sentence.
    fn write_scale_to_zero(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRequests { retention_seconds } => {
                write!(f, "nothing was asked of the model for {} s", figure(*retention_seconds))
            }
            Self::MinimumKept {} => {
                f.write_str("scale to zero is off: the cheapest variant keeps one replica")
            }
            Self::RequestsWaiting { size, bytes } => {
                write!(
                    f,
                    "woken: {} request(s) wait in the scheduler's queue, {} bytes",
                    figure(*size),
                    figure(*bytes)
                )
            }
            Self::WakeHold { woken_seconds } => {
                write!(f, "woken {} s ago, held until its replica reports", figure(*woken_seconds))
            }
            _ => Ok(()),
        }
    }

    /// What limits a decision: inventory, bounds or the mode, as a sentence.
    fn write_limit(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitedBy { accelerator, left, gpus_per_replica } => {
                write!(
                    f,
                    "limited: {left} GPU(s) of {accelerator} are left, a replica takes {gpus_per_replica}"
                )
            }
            Self::AtMaximum { max } => write!(f, "the maximum is {max}"),
            Self::AtMinimum { min } => write!(f, "the minimum is {min}"),
            Self::Paused { decided } => write!(f, "paused: the last target stays; decided was {decided}"),
            Self::RecommendOnly {} => f.write_str("recommend only: nothing is published"),
            Self::Fixed { asked, decided } => {
                write!(f, "fixed at {asked}, within the bounds; decided was {decided}")
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lead = self.lead().unwrap_or_default();
        if let Some(counted) = self.counted() {
            return write!(f, "{lead}: {counted}");
        }
        match self {
            Self::KeptDecision { age_seconds } => {
                write!(f, "{lead}, last progress {} s ago", figure(*age_seconds))
            }
            Self::Stuck { stuck } => {
                write!(
                    f,
                    "{stuck} replica(s) do not become ready, so other variants grow instead: look at its pods"
                )
            }
            Self::SignalsMissing { missing } => {
                write!(
                    f,
                    "the percentage analyzer decides until the throughput analyzer has its signals: {missing}"
                )
            }
            Self::OutOfBounds { .. } | Self::Superseded { .. } | Self::NotCarriedOut { .. } => {
                self.write_end(f)
            }
            Self::SafetyNet { .. }
            | Self::PendingReplicas { .. }
            | Self::StepNotSafe { .. }
            | Self::ScrapeGap { .. }
            | Self::MetricsStale { .. }
            | Self::WithinTolerance { .. }
            | Self::HeldPeak { .. }
            | Self::NotLearnt { .. } => self.write_hold(f),
            Self::NoRequests { .. }
            | Self::MinimumKept {}
            | Self::RequestsWaiting { .. }
            | Self::WakeHold { .. } => self.write_scale_to_zero(f),
            Self::LimitedBy { .. }
            | Self::AtMaximum { .. }
            | Self::AtMinimum { .. }
            | Self::Paused { .. }
            | Self::RecommendOnly {}
            | Self::Fixed { .. } => self.write_limit(f),
            _ => f.write_str(lead),
        }
    }
}
