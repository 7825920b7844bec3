//! Time of evaluating all rules on an object in a busy namespace. `make bench-admission` requires at most 20 µs for a
//! variant; a map has no limit.

#![expect(clippy::unwrap_used, reason = "benchmark with fixed input")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::{Map, Value, json};
use wva_objects::{MetricReader, Target};
use wva_rules::{
    Facts, InstancePolicy, InstanceScope, MapFacts, MapRole, MapScope, Operation, OtherVariant, mutate,
    validate, validate_map,
};

/// A complete variant with managed fields, as the API server sends it.
fn variant() -> Value {
    json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {
            "name": "llama-8b-h100", "namespace": "prod", "generation": 1,
            "uid": "6b8a2a3e-93b8-4c07-a7be-1b1f6f3f0f53", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"inference.optimization/acceleratorName": "H100", "app.kubernetes.io/part-of": "llama"},
            "annotations": {"wva.llmd.ai/mode": "auto"},
            "managedFields": [{
                "apiVersion": "llmd.ai/v1alpha1", "fieldsType": "FieldsV1", "manager": "kubectl", "operation": "Update",
                "time": "2026-01-01T00:00:00Z",
                "fieldsV1": {
                    "f:metadata": {"f:labels": {".": {}, "f:inference.optimization/acceleratorName": {}}},
                    "f:spec": {".": {}, "f:modelID": {}, "f:variantCost": {}, "f:scaleTargetRef": {
                        ".": {}, "f:apiVersion": {}, "f:kind": {}, "f:name": {},
                    }},
                },
            }],
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llama-8b-h100"},
            "modelID": "meta-llama/Llama-3.1-8B", "variantCost": "40.0", "minReplicas": 1, "maxReplicas": 10,
        },
    })
}

/// The HPA of the variant.
fn reader() -> MetricReader {
    let hpa: HorizontalPodAutoscaler = serde_json::from_value(json!({
        "metadata": {"name": "llama-8b-h100"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llama-8b-h100"},
            "maxReplicas": 10,
            "metrics": [{"type": "External", "external": {
                "metric": {"name": "wva_desired_replicas", "selector": {"matchLabels": {
                    "variant_name": "llama-8b-h100", "exported_namespace": "prod",
                }}},
                "target": {"type": "AverageValue", "averageValue": "1"},
            }}],
        },
    }))
    .unwrap();
    MetricReader::from_hpa(&hpa).unwrap().1
}

/// Variants of the namespace with other targets.
fn other_variants() -> Vec<OtherVariant> {
    let target = |name: &str| Target {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: name.to_owned(),
    };
    (0..5)
        .map(|i| OtherVariant {
            name: format!("other-{i}"),
            instance: Some("a".to_owned()),
            target: target(&format!("other-{i}")),
            created: "2026-01-01T00:00:00Z".parse().ok(),
        })
        .collect()
}

/// A saturation map of ten entries: the default and nine models.
fn saturation_map() -> Value {
    let default =
        "kvCacheThreshold: 0.80\nqueueLengthThreshold: 5\nkvSpareTrigger: 0.10\nqueueSpareTrigger: 3\n";
    let mut data = Map::from_iter([("default".to_owned(), json!(default))]);
    for i in 0..9 {
        let entry = format!(
            "model_id: meta/llama-{i}\nnamespace: prod\nkvCacheThreshold: 0.7\nkvSpareTrigger: 0.1\n"
        );
        data.insert(format!("llama-{i}"), json!(entry));
    }
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": "wva-saturation-scaling-config", "namespace": "wva"},
    })
}

fn pass(c: &mut Criterion) {
    let (object, other_variants, readers) = (variant(), other_variants(), [reader()]);
    let mut relabelled = object.clone();
    relabelled["spec"]["variantCost"] = json!("50.0");
    let facts = Facts {
        instance: Some("a"),
        policy: InstancePolicy::Inject,
        instance_scope: InstanceScope::Own,
        is_namespace_owned: true,
        controller_namespace: Some("wva"),
        other_variants: &other_variants,
        readers: &readers,
        has_all_readers: true,
        target_exists: Some(true),
        is_accelerator_known: Some(true),
        ..Facts::new(&object)
    };
    let update = Facts { operation: Operation::Update, object: &relabelled, old: Some(&object), ..facts };
    let bad = json!({"metadata": {"name": "bad", "labels": {"inference.optimization/acceleratorName": "H"}}, "spec": {
        "scaleTargetRef": {"kind": "Pod", "name": "No!"}, "modelID": " ", "variantCost": "-1",
        "minReplicas": 3, "maxReplicas": 1,
    }});
    let refused = Facts { object: &bad, ..facts };
    assert_eq!(
        (mutate(&facts).patch.len(), mutate(&facts).violations),
        (1, Vec::new()),
        "admitted and labelled"
    );
    assert!(validate(&refused).denials().count() >= 6, "denied for every violation");

    let mut group = c.benchmark_group("va");
    for (name, facts) in [("create", &facts), ("update", &update), ("refused", &refused)] {
        group.bench_function(format!("mutate {name}"), |b| b.iter(|| mutate(black_box(facts))));
        group.bench_function(format!("validate {name}"), |b| b.iter(|| validate(black_box(facts))));
    }
    group.finish();

    let map = saturation_map();
    let facts = || MapFacts::new(&map, "wva", MapRole::Saturation, MapScope::Global);
    assert_eq!(validate_map(&facts()).violations, Vec::new(), "admitted");
    c.bench_function("saturation map of 10 entries", |b| {
        b.iter(|| validate_map(black_box(&facts())));
    });
}

criterion_group!(benches, pass);
criterion_main!(benches);
