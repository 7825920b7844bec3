//! The two webhook configurations complete but for `rules` and `caBundle`: what the chart renders, for tests and for
//! those who keep the objects whole in Git.

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use wva_crds::names::INSTANCE_LABEL;
use wva_rules::InstancePolicy;

use super::entries::{ENTRIES, Entry, Phase, Subject};

/// What happens to requests while no webhook answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// They are refused.
    Fail,
    /// They pass.
    Ignore,
}

/// What the configurations depend on.
#[derive(Clone, Debug)]
pub struct Door<'a> {
    /// Name of both objects.
    pub name: &'a str,
    /// The Service that fronts the webhook server.
    pub service: &'a str,
    /// The controller's namespace.
    pub namespace: &'a str,
    /// `CONTROLLER_INSTANCE`.
    pub instance: Option<&'a str>,
    /// What the instance does with unlabelled objects.
    pub policy: InstancePolicy,
    /// `WATCH_NAMESPACE`: the one namespace that is watched.
    pub watch_namespace: Option<&'a str>,
    /// For `VariantAutoscaling`s.
    pub variants: FailurePolicy,
    /// For config maps.
    pub config_maps: FailurePolicy,
    /// `CONFIG_MAP_NAME`.
    pub main_config_map: &'a str,
    /// Names of the saturation, scale-to-zero and service-class maps.
    pub entry_config_maps: &'a [&'a str],
}

/// The finalizers of an object under deletion may shrink, and nothing else may happen, without a review: so that the
/// object can go while every replica is dead. A deletion timestamp alone opens no door.
pub(super) const NOT_FINALIZER_REMOVAL: &str = "!(request.operation == 'UPDATE' \
     && has(oldObject.metadata.deletionTimestamp) \
     && has(oldObject.metadata.finalizers) \
     && (!has(object.metadata.finalizers) \
         || (size(object.metadata.finalizers) < size(oldObject.metadata.finalizers) \
             && object.metadata.finalizers.all(f, f in oldObject.metadata.finalizers))) \
     && has(object.spec) == has(oldObject.spec) \
     && (!has(object.spec) || object.spec == oldObject.spec))";

/// The `MutatingWebhookConfiguration` and the `ValidatingWebhookConfiguration`, as one `List`.
#[must_use]
pub fn render(door: &Door<'_>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "List",
        "items": [
            object(door, "MutatingWebhookConfiguration", Phase::Mutating),
            object(door, "ValidatingWebhookConfiguration", Phase::Validating),
        ],
    })
}

/// The same with the door open: with `rules`, and with the CA bundle (PEM) where there is one. For those who keep the
/// objects whole in Git.
#[must_use]
pub fn render_open(door: &Door<'_>, bundle: Option<&[u8]>) -> Value {
    let mut list = render(door);
    for configuration in list["items"].as_array_mut().into_iter().flatten() {
        for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
            let entry = ENTRIES.iter().find(|entry| webhook["name"] == entry.name);
            webhook["rules"] = entry.map(Entry::rules).unwrap_or_default();
            if let Some(bundle) = bundle {
                webhook["clientConfig"]["caBundle"] = json!(ByteString(bundle.to_vec()));
            }
        }
    }
    list
}

fn object(door: &Door<'_>, kind: &str, phase: Phase) -> Value {
    let there = |entry: &&Entry| entry.phase == phase && wanted(door, entry.subject);
    let webhooks: Vec<Value> = ENTRIES.iter().filter(there).map(|entry| webhook(door, entry)).collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": door.name}, "webhooks": webhooks,
    })
}

pub(super) fn wanted(door: &Door<'_>, subject: Subject) -> bool {
    subject != Subject::UnlabelledVariants
        || (door.instance.is_some() && door.policy != InstancePolicy::Ignore)
}

fn webhook(door: &Door<'_>, entry: &Entry) -> Value {
    let policy = if entry.is_about_variants() { door.variants } else { door.config_maps };
    let main = entry.subject == Subject::MainConfigMap;
    let mut webhook = json!({
        "name": entry.name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {"name": door.service, "namespace": door.namespace, "path": entry.path, "port": 443},
        },
        "failurePolicy": if policy == FailurePolicy::Fail { "Fail" } else { "Ignore" },
        "matchPolicy": "Equivalent",
        // The refusal of a change to the main map emits an event.
        "sideEffects": if main { "NoneOnDryRun" } else { "None" },
        "timeoutSeconds": 5,
        "namespaceSelector": namespaces(door, entry.subject),
        "objectSelector": objects(door, entry.subject),
        "matchConditions": conditions(door, entry.subject),
    });
    if entry.phase == Phase::Mutating {
        webhook["reinvocationPolicy"] = json!("IfNeeded");
    }
    webhook
}

pub(super) fn namespaces(door: &Door<'_>, subject: Subject) -> Value {
    const NAME: &str = "kubernetes.io/metadata.name";
    let not_system = json!({"key": NAME, "operator": "NotIn", "values": ["kube-system"]});
    let maps = matches!(subject, Subject::MainConfigMap | Subject::EntryConfigMaps);
    match (door.watch_namespace, door.instance) {
        (Some(watched), _) => {
            let mut names = vec![watched];
            if maps && watched != door.namespace {
                names.push(door.namespace);
            }
            json!({"matchExpressions": [{"key": NAME, "operator": "In", "values": names}, not_system]})
        }
        (None, Some(instance)) if subject == Subject::UnlabelledVariants => {
            json!({"matchLabels": {INSTANCE_LABEL: instance}, "matchExpressions": [not_system]})
        }
        _ => json!({"matchExpressions": [not_system]}),
    }
}

pub(super) fn objects(door: &Door<'_>, subject: Subject) -> Value {
    match (subject, door.instance) {
        (Subject::MainConfigMap | Subject::EntryConfigMaps, _) => json!({}),
        (Subject::Variants, Some(instance)) => json!({"matchLabels": {INSTANCE_LABEL: instance}}),
        _ => json!({"matchExpressions": [{"key": INSTANCE_LABEL, "operator": "DoesNotExist"}]}),
    }
}

fn conditions(door: &Door<'_>, subject: Subject) -> Value {
    match subject {
        Subject::Variants | Subject::UnlabelledVariants => {
            json!([{"name": "not-finalizer-removal", "expression": NOT_FINALIZER_REMOVAL}])
        }
        // `request.name` is always there. Names of objects hold nothing that a CEL text would have to escape.
        Subject::MainConfigMap => {
            json!([{"name": "is-main-map", "expression": format!("request.name == '{}'", door.main_config_map)}])
        }
        Subject::EntryConfigMaps => {
            let names: Vec<String> = door.entry_config_maps.iter().map(|n| format!("'{n}'")).collect();
            let expression = format!("request.name in [{}]", names.join(", "));
            json!([{"name": "is-entries-map", "expression": expression}])
        }
    }
}
