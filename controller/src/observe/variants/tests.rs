//! Tests of target conflicts and of the changes that start a cycle.

use kube::runtime::watcher::Event;
use serde_json::{Value, json};
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
