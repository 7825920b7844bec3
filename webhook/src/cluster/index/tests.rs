//! Indexes find objects by key as watch events arrive.

use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::*;

fn variant(namespace: &str, name: &str, spec: &Value) -> DynamicObject {
    let meta = json!({"name": name, "namespace": namespace, "labels": {INSTANCE_LABEL: "a"},
        "creationTimestamp": "2026-01-02T03:04:05Z"});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
}

fn target(name: &str) -> Target {
    Target { api_version: "apps/v1".into(), kind: "Deployment".into(), name: name.into() }
}

/// Names of the variants with a key in namespace `ns`.
fn find_names(index: &Index<OtherVariant>, key: &Key) -> Vec<String> {
    index.values_by_key("ns", key).into_iter().map(|v| v.name).collect()
}

#[test]
fn finds_variants_by_target_and_by_model_with_cost() {
    let (mut observe, index) = variant_index();
    let spec = |target: &str, cost: &str| json!({"scaleTargetRef": {"name": target}, "modelID": "m", "variantCost": cost});
    observe(&Event::Init);
    for listed in [
        variant("ns", "x", &spec("llama", "10.0")),
        variant("ns", "y", &spec("qwen", "40")),
        variant("ns", "z", &spec("gemma", "10")),
        variant("other", "elsewhere", &spec("llama", "40")),
        variant("ns", "broken", &json!({"scaleTargetRef": 7, "modelID": "m", "variantCost": "3"})),
    ] {
        observe(&Event::InitApply(listed));
    }
    assert_eq!(find_names(&index, &Key::for_target(&target("llama"))), [""; 0], "the list is incomplete");
    observe(&Event::InitDone);
    let want = OtherVariant {
        name: "x".into(),
        instance: Some("a".into()),
        target: target("llama"),
        created: "2026-01-02T03:04:05Z".parse().ok(),
    };
    assert_eq!(index.values_by_key("ns", &Key::for_target(&target("llama"))), [want]);
    let beta = Target { api_version: "apps/v1beta2".into(), ..target("qwen") };
    assert_eq!(find_names(&index, &Key::for_target(&beta)), ["y"], "versions show one object");
    let set = Target { kind: "StatefulSet".into(), ..target("qwen") };
    assert_eq!(find_names(&index, &Key::for_target(&set)), [""; 0]);
    let cost = Key::ModelWithOwnCost("m".into());
    assert_eq!(find_names(&index, &cost), ["y"], "10.0 and 10 are the default cost");
    assert_eq!(index.other_name_by_key("ns", &cost, "x").as_deref(), Some("y"));
    assert_eq!(index.other_name_by_key("ns", &cost, "y"), None, "an object is not compared with itself");
    // After an update, only the new keys find the variant.
    observe(&Event::Apply(variant("ns", "x", &spec("qwen", "7"))));
    assert_eq!(find_names(&index, &Key::for_target(&target("llama"))), [""; 0]);
    assert_eq!(find_names(&index, &Key::for_target(&target("qwen"))), ["x", "y"]);
    assert_eq!(index.other_name_by_key("ns", &cost, "y").as_deref(), Some("x"));
    observe(&Event::Delete(variant("ns", "y", &json!({}))));
    assert_eq!(find_names(&index, &Key::for_target(&target("qwen"))), ["x"]);
    // Deleted while the watch was down.
    observe(&Event::Init);
    assert_eq!(find_names(&index, &cost), ["x"], "the old list counts until the new one is complete");
    observe(&Event::InitDone);
    assert_eq!(find_names(&index, &cost), [""; 0]);
}

#[test]
fn finds_autoscalers_by_their_target() {
    let (mut observe, index) = autoscaler_index();
    let hpa = |name: &str, version: Value, metrics: Value| -> HorizontalPodAutoscaler {
        let reference = json!({"apiVersion": version, "kind": "Deployment", "name": "llama"});
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"},
            "spec": {"scaleTargetRef": reference, "maxReplicas": 3, "metrics": metrics}}))
        .unwrap()
    };
    let external = |name: &str| {
        json!([{"type": "External", "external": {"metric": {"name": name},
            "target": {"type": "AverageValue"}}}])
    };
    let cpu = json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}]);
    for applied in [
        hpa("new", json!("apps/v1"), external("wva_desired_replicas")),
        hpa("old", json!(null), external("inferno_desired_replicas")),
        hpa("cpu", json!("apps/v1"), cpu),
        hpa("none", json!("apps/v1"), json!(null)),
        hpa("queue", json!("apps/v1"), external("queue_length")),
        hpa("rollout", json!("argoproj.io/v1"), external("wva_desired_replicas")),
    ] {
        observe(&Event::Apply(applied));
    }
    let key = Key::for_target(&target("llama"));
    let found: Vec<_> =
        index.values_by_key("ns", &key).into_iter().map(|r| (r.name, r.selectors.len())).collect();
    assert_eq!(found, [("new".to_owned(), 1), ("old".to_owned(), 1)]);

    let (mut observe, index) = scaled_object_index();
    let scaled = |name: &str, trigger: &str, query: &str| -> DynamicObject {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "ns"},
            "spec": {"scaleTargetRef": {"name": "llama"},
                "triggers": [{"type": "cron"}, {"type": trigger, "metadata": {"query": query}}]}}))
        .unwrap()
    };
    for applied in [
        scaled("new", "prometheus", "max(wva_desired_replicas{variant_name=\"x\"})"),
        scaled("old", "prometheus", "inferno_desired_replicas"),
        scaled("cpu", "prometheus", "rate(cpu[1m])"),
        scaled("file", "metrics-api", "wva_desired_replicas"),
        serde_json::from_value(json!({"metadata": {"name": "odd", "namespace": "ns"}, "spec": [7]})).unwrap(),
    ] {
        observe(&Event::Apply(applied));
    }
    let found: Vec<_> = index.values_by_key("ns", &key).into_iter().map(|r| r.name).collect();
    assert_eq!(found, ["new", "old"]);
}
