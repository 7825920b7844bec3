//! Condition `Ready`: the sum of `TargetResolved`, `OptimizationReady` and the state of the replicas. While it is True,
//! its reason is the most important trouble of the variant. An autoscaler that does not follow is none of its parts: a
//! GitOps tool that waits for `Ready` may create the autoscaler only afterwards.

use wva_crds::{ConditionReason, ConditionStatus};
use wva_scaling::snapshot::Mode;
use wva_scaling::{Decision, Reason, WaitingReplicas};

use super::{DecisionEffect, condition_false, condition_true};
use crate::model::conditions::ConditionDraft;

#[must_use]
pub(crate) const fn stuck_message(has_siblings: bool) -> &'static str {
    if has_siblings {
        "Replicas of this variant do not become ready, so other variants of the model grow instead: look at its pods with kubectl describe"
    } else {
        "Replicas of this variant do not become ready: look at its pods with kubectl describe"
    }
}

/// A person may have to raise a quota; the variant itself works.
#[must_use]
pub(crate) fn waiting_message(waiting: &WaitingReplicas, has_siblings: bool) -> String {
    let meanwhile = if has_siblings { "; other variants of the model grow until then" } else { "" };
    format!("{waiting}. They start when there is quota{meanwhile}")
}

/// Names the cause that `SignalFollowed` names.
#[must_use]
pub(crate) fn not_carried_out_message(decision: &Decision, desired: u32, signal: &ConditionDraft) -> String {
    let is_refused = |reason: &Reason| matches!(reason, Reason::NotCarriedOut { refused: true, .. });
    if decision.steps.iter().any(|step| is_refused(&step.reason)) {
        return format!(
            "The target {desired} was not carried out: the API server refuses to scale the workload; check the policies of the namespace"
        );
    }
    if signal.status == ConditionStatus::False {
        return format!("The target {desired} was not carried out: {}", signal.message);
    }
    format!(
        "The target {desired} was not carried out: check that an HPA or ScaledObject reads wva_desired_replicas for this variant, and its bounds and behavior"
    )
}

/// The first False reason, in the order of the API, else the first True one. The message contains all False ones.
pub(super) fn ready(
    decision: &Decision,
    optimization: &ConditionDraft,
    effect: &DecisionEffect,
) -> ConditionDraft {
    let DecisionEffect { signal, has_siblings, .. } = effect;
    let waiting = decision.report.replicas.waiting_for_quota.as_ref();
    // These modes publish what a person set, whatever an analysis says.
    let needs_analysis = matches!(decision.report.mode, Mode::Auto | Mode::Recommend);
    let failed = |holds: bool| {
        let counts = needs_analysis && optimization.status == ConditionStatus::False;
        let is_held = optimization.reason == ConditionReason::SafetyNet;
        (counts && is_held == holds).then(|| (optimization.reason, optimization.message.clone()))
    };
    let failures = [
        waiting
            .filter(|_| decision.report.replicas.ready == 0)
            .map(|waiting| (ConditionReason::WaitingForQuota, waiting_message(waiting, *has_siblings))),
        failed(false),
        decision
            .report
            .replicas
            .stuck
            .then(|| (ConditionReason::Stuck, stuck_message(*has_siblings).to_owned())),
        decision.report.not_carried_out.map(|desired| {
            (ConditionReason::NotCarriedOut, not_carried_out_message(decision, desired, signal))
        }),
        // A held target matters less than replicas that do not come.
        failed(true),
    ];
    let (reasons, messages): (Vec<_>, Vec<_>) = failures.into_iter().flatten().unzip();
    match reasons.first() {
        Some(reason) => condition_false(*reason, messages.join(". ")),
        None => working(decision, optimization, effect),
    }
}

/// `Ready=True`.
fn working(
    decision: &Decision,
    optimization: &ConditionDraft,
    DecisionEffect { signal, need, has_siblings }: &DecisionEffect,
) -> ConditionDraft {
    let target = decision.target();
    if signal.status == ConditionStatus::False {
        let message = format!("The target {target} is not followed: {}", signal.message);
        return condition_true(ConditionReason::SignalNotFollowed, message);
    }
    if let Some(waiting) = &decision.report.replicas.waiting_for_quota {
        let message =
            format!("The target is {target} replica(s). {}", waiting_message(waiting, *has_siblings));
        return condition_true(ConditionReason::WaitingForQuota, message);
    }
    match decision.report.mode {
        Mode::Paused => condition_true(
            ConditionReason::Paused,
            format!("Paused by annotation: the target stays {target}"),
        ),
        Mode::Recommend => condition_true(
            ConditionReason::RecommendOnly,
            format!("Recommendation only: {target} replica(s), not published"),
        ),
        Mode::Fixed(_) => {
            condition_true(ConditionReason::Fixed, format!("Fixed by annotation: the target is {target}"))
        }
        Mode::Auto if optimization.reason == ConditionReason::SafetyNet => {
            condition_true(ConditionReason::SafetyNet, optimization.message.clone())
        }
        Mode::Auto if need.status == ConditionStatus::False => {
            condition_true(need.reason, format!("The target is {target} replica(s). {}", need.message))
        }
        Mode::Auto => condition_true(ConditionReason::Ready, format!("The target is {target} replica(s)")),
    }
}
