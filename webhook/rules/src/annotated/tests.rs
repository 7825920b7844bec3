//! An annotated HPA `h` of Deployment `d`, next to other objects.

use super::*;

fn hpa(name: &str, metadata: &Value, spec: &Value) -> Value {
    let metric = json!({"name": "wva_desired_replicas", "selector": {"matchLabels": {"variant_name": "v"}}});
    let target = json!({"type": "AverageValue", "averageValue": "1"});
    let annotations = json!({"llm-d.ai/managed": "true", "llm-d.ai/model-id": "m"});
    let mut hpa = json!({
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid of {name}"), "annotations": annotations},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 8,
            "metrics": [{"type": "External", "external": {"target": target, "metric": metric}}]},
    });
    for (key, value) in metadata.as_object().into_iter().flatten() {
        hpa["metadata"]["annotations"][key] = value.clone();
    }
    for (key, value) in spec.as_object().into_iter().flatten() {
        hpa["spec"][key] = value.clone();
    }
    hpa
}

/// The HPA without changes.
fn plain() -> Value {
    hpa("h", &json!({}), &json!({}))
}

#[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
fn variant(name: &str, workload: &str, metadata: Value) -> Value {
    let mut object = json!({"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": metadata,
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": workload},
            "modelID": "m", "variantCost": "10.0"}});
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!("ns");
    object
}

/// Judges the first autoscaler.
fn judge(autoscalers: &[Value], variants: &[Value]) -> AnnotationVerdict {
    let read = |object: &Value| {
        AnnotatedAutoscaler::new("ns", &Arc::new(Autoscaler::from_object(object).unwrap()), None)
    };
    let all: Vec<AnnotatedAutoscaler> = autoscalers.iter().filter_map(read).collect();
    let variants: Vec<ExistingVariant> = variants.iter().filter_map(ExistingVariant::read).collect();
    all[0].judge(&all, &variants)
}

/// The object that the first autoscaler should have.
fn object(autoscalers: &[Value], variants: &[Value]) -> Value {
    match judge(autoscalers, variants) {
        AnnotationVerdict::Variant(object) => object,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check_refused(autoscalers: &[Value], variants: &[Value], parts: &[&str]) {
    let verdict = judge(autoscalers, variants);
    let AnnotationVerdict::Refused(cause) = &verdict else { panic!("{verdict:?}") };
    for part in parts {
        assert!(cause.contains(part), "{part:?} is not in {cause:?}");
    }
}

#[test]
fn object_has_owner_marker_and_bounds_of_the_autoscaler() {
    let found = object(&[hpa("h", &json!({}), &json!({"minReplicas": 2}))], &[]);
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
    let mut stored = found.clone();
    stored["metadata"]["uid"] = json!("uid of v");
    let again = object(&[hpa("h", &json!({}), &json!({"minReplicas": 2}))], &[stored]);
    assert_eq!(again, found, "its own object changes nothing");
    let spec = &object(&[hpa("h", &json!({}), &json!({"maxReplicas": 9}))], &[])["spec"];
    assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(1), &json!(9)));
}

#[test]
fn hand_written_object_wins_also_over_an_existing_one() {
    let own = |metadata| variant("own", "d", metadata);
    let made = object(&[plain()], &[]);
    let verdict = judge(&[plain()], &[made.clone(), own(json!({}))]);
    assert_eq!(verdict, AnnotationVerdict::Replaced("own".to_owned()));
    let ending = own(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    assert!(matches!(judge(&[plain()], &[made, ending]), AnnotationVerdict::Variant(_)));
}

#[test]
fn invalid_object_has_no_workload() {
    let mut invalid = variant("own", "d", json!({}));
    invalid["spec"]["variantCost"] = json!("cheap");
    assert!(matches!(judge(&[plain()], &[invalid]), AnnotationVerdict::Variant(_)));
}

#[test]
fn refusals_name_the_field_the_value_and_the_remedy() {
    let check = |annotations: Value, spec: Value, parts: &[&str]| {
        check_refused(&[hpa("h", &annotations, &spec)], &[], parts);
    };
    check(json!({"llm-d.ai/model-id": ""}), json!({}), &["[llm-d.ai/model-id]: missing; add the name"]);
    check(
        json!({"llm-d.ai/variant-cost": "abc"}),
        json!({}),
        &["[llm-d.ai/variant-cost]", "abc", "10.0", "WVA-VA-003"],
    );
    check(json!({"wva.llmd.ai/mode": "off"}), json!({}), &["wva.llmd.ai/mode", "off", "WVA-VA-017"]);
    check(json!({}), json!({"minReplicas": 9}), &["minReplicas", "WVA-VA-"]);
}

#[test]
fn two_annotated_autoscalers_of_one_workload_name_each_other() {
    let other = hpa("other", &json!({}), &json!({}));
    check_refused(&[plain(), other], &[], &["[llm-d.ai/managed]", "HPA other", "Deployment d", "keep one"]);
    let other = hpa("other", &json!({"llm-d.ai/managed": "false"}), &json!({}));
    assert!(matches!(judge(&[plain(), other], &[]), AnnotationVerdict::Variant(_)));
}

#[test]
fn taken_name_is_refused_and_a_leftover_is_waited_for() {
    let taken = variant("v", "another", json!({}));
    let parts = ["VariantAutoscaling v exists", "wva did not create it", "variant_name"];
    check_refused(&[plain()], &[taken], &parts);
    // An object of an autoscaler that has lost its annotations.
    let owner = json!([{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "name": "old", "uid": "u",
        "controller": true}]);
    let made = json!({"labels": {"app.kubernetes.io/managed-by": "wva"}, "ownerReferences": owner});
    for (name, workload) in [("v", "another"), ("w", "d")] {
        let leftover = variant(name, workload, made.clone());
        assert_eq!(judge(&[plain()], &[leftover]), AnnotationVerdict::Waiting(name.to_owned()));
    }
}

#[test]
fn scaled_objects_have_the_bounds_of_keda() {
    let metadata = json!({"name": "s", "namespace": "ns", "uid": "u",
        "annotations": {"llm-d.ai/managed": "true", "llm-d.ai/model-id": "m"}});
    let scaled_object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata,
        "spec": {"scaleTargetRef": {"name": "d"}}});
    let object = object(&[scaled_object], &[]);
    assert_eq!(object["metadata"]["ownerReferences"][0]["apiVersion"], "keda.sh/v1alpha1");
    assert_eq!(object["metadata"]["name"], "d");
    assert_eq!((&object["spec"]["minReplicas"], &object["spec"]["maxReplicas"]), (&json!(0), &json!(100)));
}

#[test]
fn violations_name_annotation_value_and_remedy() {
    let of = |annotations: Value| {
        let variant = AnnotatedVariant::from_autoscaler(&hpa("h", &annotations, &json!({}))).unwrap();
        violations(&variant.object())
    };
    let cost = |cost: &str| json!({MODEL_ANNOTATION: "m", VARIANT_COST_ANNOTATION: cost});
    for good in ["10", "0", "40.5"] {
        assert_eq!(of(cost(good)), Vec::<String>::new(), "{good}");
    }
    for bad in ["$40/h", "-1", "1e3", "NaN"] {
        let found = of(cost(bad)).join("; ");
        for part in
            ["metadata.annotations[llm-d.ai/variant-cost]: ", bad, "use a number such as", "[WVA-VA-003]"]
        {
            assert!(found.contains(part), "{part:?} is not in {found:?}");
        }
    }
    let model = of(json!({MODEL_ANNOTATION: "a\tb"})).join("; ");
    assert!(
        model.starts_with("metadata.annotations[llm-d.ai/model-id]: ") && model.contains("[WVA-VA-008]"),
        "{model}"
    );
}
