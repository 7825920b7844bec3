//! What becomes of decisions: what is published of each variant, and what is remembered of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use wva_crds::names::UNRESOLVED_ACCELERATOR;
use wva_runtime::Availability;
use wva_scaling::{Decision, FallbackSource, Outcome, VariantKey, VariantState};

use super::Engine;
use super::logs::{count, log_decision};
use super::state::{Pass, State};
use crate::cycle::assemble::Assembled;
use crate::cycle::conditions::{Outlook, conditions};
use crate::model::keys::WorkloadKey;
use crate::model::published::PublishedVariant;
use crate::model::reported::ReportedState;
use crate::observe::variants::ManagedVariant;
use crate::observe::workloads;

impl Engine {
    /// What becomes of the decisions on these variants, and of what is remembered of them.
    pub(super) fn variants<'a>(
        &self,
        state: &mut State,
        managed: impl IntoIterator<Item = &'a ManagedVariant>,
        pass: &Pass,
        mut outcome: Outcome,
    ) -> BTreeMap<VariantKey, Arc<PublishedVariant>> {
        // In order of their keys, as the managed ones are, so that each is moved to where it stays.
        outcome.decisions.sort_by(|a, b| (&a.namespace, &a.variant).cmp(&(&b.namespace, &b.variant)));
        let mut decisions = outcome.decisions.into_iter().peekable();
        let before = self.published.borrow().clone();
        let mut all = BTreeMap::new();
        for m in managed {
            let decision =
                decisions.next_if(|d| (&d.namespace, &d.variant) == (&m.key.namespace, &m.key.name));
            let next = outcome.next.variants.get(&m.key);
            let mut variant = self.published_variant(state, m, pass, decision, next);
            let old = before.as_ref().and_then(|b| b.variants.get(&m.key)).filter(|o| o.uid == variant.uid);
            let last_target = old.map_or(variant.inherited.target, |old| old.last_target);
            variant.last_target = variant.target().or(last_target);
            count(&mut state.reporting.scalings, &m.key, old.map(AsRef::as_ref), &variant);
            let is_held = variant.decision.as_ref().is_some_and(|d| d.safety_net.is_some());
            let safety_net = state.reporting.safety_nets.record(&m.key, is_held, pass.at.now);
            log_decision(&m.key, &variant, last_target, safety_net);
            let same = old.filter(|old| ***old == variant).cloned();
            all.insert(m.key.clone(), same.unwrap_or_else(|| Arc::new(variant)));
        }
        all
    }

    /// A variant with its decision and conditions. Remembers its next state.
    fn published_variant(
        &self,
        state: &mut State,
        m: &ManagedVariant,
        Pass { at, assembled, .. }: &Pass,
        mut decision: Option<Decision>,
        next: Option<&VariantState>,
    ) -> PublishedVariant {
        let remembered = state.deciding.memory.of(m, at.now, at.wall);
        if let Some(d) = &mut decision {
            d.not_carried_out = remembered.not_carried_out(d.not_carried_out, d.target(), d.current);
        }
        let had_target = remembered.has_target();
        if let (Some(next), Some(d)) = (next, &decision) {
            let echo = d.safety_net == Some(FallbackSource::CurrentReplicas);
            remembered.decided(*next, d.mode, echo, at.now);
            remembered.woken(d, assembled.snapshot.config.decision_hold.get(), at.now);
        }
        let seen = remembered.target_seen;
        let sight =
            m.spec().ok().and_then(|d| workloads::kind_availability(&self.sources.watches, &d.workload.kind));
        let query_error = state.sampling.samples.load_error(&m.key.namespace);
        let inherited = remembered.inherited();
        let inputs = ConditionInputs { query_error, had_target, seen, sight, inherited };
        let mut variant = outlook(m, decision, assembled, &inputs);
        variant.learned = state.deciding.learned.told(&m.key);
        if let Some(decision) = &variant.decision {
            if let Some(obstacle) = decision.wake_obstacle {
                variant.conditions.note_wake_obstacle(obstacle);
            }
            if let Some(why) = state.sampling.samples.partial_answer(&m.key.namespace) {
                variant.conditions.answered_in_part(why);
            }
        }
        state.deciding.settings.flag_unusable(variant)
    }
}

/// What a variant's conditions are told beside its decision.
struct ConditionInputs<'a> {
    query_error: Option<&'a str>,
    had_target: bool,
    /// Its workload was there before.
    seen: bool,
    /// How much of the kind of its workload can be seen; `None` where nobody looks.
    sight: Option<Availability>,
    /// What its status said at first sight.
    inherited: &'a ReportedState,
}

fn outlook(
    m: &ManagedVariant,
    decision: Option<Decision>,
    assembled: &Assembled,
    told: &ConditionInputs<'_>,
) -> PublishedVariant {
    let ConditionInputs { query_error, had_target, seen, sight, inherited } = *told;
    let outlook = match (m.spec(), &decision) {
        (Err(unusable), _) => Outlook::Unusable(unusable),
        (Ok(_), Some(decision)) => {
            let newly_ready = assembled.newly_ready.get(&m.key).copied();
            Outlook::Decided { decision, query_error, had_target, newly_ready }
        }
        (Ok(declared), None) => {
            let WorkloadKey { kind, name, .. } = &declared.workload;
            Outlook::NoTarget { kind, name, seen, sight }
        }
    };
    let conditions = conditions(outlook);
    let accelerator = decision.as_ref().map(|d| d.accelerator.clone()).or_else(|| m.accelerator.clone());
    PublishedVariant {
        uid: m.uid.clone(),
        generation: m.generation,
        instance: m.instance.clone(),
        accelerator: accelerator.unwrap_or_else(|| UNRESOLVED_ACCELERATOR.to_owned()),
        current: assembled.workloads.get(&m.key).map(|r| r.current),
        target_seen: seen || assembled.workloads.contains_key(&m.key),
        decision,
        conditions,
        last_target: None,
        inherited: inherited.clone(),
        learned: None,
    }
}
