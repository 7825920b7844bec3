//! What one run of the engine carries from cycle to cycle, in groups by what it is for.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use wva_runtime::repeats::RepeatCounters;
use wva_scaling::snapshot::Remembered;
use wva_scaling::{Outcome, VariantKey};

use super::learned::LearnedCache;
use super::logs::log_warnings;
use super::steps::Steps;
use super::windows::Counts;
use crate::collect::sample::Samples;
use crate::collect::scope::ScopeSplitter;
use crate::config::Settings;
use crate::cycle::assemble::Assembled;
use crate::cycle::inventory::NoInventory;
use crate::cycle::memory::Memory;
use crate::model::moment::Moment;
use crate::model::published::ScalingKey;
use crate::observe::variants::{ManagedVariant, OrphanTracker, TakeoverTracker};

/// What is known at one moment.
pub(super) struct Pass {
    pub(super) at: Moment,
    pub(super) managed: Vec<ManagedVariant>,
    pub(super) assembled: Assembled,
}

/// What the engine carries. One task owns it.
#[derive(Default)]
pub(super) struct State {
    pub(super) sampling: Sampling,
    pub(super) deciding: Deciding,
    pub(super) reporting: Reporting,
    /// Steps that are carried out here.
    pub(super) steps: Steps,
    /// Variants that came from other controllers.
    pub(super) takeover: TakeoverTracker,
    /// Variants of other controllers that nobody seems to serve.
    pub(super) orphans: OrphanTracker,
}

/// The samples, and what is asked for next.
#[derive(Default)]
pub(super) struct Sampling {
    pub(super) samples: Samples,
    /// When the last whole round of queries that has ended began, whatever came of it.
    pub(super) last_round: Option<Instant>,
    /// How long the last round took, be it a whole one or not.
    pub(super) round_took: Duration,
    /// How queries are split.
    pub(super) split: ScopeSplitter,
    /// When samples of what is gone were last forgotten.
    pub(super) cleaned: Option<Instant>,
    /// No cycle has looked at the newest sample yet.
    pub(super) has_news: bool,
    /// Counts of completed requests.
    pub(super) counts: Counts,
    /// Why answers may lack series, as far as it was logged.
    pub(super) partial_answers: BTreeSet<String>,
    /// Some model is decided by what arrives, so counters are asked for.
    pub(super) reads_work: bool,
}

/// What the next decisions depend on beside samples.
#[derive(Default)]
pub(super) struct Deciding {
    pub(super) memory: Memory,
    pub(super) settings: Settings,
    /// What the token analyzer observed in earlier cycles.
    pub(super) observed: Vec<Remembered>,
    /// When the sample was taken that it last observed.
    pub(super) observed_at: Option<Instant>,
    /// What the throughput analyzer learnt.
    pub(super) learned: LearnedCache,
}

/// What was logged and counted.
#[derive(Default)]
pub(super) struct Reporting {
    /// Changes of targets.
    pub(super) scalings: BTreeMap<ScalingKey, u64>,
    /// Warnings that go on.
    pub(super) warned: RepeatCounters<String>,
    /// Variants of which the analysis fails.
    pub(super) safety_nets: RepeatCounters<VariantKey>,
    /// Why nothing was limited in the last cycle, where something should have been.
    unlimited: Option<NoInventory>,
}

impl State {
    /// Forgets what it remembers of variants and models that are not managed.
    pub(super) fn forget_others(&mut self, managed: &[ManagedVariant]) {
        // In order of their keys, so that thousands of them are not compared with each other.
        let is_managed = |key: &VariantKey| managed.binary_search_by(|m| m.key.cmp(key)).is_ok();
        self.reporting.safety_nets.retain(is_managed);
        self.deciding.memory.retain(is_managed);
        self.deciding.learned.retain(is_managed);
        let declared = managed
            .iter()
            .filter_map(|m| m.spec().ok().map(|d| (m.key.namespace.as_str(), d.model_id.as_str())));
        let models: HashSet<(&str, &str)> = declared.collect();
        self.deciding.observed.retain(|r| models.contains(&(r.namespace.as_str(), r.model_id.as_str())));
    }
}

impl Deciding {
    /// Takes over what the decisions of a cycle leave for the next.
    pub(super) fn take_in(&mut self, pass: &Pass, outcome: &mut Outcome, taken: Option<Instant>) {
        // Another cycle on the same sample observes nothing new.
        if self.observed_at != taken {
            self.observed_at = taken;
            self.observed = std::mem::take(&mut outcome.next.remembered);
        }
        // Its steps are counted by time and not by samples, so no cycle counts one twice.
        let learned = std::mem::take(&mut outcome.next.learned);
        self.learned.take_in(&pass.assembled.snapshot, learned, pass.at.now);
    }
}

impl Reporting {
    /// Logs what was not so in the last cycle.
    pub(super) fn warn(&mut self, outcome: &Outcome, unlimited: Option<NoInventory>, now: Instant) {
        log_warnings(&mut self.warned, &outcome.warnings, now);
        if let Some(why) = unlimited.filter(|why| self.unlimited != Some(*why)) {
            tracing::warn!("Scale-ups are not limited to the GPUs that are left: {why}");
        }
        self.unlimited = unlimited;
    }
}
