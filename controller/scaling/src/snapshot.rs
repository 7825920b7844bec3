//! Input of one cycle, as in the snapshot file of `wva decide`. All times are ages: the crate has no clock.

mod attainment;
mod config;
mod lateness;
mod obstacles;
mod pending;
mod quota;
mod read;
mod replica;
mod returned;
mod router;
mod settings;
mod wake;
mod work;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wva_crds::GoDuration;

pub use attainment::{Attainment, WindowShares, percent};
pub use config::{Config, Inventory, MetricsAge};
pub use lateness::Lateness;
pub use obstacles::ScaleObstacles;
pub use pending::{Pending, PendingState};
pub use quota::{QuotaAmount, QuotaLimit, QuotaNeed, QuotaWait};
pub use read::{SnapshotError, SnapshotFile};
pub use replica::Replica;
pub use returned::ReturnedReplicas;
pub use router::RouterLoad;
pub use settings::{Entries, FileEntries, ModelSettings};
pub use wake::WakeObstacle;
pub use work::{
    Ceiling, Curve, NeedPeak, PodHistory, PromptShare, Reserve, ReserveEstimate, SpeedEstimate, StepTimes,
    ThroughputMemory, WorkSample,
};
pub use wva_crds::entries::{AnalyzerName, Priority, SaturationEntry, ScaleToZeroEntry, WarmSpare};
pub use wva_crds::intent::{Mode, ModeError};
pub use wva_objects::limits::HpaTolerance;

use wva_objects::servers::PodGroup;

use crate::units::{Amount, Cost, cost_schema};

/// Input of one cycle. The order of its lists has no meaning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Snapshot {
    /// Time of the snapshot, RFC 3339. For display only; no rule reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// Settings of the rules.
    pub config: Config,
    /// Compute bounds that the token analyzer observed in earlier cycles. Each kind is listed once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remembered: Vec<ComputeBounds>,
    /// Memory of the throughput analyzer. Each model is listed once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<ThroughputMemory>,
    /// Managed models. Each is listed once.
    pub models: Vec<Model>,
}

/// Compute bounds of one model, accelerator and output length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComputeBounds {
    /// Empty, as in files of earlier releases: any namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Model.
    #[serde(rename = "modelID")]
    pub model_id: String,
    /// Accelerator.
    pub accelerator: String,
    /// Bucket of the mean output tokens per request.
    pub output: OutputBucket,
    /// Tokens in use at a full queue, oldest first. The last 10 count.
    #[serde(default)]
    pub k2: Vec<Amount>,
}

/// Range of the mean output tokens per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum OutputBucket {
    /// Fewer than 100 tokens.
    #[serde(rename = "<100")]
    Short,
    /// Fewer than 500 tokens.
    #[serde(rename = "<500")]
    Medium,
    /// 500 tokens or more.
    #[serde(rename = ">=500")]
    Long,
}

/// All variants of one `modelID` in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// `spec.modelID` of its variants.
    #[serde(rename = "modelID")]
    pub model_id: String,
    /// Namespace of its variants.
    pub namespace: String,
    /// Resolved settings. In a file they override the entries in `config`.
    #[serde(default, skip_serializing_if = "settings::is_default")]
    pub settings: ModelSettings,
    /// Requests completed within the retention period. `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_in_retention: Option<Amount>,
    /// Queue of the endpoint picker for this model.
    #[serde(default, skip_serializing_if = "SchedulerQueue::is_absent")]
    #[schemars(with = "Option<QueueFigures>")]
    pub scheduler_queue: SchedulerQueue,
    /// `None`: waiting requests wake the model if it has a `schedulerQueue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_obstacle: Option<WakeObstacle>,
    /// Time since the model was first seen. `None`: longer than the retention period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracked_for: Option<GoDuration>,
    /// Time since a request completed, ran or waited. `None`: longer than the retention period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_activity: Option<GoDuration>,
    /// Time since a pod of the model started. `None`: longer than the retention period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_pod_start: Option<GoDuration>,
    /// First tokens against their objective. `None`: no objective, or no histogram.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Lateness>,
    /// The same of the times between two tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub itl_lateness: Option<Lateness>,
    /// Measured shares within the objectives. Only `sloTarget` reads them.
    #[serde(default, skip_serializing_if = "Attainment::is_empty")]
    pub attainment: Attainment,
    /// Load at the router. Requests in flight count while most replicas report nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<RouterLoad>,
    /// Variants. Each name is listed once.
    #[serde(default)]
    pub variants: Vec<Variant>,
}

/// Flow-control queue of the endpoint picker. In the file: no field, `null`, or the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SchedulerQueue {
    /// No endpoint picker serves the model (no field).
    #[default]
    Absent,
    /// The endpoint picker could not be read (`null`).
    Unknown,
    /// Figures of the endpoint picker.
    Known(QueueFigures),
}

/// Size of a scheduler queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueFigures {
    /// Waiting requests.
    pub size: Amount,
    /// Bytes of the waiting requests.
    pub bytes: Amount,
    /// Requests of the last 30 s that the picker answered with an error because the model has no replica.
    #[serde(skip_serializing_if = "is_zero")]
    pub refused: Amount,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(amount: &Amount) -> bool {
    amount.get() <= 0.0
}

impl SchedulerQueue {
    fn is_absent(&self) -> bool {
        *self == Self::Absent
    }

    /// Whether requests wait or were refused; false if unknown.
    #[must_use]
    pub fn holds_requests(self) -> bool {
        matches!(self, Self::Known(q) if [q.size, q.bytes, q.refused].iter().any(|figure| figure.get() > 0.0))
    }

    /// Figures of at least `least`, with the refused requests of `self`.
    #[must_use]
    pub fn raised_to(self, least: QueueFigures) -> Self {
        match self {
            Self::Known(q) => Self::Known(QueueFigures {
                size: if q.size < least.size { least.size } else { q.size },
                bytes: if q.bytes < least.bytes { least.bytes } else { q.bytes },
                refused: q.refused,
            }),
            Self::Absent | Self::Unknown => Self::Known(least),
        }
    }

    /// Empty or absent; false if unknown.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self != Self::Unknown && !self.holds_requests()
    }
}

impl Serialize for SchedulerQueue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(figures) => figures.serialize(serializer),
            Self::Absent | Self::Unknown => serializer.serialize_none(),
        }
    }
}

impl<'de> Deserialize<'de> for SchedulerQueue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<QueueFigures>::deserialize(deserializer)?.map_or(Self::Unknown, Self::Known))
    }
}

/// One `VariantAutoscaling` and its workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Variant {
    /// Name of the `VariantAutoscaling`.
    pub name: String,
    /// Accelerator of its replicas, such as `H100`. `None`: unresolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// Cost of one replica, in the user's unit.
    #[serde(default)]
    #[schemars(schema_with = "cost_schema")]
    pub cost: Cost,
    /// The annotation `wva.llmd.ai/mode`.
    #[serde(default)]
    pub mode: Mode,
    /// `spec.replicas` of the workload. Surge pods of a rollout do not count.
    pub current: u32,
    /// Ready replicas. More than `current` do not count. `None`: all of `current`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<u32>,
    /// Target of the last cycle. `None`: no target yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<u32>,
    /// Target before the scale-down that is being carried out. `None`: no scale-down is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_before: Option<u32>,
    /// Time without progress: since targets on this side of `current` began, or `current` came closer to one. `None`: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_age: Option<GoDuration>,
    /// Time since `current` changed. Older samples show the load of other replicas, so they forbid scale-down. `None`:
    /// long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_for: Option<GoDuration>,
    /// The greatest of HPA, `ScaledObject` and VA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// The smallest of HPA, `ScaledObject` and VA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// A `min` of 1 from the VA or a `ScaledObject` forbids 0 even if scale to zero is on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub min_forbids_zero: bool,
    /// A `ScaledObject` with `idleReplicaCount: 0` goes from its `min` to 0 and back, so 0 is allowed below `min`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idles_at_zero: bool,
    /// Relative change that the HPA ignores. `None`: no HPA, so every step counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hpa_tolerance: Option<HpaTolerance>,
    /// Time since its wake-up from 0. `None`: long ago or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken_ago: Option<GoDuration>,
    /// Since the API server first refused to scale the workload up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_ago: Option<GoDuration>,
    /// Directions in which its autoscaler does not act.
    #[serde(default, skip_serializing_if = "ScaleObstacles::is_empty")]
    pub obstacles: ScaleObstacles,
    /// Given back to a model with a better priority. `None`: long ago or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<ReturnedReplicas>,
    /// Capacity of a replica in tokens. `None`: never known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembered_capacity: Option<Amount>,
    /// Replicas that are not ready. `None`: `current - ready` replicas of age 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Vec<Pending>>,
    /// What its replicas in the state `waitingForQuota` wait for. `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_wait: Option<QuotaWait>,
    /// Replicas that no node runs yet and that wva did not ask for: of a fixed number, or of another writer. The inventory
    /// does not count their GPUs as used.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub unplaced: u32,
    /// Terminating pods, or groups of pods, that still hold their GPUs.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub terminating: u32,
    /// Running requests of all its replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Amount>,
    /// Age of the oldest sample in `running`, for the controller's steps to zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_age: Option<GoDuration>,
    /// Median time from the creation of pods until they are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_start: Option<GoDuration>,
    /// Learned by an earlier leader.
    #[serde(default, rename = "known", skip_serializing_if = "Option::is_none")]
    pub speed_estimate: Option<SpeedEstimate>,
    /// Learned by an earlier leader of its model.
    #[serde(default, rename = "knownReserve", skip_serializing_if = "Option::is_none")]
    pub reserve_estimate: Option<ReserveEstimate>,
    /// Part of a request that its pods serve (label `llm-d.ai/role`). `None`: whole requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// GPUs of one replica.
    #[serde(default, skip_serializing_if = "is_one")]
    pub gpus_per_replica: GpuCount,
    /// Pods of one replica. `None`: one pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<PodGroup>,
    /// What one replica takes from the ResourceQuotas of its namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quota_needs: Vec<QuotaNeed>,
    /// Arguments of the vLLM server, from the pod template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engine_args: Vec<String>,
    /// Replicas that report metrics. Each pod is listed once.
    #[serde(default)]
    pub replicas: Vec<Replica>,
}

/// Part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Computes the prompt and hands over its KV cache.
    Prefill,
    /// Takes over the KV cache and generates the answer.
    Decode,
}

/// Number of GPUs. Default: 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct GpuCount(pub u32);

impl Default for GpuCount {
    fn default() -> Self {
        Self(1)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero_count(count: &u32) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_one(count: &GpuCount) -> bool {
    *count == GpuCount::default()
}
