//! State that events have reported, from the previous publication or the status of another process: a new leader
//! repeats no event.

use std::collections::BTreeSet;

use jiff::Timestamp;
use wva_crds::events::EventReason;
use wva_crds::{ConditionReason, ConditionStatus, ConditionType, ControllerState, VariantAutoscalingStatus};
use wva_objects::status::find_condition;
use wva_scaling::Decision;

use crate::model::conditions::ConditionDraft;
use crate::model::published::PublishedVariant;

/// Version of [`ControllerState`]. A release that changes the meaning of a field raises it.
const VERSION: i32 = 1;

/// Reported once by a Warning event while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Problem {
    TargetNotFound,
    SafetyNetActivated,
    Stuck,
    NotCarriedOut,
    NotWakeable,
    RequestsFailedDuringWake,
    WaitingForQuota,
}

impl Problem {
    pub(crate) const ALL: [Self; 7] = [
        Self::TargetNotFound,
        Self::SafetyNetActivated,
        Self::Stuck,
        Self::NotCarriedOut,
        Self::NotWakeable,
        Self::RequestsFailedDuringWake,
        Self::WaitingForQuota,
    ];

    /// Reason of its event, and its name in [`ControllerState`].
    pub(crate) const fn reason(self) -> EventReason {
        match self {
            Self::TargetNotFound => EventReason::TargetNotFound,
            Self::SafetyNetActivated => EventReason::SafetyNetActivated,
            Self::Stuck => EventReason::Stuck,
            Self::NotCarriedOut => EventReason::NotCarriedOut,
            Self::NotWakeable => EventReason::NotWakeable,
            Self::RequestsFailedDuringWake => EventReason::RequestsFailedDuringWake,
            Self::WaitingForQuota => EventReason::WaitingForQuota,
        }
    }
}

/// State of one variant that was reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedState {
    pub(crate) target: Option<u32>,
    pub(crate) problems: BTreeSet<Problem>,
    pub(crate) limited_by: Option<String>,
    /// Reason of the condition `SignalFollowed` while it is False.
    pub(crate) signal_problem: Option<ConditionReason>,
    /// Reason of the condition `NeedMet` while it is False.
    pub(crate) unmet: Option<ConditionReason>,
}

impl ReportedState {
    pub(crate) fn from_publication(variant: &PublishedVariant) -> Self {
        let decision = variant.decision.as_ref();
        let has = |problem: fn(&Decision) -> bool| decision.is_some_and(problem);
        let problems = [
            (
                Problem::TargetNotFound,
                variant.conditions.target_resolved.reason == ConditionReason::TargetNotFound,
            ),
            (Problem::SafetyNetActivated, has(|d| d.safety_net().is_some())),
            (Problem::Stuck, has(|d| d.report.replicas.stuck)),
            (Problem::NotCarriedOut, has(|d| d.report.not_carried_out.is_some())),
            (Problem::NotWakeable, has(|d| d.report.model.wake_obstacle.is_some())),
            (Problem::RequestsFailedDuringWake, variant.failed_during_wake),
            (Problem::WaitingForQuota, has(|d| d.report.replicas.waiting_for_quota.is_some())),
        ];
        Self {
            target: variant.target().or(variant.last_target),
            problems: problems.into_iter().filter(|(_, holds)| *holds).map(|(problem, _)| problem).collect(),
            limited_by: decision.and_then(|d| d.limited_by().map(|budget| truncate(&budget))),
            signal_problem: Some(&variant.conditions.signal_followed)
                .filter(|draft| draft.status == ConditionStatus::False)
                .map(|draft| draft.reason),
            unmet: Some(&variant.conditions.need_met)
                .filter(|draft| draft.status == ConditionStatus::False)
                .map(|draft| draft.reason),
        }
    }

    pub(crate) fn from_status(status: &VariantAutoscalingStatus, state: &ControllerState) -> Self {
        let alloc = status.desired_optimized_alloc.as_ref();
        let is_reported =
            |problem: &Problem| state.problems.iter().any(|name| name == problem.reason().as_str());
        Self {
            target: alloc.and_then(|alloc| u32::try_from(alloc.num_replicas).ok()),
            problems: Problem::ALL.into_iter().filter(is_reported).collect(),
            limited_by: state.limited_by.clone(),
            signal_problem: signal_condition(status)
                .filter(|condition| condition.draft.status == ConditionStatus::False)
                .map(|condition| condition.draft.reason),
            unmet: find_condition(status, ConditionType::NeedMet)
                .filter(|c| c.status == ConditionStatus::False.as_str())
                .and_then(|condition| ConditionReason::parse(&condition.reason)),
        }
    }

    pub(crate) fn has(&self, problem: Problem) -> bool {
        self.problems.contains(&problem)
    }
}

/// Truncates to the length that the schema of the status allows.
fn truncate(budget: &str) -> String {
    budget.chars().take(253).collect()
}

/// `SignalFollowed` in a status, while its reason is a problem.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SignalCondition {
    pub(crate) draft: ConditionDraft,
    /// Transition time of the condition.
    pub(crate) since: Timestamp,
}

/// `None` for any other reason.
pub(crate) fn signal_condition(status: &VariantAutoscalingStatus) -> Option<SignalCondition> {
    let condition = find_condition(status, ConditionType::SignalFollowed)?;
    let reason = ConditionReason::parse(&condition.reason)?;
    let is_problem = ConditionType::SignalFollowed.reasons(ConditionStatus::False).contains(&reason);
    if !is_problem {
        return None;
    }
    let (status, message) = (ConditionStatus::parse(&condition.status)?, condition.message.clone());
    let draft = ConditionDraft { status, reason, message };
    Some(SignalCondition { draft, since: condition.last_transition_time.0 })
}

/// What the conditions tell a new leader about a state of another version.
pub(crate) fn state_from_conditions(status: &VariantAutoscalingStatus) -> ControllerState {
    let reason = |type_| find_condition(status, type_).map_or("", |condition| condition.reason.as_str());
    let is = |type_, wanted: ConditionReason| reason(type_) == wanted.as_str();
    let has = |wanted| is(ConditionType::Ready, wanted) || is(ConditionType::NeedMet, wanted);
    let optimization = |wanted| is(ConditionType::OptimizationReady, wanted);
    let unanalyzed = optimization(ConditionReason::MetricsUnavailable);
    let problems = [
        (Problem::TargetNotFound, is(ConditionType::TargetResolved, ConditionReason::TargetNotFound)),
        (Problem::SafetyNetActivated, unanalyzed || optimization(ConditionReason::SafetyNet)),
        (Problem::Stuck, has(ConditionReason::Stuck)),
        (Problem::NotCarriedOut, has(ConditionReason::NotCarriedOut)),
        (Problem::NotWakeable, optimization(ConditionReason::NotWakeable)),
        (Problem::WaitingForQuota, has(ConditionReason::WaitingForQuota)),
    ];
    let problems = problems.into_iter().filter(|(_, holds)| *holds);
    ControllerState {
        version: VERSION,
        unanalyzed,
        waking: is(ConditionType::MetricsAvailable, ConditionReason::ScaleFromZero),
        problems: problems.map(|(problem, _)| problem.reason().as_str().to_owned()).collect(),
        ..ControllerState::default()
    }
}

/// Whether a newer release wrote the state. Its fields may mean something else by now, so they are neither read nor
/// overwritten.
pub(crate) fn has_newer_state(status: &VariantAutoscalingStatus) -> bool {
    status.controller_state.as_ref().is_some_and(|state| state.version > VERSION)
}

/// The next leader reads it.
pub(crate) fn controller_state(variant: &PublishedVariant) -> ControllerState {
    let reported = ReportedState::from_publication(variant);
    ControllerState {
        version: VERSION,
        target_seen: variant.target_seen,
        unanalyzed: variant.conditions.optimization_ready.reason == ConditionReason::MetricsUnavailable,
        waking: variant.conditions.metrics_available.reason == ConditionReason::ScaleFromZero,
        problems: reported.problems.iter().map(|problem| problem.reason().as_str().to_owned()).collect(),
        limited_by: reported.limited_by,
        refused: variant.refused.clone(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::fixture::{decision, published, replicas, without_target};
    use crate::model::status_fingerprint::StatusFingerprint;
    use crate::publish::status::desired_status;

    /// Publications with every problem, alone and together.
    fn publications() -> Vec<PublishedVariant> {
        let of = |variant, config| published(decision(variant, config));
        let limits = json!({"limitedMode": true, "inventory": {"H100": {"limit": 2, "used": 2}}});
        let gated = json!({"age": "2m", "state": "waitingForQuota"});
        let gated = json!({"ready": 1, "pending": [gated], "replicas": replicas(1, 0.5, "1s")});
        let loading = json!({"ready": 1, "pending": [{"age": "11m"}], "replicas": replicas(1, 0.5, "1s")});
        let late = json!({"desired": 4, "desiredAge": "11m", "replicas": replicas(2, 0.5, "1s")});
        // Stuck, late, and without metrics: the reason of `Ready` is one of them.
        let all = json!({"ready": 0, "pending": [{"age": "11m"}, {"age": "11m"}]});
        let mut all = decision(all, json!({}));
        all.report.not_carried_out = Some(3);
        let full = json!({"replicas": replicas(2, 0.78, "1s"), "max": 2});
        let mut unusable = of(json!({"replicas": replicas(2, 0.78, "1s")}), limits.clone());
        unusable.conditions.note_unusable_settings("because");
        vec![
            of(json!({"replicas": replicas(2, 0.5, "1s")}), json!({})),
            of(json!({"replicas": replicas(2, 0.78, "1s")}), limits),
            of(json!({"desired": 2}), json!({})),
            of(json!({"desired": 2, "mode": "paused"}), json!({})),
            of(loading, json!({})),
            of(gated, json!({})),
            of(late, json!({})),
            of(full, json!({})),
            published(all),
            unusable,
            without_target(),
        ]
    }

    #[test]
    fn rewording_conditions_changes_no_reported_state() {
        let interval = std::time::Duration::from_mins(1);
        for variant in publications() {
            let mut status =
                desired_status(&variant, &StatusFingerprint::default(), Timestamp::UNIX_EPOCH, interval)
                    .unwrap();
            for condition in &mut status.conditions {
                condition.message = "reworded".to_owned();
            }
            let state = status.controller_state.clone().unwrap();
            assert_eq!(
                ReportedState::from_status(&status, &state),
                ReportedState::from_publication(&variant),
                "{status:?}"
            );
        }
    }

    /// A target that was given up changes decisions, so a leader that was rolled back must know it.
    #[test]
    fn conditions_tell_the_problems_of_a_newer_state() {
        let interval = std::time::Duration::from_mins(1);
        for variant in publications() {
            let before = StatusFingerprint::default();
            let status = desired_status(&variant, &before, Timestamp::UNIX_EPOCH, interval).unwrap();
            let (state, read) = (status.controller_state.clone().unwrap(), state_from_conditions(&status));
            assert_eq!((read.unanalyzed, read.waking), (state.unanalyzed, state.waking), "{status:?}");
            let known = |problem: &String| read.problems.contains(problem);
            // `Ready` names the most important problem of several.
            let found = state.problems.iter().filter(|problem| known(problem)).count();
            assert!(found >= state.problems.len().min(1), "{read:?} of {status:?}");
            assert_eq!(found, read.problems.len(), "{read:?} of {status:?}");
        }
    }

    #[test]
    fn unknown_problem_names_are_ignored() {
        let problems = ["Stuck", "Melted"].map(str::to_owned).into();
        let state = ControllerState { version: 1, problems, ..ControllerState::default() };
        let status = VariantAutoscalingStatus::default();
        assert_eq!(ReportedState::from_status(&status, &state).problems, BTreeSet::from([Problem::Stuck]));
    }
}
