//! How objects are read, and which of two with one target counts.

use kube::runtime::watcher::Event;
use serde_json::json;

use super::testing::of;
use super::*;
use crate::watches::cache::Writer;

fn object(name: &str, created: &str, target: &str) -> Managed {
    let object: DynamicObject = serde_json::from_value(serde_json::json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {"name": name, "namespace": "ns", "creationTimestamp": created},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": target, "apiVersion": "apps/v1"}, "modelID": "m", "variantCost": "10.0"},
    }))
    .unwrap();
    of(&object)
}

#[test]
fn the_older_of_two_with_one_target_counts() {
    let mut all = [
        object("a", "2026-01-02T00:00:00Z", "t"),
        object("b", "2026-01-01T00:00:00Z", "t"),
        object("c", "2026-01-03T00:00:00Z", "other"),
    ];
    set_conflicts_aside(&mut all);
    let conflict = Unusable::Conflict { with: "b".into(), target: "Deployment/t".into() };
    assert_eq!(all[0].declared().err(), Some(&conflict));
    assert!(all[1].declared().is_ok() && all[2].declared().is_ok());
}

#[test]
fn two_of_one_age_are_ordered_by_name() {
    let mut all = [object("b", "2026-01-01T00:00:00Z", "t"), object("a", "2026-01-01T00:00:00Z", "t")];
    set_conflicts_aside(&mut all);
    assert!(all[0].declared().is_err() && all[1].declared().is_ok());
}

#[test]
fn an_object_from_before_todays_rules_is_set_aside_with_the_reason() {
    let object: DynamicObject = serde_json::from_value(serde_json::json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {"name": "old", "namespace": "ns"}, "spec": {"modelID": "m"},
    }))
    .unwrap();
    let Err(Unusable::Invalid(problem)) = Variant::read(&object).declared else { panic!("it is usable") };
    assert!(problem.contains("scaleTargetRef"), "{problem}");
}

#[test]
fn a_change_of_the_status_alone_is_no_reason_for_a_cycle() {
    let mut writer = Writer::new(Variant::kind());
    let base = json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {"name": "a", "namespace": "ns", "uid": "1", "annotations": {MODE_ANNOTATION: "auto"},
            "labels": {ACCELERATOR_LABEL: "H100", "team": "x"}, "deletionTimestamp": null},
        "spec": {"scaleTargetRef": {"name": "d"}, "modelID": "m", "variantCost": "10.0", "maxReplicas": 3},
        "status": {"currentReplicas": 1},
    });
    let mut changed = |path: &str, to: Value| {
        let mut object = base.clone();
        *object.pointer_mut(path).unwrap() = to;
        writer.take_in(&Event::Apply(serde_json::from_value(base.clone()).unwrap()));
        writer.take_in(&Event::Apply(serde_json::from_value(object).unwrap()))
    };
    assert!(!changed("/status/currentReplicas", json!(2)));
    assert!(!changed("/metadata/labels/team", json!("y")), "nobody reads it");
    for (path, to) in [
        ("/metadata/uid", json!("2")),
        ("/metadata/labels", json!({ACCELERATOR_LABEL: "L40S"})),
        ("/metadata/labels", json!({INSTANCE_LABEL: "blue"})),
        ("/metadata/annotations", json!({MODE_ANNOTATION: "paused"})),
        ("/metadata/annotations", json!({MODE_ANNOTATION: "sometimes"})),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("/spec/scaleTargetRef/name", json!("e")),
        ("/spec/modelID", json!("n")),
        ("/spec/variantCost", json!("11")),
        ("/spec/maxReplicas", json!(4)),
        ("/spec/maxReplicas", json!("four")),
    ] {
        assert!(changed(path, to.clone()), "{path} = {to}");
    }
}
