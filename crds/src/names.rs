//! Names that deployed manifests, dashboards and HPAs rely on to the letter.

/// API group of `VariantAutoscaling`.
pub const GROUP: &str = "llmd.ai";
/// Version of `VariantAutoscaling`.
pub const VERSION: &str = "v1alpha1";
/// Kind of the resource.
pub const KIND: &str = "VariantAutoscaling";
/// Plural, as in URLs and RBAC rules.
pub const PLURAL: &str = "variantautoscalings";

/// VA label: accelerator name, e.g. `H100`; becomes the metric label `accelerator_type`.
pub const ACCELERATOR_LABEL: &str = "inference.optimization/acceleratorName";
/// VA label (and Namespace label): the controller instance that manages it.
pub const INSTANCE_LABEL: &str = "wva.llmd.ai/controller-instance";
/// Pod label: `prefill` or `decode` where a pod does only that part of a request.
pub const ROLE_LABEL: &str = "llm-d.ai/role";
/// Namespace label: read namespace-local config maps there before any VA exists.
pub const CONFIG_ENABLED_LABEL: &str = "wva.llmd.ai/config-enabled";
/// Namespace annotation: nothing of this namespace is managed.
pub const EXCLUDE_ANNOTATION: &str = "wva.llmd.ai/exclude";
/// VA annotation: `auto`, `recommend`, `paused` or `fixed=N`.
pub const MODE_ANNOTATION: &str = "wva.llmd.ai/mode";
/// VA annotation: `"true"` lets one update move the object to another instance.
pub const ALLOW_INSTANCE_CHANGE_ANNOTATION: &str = "wva.llmd.ai/allow-instance-change";
/// VA annotation: `"true"` turns the refusal of a shared target into a warning.
pub const ALLOW_SHARED_TARGET_ANNOTATION: &str = "wva.llmd.ai/allow-shared-target";
/// Main ConfigMap annotation: a change of it states that the change of immutable keys comes with a rollout.
pub const RESTART_REVISION_ANNOTATION: &str = "wva.llmd.ai/restart-revision";

/// What status and metrics say for an accelerator that cannot be told.
pub const UNRESOLVED_ACCELERATOR: &str = "unresolved";

/// Cost of a replica where a VA names none, in the user's own unit.
pub const DEFAULT_VARIANT_COST: &str = "10.0";

/// The main ConfigMap where `CONFIG_MAP_NAME` names no other; read in the controller's namespace alone.
pub const MAIN_MAP_NAME: &str = "wva-variantautoscaling-config";
/// Global saturation maps, after the configured one: the first that exists is read, and only that one.
pub const SATURATION_MAP_NAMES: [&str; 3] =
    [LOCAL_SATURATION_MAP_NAME, "saturation-scaling-config", "capacity-scaling-config"];
/// Global scale-to-zero maps: the first that exists is read, and only that one.
pub const SCALE_TO_ZERO_MAP_NAMES: [&str; 2] = [LOCAL_SCALE_TO_ZERO_MAP_NAME, "model-scale-to-zero-config"];
/// The map of service classes, beside the one that `SERVICE_CLASS_CONFIG_MAP_NAME` names.
pub const SERVICE_CLASS_MAP_NAME: &str = "serviceclass";
/// The saturation map of a namespace other than the controller's has exactly this name.
pub const LOCAL_SATURATION_MAP_NAME: &str = "wva-saturation-scaling-config";
/// The scale-to-zero map of a namespace other than the controller's has exactly this name.
pub const LOCAL_SCALE_TO_ZERO_MAP_NAME: &str = "wva-model-scale-to-zero-config";
/// Key of a service class map that holds a list of all classes; every other key holds one class.
pub const SERVICE_CLASSES_KEY: &str = "serviceClasses";
/// The metric that HPAs and ScaledObjects follow.
pub const DESIRED_REPLICAS_METRIC: &str = "wva_desired_replicas";
/// Its name in the first releases, served too unless `WVA_LEGACY_METRICS` says otherwise.
pub const LEGACY_DESIRED_REPLICAS_METRIC: &str = "inferno_desired_replicas";

/// Whether a metric is the one that HPAs follow, under its present name or that of the first releases.
#[must_use]
pub fn is_desired_replicas(metric: &str) -> bool {
    [DESIRED_REPLICAS_METRIC, LEGACY_DESIRED_REPLICAS_METRIC].contains(&metric)
}

/// Whether a query reads that metric.
#[must_use]
pub fn reads_desired_replicas(query: &str) -> bool {
    [DESIRED_REPLICAS_METRIC, LEGACY_DESIRED_REPLICAS_METRIC].iter().any(|metric| query.contains(metric))
}
