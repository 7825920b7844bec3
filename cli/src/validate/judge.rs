//! The verdict on the objects of an input, by the same rules as in the cluster. This is the one place that knows
//! which kinds are judged and by what; all else in this command is about reading and telling.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use serde_json::Value;
use wva_crds::names::{GROUP, KIND};
use wva_rules::{
    AutoscalerFacts, Facts, Kind, MapFacts, MapRole, MapScope, MetricReader, Operation, OtherVariant, RULES,
    Target, Violation, api_group, apply_defaults, model_with_own_cost, validate, validate_autoscaler,
    validate_map,
};

use super::maps::Names;
use super::objects::Object;
use crate::workloads::WorkloadKey;

/// The code of what is wrong with a file before any rule can look at its objects.
pub(super) const FILE_CODE: &str = "WVA-FILE-001";

/// Names an object.
#[derive(PartialEq, Eq, Hash)]
struct ObjectKey<'a> {
    group: &'a str,
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
}

/// A rule as the reports describe it.
#[derive(Debug)]
pub(super) struct RuleText {
    pub(super) code: &'static str,
    pub(super) docs: &'static str,
    pub(super) denies: bool,
}

/// Every rule that a finding can name.
pub(super) fn rules() -> impl Iterator<Item = RuleText> {
    let file = RuleText {
        code: FILE_CODE,
        docs: "The file is text in UTF-8 that reads as YAML or JSON, with no key twice in one mapping, and holds objects.",
        denies: true,
    };
    let table = RULES.iter().filter(|rule| rule.kind != Kind::Mutate);
    let text = |rule: &wva_rules::Rule| RuleText {
        code: rule.code,
        docs: rule.docs,
        denies: rule.kind == Kind::Deny,
    };
    std::iter::once(file).chain(table.map(text))
}

/// The kinds that are kept: those that are judged, and the Deployment, which says what the ConfigMaps are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Variant,
    ConfigMap,
    Autoscaler,
    ScaledObject,
    Deployment,
}

fn kept(api_version: &str, kind: &str) -> Option<Kept> {
    match (api_group(api_version), kind) {
        (GROUP, KIND) => Some(Kept::Variant),
        ("", "ConfigMap") => Some(Kept::ConfigMap),
        ("autoscaling", "HorizontalPodAutoscaler") => Some(Kept::Autoscaler),
        ("keda.sh", "ScaledObject") => Some(Kept::ScaledObject),
        ("apps", "Deployment") => Some(Kept::Deployment),
        _ => None,
    }
}

/// Whether objects of this kind are looked at, by a rule or for what they say of others.
pub(super) fn is_kept(api_version: &str, kind: &str) -> bool {
    kept(api_version, kind).is_some()
}

/// Fills in what the schema of this kind defaults.
pub(super) fn complete(kind: &str, object: &mut Value) {
    if kind == KIND {
        apply_defaults(object);
    }
}

/// What became of an input.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// Each with the number of its object.
    pub(super) violations: Vec<ObjectViolation>,
    /// How many objects were judged.
    pub(super) count: usize,
}

/// A violation of one object.
#[derive(Debug)]
pub(super) struct ObjectViolation {
    /// Index of the object.
    pub(super) object: usize,
    pub(super) violation: Violation,
}

/// What the objects of an input know of each other.
struct Input<'a> {
    names: Names,
    /// Variants by their targets.
    sharing: BTreeMap<WorkloadKey, Vec<OtherVariant>>,
    /// Names of the variants that set their cost, by namespace and model.
    costs: BTreeMap<(&'a str, &'a str), Vec<&'a str>>,
    /// What follows the metric, by what it scales.
    readers: BTreeMap<WorkloadKey, Vec<MetricReader>>,
    /// Global maps, the one that is read before the others of its role.
    global: Vec<(MapRole, &'a Object)>,
    /// Objects as they were.
    before: HashMap<ObjectKey<'a>, &'a Value>,
}

/// Judges all objects of an input together. Variants of the input in one namespace know of each other; an object that
/// stands among the old ones is an update of that.
pub(super) fn judge(objects: &[Object], old: &[Object]) -> Judged {
    let input = Input::read(objects, old);
    let mut judged = Judged::default();
    for (index, object) in objects.iter().enumerate() {
        let violations = match kept(&object.api_version, &object.kind) {
            Some(Kept::Variant) => input.variant(object),
            Some(Kept::ConfigMap) => match input.names.role(object) {
                Some(role) => input.map(object, role),
                None => continue,
            },
            Some(kind @ (Kept::Autoscaler | Kept::ScaledObject)) => {
                let scaled_object = kind == Kept::ScaledObject;
                validate_autoscaler(&AutoscalerFacts { object: &object.value, scaled_object }).violations
            }
            Some(Kept::Deployment) | None => continue,
        };
        judged.count += 1;
        let of_object = |violation| ObjectViolation { object: index, violation };
        judged.violations.extend(violations.into_iter().map(of_object));
    }
    judged
}

impl<'a> Input<'a> {
    fn read(objects: &'a [Object], old: &'a [Object]) -> Self {
        let deployments = objects.iter().filter(|o| kept(&o.api_version, &o.kind) == Some(Kept::Deployment));
        let mut input = Self {
            names: Names::of(deployments),
            sharing: BTreeMap::new(),
            costs: BTreeMap::new(),
            readers: BTreeMap::new(),
            global: Vec::new(),
            before: old.iter().map(|o| (key(o), &o.value)).collect(),
        };
        for object in objects {
            input.take_in(object);
        }
        let names = &input.names;
        input.global.sort_by_key(|(role, map)| names.rank(*role, &map.name));
        input
    }

    fn take_in(&mut self, object: &'a Object) {
        let (namespace, value) = (object.namespace.as_str(), &object.value);
        let mut reader = |found: Option<(Target, MetricReader)>| {
            if let Some((target, reader)) = found {
                self.readers.entry(WorkloadKey::new(namespace, &target)).or_default().push(reader);
            }
        };
        match kept(&object.api_version, &object.kind) {
            Some(Kept::Variant) => {
                if let Some(other) = OtherVariant::from_object(value) {
                    self.sharing.entry(WorkloadKey::new(namespace, &other.target)).or_default().push(other);
                }
                if let Some(model) = model_with_own_cost(value) {
                    self.costs.entry((namespace, model)).or_default().push(&object.name);
                }
            }
            Some(Kept::ConfigMap) => {
                if let Some((role, MapScope::Global)) = self.names.role(object) {
                    self.global.push((role, object));
                }
            }
            // One that does not read as an HPA is refused by every API server.
            Some(Kept::Autoscaler) => {
                let hpa = serde_json::from_value::<HorizontalPodAutoscaler>(value.clone());
                reader(hpa.ok().and_then(|hpa| MetricReader::from_hpa(&hpa)));
            }
            Some(Kept::ScaledObject) => reader(MetricReader::from_scaled_object(&object.name, value)),
            Some(Kept::Deployment) | None => {}
        }
    }

    fn variant(&self, object: &Object) -> Vec<Violation> {
        let old = self.before.get(&key(object)).copied();
        let target =
            Target::from_object(&object.value).map(|target| WorkloadKey::new(&object.namespace, &target));
        let model = object.value.pointer("/spec/modelID").and_then(Value::as_str);
        let setters = model.and_then(|model| self.costs.get(&(object.namespace.as_str(), model)));
        let facts = Facts {
            operation: if old.is_some() { Operation::Update } else { Operation::Create },
            old,
            other_variants: target.as_ref().and_then(|t| self.sharing.get(t)).map_or(&[], Vec::as_slice),
            readers: target.as_ref().and_then(|t| self.readers.get(t)).map_or(&[], Vec::as_slice),
            variant_with_own_cost: setters
                .and_then(|names| names.iter().find(|n| **n != object.name).copied()),
            ..Facts::new(&object.value)
        };
        validate(&facts).violations
    }

    fn map(&self, object: &Object, (role, scope): (MapRole, MapScope)) -> Vec<Violation> {
        let unread = scope == MapScope::Unread;
        let instead = if unread { self.names.read_instead(&object.name) } else { String::new() };
        let mut facts = MapFacts::new(&object.value, &object.namespace, (role, scope));
        facts.old = self.before.get(&key(object)).copied();
        facts.operation = if facts.old.is_some() { Operation::Update } else { Operation::Create };
        facts.read_instead = &instead;
        let mut global = self.global.iter().filter(|(of, _)| *of == role && role != MapRole::Main);
        facts.global = global.next().map(|(_, map)| &map.value);
        validate_map(&facts).violations
    }
}

fn key(object: &Object) -> ObjectKey<'_> {
    let group = api_group(&object.api_version);
    ObjectKey { group, kind: &object.kind, namespace: &object.namespace, name: &object.name }
}
