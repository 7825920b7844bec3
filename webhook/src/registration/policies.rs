//! `ValidatingAdmissionPolicy` objects and their bindings, with the webhook's selectors and the rules that need no
//! context.

use serde_json::{Value, json};
use wva_rules::{InstancePolicy, PolicyInstance, main_map_policy, variant_policy};

use super::entries::{ENTRIES, Entry, Phase, Subject};
use super::render::{
    ConfigurationOptions, NOT_FINALIZER_REMOVAL, is_needed, namespace_selector, object_selector,
};

/// The policies as one `List`.
#[must_use]
pub fn render_policies(options: &ConfigurationOptions<'_>) -> Value {
    let instance = PolicyInstance {
        instance: options.instance.unwrap_or_default(),
        instance_policy: match options.policy {
            InstancePolicy::Inject => "inject",
            InstancePolicy::Require => "require",
            InstancePolicy::Ignore => "ignore",
        },
        namespaces: if options.watch_namespace.is_some() { "one" } else { "all" },
    };
    let [variants, main_map] = ["variants", "main-map"].map(|part| format!("{}-{part}", options.name));
    let mut items = vec![
        object("ValidatingAdmissionPolicy", &variants, &variant_policy_spec(instance)),
        object("ValidatingAdmissionPolicy", &main_map, &main_map_policy_spec(options.main_config_map)),
    ];
    let validating = ENTRIES.iter().filter(|e| e.phase == Phase::Validating && is_needed(options, e.subject));
    for entry in validating.filter(|e| e.reviews_variants()) {
        let name = if entry.subject == Subject::Variants {
            variants.clone()
        } else {
            format!("{variants}-unlabelled")
        };
        let matches = json!({
            "matchPolicy": "Equivalent",
            "namespaceSelector": namespace_selector(options, entry.subject),
            "objectSelector": object_selector(options, entry.subject),
        });
        items.push(binding(&name, &variants, &matches));
    }
    let matches = json!({"matchPolicy": "Equivalent", "namespaceSelector": only_namespace(options.namespace), "objectSelector": {}});
    items.push(binding(&main_map, &main_map, &matches));
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// Spec of the policy for variants.
#[must_use]
pub fn variant_policy_spec(instance: PolicyInstance<'_>) -> Value {
    let mut spec = variant_policy(instance);
    if let Some(conditions) = spec["matchConditions"].as_array_mut() {
        conditions.push(json!({"name": "not-finalizer-removal", "expression": NOT_FINALIZER_REMOVAL}));
    }
    let rules = ENTRIES.iter().find(|e| e.subject == Subject::Variants).map(Entry::rules).unwrap_or_default();
    with_defaults(spec, &rules)
}

/// Updates only: the webhook compares a new map with the running process.
#[must_use]
pub fn main_map_policy_spec(main_config_map: &str) -> Value {
    let entry = ENTRIES.iter().find(|e| e.subject == Subject::MainConfigMap);
    let mut rules = entry.map(Entry::rules).unwrap_or_default();
    if let Some(rule) = rules.get_mut(0) {
        rule["operations"] = json!(["UPDATE"]);
        rule["resourceNames"] = json!([main_config_map]);
    }
    with_defaults(main_map_policy(), &rules)
}

/// Adds `matchConstraints` with every default: a default of the API server would conflict with the next server-side
/// apply.
fn with_defaults(mut spec: Value, rules: &Value) -> Value {
    spec["failurePolicy"] = json!("Fail");
    spec["matchConstraints"] = json!({
        "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": rules,
    });
    spec
}

/// Never `kube-system`, which no webhook covers. A label, because `namespace:` of a Kustomize overlay changes it there.
fn only_namespace(namespace: &str) -> Value {
    const NAME: &str = "kubernetes.io/metadata.name";
    json!({
        "matchLabels": {NAME: namespace},
        "matchExpressions": [{"key": NAME, "operator": "NotIn", "values": ["kube-system"]}],
    })
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
