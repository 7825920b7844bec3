//! Reasons of steps with their figures: `code` for events, conditions and metrics, `Display` for the full sentence,
//! `gist` for the sentence without changing figures.

mod activity;
mod budget;
mod code;
mod figures;
mod flow;
mod sentence;

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;

use wva_objects::servers::ServerKind;

pub use self::activity::Activity;
pub(crate) use self::budget::{BetterModel, quota_budget};
pub use self::budget::{QuotaShortage, WaitingReplicas, YieldedBudget};
pub(crate) use self::figures::format_figure;
pub use self::figures::{AnalysisError, FallbackSource, Load, Tokens};
pub use self::flow::{Flow, MissingSignal, Objective, TargetFigures};

/// Why a step was taken or not. Figures are boxed or shared, because a cycle of a large fleet keeps tens of thousands
/// of reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "reason", content = "figures", rename_all_fields = "camelCase")]
pub enum Reason {
    /// The stage changes nothing.
    NoChange {
        /// Load that the percentage analyzer compared.
        #[serde(flatten, serialize_with = "figures::serialize_optional_load")]
        load: Option<Arc<Load>>,
        /// Tokens that the token analyzer compared.
        #[serde(flatten)]
        tokens: Option<Box<Tokens>>,
        /// Requests that the throughput analyzer compared.
        #[serde(flatten)]
        flow: Option<Box<Flow>>,
    },
    /// An earlier decision still holds while it is carried out.
    KeptDecision {
        /// Seconds since the decision or its last progress.
        age_seconds: f64,
    },
    /// No replica is below the thresholds.
    AllSaturated {
        /// Load of the model.
        #[serde(flatten, serialize_with = "figures::serialize_load")]
        load: Arc<Load>,
    },
    /// A mean spare is below its trigger.
    SpareBelowTarget {
        /// Load of the model.
        #[serde(flatten, serialize_with = "figures::serialize_load")]
        load: Arc<Load>,
    },
    /// The load fits on fewer replicas.
    ScaleDownSafe {
        /// Load of the model.
        #[serde(flatten, serialize_with = "figures::serialize_load")]
        load: Arc<Load>,
    },
    /// The analysis failed.
    SafetyNet {
        /// Held value.
        fallback_source: FallbackSource,
        /// Cause of the failure.
        #[serde(flatten)]
        cause: AnalysisError,
    },
    /// Most replicas report nothing, and the requests in flight at the router need more.
    RouterAboveCapacity {
        /// Requests in flight at the router.
        in_flight: f64,
        /// Requests that a replica is planned to run at once.
        per_replica: f64,
    },
    /// Replicas are starting.
    PendingReplicas {
        /// Number of starting replicas.
        pending: u32,
    },
    /// Replicas do not become ready.
    Stuck {
        /// Number of stuck replicas.
        stuck: u32,
    },
    /// A scheduling gate or a ResourceQuota holds replicas back, so the variant does not grow.
    WaitingForQuota {
        /// The replicas.
        #[serde(flatten)]
        waiting: Box<WaitingReplicas>,
    },
    /// The smallest step of the HPA would leave too few replicas.
    StepNotSafe {
        /// Replicas that the step would remove.
        step: u32,
        /// Load of the model.
        #[serde(flatten, serialize_with = "figures::serialize_load")]
        load: Arc<Load>,
    },
    /// Fewer replicas report than are ready: no scale-down.
    ScrapeGap {
        /// Ready replicas of the model.
        ready: u32,
        /// Replicas that report.
        reporting: u32,
    },
    /// Samples are old: no scale-down.
    MetricsStale {
        /// Replicas with an old sample.
        stale: u32,
    },
    /// A main signal of replicas is missing: no scale-down.
    SignalUnknown {
        /// Replicas without it.
        replicas: u32,
    },
    /// Requests of these replicas make no progress: no scale-down.
    NoProgress {
        /// Pods of these replicas.
        pods: Vec<String>,
    },
    /// Some replicas need more than twice the time of the others for a step. The planned throughput is that of the
    /// others.
    SlowReplicas {
        /// Pods of these replicas.
        pods: Vec<String>,
    },
    /// No number of replicas meets the objective, so the model is sized without it.
    ObjectiveOutOfReach {
        /// Objective.
        objective: Objective,
        /// Value of the objective, milliseconds.
        objective_ms: f64,
        /// What a request takes alone on a replica, milliseconds.
        least_ms: f64,
    },
    /// The autoscaler of the variant does not scale up, so the variant grows only if no other one can.
    CannotGrow {
        /// Object and field.
        cause: String,
    },
    /// The earlier target is outside the bounds, and was cut to them.
    OutOfBounds {
        /// Earlier target.
        desired: u32,
        /// Lower bound.
        min: u32,
        /// Upper bound.
        #[serde(skip_serializing_if = "Option::is_none")]
        max: Option<u32>,
    },
    /// The earlier decision to shrink ends: more replicas are needed.
    Superseded {
        /// Earlier target.
        desired: u32,
    },
    /// The earlier target is not carried out in time, or refused. Other variants grow instead.
    NotCarriedOut {
        /// Earlier target.
        desired: u32,
        /// Seconds without progress.
        age_seconds: f64,
        /// True if the API server refuses it.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        refused: bool,
        /// Why its autoscaler does not act. `None`: unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
    },
    /// Token demand exceeds the capacity.
    DemandAboveSupply {
        /// Counted tokens.
        #[serde(flatten)]
        tokens: Box<Tokens>,
    },
    /// Token demand fits on fewer replicas.
    SupplyAboveDemand {
        /// Counted tokens.
        #[serde(flatten)]
        tokens: Box<Tokens>,
    },
    /// The HPA would ignore the step.
    WithinTolerance {
        /// Replicas that the step would remove.
        step: u32,
        /// Relative change that the HPA ignores.
        tolerance: f64,
    },
    /// Arrivals exceed the throughput.
    ArrivalsAboveCapacity {
        /// Counted requests.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// The forecast exceeds the throughput.
    TrendAhead {
        /// Counted requests.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// Waiting requests need more replicas.
    Backlog {
        /// Counted requests.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// The current replicas would serve the next burst late.
    RecurringBursts {
        /// Counted requests.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// Fewer replicas would not keep the share of requests in `sloTarget`.
    ReserveForTarget {
        /// Counted requests.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// Fewer requests than `sloTarget` asks for were within the objectives.
    SloTargetMissed {
        /// Measured shares.
        #[serde(flatten)]
        target: TargetFigures,
    },
    /// One spare replica is kept warm while arrivals rise steeply.
    WarmSpare {
        /// Counted requests.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// More replicas were needed within the hold time.
    HeldPeak {
        /// Replicas needed at the peak.
        held: f64,
        /// Counted requests.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// The throughput exceeded the need for the whole hold time.
    #[serde(rename = "SupplyAboveDemand")]
    CapacityAboveNeed {
        /// Counted requests.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// The throughput of a replica is not learned yet.
    NotLearnt {
        /// Counted requests.
        #[serde(flatten)]
        flow: Box<Flow>,
    },
    /// The percentage analyzer decides instead.
    SignalsMissing {
        /// Missing signal.
        missing: MissingSignal,
        /// Server of the first replica.
        #[serde(skip_serializing_if = "ServerKind::is_vllm")]
        server: ServerKind,
    },
    /// No request for the whole retention period.
    NoRequests {
        /// Retention period, seconds.
        retention_seconds: f64,
    },
    /// The cheapest variant keeps the last replica of the model.
    MinimumKept {},
    /// The cheapest variant wakes up.
    RequestsWaiting {
        /// Requests in the scheduler's queue.
        size: f64,
        /// Bytes of these requests.
        bytes: f64,
    },
    /// The cheapest variant wakes up: the endpoint picker answered requests with an error.
    RequestsRefused {
        /// Requests of the last 30 s.
        refused: f64,
    },
    /// The woken variant does not report yet.
    WakeHold {
        /// Seconds since the wake-up.
        woken_seconds: f64,
    },
    /// The inventory has too few free GPUs.
    LimitedBy {
        /// Accelerator without enough free GPUs.
        accelerator: String,
        /// Free GPUs.
        left: u64,
        /// GPUs of one replica.
        gpus_per_replica: u32,
    },
    /// A ResourceQuota leaves too little.
    LimitedByQuota {
        /// The quota and its figures.
        #[serde(flatten)]
        shortage: Box<QuotaShortage>,
    },
    /// A model with a better priority waits for the same budget: this one does not grow, or gives a replica back.
    YieldsTo {
        /// The budget, and the model that gets it.
        #[serde(flatten)]
        yielded: Box<YieldedBudget>,
    },
    /// The maximum limits the target.
    AtMaximum {
        /// Maximum.
        max: u32,
    },
    /// The minimum raises the target.
    AtMinimum {
        /// Minimum.
        min: u32,
    },
    /// Mode `paused`: the last target stays.
    Paused {
        /// Target before the mode.
        decided: u32,
    },
    /// Mode `recommend`: nothing is published.
    RecommendOnly {},
    /// Mode `fixed=N`.
    Fixed {
        /// N of the annotation.
        asked: u32,
        /// Target before the mode.
        decided: u32,
    },
}

impl Reason {
    pub(crate) const NO_CHANGE: Self = Self::NoChange { load: None, tokens: None, flow: None };

    /// True for `NoChange`.
    #[must_use]
    pub const fn is_no_change(&self) -> bool {
        matches!(self, Self::NoChange { .. })
    }

    /// Name of the budget that is too scarce. `None`: the step is not limited.
    #[must_use]
    pub fn scarce_budget(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::LimitedBy { accelerator, .. } => Some(accelerator.into()),
            Self::LimitedByQuota { shortage } => Some(shortage.budget().into()),
            Self::YieldsTo { yielded } => Some((&yielded.budget).into()),
            _ => None,
        }
    }

    /// Figures of the throughput analyzer.
    #[must_use]
    pub fn flow(&self) -> Option<&Flow> {
        match self {
            Self::NoChange { flow, .. } => flow.as_deref(),
            Self::ArrivalsAboveCapacity { flow }
            | Self::TrendAhead { flow }
            | Self::Backlog { flow }
            | Self::WarmSpare { flow }
            | Self::RecurringBursts { flow }
            | Self::ReserveForTarget { flow }
            | Self::HeldPeak { flow, .. }
            | Self::CapacityAboveNeed { flow }
            | Self::NotLearnt { flow } => Some(flow),
            _ => None,
        }
    }

    /// True for what a draft says before the load: what became of the last target, replicas that are stalled or
    /// slow, and objectives that are out of reach or missed.
    pub(crate) const fn precedes_analysis(&self) -> bool {
        matches!(
            self,
            Self::OutOfBounds { .. }
                | Self::Superseded { .. }
                | Self::NotCarriedOut { .. }
                | Self::NoProgress { .. }
                | Self::SlowReplicas { .. }
                | Self::ObjectiveOutOfReach { .. }
                | Self::SloTargetMissed { .. }
        )
    }
}
