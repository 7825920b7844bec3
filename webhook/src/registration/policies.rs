//! The `ValidatingAdmissionPolicy` objects and their bindings: what the API server refuses by itself while no replica
//! answers. They have the webhook's selectors, and rules of `wva-rules` that need no context.

use serde_json::{Value, json};
use wva_rules::{InstancePolicy, PolicyInstance, main_map_policy, variant_policy};

use super::entries::{ENTRIES, Entry, Phase, Subject};
use super::render::{Door, NOT_FINALIZER_REMOVAL, namespaces, objects, wanted};

/// The policies and bindings of an install, as one `List`.
#[must_use]
pub fn render_policies(door: &Door<'_>) -> Value {
    let of = PolicyInstance {
        instance: door.instance.unwrap_or_default(),
        instance_policy: match door.policy {
            InstancePolicy::Inject => "inject",
            InstancePolicy::Require => "require",
            InstancePolicy::Ignore => "ignore",
        },
        namespaces: if door.watch_namespace.is_some() { "one" } else { "all" },
    };
    let [variants, main_map] = ["variants", "main-map"].map(|part| format!("{}-{part}", door.name));
    let mut items = vec![
        object("ValidatingAdmissionPolicy", &variants, &variant_policy_spec(of)),
        object("ValidatingAdmissionPolicy", &main_map, &main_map_policy_spec(door.main_config_map)),
    ];
    let validating = ENTRIES.iter().filter(|e| e.phase == Phase::Validating && wanted(door, e.subject));
    for entry in validating.filter(|e| e.is_about_variants()) {
        let name = if entry.subject == Subject::Variants {
            variants.clone()
        } else {
            format!("{variants}-unlabelled")
        };
        let matches = json!({
            "matchPolicy": "Equivalent",
            "namespaceSelector": namespaces(door, entry.subject),
            "objectSelector": objects(door, entry.subject),
        });
        items.push(binding(&name, &variants, &matches));
    }
    let matches =
        json!({"matchPolicy": "Equivalent", "namespaceSelector": only(door.namespace), "objectSelector": {}});
    items.push(binding(&main_map, &main_map, &matches));
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// The policy for variants, complete but for its name.
#[must_use]
pub fn variant_policy_spec(of: PolicyInstance<'_>) -> Value {
    let mut spec = variant_policy(of);
    if let Some(conditions) = spec["matchConditions"].as_array_mut() {
        conditions.push(json!({"name": "not-finalizer-removal", "expression": NOT_FINALIZER_REMOVAL}));
    }
    let rules = ENTRIES.iter().find(|e| e.subject == Subject::Variants).map(Entry::rules).unwrap_or_default();
    complete(spec, &rules)
}

/// The policy for the main map, complete but for its name. A new map is left to the webhook, which compares it with
/// the running process.
#[must_use]
pub fn main_map_policy_spec(main_config_map: &str) -> Value {
    let entry = ENTRIES.iter().find(|e| e.subject == Subject::MainConfigMap);
    let mut rules = entry.map(Entry::rules).unwrap_or_default();
    if let Some(rule) = rules.get_mut(0) {
        rule["operations"] = json!(["UPDATE"]);
        rule["resourceNames"] = json!([main_config_map]);
    }
    complete(main_map_policy(), &rules)
}

/// Names every default: the API server compares `matchConstraints` and `matchResources` as a whole, and a default that it
/// adds would be a conflict for the second server-side apply.
fn complete(mut spec: Value, rules: &Value) -> Value {
    spec["failurePolicy"] = json!("Fail");
    spec["matchConstraints"] = json!({
        "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": rules,
    });
    spec
}

/// The controller's namespace, unless that is one that no webhook sees.
fn only(namespace: &str) -> Value {
    const NAME: &str = "kubernetes.io/metadata.name";
    json!({"matchExpressions": [
        {"key": NAME, "operator": "In", "values": [namespace]},
        {"key": NAME, "operator": "NotIn", "values": ["kube-system"]},
    ]})
}

fn binding(name: &str, policy: &str, matches: &Value) -> Value {
    object(
        "ValidatingAdmissionPolicyBinding",
        name,
        &json!({"policyName": policy, "validationActions": ["Deny"], "matchResources": matches}),
    )
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}
