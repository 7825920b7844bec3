//! Objects with which the API server itself refuses writes.

use serde_json::{Value, json};
use wva_testbed::install::SYSTEM;

/// Writes that the faults of the API server refuse: of statuses by the controller, of `/scale` by the HPA.
const REFUSED: [(&str, &str); 2] = [("llmd.ai", "variantautoscalings/status"), ("apps", "deployments/scale")];

/// A priority level without any seat: kube-apiserver answers 429.
pub(super) fn throttle() -> Value {
    let rules: Vec<Value> = REFUSED
        .iter()
        .map(|(group, resource)| {
            json!({"verbs": ["update", "patch"], "apiGroups": [group], "resources": [resource], "namespaces": ["*"]})
        })
        .collect();
    let version = "flowcontrol.apiserver.k8s.io/v1";
    let subjects = json!([
        {"kind": "Group", "group": {"name": format!("system:serviceaccounts:{SYSTEM}")}},
        {"kind": "Group", "group": {"name": "system:serviceaccounts:kube-system"}},
    ]);
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": version, "kind": "PriorityLevelConfiguration", "metadata": {"name": "refused"},
         "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 0, "lendablePercent": 0,
            "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}}},
        {"apiVersion": version, "kind": "FlowSchema", "metadata": {"name": "refused"},
         "spec": {"priorityLevelConfiguration": {"name": "refused"}, "matchingPrecedence": 2,
            "rules": [{"subjects": subjects, "resourceRules": rules}]}},
    ]})
}

/// A webhook whose address does not answer: kube-apiserver answers 500. `namespace`: empty for all.
pub(super) fn failing_webhook(namespace: &str) -> Value {
    let rules: Vec<Value> = REFUSED
        .iter()
        .map(|(group, resource)| {
            json!({"operations": ["UPDATE"], "apiGroups": [group], "apiVersions": ["*"], "resources": [resource]})
        })
        .collect();
    let selector = match namespace {
        "" => json!({}),
        name => json!({"matchLabels": {"kubernetes.io/metadata.name": name}}),
    };
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "refused"},
        "webhooks": [{"name": "refused.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": 1, "rules": rules,
            "namespaceSelector": selector,
            "clientConfig": {"url": "https://127.0.0.1:9/"}}]})
}
