//! `VariantAutoscaling` (short name `va`): one variant of a model, that is one workload with its cost, and the
//! target this program decided for it. The schema refuses by itself (CEL) what one object alone can get wrong, so
//! that a bad object is refused while no webhook answers.
#![expect(
    unreachable_pub,
    reason = "KubeSchema repeats each struct inside a private scope, where `pub` reaches nobody"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::names::DEFAULT_VARIANT_COST;

/// What a person declares: which workload serves which model, and at what cost.
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
    doc = "One variant of a model: a workload that serves it, its cost, and the number of replicas decided for it.",
    printcolumn = r#"{"name":"Target","type":"string","jsonPath":".spec.scaleTargetRef.name"}"#,
    printcolumn = r#"{"name":"Model","type":"string","jsonPath":".spec.modelID"}"#,
    printcolumn = r#"{"name":"Accelerator","type":"string","jsonPath":".status.desiredOptimizedAlloc.accelerator"}"#,
    printcolumn = r#"{"name":"CurrentReplicas","type":"integer","jsonPath":".status.currentReplicas"}"#,
    printcolumn = r#"{"name":"Optimized","type":"integer","jsonPath":".status.desiredOptimizedAlloc.numReplicas"}"#,
    printcolumn = r#"{"name":"MetricsReady","type":"string","jsonPath":".status.conditions[?(@.type=='MetricsAvailable')].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas")
    .message("minReplicas is above maxReplicas: lower minReplicas or raise maxReplicas"))]
pub struct VariantAutoscalingSpec {
    /// The workload that runs this variant, in the namespace of this object.
    pub scale_target_ref: ScaleTargetRef,
    /// The model as its servers and clients name it, e.g. `meta-llama/Llama-3.1-8B`. All variants of one model in
    /// one namespace share its load.
    #[serde(rename = "modelID")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(
        validation = Rule::new("!self.matches('^[\\\\s\\\\p{Z}]*$')").message("modelID is empty or only white space: name the model as its server does, e.g. meta-llama/Llama-3.1-8B"),
        validation = Rule::new("!self.matches('\\\\p{Cc}')").message("modelID holds a control character: remove it"),
        validation = Rule::new("size(bytes(self)) <= 512").message("modelID is longer than 512 bytes: shorten it")
    )]
    pub model_id: String,
    /// Cost of one replica, in any unit that is the same for all variants of the model: a decimal number without
    /// sign, unit or exponent.
    #[serde(default = "default_variant_cost")]
    // 308 digits are the most that are finite in 64-bit floating point whatever they are.
    #[schemars(regex(pattern = r"^\d+(\.\d+)?$"), length(max = 308))]
    pub variant_cost: String,
    /// Fewest replicas this variant is ever given; with 1 or more it is never scaled to zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // The apiserver's refusal of what breaks `format: int32` names no field, so the upper end is spelt out.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub min_replicas: Option<i32>,
    /// Most replicas this variant is ever given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub max_replicas: Option<i32>,
}

/// Reference to a workload with a `/scale` subresource.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleTargetRef {
    /// Group and version of the workload.
    #[serde(default = "default_target_api_version")]
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// Kind of the workload: `Deployment`, `StatefulSet` or `LeaderWorkerSet`.
    #[serde(default = "default_target_kind")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("!(self in ['Pod', 'Job', 'CronJob', 'DaemonSet', 'Service', 'ConfigMap', 'Secret', 'Node', 'Namespace'])")
        .message("this kind cannot be scaled: name a Deployment, StatefulSet or LeaderWorkerSet"))]
    pub kind: String,
    /// Name of the workload.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("name is not a DNS-1123 subdomain: lower case letters, digits, '-' and '.', as `kubectl get deployments` prints it"))]
    pub name: String,
}

/// What this program reports.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariantAutoscalingStatus {
    /// The target. Absent while the workload does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_optimized_alloc: Option<OptimizedAlloc>,
    /// Replicas the workload asks for now (`spec.replicas`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub current_replicas: Option<i32>,
    /// Whether the target is handed to autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actuation: Option<Actuation>,
    /// What the throughput analyzer learnt, so that a new leader starts from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<LearnedCurves>,
    /// What a new leader must know of its predecessor. The controller writes and reads it; people read the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_state: Option<ControllerState>,
    /// `Ready`, `TargetResolved`, `MetricsAvailable`, `OptimizationReady`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// The decided allocation.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OptimizedAlloc {
    /// Replicas decided.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub num_replicas: i32,
    /// Accelerator of the variant, `unresolved` where it is unknown.
    #[serde(default)]
    pub accelerator: String,
    /// When the engine last confirmed this target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run_time: Option<Time>,
}

/// Whether the decided target is carried to the workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Actuation {
    /// The signal for this target is being served.
    #[serde(default)]
    pub applied: bool,
}

/// Step time model of a replica: a decode step takes `a + b * running` seconds, a prompt token `c` seconds.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct LearnedCurves {
    /// Fixed time of a step, seconds.
    #[serde(default)]
    pub a: f64,
    /// Time one running sequence adds to a step, seconds.
    #[serde(default)]
    pub b: f64,
    /// Time of one prompt token, seconds.
    #[serde(default)]
    pub c: f64,
    /// Samples learnt from.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub samples: i64,
}

/// What a new leader must know of its predecessor, apart from the target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerState {
    /// Version of these fields, 1.
    #[schemars(range(min = 1))]
    pub version: i32,
    /// The workload has existed.
    #[serde(default)]
    pub target_seen: bool,
    /// The target repeats the replicas of the workload, because no analysis has succeeded yet.
    #[serde(default)]
    pub unanalyzed: bool,
    /// The model is at 0 replicas, or was woken and no replica reports yet.
    #[serde(default)]
    pub waking: bool,
    /// Problems of which an event was written, by the reason of the event.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub problems: Vec<String>,
    /// The accelerator of which too few GPUs are left, of which an event was written.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub limited_by: Option<String>,
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
