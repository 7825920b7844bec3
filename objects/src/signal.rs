//! Whether an autoscaler follows the target of a variant. One judgement for the controller and `wva doctor`.

mod obstacles;
mod problem;
mod replicas;

use std::fmt;

use jiff::Timestamp;

pub use self::obstacles::declared_obstacle;
use self::obstacles::paused_direction;
pub use self::problem::SignalProblem;
pub use self::replicas::ScaleRecord;
use self::replicas::judge_replicas;
use crate::autoscaler::{
    Autoscaler, AutoscalerKind, AutoscalerName, AutoscalerState, Direction, PauseSource, ReceivedTotal,
    SignalReader,
};
use crate::series::SeriesLabels;

/// Availability of the API `external.metrics.k8s.io/v1beta1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsApi {
    /// The API was not queried yet, or the answer says neither.
    #[default]
    Unknown,
    /// A server answers.
    Served,
    /// Nothing is registered for it.
    Missing,
    /// The registered server does not answer.
    Unavailable,
}

/// A published target, and who may follow it.
#[derive(Clone, Debug)]
pub struct SignalFacts<'a> {
    /// Labels of the series.
    pub labels: SeriesLabels<'a>,
    /// Kind and name of the workload.
    pub workload: &'a str,
    /// Published target.
    pub desired: u32,
    /// Earlier targets that an autoscaler may still have. Delays of scrapes and queries are normal.
    pub recent: &'a [u32],
    /// `spec.replicas` of the workload.
    pub current: u32,
    /// `status.replicas` of the workload.
    pub created: u32,
    /// Last step of the HPA at the previous look.
    pub last_scale: Option<ScaleRecord>,
    /// Target that the decision gave up, because the replicas made no progress towards it.
    pub not_carried_out: Option<u32>,
    /// All HPAs and ScaledObjects that scale the workload.
    pub autoscalers: Vec<&'a Autoscaler>,
    /// Other autoscalers of the namespace; only read if `autoscalers` is empty.
    pub others: Vec<&'a Autoscaler>,
    /// Whether `autoscalers` has all ScaledObjects.
    pub has_scaled_objects: bool,
    /// `WVA_ACTUATION=scale`.
    pub scales_directly: bool,
    /// Availability of the API that HPAs query.
    pub metrics_api: MetricsApi,
}

/// Judgement on one variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignalVerdict {
    /// The autoscaler received the target and may act.
    Followed {
        /// The autoscaler.
        name: AutoscalerName,
        /// Why the replicas may differ from the target all the same.
        note: Option<FollowNote>,
    },
    /// HPAs do not act at 0 replicas; wva takes the step from 0.
    AtZero(AutoscalerName),
    /// `WVA_ACTUATION=scale`, and no autoscaler.
    ScaledDirectly,
    /// wva may not read ScaledObjects, and no HPA exists.
    NotVisible,
    /// No autoscaler follows the target.
    NotFollowed {
        /// Why.
        problem: SignalProblem,
        /// Creation of the autoscaler.
        created: Option<Timestamp>,
    },
}

/// Why replicas that differ from the target are normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowNote {
    /// The difference is within the HPA's tolerance.
    Tolerance,
    /// The stabilization window of the HPA delays the step.
    Stabilized,
    /// The scaling policies of the HPA limit the step.
    Limited,
    /// The autoscaler takes no step down, and the target asks for none.
    NoStepDown(PauseSource),
}

impl fmt::Display for FollowNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tolerance => f.write_str("a difference within its tolerance stays"),
            Self::Stabilized => f.write_str("its stabilization window delays the step"),
            Self::Limited => f.write_str("the policies of its behavior limit the step"),
            Self::NoStepDown(source) => write!(f, "it takes no step down: {source}"),
        }
    }
}

/// Judges by one look at the objects. A problem of a moment is normal; see [`SignalVerdict::NotFollowed`].
#[must_use]
pub fn judge_signal(facts: &SignalFacts<'_>) -> SignalVerdict {
    // The HPA that KEDA creates belongs to its ScaledObject.
    let is_part = |a: &Autoscaler| {
        let owner = a.scaled_object.as_ref();
        let is_owner = |b: &&Autoscaler| owner == Some(&b.own_name.name);
        facts.autoscalers.iter().filter(|b| b.own_name.kind == AutoscalerKind::ScaledObject).any(is_owner)
    };
    let (parts, whole): (Vec<&Autoscaler>, Vec<&Autoscaler>) =
        facts.autoscalers.iter().copied().partition(|a| is_part(a));
    match *whole.as_slice() {
        [] => without_autoscaler(facts),
        [one] => match judge_autoscaler(facts, one, parts.first().copied()) {
            Ok(verdict) => verdict,
            Err(problem) => SignalVerdict::NotFollowed { problem, created: one.created },
        },
        [..] => {
            let mut autoscalers: Vec<String> = whole.iter().map(|a| a.own_name.to_string()).collect();
            autoscalers.sort();
            // A second one next to an old one needs no time to settle.
            let created = whole.iter().filter_map(|a| a.created).min();
            let workload = facts.workload.to_owned();
            let problem = SignalProblem::SeveralAutoscalers { autoscalers, workload };
            SignalVerdict::NotFollowed { problem, created }
        }
    }
}

fn without_autoscaler(facts: &SignalFacts<'_>) -> SignalVerdict {
    if facts.scales_directly {
        return SignalVerdict::ScaledDirectly;
    }
    let workload = facts.workload.to_owned();
    let reads = |a: &&&Autoscaler| {
        let mut selectors = a.signal.iter().flat_map(|signal| signal.selectors.iter());
        selectors.any(|s| s.names_variant() && s.contradiction(&facts.labels).is_none())
    };
    if let Some(astray) = facts.others.iter().find(reads) {
        let (autoscaler, other) = (astray.own_name.to_string(), format!("{} {}", astray.kind, astray.name));
        let problem = SignalProblem::WrongTarget { autoscaler, other, workload };
        return SignalVerdict::NotFollowed { problem, created: astray.created };
    }
    if !facts.has_scaled_objects {
        return SignalVerdict::NotVisible;
    }
    SignalVerdict::NotFollowed { problem: SignalProblem::NoAutoscaler { workload }, created: None }
}

/// `part` is the HPA of a ScaledObject.
fn judge_autoscaler(
    facts: &SignalFacts<'_>,
    one: &Autoscaler,
    part: Option<&Autoscaler>,
) -> Result<SignalVerdict, SignalProblem> {
    let autoscaler = one.own_name.to_string();
    if let Some(source) = one.pauses.whole() {
        return Err(SignalProblem::AutoscalerPaused { autoscaler, cause: source.to_string() });
    }
    // The name of the metric in an HPA of a ScaledObject that wva cannot see says nothing.
    let Some(reader) = &one.signal else {
        if one.scaled_object.is_some() {
            judge_state(facts, one)?;
            return judge_step(facts, one, None, None);
        }
        // An adapter or a recording rule may have renamed the metric.
        let hpa = part.unwrap_or(one);
        if hpa.received(None, facts.created).any(|total| is_target(facts, total)) {
            judge_state(facts, one)?;
            return judge_step(facts, one, part, None);
        }
        return Err(SignalProblem::OtherMetric { autoscaler });
    };
    judge_selectors(facts, reader, &autoscaler)?;
    if !reader.is_one_to_one {
        return Err(SignalProblem::WrongMetricTarget { autoscaler });
    }
    let (min, max) = (one.limits.min, one.limits.max);
    // wva takes the step to 0 itself if an HPA scales the workload.
    let is_below = facts.desired < min && (facts.desired > 0 || one.limits.min_forbids_zero);
    if is_below || facts.desired > max {
        return Err(SignalProblem::OutsideBounds { autoscaler, desired: facts.desired, min, max });
    }
    let hpa = part.unwrap_or(one);
    for each in std::iter::once(one).chain(part) {
        judge_state(facts, each)?;
    }
    if hpa.state != AutoscalerState::AtZero {
        judge_value(facts, hpa, reader, &autoscaler)?;
    }
    judge_step(facts, one, part, Some(reader))
}

/// Judges whether an autoscaler that receives the target carries it out.
fn judge_step(
    facts: &SignalFacts<'_>,
    one: &Autoscaler,
    part: Option<&Autoscaler>,
    reader: Option<&SignalReader>,
) -> Result<SignalVerdict, SignalProblem> {
    // Decisions ask for no step up then, so the target does not show it.
    if let Some(paused) = paused_direction(one, part, Direction::Up) {
        return Err(paused.problem());
    }
    let hpa = part.unwrap_or(one);
    if hpa.state == AutoscalerState::AtZero {
        return Ok(SignalVerdict::AtZero(one.own_name.clone()));
    }
    let down = paused_direction(one, part, Direction::Down);
    // The controller takes the step to 0 itself, unless KEDA does.
    let asks_down = facts.desired < facts.current && (facts.desired > 0 || one.limits.scales_to_zero);
    if let Some(paused) = down.as_ref().filter(|_| asks_down) {
        return Err(paused.problem());
    }
    let note = judge_replicas(facts, one, hpa, reader)?.or(down.map(|p| FollowNote::NoStepDown(p.source)));
    match facts.not_carried_out {
        Some(desired) => Err(SignalProblem::NotCarriedOut {
            autoscaler: one.own_name.to_string(),
            desired,
            cause: note.map_or_else(|| "its status shows no cause".to_owned(), |note| note.to_string()),
        }),
        None => Ok(SignalVerdict::Followed { name: one.own_name.clone(), note }),
    }
}

/// One selector that may match is enough.
fn judge_selectors(
    facts: &SignalFacts<'_>,
    reader: &SignalReader,
    autoscaler: &str,
) -> Result<(), SignalProblem> {
    let mut contradictions = reader.selectors.iter().map(|s| s.contradiction(&facts.labels));
    match contradictions.next().flatten() {
        Some(first) if contradictions.all(|c| c.is_some()) => Err(SignalProblem::OtherVariant {
            autoscaler: autoscaler.to_owned(),
            selected: first.selected,
            actual: first.actual,
        }),
        _ => Ok(()),
    }
}

fn judge_state(facts: &SignalFacts<'_>, one: &Autoscaler) -> Result<(), SignalProblem> {
    let autoscaler = one.own_name.to_string();
    let inactive =
        |cause: String| SignalProblem::AutoscalerInactive { autoscaler: autoscaler.clone(), cause };
    Err(match &one.state {
        AutoscalerState::Active | AutoscalerState::AtZero => return Ok(()),
        AutoscalerState::NoStatus => inactive("its controller has written no status".to_owned()),
        AutoscalerState::Fallback => SignalProblem::AutoscalerFallback { autoscaler },
        AutoscalerState::Failing(failure) => inactive(failure.to_string()),
        AutoscalerState::NoMetric(failure) => match facts.metrics_api {
            MetricsApi::Missing => SignalProblem::MetricsApiMissing { autoscaler },
            MetricsApi::Unavailable => SignalProblem::MetricsApiUnavailable { autoscaler },
            MetricsApi::Served | MetricsApi::Unknown => {
                SignalProblem::NoMetricValue { autoscaler, cause: failure.to_string() }
            }
        },
    })
}

/// An HPA that asks for the target has received it, whatever its value shows.
fn judge_value(
    facts: &SignalFacts<'_>,
    hpa: &Autoscaler,
    reader: &SignalReader,
    autoscaler: &str,
) -> Result<(), SignalProblem> {
    let Some(total) = hpa.received(Some(reader), facts.created).next() else { return Ok(()) };
    if hpa.desired == Some(facts.desired) || is_target(facts, total) {
        return Ok(());
    }
    Err(SignalProblem::ValueDiffers {
        autoscaler: autoscaler.to_owned(),
        received: total.replicas(),
        desired: facts.desired,
    })
}

fn is_target(facts: &SignalFacts<'_>, total: ReceivedTotal) -> bool {
    std::iter::once(&facts.desired).chain(facts.recent).any(|target| total.equals(*target))
}

#[cfg(test)]
mod tests;
