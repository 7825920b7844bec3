//! Whether the replicas become the target.

use jiff::Timestamp;

use super::{FollowNote, SignalFacts, SignalProblem};
use crate::autoscaler::{Autoscaler, Pace, SignalReader};

/// Last step of an HPA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleRecord {
    at: Timestamp,
    /// Replicas that it set.
    wish: u32,
}

impl ScaleRecord {
    /// Record of the HPA that scales a workload.
    #[must_use]
    pub fn read(autoscalers: &[&Autoscaler]) -> Option<Self> {
        autoscalers.iter().find_map(|a| Some(Self { at: a.last_scaled?, wish: a.desired? }))
    }
}

/// The HPA compares with this allowance, too.
const ALLOWANCE: f64 = 1e-9;

/// Compares `spec.replicas` with the HPA's wish and with the target. Returns why a difference is normal. `one`: the
/// autoscaler that a person wrote; `hpa`: itself, or the HPA that KEDA made of it.
pub(super) fn judge_replicas(
    facts: &SignalFacts<'_>,
    one: &Autoscaler,
    hpa: &Autoscaler,
    reader: Option<&SignalReader>,
) -> Result<Option<FollowNote>, SignalProblem> {
    let Some(wish) = hpa.desired else { return Ok(None) };
    let (autoscaler, desired) = (one.own_name.to_string(), facts.desired);
    if wish != facts.current {
        let (workload, current) = (facts.workload.to_owned(), facts.current);
        return Err(SignalProblem::WorkloadNotScaled { autoscaler, workload, desired: wish, current });
    }
    if is_set_again(facts, hpa) {
        let workload = facts.workload.to_owned();
        return Err(SignalProblem::ReplicasOverwritten { autoscaler, workload, wish });
    }
    // The HPA stops at its minimum; the controller or KEDA takes the step to 0.
    if wish == desired.max(hpa.limits.min) {
        return Ok(None);
    }
    match hpa.pace {
        Some(Pace::Stabilized) => return Ok(Some(FollowNote::Stabilized)),
        Some(Pace::Limited) => return Ok(Some(FollowNote::Limited)),
        None => {}
    }
    if is_tolerated(facts, hpa) {
        return Ok(Some(FollowNote::Tolerance));
    }
    // An earlier target is on its way. Without a value nothing is known about the wish.
    let has_target = hpa.received(reader, facts.created).any(|total| total.equals(desired));
    if !has_target {
        return Ok(None);
    }
    match reader.and_then(|reader| hpa.rival(reader)).filter(|_| wish > desired) {
        Some(metric) => {
            Err(SignalProblem::OtherMetricWins { autoscaler, metric: metric.to_owned(), wish, desired })
        }
        None => Err(SignalProblem::WishDiffers { autoscaler, wish, desired }),
    }
}

/// The HPA set the same number again, so another writer had changed it since the last look.
fn is_set_again(facts: &SignalFacts<'_>, hpa: &Autoscaler) -> bool {
    let now = ScaleRecord::read(&[hpa]);
    let is_again = |(now, before): (ScaleRecord, ScaleRecord)| now.wish == before.wish && now.at > before.at;
    facts.recent.is_empty() && now.zip(facts.last_scale).is_some_and(is_again)
}

/// The HPA divides the target by the pods that exist; with a surge these are more than `spec.replicas`.
fn is_tolerated(facts: &SignalFacts<'_>, hpa: &Autoscaler) -> bool {
    let Some(tolerance) = hpa.limits.tolerance else { return false };
    [facts.created, facts.current].into_iter().filter(|n| *n > 0).any(|n| {
        let ratio = f64::from(facts.desired) / f64::from(n);
        let allowed = if ratio > 1.0 { tolerance.up } else { tolerance.down };
        (ratio - 1.0).abs() <= allowed.get() + ALLOWANCE
    })
}
