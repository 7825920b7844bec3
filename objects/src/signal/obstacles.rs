//! What an autoscaler does not carry out, by its object alone.

use jiff::{SignedDuration, Timestamp};

use super::SignalProblem;
use crate::autoscaler::{Autoscaler, AutoscalerState, Direction, PauseSource};

/// One failed sync of an HPA ends with the next one.
const UNABLE_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// A paused direction of an autoscaler.
pub(super) struct PausedDirection {
    autoscaler: String,
    direction: Direction,
    pub(super) source: PauseSource,
}

impl PausedDirection {
    pub(super) fn problem(&self) -> SignalProblem {
        SignalProblem::DirectionPaused {
            autoscaler: self.autoscaler.clone(),
            direction: self.direction.to_string(),
            cause: self.source.to_string(),
        }
    }
}

/// `part` is the HPA of a ScaledObject. KEDA copies the pause there, so the ScaledObject is named first.
pub(super) fn paused_direction(
    one: &Autoscaler,
    part: Option<&Autoscaler>,
    direction: Direction,
) -> Option<PausedDirection> {
    std::iter::once(one).chain(part).find_map(|autoscaler| {
        let source = autoscaler.pauses.of(direction)?;
        Some(PausedDirection { autoscaler: autoscaler.own_name.to_string(), direction, source })
    })
}

/// Why the autoscalers of a workload take no step in a direction: a pause counts at once, `AbleToScale=False` after 30 s.
#[must_use]
pub fn declared_obstacle(
    autoscalers: &[&Autoscaler],
    direction: Direction,
    now: Timestamp,
) -> Option<String> {
    let mut all = autoscalers.to_vec();
    // ScaledObjects before their HPAs.
    all.sort_by_key(|a| (std::cmp::Reverse(a.own_name.kind), a.own_name.name.clone()));
    all.iter().find_map(|a| {
        let paused = a.pauses.of(direction).map(|source| source.to_string());
        let cause = paused.or_else(|| unable(a, now))?;
        Some(format!("{}: {cause}", a.own_name))
    })
}

fn unable(autoscaler: &Autoscaler, now: Timestamp) -> Option<String> {
    autoscaler.unable_since.filter(|since| now.duration_since(*since) >= UNABLE_AFTER)?;
    match &autoscaler.state {
        AutoscalerState::Failing(failure) => Some(format!("AbleToScale is False: {failure}")),
        _ => Some("AbleToScale is False".to_owned()),
    }
}
