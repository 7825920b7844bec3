//! Result of the last cycle. The engine writes it; gauges, status writer, events and debug endpoint read it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use wva_crds::intent::Mode;
use wva_crds::{LearnedCurves, RefusedCount};
use wva_objects::orphan::Orphan;
use wva_scaling::{Decision, Snapshot, VariantKey};

use crate::model::conditions::Conditions;
use crate::model::reported::ReportedState;
use crate::model::step::{DueStep, ScaleDown};

/// Result of one cycle.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// Time of the cycle.
    pub at: Timestamp,
    /// Maximum time to the next cycle.
    pub interval: Duration,
    /// Input of the decisions.
    pub snapshot: Arc<Snapshot>,
    /// All managed variants. Unchanged ones share the entry of the previous cycle.
    pub variants: BTreeMap<VariantKey, Arc<PublishedVariant>>,
    /// Variants taken over, and when to export their series.
    pub withheld: BTreeMap<VariantKey, Instant>,
    /// Variants that no controller manages.
    pub orphans: BTreeMap<VariantKey, Orphan>,
    /// Number of target changes since the process started.
    pub scalings: BTreeMap<ScalingKey, u64>,
    pub(crate) steps: Vec<DueStep>,
    /// Scale-downs whose pods get a deletion cost.
    pub(crate) scale_downs: BTreeMap<VariantKey, ScaleDown>,
}

/// Labels of the count of target changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScalingKey {
    /// The variant.
    pub variant: VariantKey,
    /// `up` or `down`.
    pub direction: &'static str,
    /// Code of the decision's reason.
    pub reason: &'static str,
}

/// One variant in the result of a cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedVariant {
    /// UID of the object.
    pub uid: String,
    /// Generation of the object that was read.
    pub generation: Option<i64>,
    /// Value of its instance label.
    pub instance: Option<String>,
    /// Accelerator, or `unresolved`.
    pub accelerator: String,
    /// Mode that the object states; `None` if its spec is invalid.
    pub mode: Option<Mode>,
    /// Replicas of its workload; `None` if the workload does not exist.
    pub current: Option<u32>,
    /// The decision; `None` if there is nothing to decide on.
    pub decision: Option<Decision>,
    /// Conditions for its status.
    pub conditions: Conditions,
    /// Whether other variants serve the same part of the model's requests.
    pub has_siblings: bool,
    /// Whether its workload exists or existed before.
    pub target_seen: bool,
    /// The target, else the last one.
    pub last_target: Option<u32>,
    /// State in the status at the start of this term. Events are written only for later changes.
    pub inherited: ReportedState,
    /// Step times learned by the throughput analyzer, for the status.
    pub learned: Option<LearnedCurves>,
    /// Seconds that its replicas take to start, as last measured, for the status.
    pub cold_start: Option<u32>,
    /// Requests failed at an endpoint picker that holds them, while the variant was woken.
    pub failed_during_wake: bool,
    /// Counters of its endpoint pickers, for the status, while the model has no replicas.
    pub refused: Vec<RefusedCount>,
}

impl PublishedVariant {
    /// Target in the status.
    #[must_use]
    pub fn target(&self) -> Option<u32> {
        self.decision.as_ref().map(Decision::target)
    }

    /// `None` without a change.
    pub(crate) fn target_change(&self, before: Option<u32>) -> Option<String> {
        let (from, to, reason) = (before?, self.target()?, self.decision.as_ref()?.reason());
        (from != to).then(|| format!("target {from} -> {to} ({}): {reason}", reason.code()))
    }

    /// Target published to autoscalers; none in mode `recommend`.
    #[must_use]
    pub fn signal(&self) -> Option<u32> {
        self.decision.as_ref().filter(|d| d.report.mode != Mode::Recommend).map(Decision::target)
    }
}

/// Targets in the statuses of variants with due steps. The status writer writes them, the actuator reads them.
pub type StatusTargets = BTreeMap<VariantKey, u32>;

/// Receiver of cycle results; `None` before the first cycle.
pub type Reader = tokio::sync::watch::Receiver<Option<Arc<Published>>>;
