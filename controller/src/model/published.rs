//! What the last cycle decided, as all readers see it: gauges, status writer, events and the debug endpoint. Written
//! by the engine alone, whole, once a cycle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use wva_crds::LearnedCurves;
use wva_scaling::{Decision, Snapshot, VariantKey};

use crate::model::conditions::Conditions;
use crate::model::orphan::Orphan;
use crate::model::reported::ReportedState;
use crate::model::step::DueStep;

/// The reason of a changed target. The engine logs it: every change has its line, whatever becomes of the event.
pub(crate) const SCALING_DECISION: &str = "ScalingDecision";

/// One cycle's result.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// When the cycle ran.
    pub at: Timestamp,
    /// Time to the next cycle, at most.
    pub interval: Duration,
    /// What it decided from.
    pub snapshot: Arc<Snapshot>,
    /// Every managed variant, whether there is a decision for it or not. One of which nothing has changed is that of the
    /// cycle before.
    pub variants: BTreeMap<VariantKey, Arc<PublishedVariant>>,
    /// Variants that came from another controller, and when their series may be shown.
    pub withheld: BTreeMap<VariantKey, Instant>,
    /// Variants of other instances that nobody serves.
    pub orphans: BTreeMap<VariantKey, Orphan>,
    /// Changes of targets since the process started.
    pub scalings: BTreeMap<ScalingKey, u64>,
    /// Steps that are carried out by this program, and now.
    pub(crate) steps: Vec<DueStep>,
}

/// What changes of targets are counted by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScalingKey {
    /// The variant.
    pub variant: VariantKey,
    /// `up` or `down`.
    pub direction: &'static str,
    /// Code of the decision's reason.
    pub reason: &'static str,
}

/// One variant after a cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedVariant {
    /// Which object this is about.
    pub uid: String,
    /// The generation of it that was read.
    pub generation: Option<i64>,
    /// Its instance label.
    pub instance: Option<String>,
    /// Its accelerator, or `unresolved`.
    pub accelerator: String,
    /// Replicas of its workload; `None` where that does not exist.
    pub current: Option<u32>,
    /// The decision; `None` where there is nothing to decide on.
    pub decision: Option<Decision>,
    /// What its status says.
    pub conditions: Conditions,
    /// The workload has existed.
    pub target_seen: bool,
    /// The newest target there was: this one or, while there is none, an earlier one.
    pub last_target: Option<u32>,
    /// What its status said when the engine first saw it in this run: of that, only a change is news.
    pub inherited: ReportedState,
    /// What its status says of how fast a replica is, where the throughput analyzer learnt it.
    pub learned: Option<LearnedCurves>,
}

impl PublishedVariant {
    /// The target as the status shows it.
    #[must_use]
    pub fn target(&self) -> Option<u32> {
        self.decision.as_ref().map(Decision::target)
    }

    /// The change of the target from an earlier one, with its reason; `None` where there is none.
    pub(crate) fn target_change(&self, before: Option<u32>) -> Option<String> {
        let (from, to, reason) = (before?, self.target()?, self.decision.as_ref()?.reason());
        (from != to).then(|| format!("target {from} -> {to} ({}): {reason}", reason.code()))
    }

    /// The target as autoscalers are told: none under `recommend`.
    #[must_use]
    pub fn signal(&self) -> Option<u32> {
        self.decision
            .as_ref()
            .filter(|d| d.mode != wva_scaling::snapshot::Mode::Recommend)
            .map(Decision::target)
    }
}

/// Targets that statuses show, of the variants whose steps are due. Written by the status writer, read by the actuator.
pub type StatusTargets = BTreeMap<VariantKey, u32>;

/// Readers' end; `None` before the first cycle.
pub type Reader = tokio::sync::watch::Receiver<Option<Arc<Published>>>;
