//! The HPA or ScaledObject that follows the target of a variant, new or made from the one that the workload has.

use serde_json::{Value, json};
use wva_crds::events::ObjectKind;
use wva_crds::names::DESIRED_REPLICAS_METRIC;
use wva_objects::autoscaler::AutoscalerKind;
use wva_objects::limits::Limits;
use wva_objects::{SignalSource, Target, has_scaled_object, metric_name, metric_sources};
use wva_rules::KubernetesVersion;

use super::guess::Guess;
use super::workload::Workload;
use crate::cluster::{items, number, text};
use crate::migrate::autoscaler::{signal_metric, signal_query};
use crate::migrate::objects::{object, user_metadata};
use crate::validate::SourceObject;

/// Scale-up window in seconds: the target is stable already.
const SCALE_UP_WINDOW: u64 = 0;
/// Scale-down window in seconds, as in the chart. It suits the throughput analyzer.
const SCALE_DOWN_WINDOW: u64 = 60;
const DEFAULT_MAX: u64 = 10;
/// Address of Prometheus in the quick start.
const PROMETHEUS: &str = "http://prometheus-server.monitoring";

/// Fields with the least and the most replicas.
pub(super) fn bounds_fields(kind: AutoscalerKind) -> [&'static str; 2] {
    match kind {
        AutoscalerKind::Hpa => ["minReplicas", "maxReplicas"],
        AutoscalerKind::ScaledObject => ["minReplicaCount", "maxReplicaCount"],
    }
}

/// Autoscaler of the workload.
#[derive(Clone, Copy)]
pub(super) struct ExistingAutoscaler<'a> {
    pub(super) kind: AutoscalerKind,
    pub(super) object: &'a Value,
}

impl<'a> ExistingAutoscaler<'a> {
    /// All of a workload, except the HPAs that KEDA makes of ScaledObjects.
    pub(super) fn find(autoscalers: &'a [SourceObject], workload: &Workload) -> Vec<Self> {
        let all = autoscalers
            .iter()
            .filter(|source| workload.is_target_of(&source.namespace, Target::of_autoscaler(&source.object)));
        all.filter_map(|source| Self::new(&source.object)).collect()
    }

    fn new(object: &'a Value) -> Option<Self> {
        (!has_scaled_object(object)).then(|| Self { kind: AutoscalerKind::of(object), object })
    }

    pub(super) fn name(&self) -> &'a str {
        text(self.object, "/metadata/name")
    }

    pub(super) fn title(&self) -> String {
        format!("{} {}", self.kind.api().kind, self.name())
    }

    fn bounds(&self) -> [u64; 2] {
        let count = |field: &str| number(self.object, &format!("/spec/{field}"));
        match self.kind {
            // A manifest may have any version of the API, and fields that the API server would refuse.
            AutoscalerKind::Hpa => {
                [count("minReplicas").unwrap_or(1), count("maxReplicas").unwrap_or(DEFAULT_MAX)]
            }
            AutoscalerKind::ScaledObject => {
                let Limits { min, max, .. } = Limits::from_scaled_object(&self.object["spec"]);
                [min.into(), max.into()]
            }
        }
    }

    fn prometheus_trigger(&self) -> Option<&'a Value> {
        items(self.object, "/spec/triggers").find(|trigger| text(trigger, "/type") == "prometheus")
    }

    /// Names of its metrics. A trigger has a name only if it queries the metric of wva, else the type counts.
    pub(super) fn metrics(&self) -> Vec<String> {
        let mut names: Vec<&str> = metric_sources(self.object, self.kind).iter().map(metric_name).collect();
        if self.kind == AutoscalerKind::ScaledObject {
            for signal in SignalSource::all(self.object, self.kind) {
                names[signal.position] = DESIRED_REPLICAS_METRIC;
            }
        }
        names.into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}

/// Least and most replicas.
///
/// # Errors
/// The bounds exclude each other.
pub(super) fn find_bounds(
    kind: AutoscalerKind,
    existing: Option<&ExistingAutoscaler<'_>>,
    workload: &Workload,
    [min, max]: [Option<u64>; 2],
) -> Result<[Guess<u64>; 2], String> {
    let found = |at: usize| existing.map(|it| Guess::new(it.bounds()[at], format!("from {}", it.title())));
    let declared = |at: usize, field: &str| {
        let count = workload.bounds[at].filter(|count| at == 0 || *count > 0);
        count.map(|count| Guess::new(count, format!("from spec.predictor.{field}")))
    };
    let has_hpa = existing.is_some_and(|it| it.kind == AutoscalerKind::Hpa);
    let mut min = match min {
        Some(min) => Guess::from_flag(min),
        None => found(0).or_else(|| declared(0, "minReplicas")).unwrap_or_else(|| guess_min(workload)),
    };
    // Only some clusters accept an HPA with 0.
    if kind == AutoscalerKind::Hpa && min.value == 0 && min.source.is_some() && !has_hpa {
        min = Guess::new(
            1,
            "guess, because an HPA with 0 needs a feature gate; wva scales to and from 0 itself",
        );
    }
    let max = max.map(Guess::from_flag).or_else(|| found(1)).or_else(|| declared(1, "maxReplicas"));
    let max = max.unwrap_or_else(|| guess_max(workload, min.value));
    if min.value > max.value || max.value == 0 {
        return Err(format!(
            "at least {} replicas and at most {}: set --min and --max",
            min.value, max.value
        ));
    }
    Ok([min, max])
}

fn guess_min(workload: &Workload) -> Guess<u64> {
    match workload.replicas {
        0 => Guess::new(0, "guess, because the workload has 0 replicas now"),
        _ => Guess::new(1, "guess; --min sets it"),
    }
}

fn guess_max(workload: &Workload, min: u64) -> Guess<u64> {
    match workload.replicas.max(min) {
        more if more > DEFAULT_MAX => Guess::new(more, "guess: the replicas that it has or must have"),
        _ => Guess::new(DEFAULT_MAX, "guess; --max sets it"),
    }
}

/// Prometheus of the ScaledObject that exists, else a guess.
pub(super) fn find_prometheus(existing: Option<&ExistingAutoscaler<'_>>) -> Guess {
    let address =
        existing.and_then(|it| Some((it, text(it.prometheus_trigger()?, "/metadata/serverAddress"))));
    match address.filter(|(_, address)| !address.is_empty()) {
        Some((it, address)) => Guess::new(address.to_owned(), format!("from {}", it.title())),
        None => Guess::new(PROMETHEUS.to_owned(), "guess: the Prometheus of the quick start"),
    }
}

/// How the tolerance of the autoscaler came about.
pub(super) enum Tolerance {
    /// The cluster is not known; the value says so.
    Assumed(Guess),
    Known,
    /// The cluster has no tolerances. The note says what follows.
    NotInCluster(String),
}

impl Tolerance {
    pub(super) fn find(kind: AutoscalerKind, kubernetes: Option<KubernetesVersion>) -> Self {
        match kubernetes {
            Some(version) if version.has_hpa_tolerance() => Self::Known,
            Some(version) => Self::NotInCluster(format!(
                "HPAs of Kubernetes {version} have no tolerance field, and ignore steps below a tenth of the replicas: \
                 see \"Steps that the HPA ignores\" in docs/guides/connect-autoscaler.md"
            )),
            None => {
                let needs = match kind {
                    AutoscalerKind::Hpa => "Kubernetes 1.35",
                    AutoscalerKind::ScaledObject => "Kubernetes 1.35 and KEDA 2.18",
                };
                let source = format!("needs {needs} or later; for older ones set --kube-version");
                Self::Assumed(Guess::new("0".to_owned(), source))
            }
        }
    }
}

/// What an autoscaler needs.
pub(super) struct AutoscalerPlan<'a> {
    pub(super) kind: AutoscalerKind,
    /// Autoscaler of this kind that the workload has.
    pub(super) existing: Option<ExistingAutoscaler<'a>>,
    pub(super) namespace: &'a str,
    pub(super) variant: &'a str,
    pub(super) target: &'a Target,
    pub(super) bounds: [u64; 2],
    pub(super) prometheus: &'a str,
    /// Whether the cluster may know the tolerance of an HPA.
    pub(super) has_tolerance: bool,
}

impl AutoscalerPlan<'_> {
    pub(super) fn name(&self) -> &str {
        self.existing.as_ref().map_or(self.variant, ExistingAutoscaler::name)
    }

    pub(super) fn build(&self) -> Value {
        let metadata = match &self.existing {
            Some(existing) => user_metadata(existing.object),
            None => user_metadata(&json!({"metadata": {"name": self.variant, "namespace": self.namespace}})),
        };
        let spec = match self.kind {
            AutoscalerKind::Hpa => self.hpa_spec(),
            AutoscalerKind::ScaledObject => self.scaled_object_spec(),
        };
        let ObjectKind { api_version, kind } = self.kind.api();
        let mut object = object(api_version, kind, &metadata, &spec);
        set(&mut object, &["metadata", "namespace"], json!(self.namespace));
        object
    }

    fn hpa_spec(&self) -> Value {
        let Target { api_version, kind, name } = self.target;
        let mut behavior = self.existing_spec().pointer("/behavior").cloned().unwrap_or_default();
        self.set_steps(&mut behavior);
        json!({
            "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": name},
            "minReplicas": self.bounds[0],
            "maxReplicas": self.bounds[1],
            "behavior": behavior,
            "metrics": [signal_metric(self.variant, self.namespace)],
        })
    }

    /// Spec as in config/samples/keda-scaledobject.yaml.
    fn scaled_object_spec(&self) -> Value {
        let mut spec = self.existing_spec();
        let Target { api_version, kind, name } = self.target;
        let fallback = json!({"behavior": "currentReplicas", "failureThreshold": 3, "replicas": 1});
        for (field, value) in [
            ("scaleTargetRef", json!({"apiVersion": api_version, "kind": kind, "name": name})),
            ("pollingInterval", json!(15)),
            ("cooldownPeriod", json!(SCALE_DOWN_WINDOW)),
            ("fallback", fallback),
        ] {
            let is_static = field == "fallback"
                && spec.pointer("/fallback/behavior").is_none_or(|behavior| behavior == "static");
            // A fixed number of replicas while KEDA gets no target would scale the workload down.
            if spec.get(field).is_none() || is_static {
                set(&mut spec, &[field], value);
            }
        }
        for (field, count) in bounds_fields(self.kind).into_iter().zip(self.bounds) {
            set(&mut spec, &[field], json!(count));
        }
        let path = "/advanced/horizontalPodAutoscalerConfig/behavior";
        let mut behavior = spec.pointer(path).cloned().unwrap_or_default();
        self.set_steps(&mut behavior);
        set(&mut spec, &["advanced", "horizontalPodAutoscalerConfig", "behavior"], behavior);
        set(&mut spec, &["triggers"], json!([self.trigger()]));
        // A formula names the triggers that this one replaces.
        if let Some(advanced) = spec.pointer_mut("/advanced").and_then(Value::as_object_mut) {
            advanced.remove("scalingModifiers");
        }
        spec
    }

    /// Trigger for the signal, with the credentials of the Prometheus trigger that exists.
    fn trigger(&self) -> Value {
        let mut trigger = json!({"type": "prometheus", "metricType": "AverageValue", "metadata": {
            "serverAddress": self.prometheus,
            "query": signal_query(self.variant, self.namespace),
            "threshold": "1",
            "activationThreshold": "0",
            "ignoreNullValues": "false",
        }});
        let existing = self.existing.as_ref().and_then(ExistingAutoscaler::prometheus_trigger);
        for path in [&["metadata", "authModes"][..], &["metadata", "unsafeSsl"], &["authenticationRef"]] {
            if let Some(value) = existing.and_then(|it| it.pointer(&format!("/{}", path.join("/")))) {
                set(&mut trigger, path, value.clone());
            }
        }
        trigger
    }

    /// Windows, and a tolerance of 0: the target is a whole number of replicas.
    fn set_steps(&self, behavior: &mut Value) {
        for (direction, window) in [("scaleUp", SCALE_UP_WINDOW), ("scaleDown", SCALE_DOWN_WINDOW)] {
            set(behavior, &[direction, "stabilizationWindowSeconds"], json!(window));
            if self.has_tolerance {
                set(behavior, &[direction, "tolerance"], json!("0"));
            }
        }
    }

    fn existing_spec(&self) -> Value {
        let spec =
            self.existing.as_ref().and_then(|it| it.object.get("spec")).filter(|spec| spec.is_object());
        spec.cloned().unwrap_or_else(|| json!({}))
    }
}

/// Replaces what is not a map on the path.
fn set(value: &mut Value, path: &[&str], new: Value) {
    let Some((key, rest)) = path.split_first() else {
        *value = new;
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    if let Some(map) = value.as_object_mut() {
        set(map.entry(*key).or_insert(Value::Null), rest, new);
    }
}
