//! Tests of target conflicts and of the changes that start a cycle.

use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use wva_crds::intent::Mode;
use wva_crds::names::{ACCELERATOR_LABEL, INSTANCE_LABEL, MODE_ANNOTATION};
use wva_runtime::cache::Writer;

use super::*;
use crate::fixture::Cluster;

#[test]
fn oldest_then_first_name_wins_a_target() {
    let mut cluster = Cluster::new();
    for (name, day, target) in [("a", 2, "t"), ("b", 1, "t"), ("c", 3, "other"), ("d", 1, "u"), ("e", 1, "u")]
    {
        let created = json!({"metadata": {"creationTimestamp": format!("2026-01-0{day}T00:00:00Z")}});
        cluster.variant_with_target(name, "Deployment", target, "m", created);
    }
    let all = managed_variants(&cluster.watches(), &Ownership::default());
    let conflict = VariantError::Conflict { with: "b".into(), target: "Deployment/t".into() };
    assert_eq!(all[0].spec().err(), Some(&conflict));
    let usable: Vec<_> = all.iter().filter(|m| m.spec().is_ok()).map(|m| m.key.name.as_str()).collect();
    assert_eq!(usable, ["b", "c", "d"]);
}

/// Without a webhook, an object may have both spellings.
#[test]
fn the_spec_wins_over_the_label_and_the_annotation() {
    let read = |spec: Value, accelerator: &str, mode: &str| {
        let mut object = json!({
            "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": {"name": "a", "namespace": "ns", "annotations": {MODE_ANNOTATION: mode},
                "labels": {ACCELERATOR_LABEL: accelerator}},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
                "modelID": "m", "variantCost": "10.0"},
        });
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let variant = Variant::read(&serde_json::from_value(object).unwrap());
        (variant.accelerator.clone(), variant.mode())
    };
    let h100 = Some("H100".to_owned());
    assert_eq!(read(json!({}), "H100", "fixed=3"), (h100.clone(), Some(Mode::Fixed(3))));
    let fixed = json!({"accelerator": "H100", "mode": "Fixed", "fixedReplicas": 4});
    assert_eq!(read(fixed.clone(), "A100", "paused"), (h100.clone(), Some(Mode::Fixed(4))));
    assert_eq!(read(fixed, "A", "sometimes"), (h100, Some(Mode::Fixed(4))), "what is overruled is not read");
    let a100 = Some("A100".to_owned());
    assert_eq!(read(json!({"mode": "Auto"}), "A100", "paused"), (a100.clone(), Some(Mode::Auto)));
    assert_eq!(read(json!({"mode": "Fixed"}), "A100", "auto"), (a100, None), "without a number");
}

#[test]
fn status_change_starts_no_cycle() {
    let mut writer = Writer::new(Variant::projection());
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
        writer.apply(&Event::Apply(serde_json::from_value(base.clone()).unwrap()));
        writer.apply(&Event::Apply(serde_json::from_value(object).unwrap()))
    };
    assert!(!changed("/status/currentReplicas", json!(2)));
    assert!(!changed("/metadata/labels/team", json!("y")), "this label is not read");
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
