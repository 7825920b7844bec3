//! Checks an entry against the JSON Schema of its kind. Each fault says what was found and what is expected.

use std::sync::LazyLock;

use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde_json::{Value, json};

use super::fault::{Fault, FaultKind};
use super::misplaced::{LIST_OF_ENTRIES, is_entry, is_list_of_entries, nested_entries};
use super::schema::{Kind, schema};
use crate::text::{join_field, nearest, quote, shorten, show};

/// Maximum faults of one entry.
const MAX_FAULTS: usize = 1_000;
/// Maximum unknown fields of one entry with a suggestion, which takes a comparison with every known field.
const MAX_SUGGESTIONS: usize = 64;

/// The compiled schemas. Tests show that each one compiles.
static VALIDATORS: LazyLock<Vec<(Kind, Value, Option<Validator>)>> = LazyLock::new(|| {
    let compiled = Kind::ALL.into_iter().map(|kind| {
        let schema = schema(kind);
        let validator = jsonschema::validator_for(&schema).ok();
        (kind, schema, validator)
    });
    compiled.collect()
});

/// Finds the faults of an entry by its schema.
pub(super) fn find_faults(kind: Kind, value: &Value) -> Vec<Fault> {
    let Some((_, schema, Some(validator))) = VALIDATORS.iter().find(|(k, ..)| *k == kind) else {
        return Vec::new();
    };
    let mut faults: Vec<Fault> = Vec::new();
    for error in validator.iter_errors(value) {
        if faults.len() >= MAX_FAULTS {
            break;
        }
        let pointer = error.instance_path().as_str();
        let (Some(found), rule) = (value.pointer(pointer), subschema(schema, pointer)) else {
            continue;
        };
        let path = field_path(pointer, value);
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                add_unknown_fields(&path, found, unexpected, &properties(rule), &mut faults);
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                let rule = subschema(schema, &format!("{pointer}/{name}"));
                faults.push(Fault {
                    kind: FaultKind::Missing,
                    path: format!("{path}{}", path_step(name)),
                    found: String::new(),
                    expected: describe_schema(rule, &Value::Null),
                    basis: found.clone(),
                });
            }
            // One fault for each value, even if it violates several keywords.
            _ if faults.iter().any(|f| f.kind == FaultKind::Value && f.path == path) => {}
            _ => faults.push(Fault {
                kind: if pointer.is_empty() { FaultKind::Form } else { FaultKind::Value },
                found: show(found),
                expected: match path.as_str() {
                    "" if is_list_of_entries(found, &properties(rule)) => LIST_OF_ENTRIES.to_owned(),
                    _ => describe_schema(rule, found),
                },
                path,
                basis: found.clone(),
            }),
        }
    }
    // The fields of the entries inside are missing here.
    if faults.iter().any(|fault| fault.kind == FaultKind::Nested) {
        faults.retain(|fault| fault.kind != FaultKind::Missing);
    }
    faults
}

/// Adds the unknown fields of `found`, and at the top those that are entries themselves.
fn add_unknown_fields(
    path: &str,
    found: &Value,
    unknown: &[String],
    known: &[&str],
    faults: &mut Vec<Fault>,
) {
    let is_nested =
        |key: &&String| path.is_empty() && found.get(*key).is_some_and(|value| is_entry(key, value, known));
    let (entries, fields): (Vec<&String>, Vec<&String>) = unknown.iter().partition(is_nested);
    if !entries.is_empty() {
        faults.push(nested_entries(&entries));
    }
    for key in fields.into_iter().take(MAX_FAULTS.saturating_sub(faults.len())) {
        let has_suggestion = faults.len() < MAX_SUGGESTIONS;
        faults.push(unknown_field(path, key, has_suggestion.then_some(known)));
    }
}

/// Fault of an unknown field, with a suggestion if `known` is given.
fn unknown_field(path: &str, key: &str, known: Option<&[&str]>) -> Fault {
    let all = |known: &[&str]| format!("known fields are {}", known.join(", "));
    let expected = known
        .map_or_else(String::new, |known| nearest_field(key, known).map_or_else(|| all(known), did_you_mean));
    Fault {
        kind: FaultKind::Unknown,
        path: format!("{path}{}", path_step(key)),
        found: quote(&shorten(key, 40)),
        expected,
        basis: json!(key),
    }
}

/// Suggestion of a field in [`Fault::expected`].
#[must_use]
pub fn did_you_mean(field: &str) -> String {
    format!("did you mean {}?", quote(field))
}

/// The known field with few typos, or with another capitalisation or separator (`modelID` for `model_id`).
fn nearest_field<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    known.iter().find(|k| is_same_name(k, key)).copied().or_else(|| nearest(key, known))
}

/// Apart from capitalisation and separators.
pub(super) fn is_same_name(a: &str, b: &str) -> bool {
    let plain = |s: &str| s.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    plain(a) == plain(b)
}

/// Converts a JSON pointer to a field path as kubectl prints it.
fn field_path(pointer: &str, value: &Value) -> String {
    let mut out = String::new();
    let mut here = Some(value);
    for part in pointer.split('/').skip(1) {
        let key = part.replace("~1", "/").replace("~0", "~");
        let is_list = here.is_some_and(Value::is_array);
        out += &if is_list { ["[", &key, "]"].concat() } else { path_step(&key) };
        here = here.and_then(|v| v.get(&key).or_else(|| v.get(key.parse::<usize>().ok()?)));
    }
    out
}

fn path_step(key: &str) -> String {
    join_field("", key)
}

/// The part of a schema for the value at `pointer`. The schemas have no references.
fn subschema<'s>(schema: &'s Value, pointer: &str) -> Option<&'s Value> {
    let mut here = schema;
    for part in pointer.split('/').skip(1) {
        here = match here.get("items") {
            Some(items) if part.bytes().all(|b| b.is_ascii_digit()) => items,
            _ => here.get("properties")?.get(part.replace("~1", "/").replace("~0", "~"))?,
        };
    }
    Some(here)
}

/// Fields of an entry; none of a list.
pub(super) fn known_fields(kind: Kind) -> Vec<&'static str> {
    let known = VALIDATORS.iter().find(|(k, ..)| *k == kind);
    known.map(|(_, schema, _)| properties(Some(schema))).unwrap_or_default()
}

fn properties(schema: Option<&Value>) -> Vec<&str> {
    let map = schema.and_then(|s| s.get("properties")).and_then(Value::as_object);
    map.into_iter().flat_map(|m| m.keys()).map(String::as_str).collect()
}

/// Describes the values that a schema accepts.
fn describe_schema(schema: Option<&Value>, found: &Value) -> String {
    let Some(schema) = schema else { return "see the schema".to_owned() };
    let is = |name: &str| schema.get("type").and_then(Value::as_str) == Some(name);
    let mut text = if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        let shown: Vec<String> = words.iter().map(ToString::to_string).collect();
        format!("use one of {}", shown.join(", "))
    } else if let Some(form) = schema.get("patternErrorMessage").and_then(Value::as_str) {
        form.to_owned()
    } else if schema.get("pattern").is_some() {
        "use a duration above 0, such as \"10m\" or \"1h30m\"".to_owned()
    } else if is("number") || is("integer") {
        format!("use a {} {}", if is("integer") { "whole number" } else { "number" }, describe_range(schema))
    } else if is("boolean") {
        "use true or false".to_owned()
    } else if is("array") {
        "use a list".to_owned()
    } else if is("object") {
        "use fields and values, one `field: value` per line".to_owned()
    } else {
        "use text that is not empty".to_owned()
    };
    let is_quoted_value = |s: &str| s.parse::<f64>().is_ok() || matches!(s, "true" | "false");
    if (is("number") || is("integer") || is("boolean")) && found.as_str().is_some_and(is_quoted_value) {
        text.push_str(", without quotes");
    }
    text
}

fn describe_range(schema: &Value) -> String {
    let bound = |name: &str| schema.get(name).filter(|v| v.is_number()).map(short_number);
    match (bound("minimum"), bound("exclusiveMinimum"), bound("maximum")) {
        (Some(min), _, Some(max)) => format!("from {min} to {max}"),
        (_, Some(min), Some(max)) => format!("above {min}, at most {max}"),
        (Some(min), _, None) => format!("of {min} or more"),
        (_, Some(min), None) => format!("above {min}"),
        (None, None, Some(max)) => format!("of at most {max}"),
        (None, None, None) => String::new(),
    }
}

/// A number without needless decimals: `1.0` as `1`.
fn short_number(number: &Value) -> String {
    number.as_f64().map_or_else(|| number.to_string(), |f| f.to_string())
}
