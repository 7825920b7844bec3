//! All that one cycle decides from, as one immutable value: what the collector saw, what was decided before, and the
//! settings. It reads and writes exactly the snapshot file of `wva decide`; all times are ages, for there is no clock
//! here.

mod config;
mod mode;
mod read;
mod wake;
mod work;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wva_crds::GoDuration;

pub use config::{Config, Inventory, MetricsAge};
pub use mode::{Mode, ModeError};
pub use read::SnapshotError;
pub use wake::WakeObstacle;
pub use work::{Curve, Known, Learned, LearnedPod, Need, StepTimes, WorkSample};
pub use wva_crds::entries::{AnalyzerName, SaturationEntry, ScaleToZeroEntry, WarmSpare};

use crate::units::{Amount, Cost, Fraction, KvUsage, QueueLength};

/// One cycle's input. The order of its lists carries no meaning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Snapshot {
    /// When it was taken, RFC 3339. For display alone; no rule reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// Settings that rules read.
    #[serde(default)]
    pub config: Config,
    /// Compute bounds the token analyzer observed in earlier cycles, each kind once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remembered: Vec<Remembered>,
    /// What the throughput analyzer remembers, each model once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learned: Vec<Learned>,
    /// Every model that is managed, each once.
    #[serde(default)]
    pub models: Vec<Model>,
}

/// Observed compute bounds of one (model, accelerator, length of output): memory of the token analyzer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Remembered {
    /// Namespace of the model. Empty, as in files of earlier releases: any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The model they were observed with.
    #[serde(rename = "modelID")]
    pub model_id: String,
    /// The accelerator they were observed on.
    pub accelerator: String,
    /// Mean output tokens a request: the bucket.
    pub output: OutputBucket,
    /// Tokens in use when the queue was full, oldest first; the last 10 count.
    #[serde(default)]
    pub k2: Vec<Amount>,
}

/// Requests grouped by their mean number of output tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Model {
    /// `spec.modelID` of its variants.
    #[serde(rename = "modelID")]
    pub model_id: String,
    /// The namespace of its variants.
    pub namespace: String,
    /// Requests that completed within the retention period. `None`: unknown, which is not 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_in_retention: Option<Amount>,
    /// The endpoint picker's queue for this model.
    #[serde(default, skip_serializing_if = "SchedulerQueue::is_absent")]
    pub scheduler_queue: SchedulerQueue,
    /// Why requests that wait would not wake it from 0. `None`: they would, where there is a `schedulerQueue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_obstacle: Option<WakeObstacle>,
    /// How long the model has been watched. `None`: longer than the retention period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracked_for: Option<GoDuration>,
    /// Since a request completed, ran or waited. `None`: longer ago than the retention period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_activity: Option<GoDuration>,
    /// Since a pod of the model started. `None`: longer ago than the retention period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_pod_start: Option<GoDuration>,
    /// Its variants, each name once.
    #[serde(default)]
    pub variants: Vec<Variant>,
}

/// What is known of the endpoint picker's flow-control queue for one model. In the file: the field left out, `null`,
/// or its figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SchedulerQueue {
    /// No endpoint picker serves the model (the field is left out).
    #[default]
    Absent,
    /// There is one, but it could not be asked (`null`).
    Unknown,
    /// What it says.
    Known(QueueFigures),
}

/// Size of a scheduler's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueFigures {
    /// Requests that wait.
    #[serde(default)]
    pub size: Amount,
    /// Bytes of the requests that wait.
    #[serde(default)]
    pub bytes: Amount,
}

impl SchedulerQueue {
    fn is_absent(&self) -> bool {
        *self == Self::Absent
    }

    /// Requests are known to wait.
    #[must_use]
    pub fn holds_requests(self) -> bool {
        matches!(self, Self::Known(q) if q.size.get() > 0.0 || q.bytes.get() > 0.0)
    }

    /// The same, where at least so much waits.
    #[must_use]
    pub fn at_least(self, least: QueueFigures) -> Self {
        match self {
            Self::Known(q) => Self::Known(QueueFigures {
                size: if q.size < least.size { least.size } else { q.size },
                bytes: if q.bytes < least.bytes { least.bytes } else { q.bytes },
            }),
            Self::Absent | Self::Unknown => Self::Known(least),
        }
    }

    /// It is known that nothing waits, or there is no queue.
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Variant {
    /// Name of the `VariantAutoscaling`.
    pub name: String,
    /// Accelerator its replicas run on, e.g. `H100`. `None`: unresolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// Cost of one replica.
    #[serde(default)]
    pub cost: Cost,
    /// The annotation `wva.llmd.ai/mode`.
    #[serde(default)]
    pub mode: Mode,
    /// `spec.replicas` of the workload. Surge pods of a rollout do not count.
    pub current: u32,
    /// Ready replicas; what exceeds `current` does not count. `None`: all of `current`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<u32>,
    /// Target of the last cycle. `None`: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<u32>,
    /// Since `desired` was made or `current` last came nearer to it. `None`: just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_age: Option<GoDuration>,
    /// Since `current` last changed. Older samples show the load of other replicas, so no replica is taken on them.
    /// `None`: long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_for: Option<GoDuration>,
    /// Lower bound: the greatest of the HPA's or `ScaledObject`'s and the VA's. `None`: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// Upper bound: the least of the HPA's or `ScaledObject`'s and the VA's. `None`: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// True where a `min` of 1 is the VA's or a `ScaledObject`'s: then it forbids 0 even where scale to zero is on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub min_forbids_zero: bool,
    /// Relative change the workload's HPA ignores. `None`: no HPA, so that a step is one replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hpa_tolerance: Option<HpaTolerance>,
    /// Since it was woken from 0. `None`: long ago or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken_ago: Option<GoDuration>,
    /// Since the API server first refused to scale its workload up, while nobody tries again. `None`: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_ago: Option<GoDuration>,
    /// Tokens a replica holds, as the token analyzer last knew it. `None`: never known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembered_capacity: Option<Amount>,
    /// Replicas that are not ready. `None`: `current - ready` that started just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Vec<Pending>>,
    /// Requests in flight over all its replicas. `None`: unknown, which is not 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Amount>,
    /// Age of the oldest sample that `running` is of. No rule reads it: a step to zero that is decided on is taken once
    /// it is younger than its signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_age: Option<GoDuration>,
    /// From the creation of its pods until they are ready, their median. `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_start: Option<GoDuration>,
    /// What an earlier leader learnt of its speed. `None`: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
    /// The part of a request that its pods do (label `llm-d.ai/role`). `None`: whole requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// GPUs one replica asks for.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub gpus_per_replica: GpuCount,
    /// Arguments of the vLLM server, from the pod template.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engine_args: Vec<String>,
    /// Replicas that report metrics, each pod once.
    #[serde(default)]
    pub replicas: Vec<Replica>,
}

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// The prompt is computed, and the cache handed over.
    Prefill,
    /// The cache is taken over, and the answer generated.
    Decode,
}

/// GPUs, a whole number, 1 unless said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuCount(pub u32);

impl Default for GpuCount {
    fn default() -> Self {
        Self(1)
    }
}

fn one() -> GpuCount {
    GpuCount::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_one(count: &GpuCount) -> bool {
    *count == GpuCount::default()
}

/// Relative change of replicas an HPA ignores: a change of exactly this share is ignored, too.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HpaTolerance {
    /// `behavior.scaleUp.tolerance`, else 0.1.
    #[serde(default = "default_tolerance")]
    pub up: Amount,
    /// `behavior.scaleDown.tolerance`, else 0.1.
    #[serde(default = "default_tolerance")]
    pub down: Amount,
}

impl Default for HpaTolerance {
    fn default() -> Self {
        Self { up: default_tolerance(), down: default_tolerance() }
    }
}

/// Kubernetes' `--horizontal-pod-autoscaler-tolerance`.
fn default_tolerance() -> Amount {
    Amount::constant(0.1)
}

/// A replica that is not ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pending {
    /// Since the pod was created or last stopped being ready (without a pod: since the lack of it was first seen), or
    /// since a replica of the variant last became ready where that is later: a variant recovers as soon as one of its
    /// replicas is ready.
    #[serde(default)]
    pub age: GoDuration,
    /// What keeps it from being ready.
    #[serde(default)]
    pub state: PendingState,
}

/// What a replica that is not ready is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PendingState {
    /// It loads, as far as one can tell.
    #[default]
    Starting,
    /// The scheduler finds no node for it.
    Unschedulable,
    /// Its container fails again and again.
    CrashLooping,
}

/// The newest signals of one pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Replica {
    /// Name of the pod.
    pub pod: String,
    /// KV cache use. `None` counts as 0 where `queue` is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv: Option<KvUsage>,
    /// Requests that wait. `None` counts as 0 where `kv` is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLength>,
    /// Blocks of KV cache on its GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_gpu_blocks: Option<Amount>,
    /// Tokens a block holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<Amount>,
    /// Mean prompt tokens a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_input: Option<Amount>,
    /// Mean generated tokens a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_output: Option<Amount>,
    /// Share of prompt tokens that the prefix cache answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_hit_rate: Option<Fraction>,
    /// Age of its sample.
    #[serde(default)]
    pub age: GoDuration,
    /// What its last scrapes show of its work, that of all its engines together. Read by the throughput analyzer alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<WorkSample>,
    /// Engines in the pod that share the work: the ranks of a data-parallel server. `None`: one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
}
