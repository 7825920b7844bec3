//! Scenarios: fleet, load, objectives, and policies to compare. A file is read in two steps: fields, then scenario. An
//! error has the path of a field, the value found, and the values allowed.

mod build;
pub mod engines;
pub mod spec;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::Value;
use wva_crds::entries::{Kind, schema};
use wva_crds::parse_error::{describe_yaml_error, replace_rust_types};
use wva_crds::unknown_fields::UnknownFields;

pub use spec::Spec;

use crate::fleet::variant::Role;
use crate::policy::Policy;
use crate::policy::autoscaler::Hpas;
use crate::policy::fixed::Schedule;
use crate::policy::keda::Keda;
use crate::policy::llm_d_wva::LlmDWva;
use crate::policy::wva::Wva;
use crate::run::Setting;

/// Error in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", if path == "." { String::new() } else { format!("{path}: ") })]
pub struct ScenarioError {
    /// Path of the field, as in `variants[0].engine.like`; `.` is the whole file.
    pub path: String,
    /// Value found, and the values allowed.
    pub problem: String,
}

impl ScenarioError {
    fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into() }
    }
}

/// A scenario that can be run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name of the scenario.
    pub name: String,
    /// Setting of the runs.
    pub setting: Setting,
    /// Policies to compare.
    pub policies: Vec<spec::Policy>,
}

/// Reads a file as a tree, in which single fields can be set.
///
/// # Errors
/// The text is not YAML.
pub fn parse_tree(text: &str) -> Result<Value, ScenarioError> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|e| ScenarioError::new(".", format!("not valid YAML: {}", describe_yaml_error(&e))))
}

/// Sets a field to a number. A name (`cost`) sets every field of that name; a path
/// (`policies.0.wva.saturation.kvSpareTrigger`) sets one, and adds it if absent. A field of the saturation entry that
/// no policy has yet is set for all policies with entries.
///
/// # Errors
/// The field does not exist.
pub fn set_field(tree: &mut Value, field: &str, value: f64) -> Result<(), ScenarioError> {
    if field.contains('.') {
        let place = field.split('.').try_fold(tree, child_mut);
        let place = place.ok_or_else(|| {
            ScenarioError::new(field, "no such place: write it as policies.0.wva.saturation.kvSpareTrigger")
        })?;
        *place = value.into();
        Ok(())
    } else if set_everywhere(tree, field, value) || set_in_entries(tree, field, value) {
        Ok(())
    } else {
        Err(ScenarioError::new(
            field,
            "no field of this name is in the scenario or a saturation entry: add it, or give its whole path",
        ))
    }
}

/// Item of a list, or field, which is added if absent.
fn child_mut<'a>(tree: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    if tree.is_null() {
        *tree = Value::Object(serde_json::Map::new());
    }
    match tree {
        Value::Object(fields) => Some(fields.entry(name).or_insert(Value::Null)),
        Value::Array(items) => items.get_mut(name.parse::<usize>().ok()?),
        _ => None,
    }
}

fn set_everywhere(tree: &mut Value, field: &str, value: f64) -> bool {
    match tree {
        Value::Object(fields) => {
            let mut found = false;
            for (name, inner) in fields.iter_mut() {
                if name == field {
                    *inner = value.into();
                    found = true;
                } else {
                    found |= set_everywhere(inner, field, value);
                }
            }
            found
        }
        Value::Array(items) => {
            items.iter_mut().map(|item| set_everywhere(item, field, value)).filter(|found| *found).count() > 0
        }
        _ => false,
    }
}

/// Sets the field in each policy with entries.
fn set_in_entries(tree: &mut Value, field: &str, value: f64) -> bool {
    if schema(Kind::Saturation)["properties"].get(field).is_none() {
        return false;
    }
    let policies = tree.get_mut("policies").and_then(Value::as_array_mut).into_iter().flatten();
    let settings = policies.flat_map(|p| p.as_object_mut().into_iter().flatten());
    let read = settings.filter(|(kind, _)| matches!(kind.as_str(), "wva" | "original")).map(|(_, s)| s);
    let places = read.filter_map(|s| child_mut(s, "saturation").and_then(|entry| child_mut(entry, field)));
    places.map(|place| *place = value.into()).count() > 0
}

impl Spec {
    /// Reads the fields from the tree of a file.
    ///
    /// # Errors
    /// The first field that is unknown, missing or out of range.
    pub fn read(tree: &Value) -> Result<Self, ScenarioError> {
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(tree, &mut track);
        let mut unknown = UnknownFields::default();
        let spec: Self = unknown
            .deserialize(tracked)
            .map_err(|e| ScenarioError::new(track.path().to_string(), replace_rust_types(&e.to_string())))?;
        if let Some(path) = unknown.first() {
            return Err(ScenarioError::new(path, "unknown field"));
        }
        spec.check()?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), ScenarioError> {
        check_names("variants", self.variants.iter().map(|v| &v.name))?;
        check_names("policies", self.policies.iter().map(|p| &p.name))?;
        self.check_roles()?;
        for (i, policy) in self.policies.iter().enumerate() {
            let kinds = [
                policy.wva.is_some(),
                policy.llm_d_wva.is_some(),
                policy.hpa.is_some(),
                policy.keda.is_some(),
                policy.fixed.is_some(),
                policy.fixed_best.is_some(),
                policy.oracle.is_some(),
            ];
            if kinds.iter().filter(|k| **k).count() != 1 {
                let problem = format!(
                    "{:?} has to be of one kind: give one of wva, original, hpa, keda, fixed, fixedBest and oracle",
                    policy.name
                );
                return Err(ScenarioError::new(format!("policies[{i}]"), problem));
            }
            let unknown =
                policy.fixed.iter().flatten().find(|(n, _)| self.variants.iter().all(|v| v.name != **n));
            if let Some((name, _)) = unknown {
                let problem = format!("no variant is called {name:?}: name one of `variants`");
                return Err(ScenarioError::new(format!("policies[{i}].fixed"), problem));
            }
            // As of a Deployment's replicas.
            let excessive = policy.fixed.iter().flatten().find(|(_, n)| i32::try_from(**n).is_err());
            if let Some((name, n)) = excessive {
                let problem = format!("found {n}: give 0 to {}", i32::MAX);
                return Err(ScenarioError::new(format!("policies[{i}].fixed.{name}"), problem));
            }
            if policy.keda.as_ref().is_some_and(|object| object.resolve().is_none()) {
                let problem =
                    "found no trigger: give one at least of like, waiting, running, prefill, kv and latency";
                return Err(ScenarioError::new(format!("policies[{i}].keda"), problem));
            }
            if policy.fixed_best.is_some() && self.variants.len() != 1 {
                let problem = format!(
                    "found {} variants: the best size in hindsight is known of one; use fixed",
                    self.variants.len()
                );
                return Err(ScenarioError::new(format!("policies[{i}].fixedBest"), problem));
            }
        }
        Ok(())
    }

    /// Requires both roles or neither, for all variants.
    fn check_roles(&self) -> Result<(), ScenarioError> {
        let has = |role| self.variants.iter().any(|v| v.role == role);
        let (prefill, decode) = (has(Some(Role::Prefill)), has(Some(Role::Decode)));
        if prefill == decode && (!prefill || !has(None)) {
            return Ok(());
        }
        let problem = "give all variants a role, prefill and decode at least once each, or none any";
        Err(ScenarioError::new("variants", problem))
    }
}

fn check_names<'a>(list: &str, names: impl Iterator<Item = &'a String>) -> Result<(), ScenarioError> {
    let mut known = BTreeSet::new();
    let mut count = 0;
    for (i, name) in names.enumerate() {
        count += 1;
        if !known.insert(name) {
            let problem = format!("{name:?} is listed twice: give each a name of its own");
            return Err(ScenarioError::new(format!("{list}[{i}].name"), problem));
        }
    }
    if count == 0 { Err(ScenarioError::new(list, "nothing is listed: give one at least")) } else { Ok(()) }
}

impl spec::Policy {
    /// `None` for policies that depend on the requests: the oracle ([`crate::policy::oracle::plan`]) and the best fixed
    /// size ([`crate::policy::hindsight::best_size`]).
    #[must_use]
    pub fn build(&self, setting: &Setting) -> Option<Box<dyn Policy>> {
        let variants = &setting.variants;
        if let Some(settings) = &self.wva {
            return Some(Box::new(Wva::new(settings, variants)));
        }
        if let Some(settings) = &self.llm_d_wva {
            return Some(Box::new(LlmDWva::new(settings, variants)));
        }
        if let Some(metrics) = &self.hpa {
            return Some(Box::new(Hpas::new(metrics.clone(), variants)));
        }
        if let Some(object) = &self.keda {
            return Some(Box::new(Hpas::new(Keda::new(object, setting.objectives), variants)));
        }
        let fixed = self.fixed.as_ref()?;
        let replicas = variants.iter().map(|v| fixed.get(&v.name).copied().unwrap_or(0));
        Some(Box::new(Schedule::fixed(replicas.collect())))
    }
}
