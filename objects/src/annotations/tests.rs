use super::*;

/// An HPA of Deployment `d`.
fn hpa(annotations: &Value, labels: &Value, selector: &Value) -> Value {
    let metric = json!({"name": "wva_desired_replicas", "selector": selector});
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "annotations": annotations, "labels": labels},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "metrics": [{"type": "External", "external": {"metric": metric}}]},
    })
}

fn scaled_object(query: &str) -> Value {
    json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "s", "annotations": {MANAGED_ANNOTATION: "true", MODEL_ANNOTATION: "m"}},
        "spec": {"scaleTargetRef": {"name": "d"}, "triggers": [{"type": "prometheus", "metadata": {"query": query}}]},
    })
}

#[test]
fn annotation_counts_only_on_autoscalers_of_users() {
    let none = json!({});
    for (annotations, want) in [
        (json!({MANAGED_ANNOTATION: "true"}), true),
        (json!({MANAGED_ANNOTATION: "True"}), true),
        (json!({MANAGED_ANNOTATION: "false"}), false),
        (json!({MANAGED_ANNOTATION: ""}), false),
        (json!({MODEL_ANNOTATION: "m"}), false),
        (Value::Null, false),
    ] {
        assert_eq!(is_annotated(&hpa(&annotations, &none, &none)), want, "{annotations}");
    }
    let mut by_keda = hpa(&json!({MANAGED_ANNOTATION: "true"}), &none, &none);
    by_keda["metadata"]["ownerReferences"] = json!([{"kind": "ScaledObject", "controller": true}]);
    assert!(!is_annotated(&by_keda), "KEDA copies the annotations of a ScaledObject to its HPA");
    assert!(is_annotated(&scaled_object("")));
    assert!(!is_annotated(&json!({"kind": "Deployment", "metadata": by_keda["metadata"]})));
}

#[test]
fn reads_annotations_labels_and_selectors() {
    let annotations = json!({MANAGED_ANNOTATION: "true", MODEL_ANNOTATION: "m", VARIANT_COST_ANNOTATION: "40.0",
        MODE_ANNOTATION: "recommend", "other": "x"});
    let selector = json!({"matchLabels": {"variant_name": "v", "accelerator_type": "L40S"},
        "matchExpressions": [{"key": "controller_instance", "operator": "In", "values": ["blue"]}]});
    let variant = AnnotatedVariant::from_autoscaler(&hpa(&annotations, &json!({}), &selector)).unwrap();
    let want = json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {"name": "v", "labels": {ACCELERATOR_LABEL: "L40S", INSTANCE_LABEL: "blue"},
            "annotations": {MODE_ANNOTATION: "recommend"}},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "modelID": "m", "variantCost": "40.0"},
    });
    assert_eq!(variant.object(), want);
    let labels = json!({ACCELERATOR_LABEL: "H100", INSTANCE_LABEL: "green"});
    let variant = AnnotatedVariant::from_autoscaler(&hpa(&annotations, &labels, &selector)).unwrap();
    assert_eq!((variant.accelerator.as_deref(), variant.instance.as_deref()), (Some("H100"), Some("green")));
}

#[test]
fn name_is_the_selected_one_else_that_of_the_workload() {
    let annotations = json!({MANAGED_ANNOTATION: "true", MODEL_ANNOTATION: "m"});
    let name = |autoscaler: &Value| AnnotatedVariant::from_autoscaler(autoscaler).unwrap().name;
    let expression = |operator| json!({"matchExpressions": [{"key": "variant_name", "operator": operator, "values": ["v"]}]});
    for (selector, want, unrestricted) in [
        (json!({"matchLabels": {"variant_name": "v"}}), "v", 0),
        (expression("In"), "v", 0),
        (expression("NotIn"), "d", 0),
        (json!({"matchLabels": {"exported_namespace": "n"}}), "d", 1),
        (Value::Null, "d", 1),
    ] {
        let hpa = hpa(&annotations, &json!({}), &selector);
        assert_eq!(name(&hpa), want, "{selector}");
        assert_eq!(MetricSelection::from_autoscaler(&hpa).unrestricted.len(), unrestricted, "{selector}");
    }
    for (query, want) in [
        ("max(wva_desired_replicas{variant_name=\"v\", namespace='n'})", "v"),
        ("wva_desired_replicas{variant_name = 'v'}", "v"),
        ("wva_desired_replicas{variant_name=~\"v\"}", "d"),
        ("up{variant_name=\"v\"}", "d"),
    ] {
        assert_eq!(name(&scaled_object(query)), want, "{query}");
    }
}

#[test]
fn missing_fields_name_themselves() {
    let managed = json!({MANAGED_ANNOTATION: "true"});
    let error = AnnotatedVariant::from_autoscaler(&hpa(&managed, &json!({}), &json!({}))).unwrap_err();
    assert_eq!(error, AnnotationError::MissingModel);
    assert!(error.to_string().starts_with("metadata.annotations[llm-d.ai/model-id]: missing"));
    let mut hpa = hpa(&json!({MANAGED_ANNOTATION: "true", MODEL_ANNOTATION: "m"}), &json!({}), &json!({}));
    hpa["spec"]["scaleTargetRef"]["name"] = json!("");
    assert_eq!(AnnotatedVariant::from_autoscaler(&hpa), Err(AnnotationError::MissingTarget));
}
