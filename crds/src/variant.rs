//! `VariantAutoscaling` (short name `va`): one variant of a model (a workload and its cost) and the target that wva decided
//! for it. CEL rules in the schema refuse invalid objects even if no webhook answers.
#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats each struct in a private scope, where `pub` is unreachable"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::DEFAULT_VARIANT_COST;

/// Desired state: the workload, its model, its cost and its bounds.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[kube(
    group = "llmd.ai",
    version = "v1alpha1",
    kind = "VariantAutoscaling",
    plural = "variantautoscalings",
    shortname = "va",
    namespaced,
    status = "VariantAutoscalingStatus",
    derive = "PartialEq",
    doc = "One variant of a model: a workload that serves it, its cost, and the decided number of replicas.",
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".spec.scaleTargetRef.name"}"#,
    printcolumn = r#"{"name":"Model","type":"string","jsonPath":".spec.modelID"}"#,
    printcolumn = r#"{"name":"Accelerator","type":"string","jsonPath":".status.desiredOptimizedAlloc.accelerator"}"#,
    printcolumn = r#"{"name":"CurrentReplicas","type":"integer","jsonPath":".status.currentReplicas"}"#,
    printcolumn = r#"{"name":"Optimized","type":"integer","jsonPath":".status.desiredOptimizedAlloc.numReplicas"}"#,
    printcolumn = r#"{"name":"MetricsReady","type":"string","jsonPath":".status.conditions[?(@.type=='MetricsAvailable')].status"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Cost","type":"string","jsonPath":".spec.variantCost","priority":1}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".status.mode","priority":1}"#,
    printcolumn = r#"{"name":"Min","type":"integer","jsonPath":".spec.minReplicas","priority":1}"#,
    printcolumn = r#"{"name":"Max","type":"integer","jsonPath":".spec.maxReplicas","priority":1}"#,
    printcolumn = r#"{"name":"Desired-By","type":"string","jsonPath":".status.conditions[?(@.type=='OptimizationReady')].reason","priority":1}"#,
    printcolumn = r#"{"name":"Followed","type":"string","jsonPath":".status.conditions[?(@.type=='SignalFollowed')].status"}"#,
    printcolumn = r#"{"name":"NeedMet","type":"string","jsonPath":".status.conditions[?(@.type=='NeedMet')].status"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas")
    .message("minReplicas is above maxReplicas; lower minReplicas or raise maxReplicas"),
    validation = Rule::new("has(self.fixedReplicas) == (has(self.mode) && self.mode == 'Fixed')")
    .message("fixedReplicas belongs to mode Fixed and to no other; set both, or neither").field_path(".fixedReplicas"))]
pub struct VariantAutoscalingSpec {
    /// Workload of this variant, in the namespace of this object.
    pub scale_target_ref: ScaleTargetRef,
    /// Model name as its servers and clients use it, such as `meta-llama/Llama-3.1-8B`. All variants of a model in a
    /// namespace share its load.
    #[serde(rename = "modelID")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(
        validation = Rule::new("!self.matches('^[\\\\s\\\\p{Z}]*$')").message("modelID is empty or only white space; use the name that the model server reports, such as meta-llama/Llama-3.1-8B"),
        validation = Rule::new("!self.matches('\\\\p{Cc}')").message("modelID contains a control character; remove it"),
        validation = Rule::new("size(bytes(self)) <= 512").message("modelID is longer than 512 bytes; shorten it")
    )]
    pub model_id: String,
    /// Cost of one replica for an hour, in one currency for the fleet: a decimal number without sign, unit or exponent.
    #[serde(default = "default_variant_cost")]
    // All numbers of up to 308 digits are finite in 64-bit floating point.
    #[schemars(regex(pattern = r"^\d+(\.\d+)?$"), length(max = 308))]
    pub variant_cost: String,
    /// Minimum number of replicas. With 1 or more, the variant never scales to zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // Explicit, because the API server's error for `format: int32` names no field.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub min_replicas: Option<i32>,
    /// Maximum number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub max_replicas: Option<i32>,
    /// Name of the accelerator of a replica, such as `H100`. Default: the label
    /// `inference.optimization/acceleratorName`, else what the workload's pod template shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9][-A-Za-z0-9_.]*[A-Za-z0-9]$"), length(max = 63))]
    pub accelerator: Option<String>,
    /// What becomes of the decided number: `Auto` publishes it (the default), `Recommend` only shows it, `Paused` keeps
    /// the last target, `Fixed` publishes `fixedReplicas`. Default: the annotation `wva.llmd.ai/mode`, else `Auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // An `enum` cannot be null in a server-side apply.
    #[schemars(with = "Option<String>", length(max = 16))]
    #[x_kube(validation = Rule::new("self in ['Auto', 'Recommend', 'Paused', 'Fixed']")
        .message("this is not a mode; use Auto, Recommend, Paused or Fixed"))]
    pub mode: Option<VariantMode>,
    /// Number of replicas in mode `Fixed`, within the bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub fixed_replicas: Option<i32>,
}

/// What becomes of the decided number of replicas.
// Without a docstring for each, the schema lists the values as one `enum`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the fields that have this type explain the values")]
pub enum VariantMode {
    #[default]
    Auto,
    Recommend,
    Paused,
    Fixed,
}

/// Reference to a workload with a `/scale` subresource.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
// No CEL rule of the schema may read two fields of this object: the API server cannot evaluate it on an object that an
// earlier release stored as text, and then refuses each write of its status. The webhook and the guard compare them.
pub struct ScaleTargetRef {
    /// Group and version of the workload: `apps/v1`, or `leaderworkerset.x-k8s.io/v1` for a `LeaderWorkerSet`.
    #[serde(default = "default_target_api_version")]
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// Kind of the workload: `Deployment`, `StatefulSet` or `LeaderWorkerSet`.
    #[serde(default = "default_target_kind")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!(self in ['Pod', 'Job', 'CronJob', 'DaemonSet', 'Service', 'ConfigMap', 'Secret', 'Node', 'Namespace'])")
        .message("this kind cannot be scaled; use Deployment, StatefulSet or LeaderWorkerSet"))]
    pub kind: String,
    /// Name of the workload.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("name is not a DNS-1123 subdomain; use lower-case letters, digits, '-' and '.', as `kubectl get deployments` prints it"))]
    pub name: String,
}

/// Observed state.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariantAutoscalingStatus {
    /// `metadata.generation` of the spec that this status is about; -1 before the first status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1))]
    pub observed_generation: Option<i64>,
    /// Decided target. Absent while the workload does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_optimized_alloc: Option<OptimizedAlloc>,
    /// Current `spec.replicas` of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub current_replicas: Option<i32>,
    /// Whether the target is published to autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actuation: Option<Actuation>,
    /// Mode of the spec or of its annotation, as the controller follows it. Absent if the spec is invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "VariantMode")]
    pub mode: Option<VariantMode>,
    /// Learned curves of the throughput analyzer, with which a new leader starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<LearnedCurves>,
    /// Cold start: seconds from the creation of a replica to its readiness, the median when last measured. Requests that
    /// wake a model wait at least this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub cold_start_seconds: Option<i32>,
    /// State for a new leader. Internal to the controller; see the conditions instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_state: Option<ControllerState>,
    /// `Ready`: wva decides and publishes a target for this variant. `SignalFollowed`: an autoscaler follows it.
    /// `NeedMet`: it covers what the model needs. Also `TargetResolved`, `MetricsAvailable`, `OptimizationReady`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Decided allocation.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OptimizedAlloc {
    /// Decided number of replicas.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub num_replicas: i32,
    /// Accelerator of the variant, `unresolved` if unknown.
    #[serde(default)]
    pub accelerator: String,
    /// Time of the last confirmation of this target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_time: Option<Time>,
}

/// Whether autoscalers can read the decided target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Actuation {
    /// Whether the metric has this target.
    #[serde(default)]
    pub applied: bool,
}

/// Step time model of a replica: a decode step takes `a + b * running` seconds, and each prompt token adds `c` seconds.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LearnedCurves {
    /// Fixed time of a step in seconds.
    #[serde(default)]
    pub a: f64,
    /// Additional time of a step for each running sequence, in seconds.
    #[serde(default)]
    pub b: f64,
    /// Time of one prompt token in seconds.
    #[serde(default)]
    pub c: f64,
    /// Number of samples.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub samples: i64,
    /// What the model needed beyond its usual load, if it has a `sloTarget`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<LearnedReserve>,
}

/// What requests of the model needed beyond its usual load.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LearnedReserve {
    /// Usual arrival rate in requests per second.
    #[serde(default)]
    pub usual: f64,
    /// Ratio of need to usual load that the share in `sloTarget` did not exceed.
    #[serde(default)]
    pub ratio: f64,
    /// Observed time in steps of 15 s.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub steps: i64,
}

/// State for a new leader, in addition to the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerState {
    /// Version of these fields, 1.
    #[schemars(range(min = 1))]
    pub version: i32,
    /// Whether the workload has existed.
    #[serde(default)]
    pub target_seen: bool,
    /// Whether the target equals the current replicas because no analysis has succeeded yet.
    #[serde(default)]
    pub unanalyzed: bool,
    /// Whether the model is at zero replicas or scales from zero without a reporting replica yet.
    #[serde(default)]
    pub waking: bool,
    /// Reasons of the problems that were reported by events.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub problems: Vec<String>,
    /// Accelerator, or resource of a quota, whose shortage was reported by an event.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub limited_by: Option<String>,
    /// Requests refused by the pods of the endpoint picker, as last read while the model had no replicas.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub refused: Vec<RefusedCount>,
}

/// Counter of one pod of an endpoint picker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedCount {
    /// Name of the pod.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub pod: String,
    /// Start of its process, Unix milliseconds; 0 if unknown.
    #[serde(default)]
    pub started: i64,
    /// Refused requests.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub count: i64,
    /// The count includes requests under other names, because the pool has no other model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_names: bool,
}

fn default_variant_cost() -> String {
    DEFAULT_VARIANT_COST.to_owned()
}

fn default_target_api_version() -> String {
    "apps/v1".to_owned()
}

fn default_target_kind() -> String {
    "Deployment".to_owned()
}
