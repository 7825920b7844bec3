use serde_json::json;

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "callers write JSON in place")]
fn scaled_object(metadata: Value, spec: Value, status: Value) -> Autoscaler {
    let object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata,
        "spec": spec, "status": status});
    Autoscaler::from_scaled_object(&serde_json::from_value(object).unwrap())
}

#[expect(clippy::needless_pass_by_value, reason = "callers write JSON in place")]
fn hpa(metrics: Value, status: Value) -> Autoscaler {
    let spec = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 3,
        "metrics": metrics});
    let object = json!({"metadata": {"name": "h"}, "spec": spec, "status": status});
    Autoscaler::from_hpa(&serde_json::from_value(object).unwrap())
}

#[expect(clippy::needless_pass_by_value, reason = "callers write JSON in place")]
fn signal(target: Value) -> Value {
    json!([{"type": "External", "external": {"metric": {"name": "wva_desired_replicas"}, "target": target}}])
}

#[test]
fn scaled_object_targets_deployment_by_default() {
    let read = |target: Value| {
        let read = scaled_object(json!({"name": "s"}), json!({"scaleTargetRef": target}), Value::Null);
        (read.kind.to_string(), read.name.to_string())
    };
    let of = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
    assert_eq!(read(json!({"name": "d"})), of("Deployment", "d"));
    assert_eq!(
        read(json!({"name": "s", "kind": "StatefulSet", "apiVersion": "apps/v1"})),
        of("StatefulSet", "s")
    );
    let group = json!({"name": "l", "kind": "LeaderWorkerSet", "apiVersion": "leaderworkerset.x-k8s.io/v1"});
    assert_eq!(read(group), of("LeaderWorkerSet.leaderworkerset.x-k8s.io", "l"));
    assert_eq!(read(Value::Null), of("Deployment", ""));
}

#[test]
fn hpa_follows_one_to_one_only_with_average_value_1() {
    for (target, one_to_one) in [
        (json!({"type": "AverageValue", "averageValue": "1"}), true),
        (json!({"type": "AverageValue", "averageValue": "1000m"}), true),
        (json!({"type": "AverageValue", "averageValue": "2"}), false),
        (json!({"type": "Value", "value": "1"}), false),
    ] {
        let reader = hpa(signal(target.clone()), Value::Null).signal.unwrap();
        assert_eq!(reader.is_one_to_one, one_to_one, "{target}");
    }
    assert_eq!(hpa(json!([]), Value::Null).signal, None);
}

#[test]
fn scaled_object_follows_one_to_one_only_with_threshold_1() {
    let query = "wva_desired_replicas{variant_name=\"a\"}";
    let read = |kind: Value, threshold: Value, modifiers: Value| {
        let trigger = json!({"type": "prometheus", "metricType": kind, "metadata": {"query": query, "threshold": threshold}});
        let spec = json!({"scaleTargetRef": {"name": "d"}, "triggers": [trigger],
            "advanced": {"scalingModifiers": modifiers}});
        scaled_object(json!({"name": "s"}), spec, Value::Null).signal.unwrap().is_one_to_one
    };
    assert!(read(Value::Null, json!("1"), Value::Null));
    assert!(read(json!("AverageValue"), json!("1.0"), Value::Null));
    assert!(!read(Value::Null, json!("10"), Value::Null));
    assert!(!read(json!("Value"), json!("1"), Value::Null));
    let formula = |target: &str| json!({"formula": "a + b", "target": target});
    assert!(read(Value::Null, json!("10"), formula("1")));
    assert!(!read(Value::Null, json!("1"), formula("2")));
}

#[test]
fn total_is_average_times_pods() {
    let metric = |value: Value| json!([{"type": "External", "external": {"metric": {"name": "wva_desired_replicas"}, "current": value}}]);
    let total = |value: Value, current: u32, created: u32| {
        let status =
            json!({"currentReplicas": current, "desiredReplicas": 1, "currentMetrics": metric(value)});
        let read = hpa(signal(json!({"type": "AverageValue", "averageValue": "1"})), status);
        read.received(read.signal.as_ref(), created).next().unwrap()
    };
    // Five by three pods, rounded up.
    let five = total(json!({"averageValue": "1667m"}), 3, 3);
    assert!(five.equals(5) && !five.equals(4) && !five.equals(6));
    assert_eq!(five.replicas(), 5);
    assert!(total(json!({"averageValue": "1667m"}), 5, 3).equals(5), "a quota admits three of five pods");
    assert!(total(json!({"value": "5"}), 3, 3).equals(5));
    assert!(total(json!({"averageValue": "0"}), 2, 2).equals(0));
    assert!(total(json!({"averageValue": "2k"}), 1, 1).equals(2000));
}

#[test]
fn reads_state_from_conditions() {
    let hpa_with = |able: &str, active: &str, reason: &str| {
        let conditions = json!([{"type": "AbleToScale", "status": able, "reason": reason},
            {"type": "ScalingActive", "status": active, "reason": reason, "message": "why"}]);
        hpa(json!([]), json!({"desiredReplicas": 1, "currentMetrics": null, "conditions": conditions})).state
    };
    let failing = |reason| failure(reason, "");
    assert_eq!(hpa_with("True", "True", ""), AutoscalerState::Active);
    assert_eq!(hpa_with("True", "False", "ScalingDisabled"), AutoscalerState::AtZero);
    let reason = "FailedGetExternalMetric";
    assert_eq!(hpa_with("True", "False", reason), AutoscalerState::NoMetric(failing(reason)));
    assert_eq!(
        hpa_with("False", "True", "FailedGetScale"),
        AutoscalerState::Failing(failing("FailedGetScale"))
    );
    assert_eq!(hpa(json!([]), Value::Null).state, AutoscalerState::NoStatus);
    let keda = |ready: &str, fallback: &str| {
        let conditions = json!([{"type": "Ready", "status": ready, "reason": "R"}, {"type": "Fallback", "status": fallback}]);
        scaled_object(json!({"name": "s"}), json!({}), json!({"conditions": conditions})).state
    };
    assert_eq!(keda("True", "False"), AutoscalerState::Active);
    assert_eq!(keda("True", "True"), AutoscalerState::Fallback);
    assert_eq!(keda("False", "False"), AutoscalerState::Failing(failing("R")));
    assert_eq!(keda("Unknown", "False"), AutoscalerState::NoStatus);
}

#[test]
fn names_the_metric_with_the_highest_pressure() {
    let external = |name: &str| {
        json!({"type": "External", "external": {"metric": {"name": name},
        "target": {"type": "AverageValue", "averageValue": "1"}}})
    };
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 60}}});
    let metrics = json!([cpu, external("queue"), external("wva_desired_replicas")]);
    let of_cpu = |percent: u32| {
        json!({"type": "Resource", "resource": {"name": "cpu",
        "current": {"averageUtilization": percent, "averageValue": "1"}}})
    };
    let of_queue = json!({"type": "External", "external": {"metric": {"name": "queue"},
        "current": {"averageValue": "1500m"}}});
    let rival = |current: Value| {
        let read = hpa(metrics.clone(), json!({"desiredReplicas": 1, "currentMetrics": current}));
        read.rival(read.signal.as_ref().unwrap()).map(str::to_owned)
    };
    assert_eq!(rival(json!([of_cpu(120), of_queue])).as_deref(), Some("cpu"));
    assert_eq!(rival(json!([of_cpu(60), of_queue])).as_deref(), Some("queue"));
    assert_eq!(rival(Value::Null).as_deref(), Some("cpu"), "without values the first one");
    let alone = hpa(json!([external("wva_desired_replicas")]), Value::Null);
    assert_eq!(alone.rival(alone.signal.as_ref().unwrap()), None);
}

#[test]
fn reads_why_an_hpa_takes_a_smaller_step() {
    let pace = |able: &str, limited: &str| {
        let conditions = json!([{"type": "AbleToScale", "status": "True", "reason": able},
            {"type": "ScalingLimited", "status": "True", "reason": limited}]);
        hpa(json!([]), json!({"desiredReplicas": 1, "conditions": conditions})).pace
    };
    assert_eq!(pace("ScaleDownStabilized", "DesiredWithinRange"), Some(Pace::Stabilized));
    assert_eq!(pace("ScaleUpStabilized", "ScaleUpLimit"), Some(Pace::Stabilized));
    assert_eq!(pace("ReadyForNewScale", "ScaleUpLimit"), Some(Pace::Limited));
    assert_eq!(pace("ReadyForNewScale", "ScaleDownLimit"), Some(Pace::Limited));
    // A bound delays nothing.
    assert_eq!(pace("ReadyForNewScale", "TooManyReplicas"), None);
}
