//! Texts of a reason.

use std::fmt;
use std::time::Duration;

use wva_crds::duration::rounded;

use super::figures::format_figure;
use super::{FallbackSource, Reason};

/// Further pods are only counted.
const SHOWN_PODS: usize = 8;

fn not_carried_out_cause(cause: Option<&str>) -> &str {
    cause.unwrap_or("check the HPA's metric, behavior and bounds")
}

impl Reason {
    /// Sentence for the status, without changing figures: the status is written only when the decision changes. Reasons
    /// that only hold a target share one text, because noise alternates them.
    #[must_use]
    pub fn gist(&self) -> String {
        match self {
            Self::HeldPeak { .. } | Self::WithinTolerance { .. } | Self::StepNotSafe { .. } => {
                "no change".to_owned()
            }
            Self::RequestsWaiting { .. } => "woken: requests wait in the scheduler's queue".to_owned(),
            Self::RequestsRefused { .. } => {
                "woken: requests failed at the endpoint picker, because the model has no replica".to_owned()
            }
            Self::WakeHold { .. } => "woken; held until its replica reports metrics".to_owned(),
            Self::NotLearnt { .. } => "the throughput of a replica is not learned yet".to_owned(),
            Self::NotCarriedOut { desired, refused: true, .. } => format!(
                "the API server refuses to scale to {desired} replica(s); another variant grows if there is one; see the \
                 controller log"
            ),
            Self::NotCarriedOut { desired, refused: false, cause, .. } => {
                format!(
                    "the target {desired} is not carried out: {}",
                    not_carried_out_cause(cause.as_deref())
                )
            }
            Self::NoProgress { pods } => format!("requests of {} replica(s) make no progress", pods.len()),
            Self::SlowReplicas { pods } => {
                format!("{} replica(s) are much slower than the others", pods.len())
            }
            Self::ObjectiveOutOfReach { objective, objective_ms, .. } => {
                objective.out_of_reach_gist(*objective_ms)
            }
            Self::SloTargetMissed { target } => target.missed_gist(),
            Self::RouterAboveCapacity { .. } => {
                "the router has more requests in flight than the replicas are planned to run".to_owned()
            }
            Self::Paused { .. } => "paused: the last target stays".to_owned(),
            Self::Fixed { asked, .. } => format!("fixed at {asked}, within the bounds"),
            _ => self.lead().map_or_else(|| self.to_string(), str::to_owned),
        }
    }

    /// Part of a sentence before changing figures.
    const fn lead(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoChange { .. } => "no change",
            Self::KeptDecision { .. } => "the earlier decision is still being carried out",
            Self::AllSaturated { .. } => "every replica is saturated",
            Self::SpareBelowTarget { .. } => "too little spare capacity",
            Self::ScaleDownSafe { .. } => "the load fits on fewer replicas",
            Self::DemandAboveSupply { .. } => "token demand exceeds capacity",
            Self::SupplyAboveDemand { .. } => "token demand fits on fewer replicas",
            Self::ArrivalsAboveCapacity { .. } => "arrival rate exceeds capacity",
            Self::TrendAhead { .. } => "forecast arrival rate exceeds capacity",
            Self::Backlog { .. } => "more replicas needed to drain the queue",
            Self::RecurringBursts { .. } => "bursts recur, and the next one would be served late",
            Self::ReserveForTarget { .. } => "fewer replicas would not keep sloTarget",
            Self::WarmSpare { .. } => "one spare replica kept warm while arrivals rise",
            Self::CapacityAboveNeed { .. } => "fewer replicas are enough",
            _ => return None,
        })
    }

    fn lead_figures(&self) -> Option<&dyn fmt::Display> {
        match self {
            Self::NoChange { load: Some(load), .. }
            | Self::AllSaturated { load }
            | Self::SpareBelowTarget { load }
            | Self::ScaleDownSafe { load } => Some(load),
            Self::NoChange { tokens: Some(tokens), .. }
            | Self::DemandAboveSupply { tokens }
            | Self::SupplyAboveDemand { tokens } => Some(tokens),
            Self::HeldPeak { .. } | Self::NotLearnt { .. } => None,
            _ => self.flow().map(|flow| flow as &dyn fmt::Display),
        }
    }

    fn write_end(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { desired, min, max: Some(max) } => {
                write!(f, "the earlier target {desired} is cut to the bounds {min}..{max}")
            }
            Self::OutOfBounds { desired, min, max: None } => {
                write!(f, "the earlier target {desired} is below the minimum of {min}")
            }
            Self::Superseded { desired } => {
                write!(f, "the earlier target {desired} is dropped: the model needs more replicas")
            }
            Self::NotCarriedOut { desired, age_seconds, refused: true, .. } => write!(
                f,
                "the API server has refused to scale to {desired} replica(s) for {} s; another variant grows if there is \
                 one; see the controller log",
                format_figure(*age_seconds)
            ),
            Self::NotCarriedOut { desired, age_seconds, refused: false, cause } => write!(
                f,
                "the target {desired} is not carried out: no progress for {} s; {}",
                format_figure(*age_seconds),
                not_carried_out_cause(cause.as_deref())
            ),
            Self::CannotGrow { cause } => write!(f, "grows only if no other variant can: {cause}"),
            _ => Ok(()),
        }
    }

    /// Replicas that keep the variant from a step.
    fn write_replicas(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stuck { stuck } => {
                write!(
                    f,
                    "{stuck} replica(s) do not become ready; other variants, if there are any, grow instead: check the pods of this variant"
                )
            }
            Self::ObjectiveOutOfReach { objective, objective_ms, least_ms } => {
                write!(f, "{} (it takes {least_ms:.0} ms)", objective.out_of_reach_gist(*objective_ms))
            }
            Self::SloTargetMissed { target } => write!(f, "{}: {target}", target.missed_gist()),
            Self::RouterAboveCapacity { in_flight, per_replica } => write!(
                f,
                "most replicas report nothing, and the router has {} requests in flight, with {} planned for each replica",
                format_figure(*in_flight),
                format_figure(*per_replica)
            ),
            Self::PendingReplicas { pending } => {
                write!(f, "waiting for {pending} replica(s) to become ready")
            }
            Self::SignalUnknown { replicas } => {
                write!(
                    f,
                    "not scaled down: a main signal of {replicas} replica(s) is missing, so their load is unknown"
                )
            }
            Self::NoProgress { pods } => {
                write!(
                    f,
                    "not scaled down: {} replica(s) have requests and finish none ({}): restart them",
                    pods.len(),
                    shown_pods(pods)
                )
            }
            Self::SlowReplicas { pods } => {
                write!(
                    f,
                    "{} replica(s) need more than twice the time of the others ({}), and the others set the throughput: \
                     look at their nodes",
                    pods.len(),
                    shown_pods(pods)
                )
            }
            Self::WaitingForQuota { waiting } => {
                write!(f, "{waiting}; other variants, if there are any, grow instead")
            }
            _ => Ok(()),
        }
    }

    fn write_hold(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SafetyNet { fallback_source: FallbackSource::PreviousDesired, cause } => {
                write!(f, "holding the last target: {cause}")
            }
            Self::SafetyNet { fallback_source: FallbackSource::CurrentReplicas, cause } => {
                write!(f, "holding the current replicas: {cause}")
            }
            Self::StepNotSafe { step, load } => {
                write!(
                    f,
                    "not scaled down: the HPA ignores steps smaller than {step}, and removing {step} is unsafe: {load}"
                )
            }
            Self::ScrapeGap { ready, reporting } => {
                write!(f, "not scaled down: only {reporting} of {ready} ready replicas report metrics")
            }
            Self::MetricsStale { stale } => {
                write!(f, "not scaled down: the metrics of {stale} replica(s) are old")
            }
            Self::WithinTolerance { step, tolerance } => {
                write!(
                    f,
                    "not scaled down: the HPA ignores a step of {step} (tolerance {})",
                    format_figure(*tolerance)
                )
            }
            Self::HeldPeak { held, flow } => f.write_str(&flow.held_sentence(*held)),
            Self::NotLearnt { flow } => f.write_str(&flow.unlearned_sentence()),
            _ => Ok(()),
        }
    }

    fn write_scale_to_zero(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRequests { retention_seconds } => {
                write!(f, "no requests for {} s", format_figure(*retention_seconds))
            }
            Self::MinimumKept {} => {
                f.write_str("scale to zero is off: the cheapest variant keeps one replica")
            }
            Self::RequestsWaiting { size, bytes } => {
                write!(
                    f,
                    "woken: {} request(s) ({} bytes) wait in the scheduler's queue",
                    format_figure(*size),
                    format_figure(*bytes)
                )
            }
            Self::RequestsRefused { refused } => {
                write!(
                    f,
                    "woken: {} request(s) failed at the endpoint picker in the last 30 s, because the model has no replica",
                    format_figure(*refused)
                )
            }
            Self::WakeHold { woken_seconds } => {
                write!(f, "woken {} ago; held until its replica reports metrics", span(*woken_seconds))
            }
            _ => Ok(()),
        }
    }

    fn write_limit(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LimitedBy { accelerator, left, gpus_per_replica } => {
                write!(
                    f,
                    "limited: {left} GPU(s) of {accelerator} are free, a replica needs {gpus_per_replica}"
                )
            }
            Self::LimitedByQuota { shortage } => write!(f, "{shortage}"),
            Self::YieldsTo { yielded } => write!(f, "{yielded}"),
            Self::AtMaximum { max } => write!(f, "the maximum is {max}"),
            Self::AtMinimum { min } => write!(f, "the minimum is {min}"),
            Self::Paused { decided } => write!(f, "paused: the last target stays; the decision is {decided}"),
            Self::RecommendOnly {} => f.write_str("recommend only: nothing is published"),
            Self::Fixed { asked, decided } => {
                write!(f, "fixed at {asked}, within the bounds; the decision is {decided}")
            }
            _ => Ok(()),
        }
    }
}

/// Text of a time span; a negative one counts as 0.
fn span(seconds: f64) -> String {
    rounded(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lead = self.lead().unwrap_or_default();
        if let Some(figures) = self.lead_figures() {
            return write!(f, "{lead}: {figures}");
        }
        match self {
            Self::KeptDecision { age_seconds } => {
                write!(f, "{lead}, last progress {} ago", span(*age_seconds))
            }
            Self::SignalsMissing { missing, server } => {
                write!(
                    f,
                    "the percentage analyzer decides until the throughput analyzer has its signals: {}",
                    missing.sentence(*server)
                )
            }
            Self::OutOfBounds { .. }
            | Self::Superseded { .. }
            | Self::NotCarriedOut { .. }
            | Self::CannotGrow { .. } => self.write_end(f),
            Self::Stuck { .. }
            | Self::PendingReplicas { .. }
            | Self::WaitingForQuota { .. }
            | Self::SignalUnknown { .. }
            | Self::NoProgress { .. }
            | Self::SlowReplicas { .. }
            | Self::ObjectiveOutOfReach { .. }
            | Self::SloTargetMissed { .. }
            | Self::RouterAboveCapacity { .. } => self.write_replicas(f),
            Self::SafetyNet { .. }
            | Self::StepNotSafe { .. }
            | Self::ScrapeGap { .. }
            | Self::MetricsStale { .. }
            | Self::WithinTolerance { .. }
            | Self::HeldPeak { .. }
            | Self::NotLearnt { .. } => self.write_hold(f),
            Self::NoRequests { .. }
            | Self::MinimumKept {}
            | Self::RequestsWaiting { .. }
            | Self::RequestsRefused { .. }
            | Self::WakeHold { .. } => self.write_scale_to_zero(f),
            Self::LimitedBy { .. }
            | Self::LimitedByQuota { .. }
            | Self::YieldsTo { .. }
            | Self::AtMaximum { .. }
            | Self::AtMinimum { .. }
            | Self::Paused { .. }
            | Self::RecommendOnly {}
            | Self::Fixed { .. } => self.write_limit(f),
            _ => f.write_str(lead),
        }
    }
}

/// The first of them.
fn shown_pods(pods: &[String]) -> String {
    let shown = pods.iter().take(SHOWN_PODS).map(String::as_str).collect::<Vec<_>>().join(", ");
    if pods.len() > SHOWN_PODS { shown + ", ..." } else { shown }
}
