//! Converts a `VariantAutoscaling` of an earlier release.

use serde_json::{Map, Value, json};
use wva_crds::names::{ACCELERATOR_LABEL, GROUP, INSTANCE_LABEL, KIND, VERSION};
use wva_rules::SPEC_FIELDS;

use super::objects::{object, set, user_metadata};
use crate::cluster::{entry, text};

/// Fields of the model-based optimizer in the first releases.
const OPTIMIZER_FIELDS: [&str; 3] = ["sloClassRef", "modelProfile", "activateModelTuner"];

#[derive(Debug, PartialEq)]
pub(super) struct Conversion {
    pub(super) object: Value,
    /// One sentence per change.
    pub(super) changes: Vec<String>,
}

pub(super) fn convert(original: &Value) -> Conversion {
    let mut changes = Vec::new();
    let mut spec = convert_fields(original, &mut changes);
    convert_target(text(original, "/metadata/name"), &mut spec, &mut changes);
    convert_cost(&mut spec, &mut changes);
    let mut metadata = user_metadata(original);
    convert_labels(original, &mut metadata, &mut changes);
    let object = object(&format!("{GROUP}/{VERSION}"), KIND, &metadata, &Value::Object(spec));
    Conversion { object, changes }
}

fn convert_fields(original: &Value, changes: &mut Vec<String>) -> Map<String, Value> {
    let mut spec = Map::new();
    let Some(old) = original.get("spec").and_then(Value::as_object) else { return spec };
    for (key, value) in old.iter().filter(|(_, value)| !value.is_null()) {
        match canonical_field(key) {
            Some(field) if field == key => {
                spec.insert(key.clone(), value.clone());
            }
            // The right spelling wins.
            Some(field) if old.get(field).is_none_or(Value::is_null) => {
                changes.push(format!("spec.{key}: renamed to spec.{field}"));
                spec.insert(field.to_owned(), value.clone());
            }
            _ => changes.push(format!("spec.{key}: removed, {}", removal_reason(key))),
        }
    }
    spec
}

fn canonical_field(key: &str) -> Option<&'static str> {
    let normalise = |key: &str| key.replace(['_', '-'], "").to_lowercase();
    SPEC_FIELDS.iter().copied().find(|field| normalise(field) == normalise(key))
}

fn removal_reason(key: &str) -> &'static str {
    if OPTIMIZER_FIELDS.contains(&key) {
        "because only the optimizer of the first releases used it"
    } else {
        "because this release has no such field"
    }
}

/// Writes the target. Before v0.5.0 it was the Deployment with the variant's name.
fn convert_target(name: &str, spec: &mut Map<String, Value>, changes: &mut Vec<String>) {
    let deployment = match spec.get("scaleTargetRef") {
        Some(Value::String(deployment)) => {
            let deployment = deployment.clone();
            changes.push(format!("spec.scaleTargetRef: the name {deployment:?} became a reference"));
            deployment
        }
        Some(reference) if reference.get("name").and_then(Value::as_str).is_some_and(|n| !n.is_empty()) => {
            return;
        }
        _ => {
            changes.push(format!(
                "spec.scaleTargetRef: added Deployment {name}; the field is required since v0.5.0, and older releases scaled \
                 the Deployment with the variant's name"
            ));
            name.to_owned()
        }
    };
    let reference = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment});
    spec.insert("scaleTargetRef".to_owned(), reference);
}

fn convert_cost(spec: &mut Map<String, Value>, changes: &mut Vec<String>) {
    if let Some(Value::Number(cost)) = spec.get("variantCost") {
        let text = cost.to_string();
        changes.push(format!("spec.variantCost: number quoted, \"{text}\""));
        spec.insert("variantCost".to_owned(), json!(text));
    }
}

/// Removes empty labels, and takes the accelerator of the first releases from the profile.
fn convert_labels(original: &Value, metadata: &mut Map<String, Value>, changes: &mut Vec<String>) {
    for key in [ACCELERATOR_LABEL, INSTANCE_LABEL] {
        let labels = metadata.get_mut("labels").and_then(Value::as_object_mut);
        if let Some(labels) = labels
            && labels.get(key).is_some_and(|value| value.is_null() || value == "")
        {
            labels.remove(key);
            changes.push(format!("metadata.labels[{key}]: removed, because it is empty"));
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
            "metadata.labels[{ACCELERATOR_LABEL}]: added {accelerator}, the accelerator of spec.modelProfile"
        ));
    }
}
