//! One pass of the engine: what is known at one moment, what is decided of it, what is published. A cycle is a pass over
//! all models; between two cycles a pass decides on some of them, and the others stay as they were published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use wva_runtime::spans;
use wva_scaling::snapshot::{Config, MetricsAge};
use wva_scaling::{Decision, Outcome, Snapshot, VariantKey, decide};

use super::Engine;
use super::learned::reads_work;
use super::logs::log_cycle;
use super::state::{Deciding, Pass, Sampling, State};
use super::steps::ScaleToZeroCheck;
use crate::config::Settings;
use crate::cycle::assemble::assemble;
use crate::cycle::memory::Memory;
use crate::model::moment::Moment;
use crate::model::published::{Published, PublishedVariant};
use crate::model::step::DueStep;
use crate::observe::variants::ManagedVariant;

impl Engine {
    /// Decides on all models and publishes it.
    pub(super) fn cycle(&self, state: &mut State) {
        let at = Moment { now: Instant::now(), wall: Timestamp::now() };
        let _span = spans::cycle(&at.wall, "all").entered();
        let managed = self.managed();
        state.forget_others(&managed);
        let config = self.take_in_config(state, &managed);
        let Deciding { memory, observed, learned, .. } = &mut state.deciding;
        let known = Snapshot {
            config,
            remembered: observed.clone(),
            learned: learned.aged(at.now),
            ..Snapshot::default()
        };
        let pass = self.look(&state.sampling, memory, known, managed, at);
        let mut outcome = decide(&pass.assembled.snapshot);
        state.deciding.take_in(&pass, &mut outcome, state.sampling.samples.last_round());
        state.reporting.warn(&outcome, pass.assembled.unlimited, at.now);
        let all_analyzed = outcome.decisions.iter().all(|d| d.safety_net.is_none());
        let unmapped = pass.assembled.unmapped;
        self.publish(state, pass, outcome, None);
        self.metrics.telemetry.record_cycle(at.now.elapsed(), all_analyzed, unmapped);
        self.progress.advance(self.config().period());
    }

    /// The settings of a cycle, and what follows from them for the next samples.
    fn take_in_config(&self, state: &mut State, managed: &[ManagedVariant]) -> Config {
        let mut config = self.rules_config(&mut state.deciding.settings, managed);
        state.sampling.counts.cap(&mut config.scale_to_zero, self.config().max_retention);
        self.change_windows(&mut state.sampling, &config, managed);
        state.sampling.reads_work = reads_work(&config);
        config
    }

    /// What the rules read besides signals.
    pub(super) fn rules_config(&self, settings: &mut Settings, managed: &[ManagedVariant]) -> Config {
        let c = self.config();
        let (maps, namespaces) = (&self.sources.maps, self.sources.watches.namespaces.as_ref());
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
            ..settings.resolve(maps, managed, namespaces, &self.metrics.reloads, c.proactive)
        }
    }

    /// All that is known now. `known`: the settings, and what analyzers carry from cycle to cycle.
    pub(super) fn look(
        &self,
        sampling: &Sampling,
        memory: &mut Memory,
        known: Snapshot,
        managed: Vec<ManagedVariant>,
        at: Moment,
    ) -> Pass {
        memory.refusals = self.sources.refusals.borrow().clone();
        let seen = (&sampling.samples, &self.sources.pickers);
        let mut assembled = assemble(&self.sources.watches, &managed, seen, memory, known.config, at);
        assembled.snapshot.remembered = known.remembered;
        assembled.snapshot.learned = known.learned;
        Pass { at, managed, assembled }
    }

    /// Publishes what a pass decided: on all variants, or on some of those that were published `before`.
    pub(super) fn publish(
        &self,
        state: &mut State,
        pass: Pass,
        outcome: Outcome,
        before: Option<&Published>,
    ) {
        let at = pass.at;
        let published = match before {
            None => self.all(state, &pass, outcome),
            Some(before) => self.some(state, &pass, outcome, before),
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

    /// What a cycle publishes.
    fn all(&self, state: &mut State, pass: &Pass, outcome: Outcome) -> Published {
        let all_analyzed = outcome.decisions.iter().all(|d| d.safety_net.is_none());
        let variants = self.variants(state, &pass.managed, pass, outcome);
        log_cycle(&variants, all_analyzed);
        let steps = self.steps_of_cycle(state, pass, &variants);
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
            ..Published::default()
        }
    }

    /// What stays as it was, with what is decided on some variants.
    fn some(&self, state: &mut State, pass: &Pass, outcome: Outcome, before: &Published) -> Published {
        let keys: BTreeSet<VariantKey> = outcome.decisions.iter().map(Decision::key).collect();
        let decided = pass.managed.iter().filter(|m| keys.contains(&m.key));
        let mut variants = before.variants.clone();
        variants.extend(self.variants(state, decided, pass, outcome));
        Published {
            interval: before.interval,
            withheld: before.withheld.clone(),
            orphans: before.orphans.clone(),
            steps: self.due_early(&pass.managed, &variants, &pass.assembled.limits),
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
        let silent = self.silent(&state.sampling.samples, pass, variants);
        let news = std::mem::take(&mut state.sampling.has_news);
        let look = ScaleToZeroCheck { news, at: pass.at, silent, evidence: &memory.evidence };
        let steps = self.due(&mut state.steps, pass, variants, &look);
        for model in state.steps.unanswered() {
            memory.evidence.begin_anew(model, pass.at.now);
        }
        self.tell_left(&mut state.steps, &pass.managed, &pass.assembled.limits);
        steps
    }
}
