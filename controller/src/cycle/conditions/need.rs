//! Condition `NeedMet`: whether what is decided covers what the model needs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use wva_crds::{ConditionReason, ConditionStatus};
use wva_scaling::snapshot::{Mode, Role, WakeObstacle};
use wva_scaling::{Decision, Reason, Snapshot, VariantKey};

use super::{
    DecisionEffect, at_zero_message, condition_false, condition_true, condition_unknown, not_decided,
    stuck_message, waiting_message,
};
use crate::model::conditions::ConditionDraft;

/// How long an unmet need holds while the target stays: a load at a limit crosses it in every other cycle.
const UNMET_LASTS: Duration = Duration::from_mins(2);

/// Other variants that serve the same part of the model's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Siblings {
    pub(crate) exist: bool,
    /// One of them grows without a limit.
    pub(crate) cover_need: bool,
}

/// Siblings of all variants of a pass.
#[derive(Debug, Default)]
pub(crate) struct SiblingIndex<'a> {
    groups: BTreeMap<VariantGroup<'a>, GroupState>,
    members: BTreeMap<(&'a str, &'a str), VariantGroup<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct VariantGroup<'a> {
    namespace: &'a str,
    model_id: &'a str,
    /// `None` if a variant of the model serves whole requests.
    role: Option<Role>,
}

#[derive(Debug, Default)]
struct GroupState {
    variants: usize,
    grows: bool,
}

impl<'a> SiblingIndex<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, decisions: &[Decision]) -> Self {
        let growing: BTreeSet<(&str, &str)> = decisions
            .iter()
            .filter(|decision| grows(decision))
            .map(|decision| (decision.key.namespace.as_str(), decision.key.name.as_str()))
            .collect();
        let mut index = Self::default();
        for model in &snapshot.models {
            let namespace = model.namespace.as_str();
            let serves_whole_requests = model.variants.iter().any(|v| v.role.is_none());
            for variant in &model.variants {
                let role = variant.role.filter(|_| !serves_whole_requests);
                let group = VariantGroup { namespace, model_id: &model.model_id, role };
                let state = index.groups.entry(group).or_default();
                state.variants += 1;
                state.grows |= growing.contains(&(namespace, variant.name.as_str()));
                index.members.insert((namespace, &variant.name), group);
            }
        }
        index
    }

    pub(crate) fn of(&self, key: &VariantKey) -> Siblings {
        let member = self.members.get(&(key.namespace.as_str(), key.name.as_str()));
        let group = member.and_then(|group| self.groups.get(group));
        group.map_or_else(Siblings::default, |group| Siblings {
            exist: group.variants > 1,
            cover_need: group.grows,
        })
    }
}

/// Whether replicas come, as many as the analysis asks for.
fn grows(decision: &Decision) -> bool {
    decision.report.mode == Mode::Auto
        && decision.target() > decision.report.replicas.ready
        && decision.safety_net().is_none()
        && !decision.report.replicas.stuck
        && decision.report.replicas.waiting_for_quota.is_none()
        && decision.report.not_carried_out.is_none()
        && limiting_step(decision).is_none()
}

/// The first step that keeps the variant from growing as the analysis asks.
fn limiting_step(decision: &Decision) -> Option<&Reason> {
    let mut has_grown = false;
    for step in &decision.steps {
        let is_limit = match &step.reason {
            // A lowered maximum alone leaves no need unmet.
            Reason::AtMaximum { .. } => has_grown || step.before == step.after,
            Reason::NotCarriedOut { desired, .. } => *desired > decision.current,
            Reason::Stuck { .. } | Reason::WaitingForQuota { .. } | Reason::CannotGrow { .. } => true,
            reason => reason.scarce_budget().is_some(),
        };
        if is_limit {
            return Some(&step.reason);
        }
        has_grown |= step.after > step.before;
    }
    None
}

fn unmet(reason: ConditionReason, message: impl Into<String>) -> ConditionDraft {
    condition_false(reason, message)
}

/// Condition while the need is not met, if any. The message has no figures that change, which would write the status
/// every cycle.
fn unmet_need(decision: &Decision, signal: &ConditionDraft, siblings: Siblings) -> Option<ConditionDraft> {
    if decision.safety_net().is_some() {
        return unmet_without_analysis(decision, siblings);
    }
    let withheld = decision.target_before_mode() > decision.target();
    let by_mode = match decision.report.mode {
        Mode::Paused => withheld.then_some(ConditionReason::Paused),
        Mode::Fixed(_) => withheld.then_some(ConditionReason::Fixed),
        Mode::Recommend => (decision.target() > decision.current).then_some(ConditionReason::RecommendOnly),
        Mode::Auto => return unmet_in_auto(decision, signal, siblings),
    };
    by_mode.map(|reason| {
        let message = "The model needs more replicas than the mode of the variant allows: set it to auto if the reason for it is over";
        unmet(reason, message)
    })
}

/// A model without a ready replica needs one.
fn unmet_without_analysis(decision: &Decision, siblings: Siblings) -> Option<ConditionDraft> {
    if decision.report.replicas.ready > 0 || decision.current == 0 {
        return None;
    }
    if let Some(waiting) = &decision.report.replicas.waiting_for_quota {
        return Some(unmet(ConditionReason::WaitingForQuota, waiting_message(waiting, siblings.exist)));
    }
    decision.report.replicas.stuck.then(|| unmet(ConditionReason::Stuck, stuck_message(siblings.exist)))
}

fn unmet_in_auto(decision: &Decision, signal: &ConditionDraft, siblings: Siblings) -> Option<ConditionDraft> {
    let limited = |code, reason: &Reason| Some(unmet(code, format!("More replicas are needed; {reason}")));
    match limiting_step(decision) {
        Some(Reason::AtMaximum { max }) => {
            return Some(unmet(
                ConditionReason::AtMaximum,
                format!(
                    "The model needs more replicas than the maximum {max} allows: raise the maximum of the variant, its HPA or its ScaledObject, or add a variant"
                ),
            ));
        }
        Some(Reason::Stuck { .. }) => {
            return Some(unmet(ConditionReason::Stuck, stuck_message(siblings.exist)));
        }
        Some(Reason::WaitingForQuota { waiting }) => {
            return Some(unmet(ConditionReason::WaitingForQuota, waiting_message(waiting, siblings.exist)));
        }
        Some(Reason::CannotGrow { cause }) => {
            return Some(unmet(
                ConditionReason::NotCarriedOut,
                format!("More replicas are needed, but {cause}"),
            ));
        }
        Some(reason @ Reason::LimitedBy { .. }) => return limited(ConditionReason::LimitedByGpus, reason),
        Some(reason @ Reason::LimitedByQuota { .. }) => {
            return limited(ConditionReason::LimitedByQuota, reason);
        }
        Some(reason @ Reason::YieldsTo { .. }) => return limited(ConditionReason::YieldsTo, reason),
        _ => {}
    }
    let given_up = decision.report.not_carried_out.filter(|desired| *desired > decision.current);
    if let Some(desired) = given_up {
        let message =
            format!("More replicas are needed, but the target {desired} was not carried out: see Ready");
        return Some(unmet(ConditionReason::NotCarriedOut, message));
    }
    if signal.status == ConditionStatus::False && decision.target() > decision.current {
        let message = "More replicas are needed, but no autoscaler follows the target: see SignalFollowed";
        return Some(unmet(ConditionReason::SignalNotFollowed, message));
    }
    unmet_objective(decision)
}

fn unmet_objective(decision: &Decision) -> Option<ConditionDraft> {
    let of_step = |reason: &Reason| match reason {
        Reason::ObjectiveOutOfReach { .. } => {
            let message = format!("More replicas do not help; {}", reason.gist());
            Some(unmet(ConditionReason::ObjectiveOutOfReach, message))
        }
        Reason::SloTargetMissed { .. } => {
            let message =
                format!("sloTarget is missed: {}; wva explain has the measured shares", reason.gist());
            Some(unmet(ConditionReason::SloTargetMissed, message))
        }
        _ => None,
    };
    decision.steps.iter().find_map(|step| of_step(&step.reason))
}

/// What is waiting is known only if requests are seen.
fn at_zero(decision: &Decision) -> ConditionDraft {
    let is_hidden = decision.report.model.wake_obstacle.is_some_and(WakeObstacle::hides_requests);
    if decision.report.mode == Mode::Auto && is_hidden {
        let message = "Requests of the model are not seen, so its need is not known: see OptimizationReady";
        return condition_unknown(ConditionReason::NotAnalyzed, message);
    }
    condition_true(ConditionReason::AtZero, at_zero_message(decision.report.mode))
}

fn need_met(decision: &Decision, signal: &ConditionDraft, siblings: Siblings) -> ConditionDraft {
    match unmet_need(decision, signal, siblings) {
        Some(unmet) if !siblings.cover_need => unmet,
        Some(_) => condition_true(
            ConditionReason::Covered,
            "This variant cannot grow, and other variants of the model grow instead",
        ),
        None if decision.report.model.is_at_zero && !decision.wants_more() => at_zero(decision),
        None if decision.safety_net().is_some() => condition_unknown(
            ConditionReason::NotAnalyzed,
            "The analysis failed, so the need of the model is not known",
        ),
        None => condition_true(ConditionReason::Covered, "The target covers what the model needs"),
    }
}

/// Last unmet need of a variant.
#[derive(Clone, Debug, Default)]
pub(crate) struct NeedState {
    unmet: Option<UnmetNeed>,
}

#[derive(Clone, Debug)]
struct UnmetNeed {
    condition: ConditionDraft,
    target: u32,
    at: Instant,
}

impl NeedState {
    /// What becomes of a decision whose condition `SignalFollowed` is `signal`.
    pub(crate) fn effect(
        &mut self,
        decision: Option<&Decision>,
        signal: ConditionDraft,
        siblings: Siblings,
        now: Instant,
    ) -> DecisionEffect {
        let need = decision
            .map_or_else(not_decided, |d| self.settle(need_met(d, &signal, siblings), d.target(), now));
        DecisionEffect { signal, need, has_siblings: siblings.exist }
    }

    /// The condition, which stays False for a while at the same target.
    fn settle(&mut self, new: ConditionDraft, target: u32, now: Instant) -> ConditionDraft {
        if new.status == ConditionStatus::False {
            self.unmet = Some(UnmetNeed { condition: new.clone(), target, at: now });
            return new;
        }
        let holds = |unmet: &UnmetNeed| {
            unmet.target == target && now.saturating_duration_since(unmet.at) < UNMET_LASTS
        };
        self.unmet = self.unmet.take().filter(holds);
        match &self.unmet {
            Some(unmet) if new.is_true() => unmet.condition.clone(),
            _ => new,
        }
    }
}

#[cfg(test)]
mod tests;
