//! Reads the state of a new leader from condition messages of release 0.1.0, whose statuses have no
//! [`ControllerState`]. Do not change these texts: no current code writes them.

use std::collections::BTreeSet;

use wva_crds::{ControllerState, VariantAutoscalingStatus};

use crate::model::reported::{Problem, state_from_conditions};

const STUCK: &str =
    "Replicas of this variant do not become ready, so other variants of the model grow instead";
const NOT_CARRIED_OUT: &str = "was not carried out: check that an HPA or ScaledObject reads";
const NOT_WAKEABLE: &str = "Scale to zero is on, but ";

/// Empty if the condition is absent.
fn condition<'a>(status: &'a VariantAutoscalingStatus, type_: &str) -> (&'a str, &'a str) {
    let found = status.conditions.iter().find(|c| c.type_ == type_);
    found.map_or(("", ""), |c| (c.reason.as_str(), c.message.as_str()))
}

pub(crate) fn controller_state(status: &VariantAutoscalingStatus) -> ControllerState {
    let (ready, message) = condition(status, "Ready");
    let (_, decided) = condition(status, "OptimizationReady");
    let by_reasons = state_from_conditions(status);
    let told = [
        (Problem::TargetNotFound, ready == "DeploymentNotFound"),
        (Problem::SafetyNetActivated, ready == "SafetyNet"),
        (Problem::Stuck, message.contains(STUCK)),
        (Problem::NotCarriedOut, message.contains(NOT_CARRIED_OUT)),
        (Problem::NotWakeable, decided.contains(NOT_WAKEABLE)),
    ];
    let names =
        told.into_iter().filter(|(_, holds)| *holds).map(|(problem, _)| problem.reason().as_str().to_owned());
    let names: BTreeSet<String> = by_reasons.problems.into_iter().chain(names).collect();
    let problems = Problem::ALL.map(|problem| problem.reason().as_str().to_owned());
    ControllerState {
        version: 0,
        target_seen: condition(status, "TargetResolved").1.ends_with(" no longer exists"),
        problems: problems.into_iter().filter(|problem| names.contains(problem)).collect(),
        limited_by: limited_accelerator(decided).map(str::to_owned),
        ..by_reasons
    }
}

/// Accelerator in "0 GPU(s) of H100 are left, ...".
fn limited_accelerator(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(" GPU(s) of ")?;
    rest.split_once(" are left, ").map(|(accelerator, _)| accelerator)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A status of release 0.1.0 with these conditions, each as type, reason and message.
    fn status(conditions: &[[&str; 3]]) -> VariantAutoscalingStatus {
        let condition = |[type_, reason, message]: &[&str; 3]| {
            json!({"type": type_, "status": "False", "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let conditions: Vec<_> = conditions.iter().map(condition).collect();
        serde_json::from_value(json!({"conditions": conditions})).unwrap()
    }

    #[test]
    fn reads_state_from_conditions_of_release_0_1_0() {
        let late = "The target 4 was not carried out: check that an HPA or ScaledObject reads wva_desired_replicas for this variant, and its bounds and behavior";
        let stuck = "Replicas of this variant do not become ready, so other variants of the model grow instead: look at its pods with kubectl describe";
        let zero = "2 -> 2: spare; Scale to zero is on, but no scheduler queue can be read";
        let limited = "1 -> 1: too little spare capacity; 0 GPU(s) of H100 are left, 1 needed";
        let both = format!("{stuck}. {late}");
        for (conditions, problems) in [
            (vec![["Ready", "NotCarriedOut", late]], vec![Problem::NotCarriedOut]),
            (vec![["Ready", "Stuck", stuck]], vec![Problem::Stuck]),
            (vec![["Ready", "Stuck", &both]], vec![Problem::Stuck, Problem::NotCarriedOut]),
            (vec![["Ready", "DeploymentNotFound", ""]], vec![Problem::TargetNotFound]),
            (vec![["OptimizationReady", "SafetyNet", ""]], vec![Problem::SafetyNetActivated]),
            (vec![["OptimizationReady", "SaturationOnlyMode", zero]], vec![Problem::NotWakeable]),
        ] {
            let problems: Vec<String> = problems.iter().map(|p| p.reason().as_str().to_owned()).collect();
            assert_eq!(controller_state(&status(&conditions)).problems, problems, "{conditions:?}");
        }
        let of = |type_, reason, message| controller_state(&status(&[[type_, reason, message]]));
        let limited = of("OptimizationReady", "SaturationOnlyMode", limited);
        assert_eq!(limited.limited_by.as_deref(), Some("H100"));
        assert!(of("TargetResolved", "TargetNotFound", "Target deployment 'd' no longer exists").target_seen);
        assert!(
            !of("TargetResolved", "TargetNotFound", "Target deployment 'd' does not exist yet").target_seen
        );
        assert!(of("OptimizationReady", "MetricsUnavailable", "").unanalyzed);
        assert!(of("MetricsAvailable", "ScaleFromZero", "").waking);
    }
}
