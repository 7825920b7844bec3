//! A `VariantAutoscaling` of an earlier release as this one wants it. Pure: what is different about it is said change by
//! change, so that a person can follow.

use serde_json::{Map, Value, json};
use wva_crds::names::{ACCELERATOR_LABEL, GROUP, INSTANCE_LABEL, KIND, VERSION};

use super::objects::{metadata, object, set};
use crate::cluster::{entry, text};

/// The fields of today's spec.
const FIELDS: [&str; 5] = ["scaleTargetRef", "modelID", "variantCost", "minReplicas", "maxReplicas"];
/// Those of the first releases, which chose replicas by a model of each server's speed.
const OF_THE_OPTIMIZER: [&str; 3] = ["sloClassRef", "modelProfile", "activateModelTuner"];

/// An object and what is different about it.
#[derive(Debug, PartialEq)]
pub(super) struct Changed {
    pub(super) object: Value,
    /// Empty where nothing had to change.
    pub(super) changes: Vec<String>,
}

/// What to apply for a stored or written object.
pub(super) fn migrate(original: &Value) -> Changed {
    let mut changes = Vec::new();
    let mut spec = fields(original, &mut changes);
    target(text(original, "/metadata/name"), &mut spec, &mut changes);
    cost(&mut spec, &mut changes);
    let mut metadata = metadata(original);
    labels(original, &mut metadata, &mut changes);
    let object = object(&format!("{GROUP}/{VERSION}"), KIND, &metadata, &Value::Object(spec));
    Changed { object, changes }
}

/// The fields that are known, by their right names.
fn fields(original: &Value, changes: &mut Vec<String>) -> Map<String, Value> {
    let mut spec = Map::new();
    let Some(found) = original.get("spec").and_then(Value::as_object) else { return spec };
    for (key, value) in found.iter().filter(|(_, value)| !value.is_null()) {
        match known(key) {
            Some(field) if field == key => {
                spec.insert(key.clone(), value.clone());
            }
            // The right spelling wins where both are there.
            Some(field) if found.get(field).is_none_or(Value::is_null) => {
                changes.push(format!("spec.{key} is spelt spec.{field}"));
                spec.insert(field.to_owned(), value.clone());
            }
            _ => changes.push(format!("spec.{key} is left out: {}", why_left_out(key))),
        }
    }
    spec
}

/// The field that a key means, whatever its spelling.
fn known(key: &str) -> Option<&'static str> {
    let plain = |key: &str| key.replace(['_', '-'], "").to_lowercase();
    FIELDS.into_iter().find(|field| plain(field) == plain(key))
}

fn why_left_out(key: &str) -> &'static str {
    if OF_THE_OPTIMIZER.contains(&key) {
        "it was for the optimizer of the first releases, which later ones do not have"
    } else {
        "this release has no such field"
    }
}

/// Before v0.5.0 the Deployment of the variant's own name was its target.
fn target(name: &str, spec: &mut Map<String, Value>, changes: &mut Vec<String>) {
    let deployment = |name: &str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    let named = match spec.get("scaleTargetRef") {
        Some(Value::String(name)) => {
            let name = name.clone();
            changes.push(format!("spec.scaleTargetRef is a reference, not the name {name:?} alone"));
            Some(name)
        }
        Some(reference) if reference.get("name").and_then(Value::as_str).is_some_and(|n| !n.is_empty()) => {
            None
        }
        _ => {
            changes.push(format!(
                "spec.scaleTargetRef is required since v0.5.0: before it, the Deployment of the same name was meant, {name}"
            ));
            Some(name.to_owned())
        }
    };
    if let Some(name) = named {
        spec.insert("scaleTargetRef".to_owned(), deployment(&name));
    }
}

fn cost(spec: &mut Map<String, Value>, changes: &mut Vec<String>) {
    if let Some(Value::Number(cost)) = spec.get("variantCost") {
        let text = cost.to_string();
        changes.push(format!("spec.variantCost is a text, \"{text}\""));
        spec.insert("variantCost".to_owned(), json!(text));
    }
}

/// An empty label says nothing and is refused; the accelerator of the first releases stood in the profile.
fn labels(original: &Value, metadata: &mut Map<String, Value>, changes: &mut Vec<String>) {
    for key in [ACCELERATOR_LABEL, INSTANCE_LABEL] {
        let labels = metadata.get_mut("labels").and_then(Value::as_object_mut);
        if let Some(labels) = labels
            && labels.get(key).is_some_and(|value| value.is_null() || value == "")
        {
            labels.remove(key);
            changes.push(format!("metadata.labels[{key}] is left out: it is empty"));
        }
    }
    metadata.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    if entry(original, "/metadata/labels", ACCELERATOR_LABEL).is_some_and(|label| !label.is_empty()) {
        return;
    }
    let profiles = original.pointer("/spec/modelProfile/accelerators").and_then(Value::as_array);
    if let Some([profile]) = profiles.map(Vec::as_slice)
        && let Some(accelerator) = profile.get("acc").and_then(Value::as_str).filter(|acc| acc.len() >= 2)
    {
        set(metadata, "labels", ACCELERATOR_LABEL, accelerator);
        changes.push(format!(
            "metadata.labels[{ACCELERATOR_LABEL}] is the one accelerator of spec.modelProfile, {accelerator}"
        ));
    }
}
