//! An annotated HPA `h` of Deployment `d`, next to other objects.

use serde_json::json;

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
    let watches = cluster.watches();
    let all = annotated_autoscalers(&watches, &Ownership::default());
    let one = all.iter().find(|a| &*a.name().name == "h").unwrap();
    one.judge(&all, &watches.variants.values_in("ns"))
}

/// The object that `h` should have.
fn object(cluster: &Cluster) -> Value {
    match judge(cluster) {
        AnnotationVerdict::Variant(object) => object,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check_refused(cluster: &Cluster, parts: &[&str]) {
    let verdict = judge(cluster);
    let AnnotationVerdict::Refused(cause) = &verdict else { panic!("{verdict:?}") };
    for part in parts {
        assert!(cause.contains(part), "{part:?} is not in {cause:?}");
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
fn object_has_owner_marker_and_bounds_of_the_autoscaler() {
    let mut cluster = Cluster::new();
    cluster.hpa_object(hpa("h", json!({"spec": {"minReplicas": 2}})));
    let found = object(&cluster);
    assert_eq!(
        found["metadata"],
        json!({"name": "v", "namespace": "ns", "labels": {"app.kubernetes.io/managed-by": "wva"},
            "ownerReferences": [{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "name": "h",
                "uid": "uid of h", "controller": true}]})
    );
    let spec = &found["spec"];
    assert_eq!(
        (&spec["minReplicas"], &spec["maxReplicas"], &spec["variantCost"]),
        (&json!(2), &json!(8), &json!("10.0"))
    );
    cluster.variant_object(stored(&cluster));
    assert_eq!(object(&cluster), found, "its own object changes nothing");
    cluster.hpa_object(hpa("h", json!({"spec": {"maxReplicas": 9}})));
    let spec = &object(&cluster)["spec"];
    assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(1), &json!(9)));
}

#[test]
fn hand_written_object_wins_also_over_an_existing_one() {
    let mut cluster = Cluster::new();
    cluster.hpa_object(hpa("h", json!({})));
    cluster.variant_object(stored(&cluster));
    cluster.variant_with_target("own", "Deployment", "d", "m", json!({}));
    assert_eq!(judge(&cluster), AnnotationVerdict::Replaced("own".to_owned()));
    cluster.variant_with_target(
        "own",
        "Deployment",
        "d",
        "m",
        json!({"metadata": {"deletionTimestamp": crate::fixture::CREATED}}),
    );
    assert!(matches!(judge(&cluster), AnnotationVerdict::Variant(_)));
}

#[test]
fn refusals_name_the_field_the_value_and_the_remedy() {
    let check = |over: Value, parts: &[&str]| {
        let mut cluster = Cluster::new();
        cluster.hpa_object(hpa("h", over));
        check_refused(&cluster, parts);
    };
    let annotations = |over: Value| json!({"metadata": {"annotations": over}});
    check(annotations(json!({"llm-d.ai/model-id": ""})), &["[llm-d.ai/model-id]: missing; add the name"]);
    check(
        annotations(json!({"llm-d.ai/variant-cost": "abc"})),
        &["[llm-d.ai/variant-cost]", "abc", "10.0", "WVA-VA-003"],
    );
    check(annotations(json!({"wva.llmd.ai/mode": "off"})), &["wva.llmd.ai/mode", "off", "WVA-VA-017"]);
    check(json!({"spec": {"minReplicas": 9}}), &["minReplicas", "WVA-VA-"]);
}

#[test]
fn two_annotated_autoscalers_of_one_workload_name_each_other() {
    let mut cluster = Cluster::new();
    cluster.hpa_object(hpa("h", json!({}))).hpa_object(hpa("other", json!({})));
    check_refused(&cluster, &["[llm-d.ai/managed]", "HPA other", "Deployment d", "keep one"]);
    cluster.hpa_object(hpa("other", json!({"metadata": {"annotations": {"llm-d.ai/managed": "false"}}})));
    assert!(matches!(judge(&cluster), AnnotationVerdict::Variant(_)));
}

#[test]
fn taken_name_is_refused_and_a_leftover_is_waited_for() {
    let mut cluster = Cluster::new();
    cluster.hpa_object(hpa("h", json!({})));
    cluster.variant_with_target("v", "Deployment", "another", "m", json!({}));
    check_refused(&cluster, &["VariantAutoscaling v exists", "wva did not create it", "variant_name"]);
    // An object of an autoscaler that has lost its annotations.
    let owner = json!([{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "name": "old", "uid": "u",
        "controller": true}]);
    let made =
        json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "wva"}, "ownerReferences": owner}});
    cluster.variant_with_target("v", "Deployment", "another", "m", made.clone());
    assert_eq!(judge(&cluster), AnnotationVerdict::Waiting("v".to_owned()));
    cluster.without_variant("v").variant_with_target("w", "Deployment", "d", "m", made);
    assert_eq!(judge(&cluster), AnnotationVerdict::Waiting("w".to_owned()));
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
fn scaled_objects_have_the_bounds_of_keda() {
    let mut cluster = Cluster::new();
    let metadata = json!({"name": "s", "namespace": "ns", "uid": "u",
        "annotations": {"llm-d.ai/managed": "true", "llm-d.ai/model-id": "m"}});
    let object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata,
        "spec": {"scaleTargetRef": {"name": "d"}}});
    cluster.scaled_object_from(object);
    let all = annotated_autoscalers(&cluster.watches(), &Ownership::default());
    let AnnotationVerdict::Variant(object) = all[0].judge(&all, &[]) else { panic!() };
    assert_eq!(object["metadata"]["ownerReferences"][0]["apiVersion"], "keda.sh/v1alpha1");
    assert_eq!(object["metadata"]["name"], "d");
    assert_eq!((&object["spec"]["minReplicas"], &object["spec"]["maxReplicas"]), (&json!(0), &json!(100)));
}
