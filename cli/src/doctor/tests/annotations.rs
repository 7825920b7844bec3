//! HPA `h` of Deployment `a` with the annotations of llm-d WVA v0.9.

use serde_json::{Value, json};

use super::world::{World, llm_d_wva};
use crate::doctor::annotation_facts::newest_notes;
use crate::doctor::annotations::check_annotations;
use crate::doctor::chain::State;

/// Checks the findings after a change: the states in order, and parts of their texts.
#[track_caller]
fn check(states: &[State], parts: &[&str], change: impl FnOnce(&mut World)) {
    let mut world = World::new();
    world.map = json!({"WVA_ANNOTATIONS": "true"});
    world.hpas[0]["metadata"]["uid"] = json!("u");
    world.hpas[0]["metadata"]["annotations"] =
        json!({"llm-d.ai/managed": "true", "llm-d.ai/model-id": "m", "llm-d.ai/variant-cost": "4"});
    change(&mut world);
    let findings = check_annotations(&world.facts());
    let found: Vec<State> = findings.iter().map(|finding| finding.state).collect();
    assert_eq!(found, states, "{findings:?}");
    let text = format!("{findings:?}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// The object that wva keeps for `h`.
fn kept(cost: &str) -> Value {
    json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {"name": "a", "namespace": "prod", "labels": {"app.kubernetes.io/managed-by": "wva"},
            "ownerReferences": [{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "name": "h",
                "uid": "u", "controller": true}]},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}, "modelID": "m",
            "variantCost": cost, "minReplicas": 1, "maxReplicas": 10},
    })
}

fn refusal(note: &str) -> Value {
    json!({"reason": "AnnotationsRefused", "note": note, "eventTime": "2026-01-01T00:59:00Z",
        "regarding": {"kind": "HorizontalPodAutoscaler", "namespace": "prod", "name": "h"}})
}

#[test]
fn counts_autoscalers_whose_object_is_right() {
    check(&[State::Fine], &["1 annotated autoscaler has a VariantAutoscaling"], |w| {
        w.annotations.variants = vec![kept("4")];
    });
    check(&[], &[], |w| w.hpas[0]["metadata"]["annotations"] = json!({}));
    check(&[], &[], |w| w.controllers = vec![llm_d_wva()]);
    check(&[], &[], |w| {
        w.namespaces[0]["metadata"]["annotations"] = json!({"wva.llmd.ai/exclude": "true"});
    });
}

#[test]
fn names_the_hand_written_object_that_wins() {
    check(
        &[State::Fine],
        &["HorizontalPodAutoscaler prod/h: VariantAutoscaling own has its workload"],
        |w| {
            let mut own = kept("4");
            own["metadata"] = json!({"name": "own", "namespace": "prod"});
            w.annotations.variants = vec![own];
        },
    );
}

#[test]
fn names_annotation_value_and_remedy() {
    let parts =
        ["llm-d.ai/variant-cost", "$4", "WVA-VA-003", "kubectl edit horizontalpodautoscalers -n prod h"];
    check(&[State::Broken], &parts, |w| {
        w.hpas[0]["metadata"]["annotations"]["llm-d.ai/variant-cost"] = json!("$4");
    });
    // A release reverts it, or its next upgrade conflicts.
    check(
        &[State::Broken],
        &["horizontalpodautoscalers prod/h: change it in the values of its Helm release"],
        |w| {
            w.hpas[0]["metadata"]["annotations"]["llm-d.ai/variant-cost"] = json!("$4");
            w.hpas[0]["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
        },
    );
}

#[test]
fn shows_what_the_api_server_refused() {
    check(&[State::Broken], &["too many models", "kubectl describe"], |w| {
        w.annotations.refusals = newest_notes(&json!({"items": [refusal("too many models")]}));
    });
    let parts = ["VariantAutoscaling a has earlier values: too many models"];
    check(&[State::Warning], &parts, |w| {
        w.annotations.variants = vec![kept("3")];
        w.annotations.refusals = newest_notes(&json!({"items": [refusal("too many models")]}));
    });
    check(&[State::Broken], &["has no VariantAutoscaling", "WVA_ANNOTATIONS is true"], |_| {});
    check(&[State::Unknown], &["no VariantAutoscaling yet"], |w| {
        w.hpas[0]["metadata"]["creationTimestamp"] = json!("2026-01-01T00:59:30Z");
    });
}

#[test]
fn warns_if_the_setting_is_off() {
    check(
        &[State::Warning],
        &["WVA_ANNOTATIONS is off: HorizontalPodAutoscaler prod/h", "wva.annotations=true"],
        |w| {
            w.map = json!({});
        },
    );
}

#[test]
fn newest_event_counts() {
    let mut older = refusal("older");
    older["eventTime"] = json!("2026-01-01T00:01:00Z");
    let notes = newest_notes(&json!({"items": [refusal("newer"), older]}));
    assert_eq!(notes.into_values().collect::<Vec<_>>(), ["newer"]);
}
