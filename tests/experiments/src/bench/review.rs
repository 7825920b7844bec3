//! Reviews in the API server's format, for the load generator: of a valid variant, and of one with many faults.

use serde_json::{Value, json};

/// Webhook paths, in the order of the API server's calls.
pub(super) const PATHS: [&str; 2] =
    ["/mutate-llmd-ai-v1alpha1-variantautoscaling", "/validate-llmd-ai-v1alpha1-variantautoscaling"];

/// A valid variant whose target and HPA have its name.
pub(super) fn good(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": {"inference.optimization/acceleratorName": "H100", "app.kubernetes.io/part-of": "llama"},
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "modelID": "meta-llama/Llama-3.1-8B-Instruct", "variantCost": "40.0", "minReplicas": 1, "maxReplicas": 10,
        },
    })
}

/// A variant with a fault in every field.
pub(super) fn bad(namespace: &str, name: &str) -> Value {
    let mut object = good(namespace, name);
    object["metadata"]["labels"]["inference.optimization/acceleratorName"] = json!("H");
    object["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "sometimes"});
    object["spec"] = json!({
        "scaleTargetRef": {"apiVersion": "batch/v1", "kind": "CronJob", "name": "Not A Name"},
        "modelID": " ", "variantCost": "-1", "minReplicas": 3, "maxReplicas": 1,
    });
    object
}

/// The review of a create, including the fields that the API server adds: they are a large part of the body.
pub(super) fn create(mut object: Value) -> Value {
    let (name, namespace) = (object["metadata"]["name"].clone(), object["metadata"]["namespace"].clone());
    let kind = json!({"group": "llmd.ai", "version": "v1alpha1", "kind": "VariantAutoscaling"});
    let resource = json!({"group": "llmd.ai", "version": "v1alpha1", "resource": "variantautoscalings"});
    object["metadata"]["uid"] = json!("2c7d7b0a-9f36-4f0e-8a7c-6f2b6f4e8f11");
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["generation"] = json!(1);
    object["metadata"]["managedFields"] = json!([{
        "apiVersion": "llmd.ai/v1alpha1", "fieldsType": "FieldsV1", "manager": "kubectl-create",
        "operation": "Update", "time": "2026-01-01T00:00:00Z",
        "fieldsV1": {
            "f:metadata": {"f:labels": {
                ".": {}, "f:app.kubernetes.io/part-of": {}, "f:inference.optimization/acceleratorName": {},
            }},
            "f:spec": {
                ".": {}, "f:maxReplicas": {}, "f:minReplicas": {}, "f:modelID": {}, "f:variantCost": {},
                "f:scaleTargetRef": {".": {}, "f:apiVersion": {}, "f:kind": {}, "f:name": {}},
            },
        },
    }]);
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": name, "namespace": namespace, "operation": "CREATE",
            "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
            "object": object, "oldObject": null, "dryRun": false,
            "options": {
                "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl-create",
                "fieldValidation": "Strict",
            },
        },
    })
}
