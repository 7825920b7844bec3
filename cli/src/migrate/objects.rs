//! Helpers for objects as JSON.

use serde_json::{Map, Value, json};

/// The rest belongs to the API server.
const USER_FIELDS: [&str; 4] = ["name", "namespace", "labels", "annotations"];
/// `kubectl apply` writes it again.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub(crate) fn user_metadata(object: &Value) -> Map<String, Value> {
    let field = |key: &str| Some((key.to_owned(), object.pointer("/metadata")?.get(key)?.clone()));
    let mut metadata: Map<String, Value> = USER_FIELDS.into_iter().filter_map(field).collect();
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    metadata.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty()));
    metadata
}

pub(crate) fn set(metadata: &mut Map<String, Value>, map: &str, key: &str, value: &str) {
    let map = metadata.entry(map).or_insert_with(|| json!({}));
    if let Some(map) = map.as_object_mut() {
        map.insert(key.to_owned(), json!(value));
    }
}

pub(crate) fn object(api_version: &str, kind: &str, metadata: &Map<String, Value>, spec: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
}
