//! Events of a variant: what began and what ended between two publications.

use wva_crds::ConditionReason;
use wva_crds::events::EventReason;
use wva_scaling::{Decision, Reason};

use super::PendingEvent;
use crate::cycle::conditions::{limiting_reason, not_carried_out_message, stuck_message, waiting_message};
use crate::model::published::PublishedVariant;
use crate::model::reported::{Problem, ReportedState};

fn warn(reason: EventReason, note: impl Into<String>) -> PendingEvent {
    PendingEvent { warning: true, reason, note: note.into(), digest: None }
}

fn inform(reason: EventReason, note: impl Into<String>) -> PendingEvent {
    PendingEvent { warning: false, reason, note: note.into(), digest: None }
}

#[must_use]
pub(crate) fn transitions(before: &ReportedState, after: &PublishedVariant) -> Vec<PendingEvent> {
    let now = ReportedState::from_publication(after);
    let change = after.target_change(before.target).map(|note| inform(EventReason::ScalingDecision, note));
    let begun = now.problems.difference(&before.problems).filter_map(|p| problem_event(*p, after));
    let mut events: Vec<PendingEvent> = change.into_iter().chain(begun).collect();
    if now.signal_problem.is_some() && now.signal_problem != before.signal_problem {
        events.push(warn(EventReason::SignalNotFollowed, &after.conditions.signal_followed.message));
    }
    events.extend(limit_event(before, &now, after));
    events.extend(ended(before, &now, after));
    events
}

/// `None` if the decision that has the problem is missing.
fn problem_event(problem: Problem, after: &PublishedVariant) -> Option<PendingEvent> {
    let conditions = &after.conditions;
    let of = |note: fn(&Decision, &PublishedVariant) -> Option<String>| {
        after.decision.as_ref().and_then(|decision| note(decision, after))
    };
    let note = match problem {
        Problem::TargetNotFound => conditions.ready.message.clone(),
        Problem::SafetyNetActivated => conditions.optimization_ready.message.clone(),
        Problem::Stuck => stuck_message(after.has_siblings).to_owned(),
        Problem::WaitingForQuota => of(|d, v| {
            d.report.replicas.waiting_for_quota.as_ref().map(|w| waiting_message(w, v.has_siblings))
        })?,
        Problem::NotCarriedOut => of(|d, v| {
            d.report
                .not_carried_out
                .map(|desired| not_carried_out_message(d, desired, &v.conditions.signal_followed))
        })?,
        Problem::NotWakeable => of(|d, _| d.report.model.not_wakeable())?,
        Problem::RequestsFailedDuringWake => failed_during_wake_note(after.cold_start),
    };
    Some(warn(problem.reason(), note))
}

/// `cold_start` in seconds.
fn failed_during_wake_note(cold_start: Option<u32>) -> String {
    let measured = cold_start.map(|seconds| format!(", {seconds} s when last measured")).unwrap_or_default();
    format!(
        "Requests failed at the endpoint picker while the model woke: they may wait less than a cold start{measured}. \
         Raise flowControl.defaultRequestTTL or noEndpointRequestTTL of the picker, and timeouts of HTTPRoutes and \
         clients, above it: wva doctor shows them"
    )
}

/// Event of a limit. While the need is unmet for one reason, a limit that comes and goes with the load is reported
/// once.
fn limit_event(
    before: &ReportedState,
    now: &ReportedState,
    after: &PublishedVariant,
) -> Option<PendingEvent> {
    let is_new = now.unmet.is_none() || now.unmet != before.unmet;
    let own = match now.unmet {
        Some(ConditionReason::AtMaximum) => Some(EventReason::AtMaximum),
        Some(ConditionReason::SloTargetMissed) => Some(EventReason::SloTargetMissed),
        _ => None,
    };
    if let Some(reason) = own.filter(|_| is_new) {
        return Some(warn(reason, &after.conditions.need_met.message));
    }
    let is_other = before.limited_by.is_some() && now.limited_by != before.limited_by;
    if now.limited_by.is_none() || !(is_other || (before.limited_by.is_none() && is_new)) {
        return None;
    }
    let reason = limiting_reason(after.decision.as_ref()?)?;
    let code = match reason {
        Reason::LimitedByQuota { .. } => EventReason::LimitedByQuota,
        Reason::YieldsTo { .. } => EventReason::YieldsTo,
        _ => EventReason::LimitedBy,
    };
    Some(warn(code, reason.to_string()))
}

/// Nothing is over for a variant without a decision, or whose target is not published any more.
fn ended(before: &ReportedState, now: &ReportedState, after: &PublishedVariant) -> Vec<PendingEvent> {
    if after.decision.is_none() {
        return Vec::new();
    }
    let resolved = |what: &str, state: &str| inform(EventReason::Resolved, format!("{what} ended: {state}"));
    let (signal, need) = (&after.conditions.signal_followed, &after.conditions.need_met);
    let mut events: Vec<PendingEvent> = before
        .problems
        .difference(&now.problems)
        .map(|problem| resolved(problem.reason().as_str(), &after.conditions.ready.message))
        .collect();
    if let (Some(old), None, true) = (before.signal_problem, now.signal_problem, after.signal().is_some()) {
        events
            .push(resolved(&format!("{} ({old})", EventReason::SignalNotFollowed.as_str()), &signal.message));
    }
    let limit = before.unmet.filter(|old| is_limit(*old) && now.unmet != Some(*old));
    events.extend(limit.map(|old| resolved(old.as_str(), &need.message)));
    events
}

/// Whether an event of its own reports the end. Other unmet needs are problems of the variant, or a mode that a person
/// set.
const fn is_limit(reason: ConditionReason) -> bool {
    matches!(
        reason,
        ConditionReason::AtMaximum
            | ConditionReason::LimitedByGpus
            | ConditionReason::LimitedByQuota
            | ConditionReason::YieldsTo
            | ConditionReason::SloTargetMissed
    )
}
