//! Entries within an entry, and fields where entries belong. The main map may have its keys in one file, so users write
//! other maps alike; the messages about their single fields would not help.

use serde_json::{Map, Value, json};

use super::DEFAULT_ENTRY;
use super::check::{is_same_name, known_fields};
use super::fault::{Fault, FaultKind};
use super::read::yaml_value;
use super::schema::Kind;

/// Further names are only counted.
const MAX_NAMED: usize = 4;
/// Longest text that is parsed as a nested entry.
const MAX_NESTED: usize = 4096;

/// Whether an unknown field is an entry itself: it has a known field, as YAML or as text.
pub(super) fn is_entry(key: &str, value: &Value, known: &[&str]) -> bool {
    let has_field = |map: &Map<String, Value>| {
        (map.is_empty() && key == DEFAULT_ENTRY)
            || map.keys().any(|k| known.iter().any(|field| is_same_name(k, field)))
    };
    match value {
        Value::Object(map) => has_field(map),
        Value::String(text) if text.contains(':') && text.len() <= MAX_NESTED => {
            yaml_value(text).is_ok_and(|value| value.as_object().is_some_and(has_field))
        }
        _ => false,
    }
}

pub(super) const LIST_OF_ENTRIES: &str = "each entry needs its own key: move each item to a key of data";

/// Whether a list stands in the place of an entry.
pub(super) fn is_list_of_entries(value: &Value, known: &[&str]) -> bool {
    value.as_array().is_some_and(|items| items.iter().any(|item| is_entry("", item, known)))
}

/// Fault of an entry that contains others.
pub(super) fn nested_entries(keys: &[&String]) -> Fault {
    let rest = keys.len().saturating_sub(MAX_NAMED);
    let mut names: Vec<String> =
        keys.iter().take(MAX_NAMED).map(|key| crate::text::escape(key, false)).collect();
    if rest > 0 {
        names.push(format!("{rest} more"));
    }
    let names = match names.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    };
    Fault {
        kind: FaultKind::Nested,
        path: String::new(),
        found: "it contains other entries".to_owned(),
        expected: format!("each entry needs its own key: move {names} to data"),
        basis: json!(keys),
    }
}

/// Fault of an entry whose key is the name of a field, as `kubectl create configmap --from-env-file` writes it.
pub(super) fn field_as_key(kind: Kind, key: &str, value: &Value) -> Option<Fault> {
    if value.is_object() {
        return None;
    }
    let field = known_fields(kind).into_iter().find(|field| is_same_name(key, field))?;
    let place = match (kind, field) {
        (Kind::ServiceClass | Kind::ServiceClassesList, _) => "the entry of its class",
        (_, "model_id" | "namespace") => "the entry of its model",
        _ => "the entry default",
    };
    Some(Fault {
        kind: FaultKind::Form,
        path: String::new(),
        found: format!("{field} is a field: put it in {place}"),
        expected: String::new(),
        basis: value.clone(),
    })
}
