//! An annotated HPA `h` of Deployment `d`, next to other objects.

use serde_json::{Value, json};
use wva_rules::AnnotationVerdict;

use super::*;
use crate::fixture::{Cluster, merge};

fn hpa(name: &str, over: Value) -> Value {
    let mut hpa = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid of {name}"), "annotations": {
            "llm-d.ai/managed": "true", "llm-d.ai/model-id": "m"}},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 8,
            "metrics": [{"type": "External", "external": {"target": {"type": "AverageValue", "averageValue": "1"},
                "metric": {"name": "wva_desired_replicas", "selector": {"matchLabels": {"variant_name": "v"}}}}}]},
    });
    merge(&mut hpa, over);
    hpa
}

fn judge(cluster: &Cluster) -> AnnotationVerdict {
    let all = annotated_autoscalers(&cluster.watches(), &Ownership::default());
    let one = all.iter().find(|a| &*a.name().name == "h").unwrap();
    one.judge(&all, &[])
}

/// The object that `h` should have.
fn object(cluster: &Cluster) -> Value {
    match judge(cluster) {
        AnnotationVerdict::Variant(object) => object,
        other => panic!("{other:?}"),
    }
}

/// The object of `h` as the API server stores it.
fn stored(cluster: &Cluster) -> Value {
    let mut object = object(cluster);
    object["metadata"]["uid"] = json!("uid of v");
    object
}

fn abandoned(cluster: &Cluster, ownership: &Ownership) -> Vec<String> {
    let watches = cluster.watches();
    let all = annotated_autoscalers(&watches, ownership);
    abandoned_variants(&watches, ownership, &all).iter().map(|v| v.key.name.clone()).collect()
}

#[test]
fn counts_only_autoscalers_of_this_instance() {
    let mut cluster = Cluster::new();
    let is_ours = |cluster: &Cluster, instance: Option<&str>| {
        let ownership = Ownership { instance: instance.map(str::to_owned), ..Ownership::default() };
        !annotated_autoscalers(&cluster.watches(), &ownership).is_empty()
    };
    cluster.hpa_object(hpa("h", json!({})));
    assert!(is_ours(&cluster, None) && !is_ours(&cluster, Some("blue")));
    cluster.namespace("ns", json!({"labels": {"wva.llmd.ai/controller-instance": "blue"}}));
    assert!(!is_ours(&cluster, None) && is_ours(&cluster, Some("blue")), "by the label of the namespace");
    cluster
        .hpa_object(hpa("h", json!({"metadata": {"labels": {"wva.llmd.ai/controller-instance": "green"}}})));
    assert!(!is_ours(&cluster, Some("blue")) && is_ours(&cluster, Some("green")), "by its own label");
    let ownership = Ownership { instance: Some("green".to_owned()), ..Ownership::default() };
    let all = annotated_autoscalers(&cluster.watches(), &ownership);
    let AnnotationVerdict::Variant(object) = all[0].judge(&all, &[]) else { panic!() };
    assert_eq!(object["metadata"]["labels"]["wva.llmd.ai/controller-instance"], "green");
    cluster.excluded_namespace("ns");
    assert!(!is_ours(&cluster, Some("green")), "its namespace is excluded");
}

#[test]
fn object_without_annotated_owner_is_abandoned() {
    let mut cluster = Cluster::new();
    let ownership = Ownership::default();
    cluster.hpa_object(hpa("h", json!({})));
    cluster.variant_object(stored(&cluster)).variant("hand-written", "m", json!({}));
    assert_eq!(abandoned(&cluster, &ownership), Vec::<String>::new());
    cluster.hpa_object(hpa("h", json!({"metadata": {"annotations": {"llm-d.ai/managed": "false"}}})));
    assert_eq!(abandoned(&cluster, &ownership), ["v"]);
    let other = Ownership { instance: Some("blue".to_owned()), ..Ownership::default() };
    assert_eq!(abandoned(&cluster, &other), Vec::<String>::new(), "another instance manages it");
    cluster.excluded_namespace("ns");
    assert_eq!(abandoned(&cluster, &ownership), Vec::<String>::new(), "its namespace is excluded");
    let mut cluster = Cluster::new();
    cluster.hpa_object(hpa("h", json!({})));
    let stored = stored(&cluster);
    let mut cluster = Cluster::new();
    cluster.variant_object(stored);
    assert_eq!(
        abandoned(&cluster, &ownership),
        Vec::<String>::new(),
        "the autoscaler is gone: Kubernetes deletes it"
    );
}

#[test]
fn finds_scaled_objects() {
    let mut cluster = Cluster::new();
    let metadata = json!({"name": "s", "namespace": "ns", "uid": "u",
        "annotations": {"llm-d.ai/managed": "true", "llm-d.ai/model-id": "m"}});
    cluster.scaled_object_from(json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": metadata, "spec": {"scaleTargetRef": {"name": "d"}}}));
    let all = annotated_autoscalers(&cluster.watches(), &Ownership::default());
    assert_eq!(all[0].name().to_string(), "ScaledObject s");
}
