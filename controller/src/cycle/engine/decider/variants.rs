//! Publication and memory of variants after a decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use wva_crds::names::UNRESOLVED_ACCELERATOR;
use wva_objects::WorkloadKey;
use wva_runtime::Availability;
use wva_scaling::{Decision, Outcome, VariantState};

use super::logs::{count_scaling, log_decision};
use super::{Decider, Pass, Variants};
use crate::cycle::assemble::Assembled;
use crate::cycle::conditions::{ConditionSource, DecisionEffect, SiblingIndex, Siblings, conditions};
use crate::cycle::engine::inputs::Inputs;
use crate::cycle::engine::sampler::Sampler;
use crate::model::published::{Published, PublishedVariant};
use crate::model::reported::ReportedState;
use crate::observe::variants::ManagedVariant;
use crate::observe::workloads;

/// What a pass found for a variant.
struct Update<'a> {
    managed: &'a ManagedVariant,
    decision: Option<Decision>,
    next: Option<&'a VariantState>,
    siblings: Siblings,
}

impl Decider {
    /// Updates memory, logs and counters, and returns the publications of `managed`. `before`: what is published.
    pub(super) fn update_variants<'a>(
        &mut self,
        inputs: Inputs<'_>,
        sampler: &Sampler,
        managed: impl IntoIterator<Item = &'a ManagedVariant>,
        pass: &Pass,
        mut outcome: Outcome,
        before: Option<&Published>,
    ) -> Variants {
        // Sorted by key, so each decision can be moved to its variant.
        outcome
            .decisions
            .sort_by(|a, b| (&a.key.namespace, &a.key.name).cmp(&(&b.key.namespace, &b.key.name)));
        let siblings = SiblingIndex::new(&pass.assembled.snapshot, &outcome.decisions);
        let mut decisions = outcome.decisions.into_iter().peekable();
        let mut all = BTreeMap::new();
        for m in managed {
            let decision =
                decisions.next_if(|d| (&d.key.namespace, &d.key.name) == (&m.key.namespace, &m.key.name));
            let next = outcome.next.variants.get(&m.key);
            let siblings = siblings.of(&m.key);
            let update = Update { managed: m, decision, next, siblings };
            let mut variant = self.build_variant(inputs, sampler, pass, update);
            let old = before.and_then(|b| b.variants.get(&m.key)).filter(|o| o.uid == variant.uid);
            let last_target = old.map_or(variant.inherited.target, |old| old.last_target);
            variant.last_target = variant.target().or(last_target);
            count_scaling(&mut self.reporting.scalings, &m.key, old.map(AsRef::as_ref), &variant);
            let is_held = variant.decision.as_ref().is_some_and(|d| d.safety_net().is_some());
            let safety_net = self.reporting.safety_nets.record(&m.key, is_held, pass.at.now);
            log_decision(&m.key, &variant, last_target, safety_net);
            let same = old.filter(|old| ***old == variant).cloned();
            all.insert(m.key.clone(), same.unwrap_or_else(|| Arc::new(variant)));
        }
        all
    }

    fn build_variant(
        &mut self,
        inputs: Inputs<'_>,
        sampler: &Sampler,
        Pass { at, assembled, .. }: &Pass,
        Update { managed: m, mut decision, next, siblings }: Update<'_>,
    ) -> PublishedVariant {
        let Inputs { sources, .. } = inputs;
        let remembered = self.memory.entry(m, at.now, at.wall);
        if let Some(d) = &mut decision {
            d.report.not_carried_out =
                remembered.track_not_carried_out(d.report.not_carried_out, d.target(), d.current);
        }
        let had_target = remembered.decided.has_target();
        if let (Some(next), Some(d)) = (next, &decision) {
            remembered.decided.record(d, *next, assembled.snapshot.config.decision_hold.get(), at.now);
        }
        let existed = remembered.target_seen;
        let signal = self.signal_condition(inputs, m, decision.as_ref(), assembled, *at);
        let remembered = self.memory.entry(m, at.now, at.wall);
        let effect = remembered.need.effect(decision.as_ref(), signal, siblings, at.now);
        let availability =
            m.spec().ok().and_then(|d| workloads::kind_availability(&sources.watches, &d.workload.kind));
        let query_error = sampler.samples.load_error(&m.key.namespace);
        let failed_at = |since| {
            let model = decision.as_ref()?.model_key();
            sources.pickers.queues().borrow().failed_at(&model).filter(|at| *at > since)
        };
        let failed_during_wake = remembered.track_failed_wake(failed_at);
        let cold_start = remembered.cold_start.shown();
        let inherited = remembered.inherited();
        let inputs =
            ConditionInputs { query_error, had_target, existed, availability, inherited, effect: &effect };
        let mut variant = publish_variant(m, decision, assembled, &inputs);
        variant.learned = self.curves.get(&m.key);
        (variant.cold_start, variant.failed_during_wake) = (cold_start, failed_during_wake);
        if let Some(decision) = &variant.decision {
            if decision.report.model.is_at_zero {
                let queues = sources.pickers.queues().borrow().clone();
                let counts = queues.refused_counts(&decision.model_key());
                // A new leader publishes before it has read the pickers.
                variant.refused = counts.unwrap_or(&m.status.refused).to_vec();
            }
            variant.conditions.note_wake_obstacle(decision);
            if let Some(why) = sampler.samples.incomplete_answer(&m.key.namespace) {
                variant.conditions.note_incomplete_answers(why);
            }
        }
        self.settings.flag_unusable(variant)
    }
}

struct ConditionInputs<'a> {
    query_error: Option<&'a str>,
    had_target: bool,
    existed: bool,
    /// `None` if the kind is not supported.
    availability: Option<Availability>,
    inherited: &'a ReportedState,
    effect: &'a DecisionEffect,
}

fn publish_variant(
    m: &ManagedVariant,
    decision: Option<Decision>,
    assembled: &Assembled,
    inputs: &ConditionInputs<'_>,
) -> PublishedVariant {
    let ConditionInputs { query_error, had_target, existed, availability, inherited, effect } = *inputs;
    let source = match (m.spec(), &decision) {
        (Err(error), _) => ConditionSource::Invalid(error),
        (Ok(_), Some(decision)) => {
            let newly_ready = assembled.newly_ready.get(&m.key).copied();
            ConditionSource::Decided { decision, query_error, had_target, newly_ready, effect }
        }
        (Ok(declared), None) => {
            let WorkloadKey { kind, name, .. } = &declared.workload;
            ConditionSource::NoTarget { kind, name, existed, availability }
        }
    };
    let conditions = conditions(source);
    let accelerator =
        decision.as_ref().map(|d| d.report.accelerator.clone()).or_else(|| m.accelerator.clone());
    PublishedVariant {
        uid: m.uid.clone(),
        generation: m.generation,
        instance: m.instance.clone(),
        accelerator: accelerator.unwrap_or_else(|| UNRESOLVED_ACCELERATOR.to_owned()),
        mode: m.mode(),
        current: assembled.workloads.get(&m.key).map(|r| r.current),
        has_siblings: effect.has_siblings,
        target_seen: existed || assembled.workloads.contains_key(&m.key),
        decision,
        conditions,
        last_target: None,
        inherited: inherited.clone(),
        learned: None,
        cold_start: None,
        failed_during_wake: false,
        refused: Vec::new(),
    }
}
