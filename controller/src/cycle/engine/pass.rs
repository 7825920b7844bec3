//! One pass of the engine: assembles, decides, and publishes. A cycle is a pass over all models; other passes keep the
//! rest as published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use wva_runtime::spans;
use wva_scaling::snapshot::{Config, MetricsAge};
use wva_scaling::{Decision, Outcome, Snapshot, VariantKey, decide};

use super::Engine;
use super::learned::uses_throughput;
use super::logs::log_cycle;
use super::state::{DecisionState, Pass, SamplingState, State};
use super::steps::ScaleToZeroCheck;
use crate::config::Settings;
use crate::cycle::assemble::assemble;
use crate::cycle::memory::Memory;
use crate::model::moment::Moment;
use crate::model::published::{Published, PublishedVariant};
use crate::model::step::DueStep;
use crate::observe::variants::ManagedVariant;

impl Engine {
    pub(super) fn run_cycle(&self, state: &mut State) {
        let at = Moment { now: Instant::now(), wall: Timestamp::now() };
        let _span = spans::cycle(&at.wall, "all").entered();
        let managed = self.managed();
        state.retain_managed(&managed);
        let config = self.update_config(state, &managed);
        let DecisionState { memory, control_loop, .. } = &mut state.deciding;
        let known = control_loop.begin(config, at.now);
        let pass = self.assemble_pass(&state.sampling, memory, known, managed, at);
        let mut outcome = decide(&pass.assembled.snapshot);
        state.deciding.update(&pass, &mut outcome, state.sampling.samples.last_round());
        state.reporting.log_warnings(&outcome, pass.assembled.gaps, at.now);
        let all_analyzed = outcome.decisions.iter().all(|d| d.safety_net.is_none());
        self.publish(state, pass, outcome, None);
        let unmapped = state.sampling.samples.unmapped();
        self.metrics.telemetry.record_cycle(at.now.elapsed(), all_analyzed, unmapped);
        self.progress.advance(self.config().period());
    }

    fn update_config(&self, state: &mut State, managed: &[ManagedVariant]) -> Config {
        let mut config = self.rules_config(&mut state.deciding.settings, managed);
        state.sampling.counts.cap_retention(&mut config.scale_to_zero, self.config().max_retention);
        self.update_windows(&mut state.sampling, &config, managed);
        state.sampling.needs_counters = uses_throughput(&config);
        state.sampling.latencies.set_objectives(&config, managed, Instant::now());
        config
    }

    pub(super) fn rules_config(&self, settings: &mut Settings, managed: &[ManagedVariant]) -> Config {
        let c = self.config();
        let (maps, namespaces) = (&self.sources.maps, self.sources.watches.namespaces.as_ref());
        let models = settings.resolve(maps, managed, namespaces, &self.metrics.reloads, c.proactive);
        self.sources.pickers.set_named(settings.endpoint_pickers(managed));
        Config {
            decision_hold: c.decision_hold.into(),
            pending_grace: c.pending_grace.into(),
            limited_mode: c.limited_mode,
            metrics_age: MetricsAge {
                fresh: c.fresh.into(),
                stale: c.stale.into(),
                unavailable: c.unavailable.into(),
            },
            scale_to_zero_default: c.scale_to_zero,
            ..models
        }
    }

    /// `known`: settings, and what analyzers carry from cycle to cycle.
    pub(super) fn assemble_pass(
        &self,
        sampling: &SamplingState,
        memory: &mut Memory,
        known: Snapshot,
        managed: Vec<ManagedVariant>,
        at: Moment,
    ) -> Pass {
        memory.refusals = self.sources.refusals.borrow().clone();
        let signals = (&sampling.samples, &self.sources.pickers);
        let mut assembled = assemble(&self.sources.watches, &managed, signals, memory, known.config, at);
        assembled.snapshot.remembered = known.remembered;
        assembled.snapshot.learned = known.learned;
        sampling.latencies.tracker.complete(&mut assembled.snapshot.models, at.now);
        Pass { at, managed, assembled }
    }

    /// Publishes on all variants, or on some of those published `before`.
    pub(super) fn publish(
        &self,
        state: &mut State,
        pass: Pass,
        outcome: Outcome,
        before: Option<&Published>,
    ) {
        let at = pass.at;
        let published = match before {
            None => self.cycle_result(state, &pass, outcome),
            Some(before) => self.subset_result(state, &pass, outcome, before),
        };
        let snapshot = Arc::new(pass.assembled.snapshot);
        let scalings = state.reporting.scalings.clone();
        self.published.send_replace(Some(Arc::new(Published {
            at: at.wall,
            snapshot,
            scalings,
            ..published
        })));
    }

    fn cycle_result(&self, state: &mut State, pass: &Pass, outcome: Outcome) -> Published {
        let all_analyzed = outcome.decisions.iter().all(|d| d.safety_net.is_none());
        let variants = self.update_variants(state, &pass.managed, pass, outcome);
        log_cycle(&variants, all_analyzed);
        let steps = self.steps_of_cycle(state, pass, &variants);
        let scale_downs = self.scale_downs(pass, &variants);
        state
            .reporting
            .scalings
            .retain(|key, _| variants.get(&key.variant).is_some_and(|v| v.current.is_some()));
        let (watches, ownership) = (&self.sources.watches, &self.sources.ownership);
        Published {
            interval: self.config().interval,
            withheld: state.takeover.update(watches, ownership, &pass.managed, pass.at.now),
            orphans: state.orphans.update(watches, ownership, pass.at),
            variants,
            steps,
            scale_downs,
            ..Published::default()
        }
    }

    fn subset_result(
        &self,
        state: &mut State,
        pass: &Pass,
        outcome: Outcome,
        before: &Published,
    ) -> Published {
        let keys: BTreeSet<VariantKey> = outcome.decisions.iter().map(Decision::key).collect();
        let decided = pass.managed.iter().filter(|m| keys.contains(&m.key));
        let mut variants = before.variants.clone();
        variants.extend(self.update_variants(state, decided, pass, outcome));
        Published {
            interval: before.interval,
            withheld: before.withheld.clone(),
            orphans: before.orphans.clone(),
            steps: self.early_steps(&pass.managed, &variants, &pass.assembled.limits),
            scale_downs: self.scale_downs(pass, &variants),
            variants,
            ..Published::default()
        }
    }

    fn steps_of_cycle(
        &self,
        state: &mut State,
        pass: &Pass,
        variants: &BTreeMap<VariantKey, Arc<PublishedVariant>>,
    ) -> Vec<DueStep> {
        let memory = &mut state.deciding.memory;
        let unknown_queues = self.models_with_unknown_queue(&state.sampling.samples, pass, variants);
        let has_new_samples = std::mem::take(&mut state.sampling.has_new_samples);
        let check =
            ScaleToZeroCheck { has_new_samples, at: pass.at, unknown_queues, evidence: &memory.evidence };
        let steps = self.due_steps(&mut state.steps, pass, variants, &check);
        for model in state.steps.picker_timeouts() {
            memory.evidence.restart_idle_period(model, pass.at.now);
        }
        self.warn_about_autoscalers(&mut state.steps, &pass.managed, &pass.assembled.limits);
        steps
    }
}
