//! Why a step was taken or not: a closed set, each with the figures it rests on. `code` feeds events, conditions and
//! metric labels; `Display` is the sentence an operator reads, and `gist` the same without figures that move.

mod code;
mod figures;
mod flow;
mod sentence;

use std::sync::Arc;

use serde::Serialize;

pub(crate) use self::figures::figure;
pub use self::figures::{AnalysisError, FallbackSource, Load, Tokens};
pub use self::flow::{Flow, Missing};

/// Why a step was taken, or not. Small, for a cycle of a large fleet keeps tens of thousands: figures stand apart, and
/// those of a model are shared by its variants.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "reason", content = "figures", rename_all_fields = "camelCase")]
pub enum Reason {
    /// Nothing to say.
    NoChange {
        /// The load it was judged by, where this stage looked at one; most do not, and leave no room for it.
        #[serde(flatten, serialize_with = "figures::any_shared")]
        load: Option<Arc<Load>>,
        /// The same in tokens.
        #[serde(flatten)]
        tokens: Option<Box<Tokens>>,
        /// The same in requests.
        #[serde(flatten)]
        flow: Option<Box<Flow>>,
    },
    /// An earlier decision is kept while it is carried out.
    KeptDecision {
        /// Seconds since it was made or last progressed.
        age_seconds: f64,
    },
    /// No replica is below the thresholds.
    AllSaturated {
        /// What was seen.
        #[serde(flatten, serialize_with = "figures::shared")]
        load: Arc<Load>,
    },
    /// A mean spare is below its trigger.
    SpareBelowTarget {
        /// What was seen.
        #[serde(flatten, serialize_with = "figures::shared")]
        load: Arc<Load>,
    },
    /// The load fits on fewer replicas.
    ScaleDownSafe {
        /// What was seen.
        #[serde(flatten, serialize_with = "figures::shared")]
        load: Arc<Load>,
    },
    /// The analysis failed; an earlier figure is held.
    SafetyNet {
        /// Which.
        fallback_source: FallbackSource,
        /// Why.
        #[serde(flatten)]
        cause: AnalysisError,
    },
    /// Replicas are still loading.
    PendingReplicas {
        /// How many.
        pending: u32,
    },
    /// Replicas do not become ready.
    Stuck {
        /// How many.
        stuck: u32,
    },
    /// The step the HPA would act on leaves too few replicas.
    StepNotSafe {
        /// Replicas it would take.
        step: u32,
        /// What was seen.
        #[serde(flatten, serialize_with = "figures::shared")]
        load: Arc<Load>,
    },
    /// Fewer replicas report than are ready, so none is taken.
    ScrapeGap {
        /// Ready replicas of the model.
        ready: u32,
        /// Those that report.
        reporting: u32,
    },
    /// Samples are old, so no replica is taken.
    MetricsStale {
        /// Replicas with an old sample.
        stale: u32,
    },
    /// The earlier decision lies outside the bounds and ends.
    OutOfBounds {
        /// The earlier target.
        desired: u32,
        /// Lower bound.
        min: u32,
        /// Upper bound.
        #[serde(skip_serializing_if = "Option::is_none")]
        max: Option<u32>,
    },
    /// The earlier decision to shrink ends, for the model needs more.
    Superseded {
        /// The earlier target.
        desired: u32,
    },
    /// The earlier decision was not carried out in time and ends, or the API server refuses to carry it out.
    NotCarriedOut {
        /// The earlier target.
        desired: u32,
        /// Seconds without progress.
        age_seconds: f64,
        /// The API server refuses it.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        refused: bool,
    },
    /// Tokens are lacking.
    DemandAboveSupply {
        /// What was counted.
        #[serde(flatten)]
        tokens: Box<Tokens>,
    },
    /// Tokens are spare.
    SupplyAboveDemand {
        /// What was counted.
        #[serde(flatten)]
        tokens: Box<Tokens>,
    },
    /// The HPA would ignore the step, so it is not taken.
    WithinTolerance {
        /// Replicas it would take.
        step: u32,
        /// The share the HPA ignores.
        tolerance: f64,
    },
    /// More requests arrive than the replicas do.
    ArrivalsAboveCapacity {
        /// What was counted.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// More requests will arrive than the replicas do.
    TrendAhead {
        /// What was counted.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// Requests that wait take more replicas for a while.
    Backlog {
        /// What was counted.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// A replica more is kept warm while the trend is steep.
    WarmSpare {
        /// What was counted.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// Fewer would do now, and more were needed a short time ago.
    HeldPeak {
        /// Replicas that were needed.
        held: f64,
        /// What was counted.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// The replicas do more than arrives, and did for as long as needs are held.
    #[serde(rename = "SupplyAboveDemand")]
    CapacityAboveNeed {
        /// What was counted.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// What a replica does is not learnt yet.
    NotLearnt {
        /// What was counted.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// The throughput analyzer lacks a signal, so the percentages decide.
    SignalsMissing {
        /// What it lacks.
        missing: Missing,
    },
    /// Nothing was asked of the model for its whole retention period.
    NoRequests {
        /// The period.
        retention_seconds: f64,
    },
    /// The model keeps one replica, on its cheapest variant.
    MinimumKept {},
    /// Requests wait for a model that is at 0: its cheapest variant is woken.
    RequestsWaiting {
        /// Requests in the scheduler's queue.
        size: f64,
        /// Their bytes.
        bytes: f64,
    },
    /// It was woken and does not report yet: its replica is held.
    WakeHold {
        /// Seconds since it was woken.
        woken_seconds: f64,
    },
    /// The inventory has not enough left.
    LimitedBy {
        /// What is scarce.
        accelerator: String,
        /// GPUs that are left.
        left: u64,
        /// GPUs one replica asks for.
        gpus_per_replica: u32,
    },
    /// The upper bound.
    AtMaximum {
        /// The bound.
        max: u32,
    },
    /// The lower bound.
    AtMinimum {
        /// The bound.
        min: u32,
    },
    /// Mode `paused`: the last target stays.
    Paused {
        /// What would have been published.
        decided: u32,
    },
    /// Mode `recommend`: nothing is published.
    RecommendOnly {},
    /// Mode `fixed=N`.
    Fixed {
        /// N.
        asked: u32,
        /// What would have been published.
        decided: u32,
    },
}

impl Reason {
    /// A stage with nothing to say.
    pub(crate) const NO_CHANGE: Self = Self::NoChange { load: None, tokens: None, flow: None };

    /// True for `NoChange`.
    #[must_use]
    pub const fn is_no_change(&self) -> bool {
        matches!(self, Self::NoChange { .. })
    }

    /// The figures of the throughput analyzer, where they are its reason.
    #[must_use]
    pub fn flow(&self) -> Option<&Flow> {
        match self {
            Self::NoChange { flow, .. } => flow.as_deref(),
            Self::ArrivalsAboveCapacity { flow }
            | Self::TrendAhead { flow }
            | Self::Backlog { flow }
            | Self::WarmSpare { flow }
            | Self::HeldPeak { flow, .. }
            | Self::CapacityAboveNeed { flow }
            | Self::NotLearnt { flow } => Some(flow),
            _ => None,
        }
    }

    /// It says how an earlier decision ended, and nothing about what follows.
    pub(crate) const fn ends_a_decision(&self) -> bool {
        matches!(self, Self::OutOfBounds { .. } | Self::Superseded { .. } | Self::NotCarriedOut { .. })
    }
}
