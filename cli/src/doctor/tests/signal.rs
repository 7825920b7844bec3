//! Autoscalers that do not carry out the target, and the first link that is named.

use serde_json::{Value, json};

use super::world::World;
use super::{check, set_condition};

fn disable(w: &mut World, rules: &str) {
    w.hpas[0]["spec"]["behavior"] = json!({rules: {"selectPolicy": "Disabled"}});
}

fn replace_with_scaled_object(w: &mut World, spec: &Value) {
    let query = "wva_desired_replicas{variant_name=\"a\"}";
    let mut object = json!({"kind": "ScaledObject", "metadata": {"name": "s", "namespace": "prod"}, "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    object["spec"]["scaleTargetRef"] = json!({"name": "a"});
    object["spec"]["triggers"] = json!([{"type": "prometheus", "metadata": {"query": query}}]);
    w.hpas.clear();
    w.scaled_objects.push(object);
}

#[test]
fn names_a_paused_direction() {
    let up = "HPA h takes no step up: behavior.scaleUp.selectPolicy is Disabled [AutoscalerPaused]";
    check("autoscaler", &[up], |w| disable(w, "scaleUp"));
    check(
        "?selector",
        &["follows the target; it takes no step down: behavior.scaleDown.selectPolicy"],
        |w| {
            disable(w, "scaleDown");
        },
    );
}

/// Doctor took an empty kind for another workload, and reported that nothing scales this one.
#[test]
fn an_empty_kind_of_a_scaled_object_is_the_default() {
    check("?selector", &["ScaledObject s follows the target", "ScaledObject s 0..100"], |w| {
        replace_with_scaled_object(w, &json!({}));
        w.scaled_objects[0]["spec"]["scaleTargetRef"]["kind"] = json!("");
    });
}

#[test]
fn shows_that_a_scaled_object_idles_at_zero() {
    check("?selector", &["ScaledObject s 2..8, or 0 (idleReplicaCount)"], |w| {
        let bounds = json!({"idleReplicaCount": 0, "minReplicaCount": 2, "maxReplicaCount": 8});
        replace_with_scaled_object(w, &bounds);
        w.variant["status"]["desiredOptimizedAlloc"]["numReplicas"] = json!(2);
    });
}

#[test]
fn names_the_autoscaler_to_describe() {
    check("bounds", &["was not carried out", "kubectl describe hpa -n prod h"], |w| {
        set_condition(w, 0, "False", "NotCarriedOut", "The target 3 was not carried out");
    });
}

#[test]
fn a_missing_autoscaler_comes_before_its_series() {
    check("autoscaler", &["[NoAutoscaler]", "published, according to the status"], |w| {
        w.hpas.clear();
        w.signals.clear();
    });
}

#[test]
fn names_an_unmet_need() {
    let message = "The model needs more replicas than the maximum 1 allows";
    check("?bounds", &[message, "wva explain -n prod a"], |w| {
        let need = json!({"type": "NeedMet", "status": "False", "reason": "AtMaximum", "message": message});
        w.variant["status"]["conditions"].as_array_mut().unwrap().push(need);
    });
}
