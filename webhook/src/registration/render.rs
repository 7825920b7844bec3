//! Renders the two webhook configurations as the chart does, for tests and for users who keep the complete objects in
//! Git.

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use wva_crds::names::{INSTANCE_LABEL, MAIN_MAP_NAME};
use wva_rules::InstancePolicy;

use super::entries::{ENTRIES, Entry, Phase, Subject};

/// What happens to requests while no webhook answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The request is denied.
    Fail,
    /// The request is admitted.
    Ignore,
}

/// Options of the rendered configurations.
#[derive(Clone, Debug)]
pub struct ConfigurationOptions<'a> {
    /// Name of both configurations.
    pub name: &'a str,
    /// Service of the webhook server.
    pub service: &'a str,
    /// Namespace of the controller.
    pub namespace: &'a str,
    /// `CONTROLLER_INSTANCE`.
    pub instance: Option<&'a str>,
    /// `WVA_INSTANCE_POLICY`.
    pub policy: InstancePolicy,
    /// `None`: all namespaces.
    pub watch_namespace: Option<&'a str>,
    /// Failure policy for `VariantAutoscaling`s.
    pub variants: FailurePolicy,
    /// Failure policy for ConfigMaps.
    pub config_maps: FailurePolicy,
    /// `CONFIG_MAP_NAME`.
    pub main_config_map: &'a str,
    /// Names of the saturation, scale-to-zero and service-class ConfigMaps.
    pub entry_config_maps: &'a [&'a str],
}

/// False for an update that only removes finalizers of an object under deletion: it can be deleted while no replica
/// runs.
const NOT_FINALIZER_REMOVAL: &str = "!(request.operation == 'UPDATE' \
     && has(oldObject.metadata.deletionTimestamp) \
     && has(oldObject.metadata.finalizers) \
     && (!has(object.metadata.finalizers) \
         || (size(object.metadata.finalizers) < size(oldObject.metadata.finalizers) \
             && object.metadata.finalizers.all(f, f in oldObject.metadata.finalizers))) \
     && has(object.spec) == has(oldObject.spec) \
     && (!has(object.spec) || object.spec == oldObject.spec))";

/// Renders both configurations as one `List`.
#[must_use]
pub fn render_configurations(options: &ConfigurationOptions<'_>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "List",
        "items": [
            configuration(options, "MutatingWebhookConfiguration", Phase::Mutating),
            configuration(options, "ValidatingWebhookConfiguration", Phase::Validating),
        ],
    })
}

/// Renders both configurations with `rules` and, where given, the CA bundle (PEM).
#[must_use]
pub fn render_registered(options: &ConfigurationOptions<'_>, bundle: Option<&[u8]>) -> Value {
    let mut list = render_configurations(options);
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

fn configuration(options: &ConfigurationOptions<'_>, kind: &str, phase: Phase) -> Value {
    let is_rendered = |entry: &&Entry| entry.phase == phase && is_needed(options, entry.subject);
    let webhooks: Vec<Value> =
        ENTRIES.iter().filter(is_rendered).map(|entry| webhook(options, entry)).collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": options.name}, "webhooks": webhooks,
    })
}

fn is_needed(options: &ConfigurationOptions<'_>, subject: Subject) -> bool {
    subject != Subject::UnlabelledVariants
        || (options.instance.is_some() && options.policy != InstancePolicy::Ignore)
}

fn webhook(options: &ConfigurationOptions<'_>, entry: &Entry) -> Value {
    let policy = if entry.reviews_variants() { options.variants } else { options.config_maps };
    let main = entry.subject == Subject::MainConfigMap;
    let mut webhook = json!({
        "name": entry.name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {"name": options.service, "namespace": options.namespace, "path": entry.path(), "port": 443},
        },
        "failurePolicy": if policy == FailurePolicy::Fail { "Fail" } else { "Ignore" },
        "matchPolicy": "Equivalent",
        // A refused change of the main map emits an event.
        "sideEffects": if main { "NoneOnDryRun" } else { "None" },
        "timeoutSeconds": 5,
        "namespaceSelector": namespace_selector(options, entry.subject),
        "objectSelector": object_selector(options, entry.subject),
        "matchConditions": match_conditions(options, entry.subject),
    });
    if entry.phase == Phase::Mutating {
        webhook["reinvocationPolicy"] = json!("IfNeeded");
    }
    webhook
}

fn namespace_selector(options: &ConfigurationOptions<'_>, subject: Subject) -> Value {
    const NAME: &str = "kubernetes.io/metadata.name";
    let not_system = json!({"key": NAME, "operator": "NotIn", "values": ["kube-system"]});
    let maps = matches!(subject, Subject::MainConfigMap | Subject::EntryConfigMaps);
    match (options.watch_namespace, options.instance) {
        (Some(watched), _) => {
            let mut names = vec![watched];
            if maps && watched != options.namespace {
                names.push(options.namespace);
            }
            json!({"matchExpressions": [{"key": NAME, "operator": "In", "values": names}, not_system]})
        }
        (None, Some(instance)) if subject == Subject::UnlabelledVariants => {
            json!({"matchLabels": {INSTANCE_LABEL: instance}, "matchExpressions": [not_system]})
        }
        _ => json!({"matchExpressions": [not_system]}),
    }
}

fn object_selector(options: &ConfigurationOptions<'_>, subject: Subject) -> Value {
    match (subject, options.instance) {
        (Subject::MainConfigMap | Subject::EntryConfigMaps, _) => json!({}),
        (Subject::Variants, Some(instance)) => json!({"matchLabels": {INSTANCE_LABEL: instance}}),
        _ => json!({"matchExpressions": [{"key": INSTANCE_LABEL, "operator": "DoesNotExist"}]}),
    }
}

fn match_conditions(options: &ConfigurationOptions<'_>, subject: Subject) -> Value {
    match subject {
        Subject::Variants | Subject::UnlabelledVariants => {
            json!([{"name": "not-finalizer-removal", "expression": NOT_FINALIZER_REMOVAL}])
        }
        // Object names contain no character that CEL strings escape. A Kustomize overlay adds a prefix or suffix to the default
        // names, and changes no expression; the server compares the whole name.
        Subject::MainConfigMap => {
            let name = options.main_config_map;
            let expression = if name == MAIN_MAP_NAME {
                format!("request.name.contains('{name}')")
            } else {
                format!("request.name == '{name}'")
            };
            json!([{"name": "is-main-map", "expression": expression}])
        }
        Subject::EntryConfigMaps => {
            let names: Vec<String> = options.entry_config_maps.iter().map(|n| format!("'{n}'")).collect();
            let names = names.join(", ");
            let expression = if options.main_config_map == MAIN_MAP_NAME {
                format!("[{names}].exists(name, request.name.contains(name))")
            } else {
                format!("request.name in [{names}]")
            };
            json!([{"name": "is-entries-map", "expression": expression}])
        }
    }
}
