//! Examples of the rule reference: one file for each code, `webhook/rules/examples/<CODE>.yaml`, with an accepted object and
//! one with a violation. Used by the tests and the generator of the reference.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};
use wva_crds::names::{CONFIG_ENABLED_LABEL, EXCLUDE_ANNOTATION, INSTANCE_LABEL, KIND};
use wva_crds::settings::Setting;
use wva_objects::autoscaler::AutoscalerKind;
use wva_objects::{MetricReader, Target};
use wva_rules::{
    AutoscalerFacts, Facts, InstancePolicy, MapFacts, MapNames, MapRole, MapScope, NamespaceState, Operation,
    OtherVariant, Running, RunningSource, RunningValue, Verdict, apply_defaults, model_with_own_cost, mutate,
    validate_autoscaler, validate_map,
};

/// One example file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Example {
    /// Short title without a full stop.
    pub(crate) title: String,
    /// State before the object is applied.
    #[serde(default)]
    pub(crate) given: InitialState,
    /// An object without a violation.
    pub(crate) accepted: String,
    /// The object with a violation: one of the three, by the kind of the rule.
    #[serde(default)]
    pub(crate) refused: Option<String>,
    #[serde(default)]
    pub(crate) warned: Option<String>,
    #[serde(default)]
    pub(crate) completed: Option<String>,
    /// Only `wva validate` reports this violation, because the API server denies the object before any webhook.
    #[serde(default)]
    pub(crate) only_in_files: bool,
    /// How to bypass or silence the rule.
    #[serde(default)]
    pub(crate) exception: String,
}

/// State before the object is applied.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct InitialState {
    /// Environment variables of the controller.
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    /// Objects of the cluster. Kinds without objects count as unknown.
    #[serde(default)]
    pub(crate) cluster: String,
    /// The stored object, if the example is an update.
    #[serde(default)]
    pub(crate) before: Option<String>,
    /// Whether the object with the violation is applied while the controller starts.
    #[serde(default)]
    pub(crate) starting: bool,
}

/// Outcome of the object with the violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Denied,
    Warned,
    Completed,
}

/// The folder of the examples.
pub(crate) fn folder() -> PathBuf {
    // Relative to the compiled crate: the rules, or the program in the root.
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = root.join("examples");
    if here.is_dir() { here } else { root.join("webhook/rules/examples") }
}

/// The documents of a YAML text.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let parts = text.split("\n---\n").filter(|part| !part.trim().is_empty());
    parts.map(|part| serde_saphyr::from_str(part).unwrap_or_else(|e| panic!("{e}:\n{part}"))).collect()
}

impl Example {
    /// Loads the example of a code.
    pub(crate) fn load(code: &str) -> Self {
        let path = folder().join(format!("{code}.yaml"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The object with the violation, and its outcome.
    #[track_caller]
    pub(crate) fn violation(&self) -> (Outcome, &str) {
        match (&self.refused, &self.warned, &self.completed) {
            (Some(text), None, None) => (Outcome::Denied, text),
            (None, Some(text), None) => (Outcome::Warned, text),
            (None, None, Some(text)) => (Outcome::Completed, text),
            _ => panic!("{}: one of refused, warned and completed", self.title),
        }
    }

    /// Verdicts on both objects.
    pub(crate) fn verdicts(&self) -> (Verdict, Verdict) {
        let before = self.given.before.as_deref().map(object);
        let verdict = |text: &str, starting| self.verdict(&object(text), before.as_ref(), starting);
        (verdict(&self.accepted, false), verdict(self.violation().1, self.given.starting))
    }

    /// Verdict on an object in the state of this example.
    pub(crate) fn verdict(&self, object: &Value, old: Option<&Value>, starting: bool) -> Verdict {
        match text(object, "/kind") {
            KIND => self.variant_verdict(object, old, starting),
            "ConfigMap" => self.map_verdict(object, old),
            _ => validate_autoscaler(&AutoscalerFacts {
                object,
                kind: AutoscalerKind::of(object),
                kubernetes: None,
            }),
        }
    }

    fn environment(&self, key: &str) -> Option<&str> {
        self.given.environment.get(key).map(String::as_str)
    }

    fn variant_verdict(&self, object: &Value, old: Option<&Value>, starting: bool) -> Verdict {
        let cluster = documents(&self.given.cluster);
        let namespace = text(object, "/metadata/namespace");
        let target = Target::from_object(object);
        let here = |kind: &str| {
            let kind = kind.to_owned();
            cluster.iter().filter(move |o| o["kind"] == *kind && text(o, "/metadata/namespace") == namespace)
        };
        let others: Vec<OtherVariant> = here(KIND).filter_map(OtherVariant::from_object).collect();
        let model = |o: &&Value| model_with_own_cost(o) == Some(text(object, "/spec/modelID"));
        let readers: Vec<MetricReader> = here("HorizontalPodAutoscaler")
            .chain(here("ScaledObject"))
            .filter_map(MetricReader::from_object)
            .filter(|(named, _)| target.as_ref().is_some_and(|t| t.is_same_object(named)))
            .map(|(_, reader)| reader)
            .collect();
        let targets: Vec<&Value> =
            ["Deployment", "StatefulSet", "LeaderWorkerSet"].into_iter().flat_map(here).collect();
        let is_target = |o: &&Value| {
            let named = |t: &Target| o["kind"] == *t.kind && o["metadata"]["name"] == *t.name;
            target.as_ref().is_some_and(named)
        };
        let instance = self.environment("CONTROLLER_INSTANCE");
        let names = MapNames::default();
        let facts = Facts {
            operation: operation(old),
            old,
            instance,
            policy: self.instance_policy(),
            is_namespace_owned: instance.is_some()
                && namespace_metadata(&cluster, namespace, "labels", INSTANCE_LABEL) == instance,
            namespace: self.namespace_state(&cluster, namespace),
            controller_namespace: Some(&names.namespace),
            is_synced: !starting,
            other_variants: &others,
            variant_with_own_cost: here(KIND).find(model).map(|o| text(o, "/metadata/name")),
            readers: &readers,
            has_all_readers: cluster.iter().any(|o| o["kind"] == "HorizontalPodAutoscaler"),
            target_exists: (!targets.is_empty()).then(|| targets.iter().any(is_target)),
            ..Facts::new(object)
        };
        mutate(&facts)
    }

    fn instance_policy(&self) -> InstancePolicy {
        match self.environment("WVA_INSTANCE_POLICY") {
            None | Some("inject") => InstancePolicy::Inject,
            Some("require") => InstancePolicy::Require,
            Some(_) => InstancePolicy::Ignore,
        }
    }

    fn namespace_state(&self, cluster: &[Value], namespace: &str) -> NamespaceState {
        if self.environment("WATCH_NAMESPACE").is_some_and(|watched| watched != namespace) {
            NamespaceState::Unwatched
        } else if namespace_metadata(cluster, namespace, "annotations", EXCLUDE_ANNOTATION) == Some("true") {
            NamespaceState::Excluded
        } else {
            NamespaceState::Managed
        }
    }

    fn map_verdict(&self, object: &Value, old: Option<&Value>) -> Verdict {
        let cluster = documents(&self.given.cluster);
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let names = MapNames::default();
        let role = names.role(namespace, name).unwrap_or_else(|| panic!("{namespace}/{name} is not read"));
        let running = self.running();
        let global = |o: &&Value| {
            let role_of = names.role(text(o, "/metadata/namespace"), text(o, "/metadata/name"));
            o["kind"] == "ConfigMap" && role_of == Some((role.0, MapScope::Global))
        };
        let used = cluster.iter().any(|o| o["kind"] == KIND && text(o, "/metadata/namespace") == namespace)
            || namespace_metadata(&cluster, namespace, "labels", CONFIG_ENABLED_LABEL) == Some("true");
        let unread = role.1 == MapScope::Unread;
        let instead = if unread { format!("{}/{name}", names.namespace) } else { String::new() };
        let mut facts = MapFacts::new(object, namespace, role);
        facts.operation = operation(old);
        facts.old = old;
        facts.read_instead = &instead;
        facts.running = Some(&running).filter(|_| role.0 == MapRole::Main && self.has_process());
        facts.reads_local_maps = (!cluster.is_empty()).then_some(used);
        facts.global = cluster.iter().find(global);
        validate_map(&facts)
    }

    fn has_process(&self) -> bool {
        self.given.before.is_some() || !self.given.environment.is_empty()
    }

    fn running(&self) -> Running {
        let value = |(key, text): (&String, &String)| {
            let setting = Setting::by_key(key).unwrap_or_else(|| panic!("{key} is not a setting"));
            let value = setting.kind.parse(text).unwrap();
            let source = RunningSource::Override(format!("environment {key}"));
            (setting.key, RunningValue { value, text: text.clone(), source })
        };
        Running {
            values: self.given.environment.iter().map(value).collect(),
            restart_revision: None,
            rollout: "deployment/workload-variant-autoscaler-controller-manager".to_owned(),
        }
    }
}

/// Parses an object and sets its defaults, as for a webhook.
pub(crate) fn object(text: &str) -> Value {
    let mut all = documents(text);
    assert_eq!(all.len(), 1, "one object:\n{text}");
    let mut object = all.remove(0);
    if object["kind"] == KIND {
        apply_defaults(&mut object);
    }
    object
}

fn operation(old: Option<&Value>) -> Operation {
    if old.is_some() { Operation::Update } else { Operation::Create }
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A label or an annotation of a namespace.
fn namespace_metadata<'v>(cluster: &'v [Value], name: &str, what: &str, key: &str) -> Option<&'v str> {
    let namespace = cluster.iter().find(|o| o["kind"] == "Namespace" && o["metadata"]["name"] == name)?;
    namespace["metadata"].get(what).and_then(Value::as_object).and_then(|m: &Map<_, _>| m.get(key)?.as_str())
}
