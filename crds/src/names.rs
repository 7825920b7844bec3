//! Public names. Manifests, dashboards and HPAs depend on their spelling.

/// API group of `VariantAutoscaling`.
pub const GROUP: &str = "llmd.ai";
/// Version of `VariantAutoscaling`.
pub const VERSION: &str = "v1alpha1";
/// Kind of the resource.
pub const KIND: &str = "VariantAutoscaling";
/// Resource name in URLs and RBAC rules.
pub const PLURAL: &str = "variantautoscalings";

/// VA label: accelerator name, such as `H100`. It becomes the metric label `accelerator_type`.
pub const ACCELERATOR_LABEL: &str = "inference.optimization/acceleratorName";
/// VA and Namespace label: the controller instance that manages the object.
pub const INSTANCE_LABEL: &str = "wva.llmd.ai/controller-instance";
/// Pod label: `prefill` or `decode` if the pod serves only that phase of a request.
pub const ROLE_LABEL: &str = "llm-d.ai/role";
/// Namespace label: the controller reads local ConfigMaps there even without a VA.
pub const CONFIG_ENABLED_LABEL: &str = "wva.llmd.ai/config-enabled";
/// Namespace label: `"true"` sends the token of `EPP_METRIC_READER_SERVICE_ACCOUNT` to the namespace's endpoint pickers.
pub const PICKER_TOKEN_LABEL: &str = "wva.llmd.ai/picker-token";
/// Namespace annotation: `"true"` excludes the namespace from management.
pub const EXCLUDE_ANNOTATION: &str = "wva.llmd.ai/exclude";
/// VA annotation: `auto`, `recommend`, `paused` or `fixed=N`.
pub const MODE_ANNOTATION: &str = "wva.llmd.ai/mode";
/// VA annotation: `"true"` allows the same update to move the object to another instance.
pub const ALLOW_INSTANCE_CHANGE_ANNOTATION: &str = "wva.llmd.ai/allow-instance-change";
/// VA annotation: `"true"` allows a target that another VA has, with a warning.
pub const ALLOW_SHARED_TARGET_ANNOTATION: &str = "wva.llmd.ai/allow-shared-target";
/// VA annotation: `"true"` or `"false"`. Whether the pods with the least load get the lowest deletion cost before a
/// scale-down. Default: only if wva itself scales the workload down.
pub const POD_DELETION_COST_ANNOTATION: &str = "wva.llmd.ai/pod-deletion-cost";
/// HPA and ScaledObject annotation of llm-d WVA v0.9: `"true"` stands for a VA with the annotations below.
pub const MANAGED_ANNOTATION: &str = "llm-d.ai/managed";
/// Model of such an HPA or ScaledObject.
pub const MODEL_ANNOTATION: &str = "llm-d.ai/model-id";
/// Cost of such an HPA or ScaledObject; default [`DEFAULT_VARIANT_COST`].
pub const VARIANT_COST_ANNOTATION: &str = "llm-d.ai/variant-cost";
/// VA label: `wva` if wva created the object for an annotated autoscaler.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Main ConfigMap annotation: its change announces a rollout, and allows a change of immutable keys.
pub const RESTART_REVISION_ANNOTATION: &str = "wva.llmd.ai/restart-revision";

/// Name of an unknown accelerator in status and metrics.
pub const UNRESOLVED_ACCELERATOR: &str = "unresolved";

/// Default cost of a replica, in the user's unit.
pub const DEFAULT_VARIANT_COST: &str = "10.0";

/// Default name of the main ConfigMap, in the controller's namespace.
pub const MAIN_MAP_NAME: &str = "wva-variantautoscaling-config";
/// Names after the configured one. Only the first existing map is read.
pub const SATURATION_MAP_NAMES: [&str; 3] =
    [LOCAL_SATURATION_MAP_NAME, "saturation-scaling-config", "capacity-scaling-config"];
/// Names of the global scale-to-zero map. Only the first existing map is read.
pub const SCALE_TO_ZERO_MAP_NAMES: [&str; 2] = [LOCAL_SCALE_TO_ZERO_MAP_NAME, "model-scale-to-zero-config"];
/// Read in addition to `SERVICE_CLASS_CONFIG_MAP_NAME`.
pub const SERVICE_CLASS_MAP_NAME: &str = "serviceclass";
/// Name of a namespace-local saturation map.
pub const LOCAL_SATURATION_MAP_NAME: &str = "wva-saturation-scaling-config";
/// Name of a namespace-local scale-to-zero map.
pub const LOCAL_SCALE_TO_ZERO_MAP_NAME: &str = "wva-model-scale-to-zero-config";
/// Key with a list of all classes. Every other key has one class.
pub const SERVICE_CLASSES_KEY: &str = "serviceClasses";
/// Metric that HPAs and ScaledObjects follow.
pub const DESIRED_REPLICAS_METRIC: &str = "wva_desired_replicas";
/// Name of [`DESIRED_REPLICAS_METRIC`] in llm-d WVA; also published unless `WVA_LEGACY_METRICS=false`.
pub const LEGACY_DESIRED_REPLICAS_METRIC: &str = "inferno_desired_replicas";

/// [`DESIRED_REPLICAS_METRIC`] or its legacy name.
#[must_use]
pub fn is_desired_replicas(metric: &str) -> bool {
    [DESIRED_REPLICAS_METRIC, LEGACY_DESIRED_REPLICAS_METRIC].contains(&metric)
}

/// The query contains either name.
#[must_use]
pub fn reads_desired_replicas(query: &str) -> bool {
    [DESIRED_REPLICAS_METRIC, LEGACY_DESIRED_REPLICAS_METRIC].iter().any(|metric| query.contains(metric))
}
