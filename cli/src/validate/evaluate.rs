//! Evaluates objects with the admission rules. Only this module knows which kinds have rules.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use wva_crds::names::{GROUP, KIND};
use wva_crds::settings::is_name;
use wva_crds::text::{FOUND_CHARS, quote, shorten};
use wva_objects::autoscaler::AutoscalerKind;
use wva_objects::{MetricReader, Target, WorkloadKey, api_group};
use wva_rules::{
    AutoscalerFacts, Facts, Kind, KubernetesVersion, MapFacts, MapRole, MapScope, Operation, OtherVariant,
    RULES, Severity, Violation, apply_defaults, model_with_own_cost, validate, validate_autoscaler,
    validate_map,
};

use super::maps::InstallNames;
use super::objects::Object;

/// The file cannot be read as objects, or the API server would refuse them.
pub(super) const FILE_CODE: &str = "WVA-FILE-001";

#[derive(PartialEq, Eq, Hash)]
struct ObjectKey<'a> {
    group: &'a str,
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
}

#[derive(Debug)]
pub(super) struct RuleText {
    pub(super) code: &'static str,
    pub(super) docs: &'static str,
    pub(super) denies: bool,
}

pub(super) fn rules() -> impl Iterator<Item = RuleText> {
    let file = RuleText {
        code: FILE_CODE,
        docs: "The file is UTF-8 text, valid YAML or JSON without duplicate keys, and contains Kubernetes objects with valid \
               names.",
        denies: true,
    };
    let table = RULES.iter().filter(|rule| rule.kind != Kind::Mutate);
    let describe = |rule: &wva_rules::Rule| RuleText {
        code: rule.code,
        docs: rule.docs,
        denies: rule.kind == Kind::Deny,
    };
    std::iter::once(file).chain(table.map(describe))
}

/// Kinds with rules, and the Deployment, whose environment names ConfigMaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RelevantKind {
    Variant,
    ConfigMap,
    Autoscaler(AutoscalerKind),
    Deployment,
}

fn relevant_kind(api_version: &str, kind: &str) -> Option<RelevantKind> {
    match (api_group(api_version), kind) {
        (GROUP, KIND) => Some(RelevantKind::Variant),
        ("", "ConfigMap") => Some(RelevantKind::ConfigMap),
        ("autoscaling", "HorizontalPodAutoscaler") => Some(RelevantKind::Autoscaler(AutoscalerKind::Hpa)),
        ("keda.sh", "ScaledObject") => Some(RelevantKind::Autoscaler(AutoscalerKind::ScaledObject)),
        ("apps", "Deployment") => Some(RelevantKind::Deployment),
        _ => None,
    }
}

pub(super) fn is_relevant(api_version: &str, kind: &str) -> bool {
    relevant_kind(api_version, kind).is_some()
}

pub(super) fn fill_defaults(kind: &str, object: &mut Value) {
    if kind == KIND {
        apply_defaults(object);
    }
}

#[derive(Debug, Default)]
pub(super) struct Evaluation {
    pub(super) violations: Vec<ObjectViolation>,
    pub(super) count: usize,
}

#[derive(Debug)]
pub(super) struct ObjectViolation {
    pub(super) object: usize,
    pub(super) violation: Violation,
    /// Why the object is judged, unless its kind or name says so.
    pub(super) note: Option<&'static str>,
}

const GUESSED: &str = "judged as a ConfigMap of wva because of its name and keys";

struct ObjectIndex<'a> {
    names: InstallNames,
    /// Keys: targets.
    variants: BTreeMap<WorkloadKey, Vec<OtherVariant>>,
    /// Variants that set their cost, by namespace and model.
    costs: BTreeMap<(&'a str, &'a str), Vec<&'a str>>,
    /// Autoscalers that read the signal, by target.
    readers: BTreeMap<WorkloadKey, Vec<MetricReader>>,
    /// The effective map of each role comes first.
    global: Vec<(MapRole, &'a Object)>,
    before: HashMap<ObjectKey<'a>, &'a Value>,
}

/// An object that is also in `old` is an update.
/// `kubernetes`: version of the cluster that the objects are for, if it is known. `controller_namespace`: where ConfigMaps
/// are global, unless a Deployment in the input shows it.
pub(super) fn evaluate(
    objects: &[Object],
    old: &[Object],
    kubernetes: Option<KubernetesVersion>,
    controller_namespace: Option<&str>,
) -> Evaluation {
    let index = ObjectIndex::new(objects, old, controller_namespace);
    let mut evaluation = Evaluation::default();
    for (number, object) in objects.iter().enumerate() {
        let violations = match relevant_kind(&object.api_version, &object.kind) {
            Some(RelevantKind::Variant) => index.evaluate_variant(object),
            Some(RelevantKind::ConfigMap) => match index.names.role(object) {
                Some((role, scope)) => index.evaluate_map(object, role, scope),
                None => continue,
            },
            Some(RelevantKind::Autoscaler(kind)) => {
                validate_autoscaler(&AutoscalerFacts { object: &object.value, kind, kubernetes }).violations
            }
            Some(RelevantKind::Deployment) | None => continue,
        };
        evaluation.count += 1;
        let is_map = relevant_kind(&object.api_version, &object.kind) == Some(RelevantKind::ConfigMap);
        let note = (is_map && index.names.is_guessed(object)).then_some(GUESSED);
        let with_object = |violation| ObjectViolation { object: number, violation, note };
        let all = metadata_violations(object).into_iter().chain(violations);
        evaluation.violations.extend(all.map(with_object));
    }
    evaluation
}

impl<'a> ObjectIndex<'a> {
    fn new(objects: &'a [Object], old: &'a [Object], controller_namespace: Option<&str>) -> Self {
        let deployments = objects
            .iter()
            .filter(|o| relevant_kind(&o.api_version, &o.kind) == Some(RelevantKind::Deployment));
        let mut index = Self {
            names: InstallNames::from_deployments(deployments, controller_namespace),
            variants: BTreeMap::new(),
            costs: BTreeMap::new(),
            readers: BTreeMap::new(),
            global: Vec::new(),
            before: old.iter().map(|o| (key(o), &o.value)).collect(),
        };
        for object in objects {
            index.add(object);
        }
        let names = &index.names;
        index.global.sort_by_key(|(role, map)| names.rank(*role, &map.name));
        index
    }

    fn add(&mut self, object: &'a Object) {
        let (namespace, value) = (object.namespace.as_str(), &object.value);
        match relevant_kind(&object.api_version, &object.kind) {
            Some(RelevantKind::Variant) => {
                if let Some(other) = OtherVariant::from_object(value) {
                    self.variants
                        .entry(WorkloadKey::for_target(namespace, &other.target))
                        .or_default()
                        .push(other);
                }
                if let Some(model) = model_with_own_cost(value) {
                    self.costs.entry((namespace, model)).or_default().push(&object.name);
                }
            }
            Some(RelevantKind::ConfigMap) => {
                if let Some((role, MapScope::Global)) = self.names.role(object) {
                    self.global.push((role, object));
                }
            }
            // The API server refuses an invalid HPA, so the rules ignore it.
            Some(RelevantKind::Autoscaler(kind)) => {
                let found = match kind {
                    AutoscalerKind::Hpa => MetricReader::from_object(value),
                    // An item of a list may have neither kind nor name.
                    AutoscalerKind::ScaledObject => MetricReader::from_scaled_object(&object.name, value),
                };
                if let Some((target, reader)) = found {
                    self.readers.entry(WorkloadKey::for_target(namespace, &target)).or_default().push(reader);
                }
            }
            Some(RelevantKind::Deployment) | None => {}
        }
    }

    fn evaluate_variant(&self, object: &Object) -> Vec<Violation> {
        let old = self.before.get(&key(object)).copied();
        let target = Target::from_object(&object.value)
            .map(|target| WorkloadKey::for_target(&object.namespace, &target));
        let model = object.value.pointer("/spec/modelID").and_then(Value::as_str);
        let with_cost = model.and_then(|model| self.costs.get(&(object.namespace.as_str(), model)));
        let facts = Facts {
            operation: if old.is_some() { Operation::Update } else { Operation::Create },
            old,
            other_variants: target.as_ref().and_then(|t| self.variants.get(t)).map_or(&[], Vec::as_slice),
            readers: target.as_ref().and_then(|t| self.readers.get(t)).map_or(&[], Vec::as_slice),
            variant_with_own_cost: with_cost
                .and_then(|names| names.iter().find(|n| **n != object.name).copied()),
            ..Facts::new(&object.value)
        };
        validate(&facts).violations
    }

    fn evaluate_map(&self, object: &Object, role: MapRole, scope: MapScope) -> Vec<Violation> {
        let is_unread = scope == MapScope::Unread;
        let instead = if is_unread { self.names.read_instead(&object.name) } else { String::new() };
        let mut facts = MapFacts::new(&object.value, &object.namespace, role, scope);
        facts.old = self.before.get(&key(object)).copied();
        facts.operation = if facts.old.is_some() { Operation::Update } else { Operation::Create };
        facts.read_instead = &instead;
        let mut global = self.global.iter().filter(|(of, _)| *of == role && role != MapRole::Main);
        facts.global = global.next().map(|(_, map)| &map.value);
        validate_map(&facts).violations
    }
}

/// Names that the API server refuses, before or after a webhook.
fn metadata_violations(object: &Object) -> Vec<Violation> {
    let text =
        |field: &str| object.value.pointer(&format!("/metadata/{field}"))?.as_str().filter(|t| !t.is_empty());
    let check = |field: &str, has_dots: bool, allowed: &str| {
        let name = text(field).filter(|name| !is_name(name, has_dots))?;
        let name = quote(&shorten(name, FOUND_CHARS));
        Some(Violation {
            code: FILE_CODE,
            field: format!("metadata.{field}"),
            message: format!("{name} is not a valid {field}; use lower-case letters, digits{allowed}"),
            severity: Severity::Deny,
        })
    };
    let name = check("name", true, ", '-' and '.'");
    name.into_iter().chain(check("namespace", false, " and '-'")).collect()
}

fn key(object: &Object) -> ObjectKey<'_> {
    let group = api_group(&object.api_version);
    ObjectKey { group, kind: &object.kind, namespace: &object.namespace, name: &object.name }
}
