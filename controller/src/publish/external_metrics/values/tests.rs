//! Which targets are served, and which are left out.

use kube::core::DynamicObject;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use wva_crds::names::{ACCELERATOR_LABEL, INSTANCE_LABEL, MODE_ANNOTATION};
use wva_runtime::cache::Writer;

use super::*;
use crate::publish::external_metrics::selector;

pub(in crate::publish::external_metrics) fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

/// A variant with a recent target of 3, changed by `change`.
pub(in crate::publish::external_metrics) fn va(
    namespace: &str,
    name: &str,
    change: impl FnOnce(&mut Value),
) -> Box<DynamicObject> {
    let mut va = json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {"name": name, "namespace": namespace, "labels": {}, "annotations": {}},
        "spec": {"scaleTargetRef": {"name": name}, "modelID": "m"},
        "status": {"desiredOptimizedAlloc": {
            "numReplicas": 3, "accelerator": "H100", "lastRunTime": "2026-11-20T11:59:30Z"}}
    });
    change(&mut va);
    Box::new(serde_json::from_value(va).unwrap())
}

/// Values of these variants in `prod`, read through the cache.
fn listed(vas: &[Box<DynamicObject>], metric: &str, selector: &Selector) -> ExternalMetricValueList {
    let mut writer = Writer::new(Variant::projection());
    for va in vas {
        writer.apply(&Event::Apply((**va).clone()));
    }
    values(&writer.reader().values_in("prod"), metric, selector, now())
}

#[track_caller]
fn served(vas: &[Box<DynamicObject>], query: &str) -> Vec<String> {
    let list = listed(vas, METRIC, &selector::parse(query).unwrap());
    list.items.into_iter().map(|i| format!("{}={}", i.metric_labels["variant_name"], i.value)).collect()
}

#[test]
fn a_list_has_the_form_that_hpas_expect() {
    let instance = |va: &mut Value| va["metadata"]["labels"][INSTANCE_LABEL] = json!("blue");
    let list = listed(&[va("prod", "a", instance)], METRIC, &Selector::default());
    let want = json!({
        "kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {},
        "items": [{
            "metricName": "wva_desired_replicas",
            "metricLabels": {"variant_name": "a", "exported_namespace": "prod", "accelerator_type": "H100",
                "controller_instance": "blue"},
            "timestamp": "2026-11-20T11:59:30Z",
            "value": "3"
        }]
    });
    assert_eq!(serde_json::to_value(list).unwrap(), want);
}

#[test]
fn outdated_and_invalid_targets_are_left_out() {
    let alloc = "/status/desiredOptimizedAlloc";
    let set = |path: &str, to: Value| {
        let path = path.to_owned();
        va("prod", "a", move |va| *va.pointer_mut(&path).unwrap() = to)
    };
    let ran = |at: &str| set(&format!("{alloc}/lastRunTime"), json!(at));
    let mode = |mode: &str| set("/metadata/annotations", json!({MODE_ANNOTATION: mode}));
    let leaving = va("prod", "a", |va| va["metadata"]["deletionTimestamp"] = json!("2026-11-20T11:59:59Z"));
    let replicas = |to: Value| set(&format!("{alloc}/numReplicas"), to);
    let rows: Vec<(&str, Box<DynamicObject>, &[&str])> = vec![
        ("a target", va("prod", "a", |_| {}), &["a=3"]),
        ("a target of 0 is a target", replicas(json!(0)), &["a=0"]),
        ("no status", set("/status", json!(null)), &[]),
        ("empty status", set("/status", json!({})), &[]),
        ("no target", set(alloc, json!(null)), &[]),
        ("no number", set(alloc, json!({"lastRunTime": "2026-11-20T11:59:30Z"})), &[]),
        ("a number below 0", replicas(json!(-1)), &[]),
        ("a number that is text", replicas(json!("3")), &[]),
        ("no time", set(alloc, json!({"numReplicas": 3})), &[]),
        ("a time that is none", ran("yesterday"), &[]),
        ("just young enough", ran("2026-11-20T11:45:00Z"), &["a=3"]),
        ("too old", ran("2026-11-20T11:44:59Z"), &[]),
        ("a writer whose clock is ahead", ran("2026-11-20T12:00:10Z"), &["a=3"]),
        ("a writer an hour ahead that died", ran("2026-11-20T13:00:00Z"), &[]),
        ("recommend", mode("recommend"), &[]),
        ("paused", mode("paused"), &["a=3"]),
        ("fixed", mode("fixed=3"), &["a=3"]),
        ("no scaleTargetRef", set("/spec", json!({"modelID": "m"})), &[]),
        ("being deleted", leaving, &[]),
        ("another namespace", va("dev", "a", |_| {}), &[]),
    ];
    for (what, va, want) in rows {
        assert_eq!(served(&[va], ""), want, "{what}");
    }
}

#[test]
fn the_accelerator_of_the_status_precedes_the_label() {
    let label = |to: Value| {
        move |va: &mut Value| {
            va["status"]["desiredOptimizedAlloc"]["accelerator"] = to;
            va["metadata"]["labels"][ACCELERATOR_LABEL] = json!("A100");
        }
    };
    let accelerator = |va: Box<DynamicObject>| {
        let list = listed(&[va], METRIC, &Selector::default());
        list.items[0].metric_labels["accelerator_type"].clone()
    };
    assert_eq!(accelerator(va("prod", "a", label(json!("H100")))), "H100");
    assert_eq!(accelerator(va("prod", "a", label(json!("")))), "A100");
    let neither = |va: &mut Value| va["status"]["desiredOptimizedAlloc"]["accelerator"] = json!(null);
    assert_eq!(accelerator(va("prod", "a", neither)), "unresolved");
}

#[test]
fn all_instances_are_served_and_selectors_filter_them() {
    let of = |instance: &'static str| {
        move |va: &mut Value| va["metadata"]["labels"][INSTANCE_LABEL] = json!(instance)
    };
    let vas = [
        va("prod", "c", of("blue")),
        va("prod", "a", |_| {}),
        va("dev", "d", |_| {}),
        va("prod", "b", of("red")),
    ];
    for (query, want) in [
        ("", &["a=3", "b=3", "c=3"][..]),
        ("variant_name=b,exported_namespace=prod", &["b=3"]),
        ("variant_name in (a,c)", &["a=3", "c=3"]),
        ("controller_instance=blue", &["c=3"]),
        ("!controller_instance", &["a=3"]),
        ("controller_instance notin (blue)", &["a=3", "b=3"]),
        ("accelerator_type!=H100", &[]),
    ] {
        assert_eq!(served(&vas, query), want, "{query}");
    }
}

#[test]
fn the_older_name_is_served_on_request_alone() {
    let rows = [
        (METRIC, false, true),
        (LEGACY_METRIC, true, true),
        (LEGACY_METRIC, false, false),
        ("x", true, false),
    ];
    for (metric, legacy, want) in rows {
        assert_eq!(is_served(metric, legacy), want, "{metric} {legacy}");
    }
    let list = listed(&[va("prod", "a", |_| {})], LEGACY_METRIC, &Selector::default());
    assert_eq!(list.items[0].metric_name, "inferno_desired_replicas");
}
