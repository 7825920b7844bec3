//! Each warning, in both kinds of autoscalers.

use serde_json::{Value, json};

use wva_objects::autoscaler::AutoscalerKind;

use super::*;
use crate::evaluate::validate_autoscaler;
use crate::kubernetes::KubernetesVersion;

const NEW: Option<KubernetesVersion> = Some(KubernetesVersion { major: 1, minor: 35 });
const OLD: Option<KubernetesVersion> = Some(KubernetesVersion { major: 1, minor: 34 });

/// Follows every step.
fn exact() -> Value {
    json!({"scaleUp": {"tolerance": "0"}, "scaleDown": {"tolerance": "0"}})
}

#[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
fn hpa(behavior: Value, more: &[Value]) -> Value {
    let metric = json!({"name": "wva_desired_replicas", "selector": {"matchLabels": {"variant_name": "a"}}});
    let signal =
        json!({"type": "External", "external": {"metric": metric, "target": {"type": "AverageValue"}}});
    let metrics: Vec<Value> = more.iter().cloned().chain([signal]).collect();
    json!({"kind": "HorizontalPodAutoscaler", "spec": {"behavior": behavior, "metrics": metrics}})
}

#[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
fn scaled_object(annotations: Value, spec: Value) -> Value {
    let query = "max(wva_desired_replicas{variant_name=\"a\"})";
    let trigger = json!({"type": "prometheus", "metadata": {"query": query}});
    let mut object = json!({"kind": "ScaledObject", "metadata": {"annotations": annotations},
        "spec": {"triggers": [trigger], "advanced": {"horizontalPodAutoscalerConfig": {"behavior": exact()}}}});
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

/// `code field: message` of each warning.
fn warnings(object: &Value, kubernetes: Option<KubernetesVersion>) -> Vec<String> {
    let kind = AutoscalerKind::of(object);
    let verdict = validate_autoscaler(&AutoscalerFacts { object, kind, kubernetes });
    verdict.violations.iter().map(|v| format!("{} {}: {}", v.code, v.field, v.message)).collect()
}

/// Behaviour with these tolerances; `null` sets none.
#[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
fn tolerances(up: Value, down: Value) -> Value {
    json!({"scaleUp": {"tolerance": up}, "scaleDown": {"tolerance": down}})
}

#[test]
fn warns_of_a_tolerance_above_0_once_an_object() {
    let found = |behavior: Value| warnings(&hpa(behavior, &[]), None);
    let warning = |direction: &str, found: &str| {
        let remedy = "set \"0\" in scaleUp and scaleDown (Kubernetes 1.35 or later)";
        let field = format!("spec.behavior.{direction}.tolerance");
        vec![format!("WVA-HPA-053 {field}: {found} lets the HPA ignore smaller steps; {remedy}")]
    };
    assert_eq!(found(Value::Null), warning("scaleUp", "the default 0.1"));
    assert_eq!(found(tolerances(json!("0"), json!("0"))), [""; 0]);
    assert_eq!(found(tolerances(json!(0), json!("0m"))), [""; 0]);
    assert_eq!(found(tolerances(json!("0"), json!(null))), warning("scaleDown", "the default 0.1"));
    assert_eq!(found(tolerances(json!(null), json!("50m"))), warning("scaleDown", "\"50m\""));
    assert_eq!(found(tolerances(json!(0.05), json!("0.2"))), warning("scaleUp", "0.05"));
    assert_eq!(found(tolerances(json!("x"), json!("0"))), [""; 0], "the API server refuses it");
}

#[test]
fn warns_of_no_tolerance_that_the_cluster_lacks() {
    let default = hpa(Value::Null, &[]);
    assert_eq!(warnings(&default, NEW).len(), 1);
    assert_eq!(warnings(&default, OLD), [""; 0]);
    let of_others = json!({"kind": "HorizontalPodAutoscaler", "spec": {"metrics": [{"type": "Resource"}]}});
    assert_eq!(warnings(&of_others, NEW), [""; 0], "it does not read the metric");
}

#[test]
fn reads_the_tolerance_of_the_hpa_that_keda_makes() {
    assert_eq!(warnings(&scaled_object(json!({}), json!({})), NEW), [""; 0]);
    let found = warnings(&scaled_object(json!({}), json!({"advanced": {}})), NEW);
    let field = "WVA-HPA-053 spec.advanced.horizontalPodAutoscalerConfig.behavior.scaleUp.tolerance: ";
    assert!(found[0].starts_with(field) && found.len() == 1, "{found:?}");
}

#[test]
fn warns_of_a_second_metric_that_can_win() {
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu"}});
    assert_eq!(
        warnings(&hpa(exact(), &[cpu]), NEW),
        [
            "WVA-HPA-054 spec.metrics[0]: cpu can ask for more replicas than the target, and the largest number \
             wins; remove it"
        ]
    );
    let mut object = scaled_object(json!({}), json!({}));
    let cron = json!({"type": "cron", "metadata": {"desiredReplicas": "5"}});
    object["spec"]["triggers"].as_array_mut().unwrap().push(cron);
    let found = warnings(&object, NEW);
    assert!(
        found[0].starts_with("WVA-HPA-054 spec.triggers[1]: cron can ask") && found.len() == 1,
        "{found:?}"
    );
    object["spec"]["advanced"]["scalingModifiers"] = json!({"formula": "max(a, b)"});
    assert_eq!(warnings(&object, NEW), [""; 0], "a formula makes one value of them");
}

#[test]
fn warns_of_a_disabled_direction() {
    let disabled = |direction: &str| {
        let mut behavior = exact();
        behavior[direction] = json!({"selectPolicy": "Disabled"});
        warnings(&hpa(behavior, &[]), NEW)
    };
    for (direction, stopped) in [("scaleUp", "scale-up"), ("scaleDown", "scale-down")] {
        let want = format!(
            "WVA-HPA-055 spec.behavior.{direction}.selectPolicy: Disabled stops {stopped}; the target is not \
             carried out, so remove it"
        );
        assert_eq!(disabled(direction), [want], "a disabled direction needs no tolerance");
    }
}

#[test]
fn warns_of_pauses_as_keda_reads_them() {
    let found = |key: &str, value: &str| {
        let annotations = json!({format!("autoscaling.keda.sh/{key}"): value});
        let found = warnings(&scaled_object(annotations, json!({})), NEW);
        found.into_iter().map(|w| w.split(" stops ").nth(1).unwrap_or(&w).to_owned()).collect::<Vec<_>>()
    };
    let want = |stopped: &str| vec![format!("{stopped}; the target is not carried out, so remove it")];
    assert_eq!(found("paused", "true"), want("scaling"));
    assert_eq!(found("paused", "yes"), want("scaling"), "KEDA reads any other text as true");
    assert_eq!(found("paused-replicas", "0"), want("scaling"));
    assert_eq!(found("paused-scale-in", "1"), want("scale-down"));
    assert_eq!(found("paused-scale-out", "true"), want("scale-up"));
    for (key, value) in [("paused", "False"), ("paused-scale-in", "0"), ("paused-scale-out", "f")] {
        assert_eq!(found(key, value), [""; 0], "{key}: {value}");
    }
}

#[test]
fn warns_of_idle_replicas_that_keda_refuses() {
    let found = |spec: Value| warnings(&scaled_object(json!({}), spec), NEW);
    assert_eq!(found(json!({"idleReplicaCount": 0, "minReplicaCount": 2})), [""; 0]);
    let message =
        "KEDA refuses 2, which is not below minReplicaCount 2; raise minReplicaCount or remove the field";
    assert_eq!(
        found(json!({"idleReplicaCount": 2, "minReplicaCount": 2})),
        [format!("WVA-HPA-056 spec.idleReplicaCount: {message}")]
    );
    assert_eq!(found(json!({"idleReplicaCount": 0})).len(), 1, "the minimum is 0 by default");
}
