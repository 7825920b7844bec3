//! Decisions: assembles snapshots, decides, and keeps what the next decision needs to know.

mod early;
mod following;
mod learned;
mod logs;
mod variants;

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use wva_runtime::repeats::RepeatCounters;
use wva_scaling::control_loop::Loop;
use wva_scaling::resolve::FleetSettings;
use wva_scaling::snapshot::{Config, MetricsAge};
use wva_scaling::{Outcome, Snapshot, VariantKey, decide};

pub(super) use self::early::EarlyResult;
use self::learned::ShownCurves;
use self::logs::log_cycle;
pub(super) use self::logs::log_warnings;
use super::inputs::Inputs;
use super::sampler::Sampler;
use crate::config::{ResolvedMaps, Settings};
use crate::cycle::assemble::{Assembled, CollectedSignals, InventoryGaps, assemble};
use crate::cycle::memory::Memory;
use crate::model::moment::Moment;
use crate::model::published::{Published, PublishedVariant, ScalingKey};
use crate::observe::variants::{ManagedVariant, OrphanTracker, TakeoverTracker};

pub(super) type Variants = BTreeMap<VariantKey, Arc<PublishedVariant>>;

/// What the next decision needs to know of the last ones.
#[derive(Default)]
pub(super) struct Decider {
    pub(super) memory: Memory,
    settings: Settings,
    /// Settings of the models, as the last cycle resolved them.
    pub(super) fleet: FleetSettings,
    pub(super) control_loop: Loop<Instant>,
    curves: ShownCurves,
    pub(super) reporting: ReportState,
    takeover: TakeoverTracker,
    orphans: OrphanTracker,
}

/// What logs and counters have of the decisions.
#[derive(Default)]
pub(super) struct ReportState {
    scalings: BTreeMap<ScalingKey, u64>,
    pub(super) warned: RepeatCounters<String>,
    safety_nets: RepeatCounters<VariantKey>,
    gaps: InventoryGaps,
}

/// What a decision is made on.
pub(super) struct Pass {
    pub(super) at: Moment,
    pub(super) managed: Vec<ManagedVariant>,
    pub(super) assembled: Assembled,
}

/// A pass with its decisions.
pub(super) struct Decided {
    pub(super) pass: Pass,
    /// All of them, also those that keep their decision.
    pub(super) variants: Variants,
}

impl Decider {
    pub(super) fn retain_managed(&mut self, managed: &[ManagedVariant]) {
        // Sorted by key.
        let is_managed = |key: &VariantKey| managed.binary_search_by(|m| m.key.cmp(key)).is_ok();
        self.reporting.safety_nets.retain(is_managed);
        self.memory.retain(is_managed);
        self.curves.retain(is_managed);
        let declared = managed
            .iter()
            .filter_map(|m| m.spec().ok().map(|d| (m.key.namespace.as_str(), d.model_id.as_str())));
        let models: HashSet<(&str, &str)> = declared.collect();
        self.control_loop.retain(|namespace, model_id| models.contains(&(namespace, model_id)));
    }

    /// Resolves the settings of a cycle. Endpoint pickers that they name are read from now on.
    pub(super) fn resolve(&mut self, inputs: Inputs<'_>, managed: &[ManagedVariant]) -> Config {
        let Inputs { sources, metrics, config: c } = inputs;
        let namespaces = sources.watches.namespaces.as_ref();
        let ResolvedMaps { fleet, priorities, namespace_priorities } =
            self.settings.resolve(&sources.maps, managed, namespaces, &metrics.reloads, c.proactive);
        self.fleet = fleet;
        sources.pickers.set_named(self.settings.endpoint_pickers(managed));
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
            priorities,
            namespace_priorities,
            ..Config::default()
        }
    }

    /// Decides on all models. Returns also whether every one of them could be analyzed.
    pub(super) fn decide_all(
        &mut self,
        inputs: Inputs<'_>,
        sampler: &Sampler,
        config: Config,
        managed: Vec<ManagedVariant>,
        at: Moment,
        before: Option<&Published>,
    ) -> (Decided, bool) {
        let known = self.control_loop.begin(config, at.now);
        let pass = self.assemble(inputs, sampler, known, managed, at);
        let mut outcome = decide(&pass.assembled.snapshot);
        self.curves.update(&pass.assembled.snapshot, &outcome.next.learned, at.now);
        self.control_loop.end(&mut outcome.next, sampler.samples.last_round(), at.now);
        self.reporting.log_warnings(&outcome, pass.assembled.gaps, at.now);
        let all_analyzed = outcome.decisions.iter().all(|d| d.safety_net().is_none());
        let variants = self.update_variants(inputs, sampler, &pass.managed, &pass, outcome, before);
        log_cycle(&variants, all_analyzed);
        self.reporting.retain(&variants);
        (Decided { pass, variants }, all_analyzed)
    }

    /// `known`: settings of the cycle, and what analyzers carry from cycle to cycle.
    fn assemble(
        &mut self,
        Inputs { sources, .. }: Inputs<'_>,
        sampler: &Sampler,
        known: Snapshot,
        managed: Vec<ManagedVariant>,
        at: Moment,
    ) -> Pass {
        self.memory.refusals = sources.refusals.borrow().clone();
        let signals = CollectedSignals { samples: &sampler.samples, pickers: &sources.pickers };
        let (watches, memory) = (&sources.watches, &mut self.memory);
        let mut assembled = assemble(watches, &managed, signals, memory, known.config, &self.fleet, at);
        assembled.snapshot.remembered = known.remembered;
        assembled.snapshot.learned = known.learned;
        self.control_loop.attainment.complete(&mut assembled.snapshot.models, at.now);
        Pass { at, managed, assembled }
    }

    /// What a cycle publishes in addition to its decisions.
    pub(super) fn report_cycle(&mut self, Inputs { sources, .. }: Inputs<'_>, pass: &Pass) -> Published {
        let (watches, ownership) = (&sources.watches, &sources.ownership);
        Published {
            withheld: self.takeover.update(watches, ownership, &pass.managed, pass.at.now),
            orphans: self.orphans.update(watches, ownership, pass.at),
            ..Published::default()
        }
    }

    /// Changed targets by variant, direction and reason.
    pub(super) fn scalings(&self) -> BTreeMap<ScalingKey, u64> {
        self.reporting.scalings.clone()
    }
}

impl ReportState {
    fn log_warnings(&mut self, outcome: &Outcome, gaps: InventoryGaps, now: Instant) {
        log_warnings(&mut self.warned, &outcome.warnings, now);
        if let Some(why) = gaps.all.filter(|why| self.gaps.all != Some(*why)) {
            tracing::warn!("GPU limit not applied: {why}");
        }
        if let Some(why) = gaps.claims.filter(|why| self.gaps.claims != Some(*why)) {
            tracing::warn!("GPUs of resource claims do not count for the limit: {why}");
        }
        self.gaps = gaps;
    }

    fn retain(&mut self, variants: &Variants) {
        self.scalings.retain(|key, _| variants.get(&key.variant).is_some_and(|v| v.current.is_some()));
    }
}
