//! The examples of the rule reference: one file a code, `webhook/rules/examples/<CODE>.yaml`, with an object that the
//! rule accepts and one that it does not. The tests judge them and the reference shows them, both from here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde::Deserialize;
use serde_json::{Map, Value};
use wva_crds::names::{CONFIG_ENABLED_LABEL, EXCLUDE_ANNOTATION, INSTANCE_LABEL, KIND};
use wva_crds::settings::Setting;
use wva_rules::{
    AutoscalerFacts, Facts, InstancePolicy, MapFacts, MapNames, MapRole, MetricReader, NamespaceState,
    Operation, OtherVariant, Place, Running, RunningSource, RunningValue, Target, Verdict, apply_defaults,
    mutate, sets_cost, validate_autoscaler, validate_map,
};

/// One file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Example {
    /// What is wrong (or done), in a few words, without a full stop.
    pub(crate) title: String,
    /// What is there before the object comes.
    #[serde(default)]
    pub(crate) given: Given,
    /// An object about which the rule says nothing.
    pub(crate) accepted: String,
    /// The object about which it does: one of the three, by the rule's kind.
    #[serde(default)]
    pub(crate) refused: Option<String>,
    #[serde(default)]
    pub(crate) warned: Option<String>,
    #[serde(default)]
    pub(crate) completed: Option<String>,
    /// An API server never lets such an object come as far as a webhook: `wva validate` alone says this.
    #[serde(default)]
    pub(crate) in_files_alone: bool,
    /// How to get round the rule or to silence it, in sentences.
    #[serde(default)]
    pub(crate) exception: String,
}

/// What is there before the object comes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Given {
    /// The environment variables of the controller that matter.
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
    /// Objects of the cluster. Kinds of which there is none are not looked for.
    #[serde(default)]
    pub(crate) cluster: String,
    /// The object as it is stored: what comes is an update of it.
    #[serde(default)]
    pub(crate) before: Option<String>,
    /// The second object comes while the controller is starting.
    #[serde(default)]
    pub(crate) starting: bool,
}

/// What becomes of the second object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Refused,
    Warned,
    Completed,
}

/// The folder of the examples.
pub(crate) fn folder() -> PathBuf {
    // Of the crate that compiles this: the rules, or the program at the root.
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
    pub(crate) fn of(code: &str) -> Self {
        let path = folder().join(format!("{code}.yaml"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The second object, and what becomes of it.
    #[track_caller]
    pub(crate) fn shown(&self) -> (Outcome, &str) {
        match (&self.refused, &self.warned, &self.completed) {
            (Some(text), None, None) => (Outcome::Refused, text),
            (None, Some(text), None) => (Outcome::Warned, text),
            (None, None, Some(text)) => (Outcome::Completed, text),
            _ => panic!("{}: one of refused, warned and completed", self.title),
        }
    }

    /// The verdicts on the two objects.
    pub(crate) fn verdicts(&self) -> (Verdict, Verdict) {
        let before = self.given.before.as_deref().map(object);
        let judge = |text: &str, starting| self.judge(&object(text), before.as_ref(), starting);
        (judge(&self.accepted, false), judge(self.shown().1, self.given.starting))
    }

    /// What the webhook would say about an object in the place of the examples.
    pub(crate) fn judge(&self, object: &Value, old: Option<&Value>, starting: bool) -> Verdict {
        match text(object, "/kind") {
            KIND => self.variant(object, old, starting),
            "ConfigMap" => self.map(object, old),
            kind => validate_autoscaler(&AutoscalerFacts { object, scaled_object: kind == "ScaledObject" }),
        }
    }

    fn environment(&self, key: &str) -> Option<&str> {
        self.given.environment.get(key).map(String::as_str)
    }

    fn variant(&self, object: &Value, old: Option<&Value>, starting: bool) -> Verdict {
        let cluster = documents(&self.given.cluster);
        let namespace = text(object, "/metadata/namespace");
        let target = Target::of(object);
        let here = |kind: &str| {
            let kind = kind.to_owned();
            cluster.iter().filter(move |o| o["kind"] == *kind && text(o, "/metadata/namespace") == namespace)
        };
        let others: Vec<OtherVariant> = here(KIND).filter_map(OtherVariant::of).collect();
        let model = |o: &&Value| sets_cost(o) == Some(text(object, "/spec/modelID"));
        let readers: Vec<MetricReader> = here("HorizontalPodAutoscaler")
            .chain(here("ScaledObject"))
            .filter_map(reader)
            .filter(|(named, _)| target.as_ref().is_some_and(|t| t.same_object(named)))
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
            namespace_owned: instance.is_some()
                && of_namespace(&cluster, namespace, "labels", INSTANCE_LABEL) == instance,
            namespace: self.namespace_state(&cluster, namespace),
            controller_namespace: Some(&names.namespace),
            synced: !starting,
            others: &others,
            cost_set_by: here(KIND).find(model).map(|o| text(o, "/metadata/name")),
            readers: &readers,
            readers_complete: cluster.iter().any(|o| o["kind"] == "HorizontalPodAutoscaler"),
            target_exists: (!targets.is_empty()).then(|| targets.iter().any(is_target)),
            ..Facts::of(object)
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
        } else if of_namespace(cluster, namespace, "annotations", EXCLUDE_ANNOTATION) == Some("true") {
            NamespaceState::Excluded
        } else {
            NamespaceState::Managed
        }
    }

    fn map(&self, object: &Value, old: Option<&Value>) -> Verdict {
        let cluster = documents(&self.given.cluster);
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let names = MapNames::default();
        let role = names.role(namespace, name).unwrap_or_else(|| panic!("nobody reads {namespace}/{name}"));
        let running = self.running();
        let global = |o: &&Value| {
            let role_of = names.role(text(o, "/metadata/namespace"), text(o, "/metadata/name"));
            o["kind"] == "ConfigMap" && role_of == Some((role.0, Place::Global))
        };
        let used = cluster.iter().any(|o| o["kind"] == KIND && text(o, "/metadata/namespace") == namespace)
            || of_namespace(&cluster, namespace, "labels", CONFIG_ENABLED_LABEL) == Some("true");
        let unread = role.1 == Place::Unread;
        let instead = if unread { format!("{}/{name}", names.namespace) } else { String::new() };
        let mut facts = MapFacts::of(object, namespace, role);
        facts.operation = operation(old);
        facts.old = old;
        facts.read_instead = &instead;
        facts.running = Some(&running).filter(|_| role.0 == MapRole::Main && self.has_process());
        facts.tracked = (!cluster.is_empty()).then_some(used);
        facts.global = cluster.iter().find(global);
        validate_map(&facts)
    }

    fn has_process(&self) -> bool {
        self.given.before.is_some() || !self.given.environment.is_empty()
    }

    fn running(&self) -> Running {
        let value = |(key, text): (&String, &String)| {
            let setting = Setting::by_key(key).unwrap_or_else(|| panic!("{key} is no setting"));
            let value = setting.kind.parse(text).unwrap();
            let source = RunningSource::Hides(format!("environment {key}"));
            (setting.key, RunningValue { value, text: text.clone(), source })
        };
        Running {
            values: self.given.environment.iter().map(value).collect(),
            restart_revision: None,
            rollout: "deployment/workload-variant-autoscaler-controller-manager".to_owned(),
        }
    }
}

/// An object as a webhook is given it.
pub(crate) fn object(text: &str) -> Value {
    let mut all = documents(text);
    assert_eq!(all.len(), 1, "one object:\n{text}");
    let mut object = all.remove(0);
    if object["kind"] == KIND {
        apply_defaults(&mut object);
    }
    object
}

/// The workload of an HPA or a ScaledObject, and what it reads.
fn reader(object: &Value) -> Option<(Target, MetricReader)> {
    if object["kind"] == "ScaledObject" {
        return MetricReader::of_scaled_object(text(object, "/metadata/name"), object);
    }
    let hpa: HorizontalPodAutoscaler = serde_json::from_value(object.clone()).unwrap();
    MetricReader::of_autoscaler(&hpa)
}

fn operation(old: Option<&Value>) -> Operation {
    if old.is_some() { Operation::Update } else { Operation::Create }
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A label or an annotation of a namespace.
fn of_namespace<'v>(cluster: &'v [Value], name: &str, what: &str, key: &str) -> Option<&'v str> {
    let namespace = cluster.iter().find(|o| o["kind"] == "Namespace" && o["metadata"]["name"] == name)?;
    namespace["metadata"].get(what).and_then(Value::as_object).and_then(|m: &Map<_, _>| m.get(key)?.as_str())
}
