//! Small steps on objects as JSON, of which each kind of original needs some.

use serde_json::{Map, Value, json};

/// What a person wrote of an object's metadata: all else is the API server's, or was.
const OWN: [&str; 4] = ["name", "namespace", "labels", "annotations"];
/// What kubectl remembers of the last apply: the next one writes it anew.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The metadata to apply.
pub(super) fn metadata(original: &Value) -> Map<String, Value> {
    let own = |key: &str| Some((key.to_owned(), original.pointer("/metadata")?.get(key)?.clone()));
    let mut metadata: Map<String, Value> = OWN.into_iter().filter_map(own).collect();
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    metadata.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty()));
    metadata
}

/// Sets an entry of a map of texts in the metadata, such as a label.
pub(super) fn set(metadata: &mut Map<String, Value>, map: &str, key: &str, value: &str) {
    let texts = metadata.entry(map).or_insert_with(|| json!({}));
    if let Some(texts) = texts.as_object_mut() {
        texts.insert(key.to_owned(), json!(value));
    }
}

/// An object that is to be applied.
pub(super) fn object(api_version: &str, kind: &str, metadata: &Map<String, Value>, spec: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
}
