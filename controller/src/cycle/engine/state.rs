//! State of one run of the engine.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

use wva_objects::WorkloadKey;
use wva_runtime::repeats::RepeatCounters;
use wva_scaling::control_loop::Loop;
use wva_scaling::{Outcome, VariantKey};

use super::completed_counts::CompletedCounts;
use super::latencies::LatencyState;
use super::learned::ShownCurves;
use super::logs::log_warnings;
use super::steps::StepTracker;
use crate::collect::sample::{Incomplete, Samples};
use crate::collect::scope::ScopeSplitter;
use crate::config::Settings;
use crate::cycle::assemble::{Assembled, InventoryGaps};
use crate::cycle::memory::Memory;
use crate::model::moment::Moment;
use crate::model::published::ScalingKey;
use crate::observe::variants::{ManagedVariant, OrphanTracker, TakeoverTracker};

pub(super) struct Pass {
    pub(super) at: Moment,
    pub(super) managed: Vec<ManagedVariant>,
    pub(super) assembled: Assembled,
}

/// One task owns it.
#[derive(Default)]
pub(super) struct State {
    pub(super) sampling: SamplingState,
    pub(super) deciding: DecisionState,
    pub(super) reporting: ReportState,
    pub(super) steps: StepTracker,
    pub(super) takeover: TakeoverTracker,
    pub(super) orphans: OrphanTracker,
}

#[derive(Default)]
pub(super) struct SamplingState {
    pub(super) samples: Samples,
    /// Start of the last whole round that ended, with or without success.
    pub(super) last_round: Option<Instant>,
    pub(super) round_took: Duration,
    pub(super) split: ScopeSplitter,
    pub(super) cleaned: Option<Instant>,
    /// No cycle has used the newest sample yet.
    pub(super) has_new_samples: bool,
    pub(super) counts: CompletedCounts,
    pub(super) incomplete_answers: BTreeSet<Incomplete>,
    /// Workloads whose series the newest full round read.
    pub(super) read: BTreeSet<WorkloadKey>,
    /// True if an entry has the throughput analyzer.
    pub(super) needs_counters: bool,
    /// Measured latencies of models with an objective.
    pub(super) latencies: LatencyState,
}

#[derive(Default)]
pub(super) struct DecisionState {
    pub(super) memory: Memory,
    pub(super) settings: Settings,
    pub(super) control_loop: Loop<Instant>,
    pub(super) curves: ShownCurves,
}

#[derive(Default)]
pub(super) struct ReportState {
    pub(super) scalings: BTreeMap<ScalingKey, u64>,
    pub(super) warned: RepeatCounters<String>,
    pub(super) safety_nets: RepeatCounters<VariantKey>,
    gaps: InventoryGaps,
}

impl State {
    pub(super) fn retain_managed(&mut self, managed: &[ManagedVariant]) {
        // Sorted by key.
        let is_managed = |key: &VariantKey| managed.binary_search_by(|m| m.key.cmp(key)).is_ok();
        self.reporting.safety_nets.retain(is_managed);
        self.deciding.memory.retain(is_managed);
        self.deciding.curves.retain(is_managed);
        let declared = managed
            .iter()
            .filter_map(|m| m.spec().ok().map(|d| (m.key.namespace.as_str(), d.model_id.as_str())));
        let models: HashSet<(&str, &str)> = declared.collect();
        self.deciding.control_loop.retain(|namespace, model_id| models.contains(&(namespace, model_id)));
    }
}

impl DecisionState {
    /// Keeps what a cycle observed and learnt.
    pub(super) fn update(&mut self, pass: &Pass, outcome: &mut Outcome, taken: Option<Instant>) {
        self.curves.update(&pass.assembled.snapshot, &outcome.next.learned, pass.at.now);
        self.control_loop.end(&mut outcome.next, taken, pass.at.now);
    }
}

impl ReportState {
    pub(super) fn log_warnings(&mut self, outcome: &Outcome, gaps: InventoryGaps, now: Instant) {
        log_warnings(&mut self.warned, &outcome.warnings, now);
        if let Some(why) = gaps.all.filter(|why| self.gaps.all != Some(*why)) {
            tracing::warn!("GPU limit not applied: {why}");
        }
        if let Some(why) = gaps.claims.filter(|why| self.gaps.claims != Some(*why)) {
            tracing::warn!("GPUs of resource claims do not count for the limit: {why}");
        }
        self.gaps = gaps;
    }
}
