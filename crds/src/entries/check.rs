//! An entry against the JSON Schema of its kind, with every fault in words: what was found, and what would be right.

use std::sync::LazyLock;

use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde_json::{Value, json};

use super::read::{Fault, Wrong};
use super::schema::{Kind, schema};
use crate::text::{inside, nearest, quote, shorten, show};

/// Faults of one entry that are noted.
const MOST_FAULTS: usize = 1_000;
/// Unknown fields of one entry for which a known one is looked for: each is compared with all that are known.
const MOST_SUGGESTIONS: usize = 64;

/// The schemas, compiled once. A test shows that each compiles.
static VALIDATORS: LazyLock<Vec<(Kind, Value, Option<Validator>)>> = LazyLock::new(|| {
    let compiled = Kind::ALL.into_iter().map(|kind| {
        let schema = schema(kind);
        let validator = jsonschema::validator_for(&schema).ok();
        (kind, schema, validator)
    });
    compiled.collect()
});

/// What the schema finds wrong with the value of an entry.
pub(super) fn check(kind: Kind, value: &Value) -> Vec<Fault> {
    let Some((_, schema, Some(validator))) = VALIDATORS.iter().find(|(k, ..)| *k == kind) else {
        return Vec::new();
    };
    let mut faults: Vec<Fault> = Vec::new();
    for error in validator.iter_errors(value) {
        if faults.len() >= MOST_FAULTS {
            break;
        }
        let pointer = error.instance_path().as_str();
        let (Some(here), about) = (value.pointer(pointer), subschema(schema, pointer)) else {
            continue;
        };
        let path = path(pointer, value);
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let known = properties(about);
                for key in unexpected.iter().take(MOST_FAULTS - faults.len()) {
                    let suggests = faults.len() < MOST_SUGGESTIONS;
                    faults.push(unknown(&path, key, suggests.then_some(&known)));
                }
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                let about = subschema(schema, &format!("{pointer}/{name}"));
                faults.push(Fault {
                    wrong: Wrong::Missing,
                    path: format!("{path}{}", step(name)),
                    found: "nothing".to_owned(),
                    right: right(about, &Value::Null),
                    basis: here.clone(),
                });
            }
            // One value can break several keywords of its schema; what is right is said once.
            _ if faults.iter().any(|f| f.wrong == Wrong::Value && f.path == path) => {}
            _ => faults.push(Fault {
                wrong: if pointer.is_empty() { Wrong::Form } else { Wrong::Value },
                path,
                found: show(here),
                right: right(about, here),
                basis: here.clone(),
            }),
        }
    }
    faults
}

/// A field that does not exist, and the one that is probably meant, where the known ones are given.
fn unknown(path: &str, key: &str, known: Option<&Vec<&str>>) -> Fault {
    let known_are = |known: &Vec<&str>| format!("known are {}", known.join(", "));
    let right = known.map_or_else(String::new, |known| {
        nearest_field(key, known).map_or_else(|| known_are(known), |meant| format!("{}?", quote(meant)))
    });
    Fault {
        wrong: Wrong::Unknown,
        path: format!("{path}{}", step(key)),
        found: quote(&shorten(key, 40)),
        right,
        basis: json!(key),
    }
}

/// A misspelt field: near by letters, or the same word in the other spelling (`modelID` for `model_id`).
fn nearest_field<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let plain = |s: &str| s.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    known.iter().find(|k| plain(k) == plain(key)).copied().or_else(|| nearest(key, known))
}

/// A JSON pointer as kubectl prints fields.
fn path(pointer: &str, value: &Value) -> String {
    let mut out = String::new();
    let mut here = Some(value);
    for part in pointer.split('/').skip(1) {
        let key = part.replace("~1", "/").replace("~0", "~");
        let list = here.is_some_and(Value::is_array);
        out += &if list { ["[", &key, "]"].concat() } else { step(&key) };
        here = here.and_then(|v| v.get(&key).or_else(|| v.get(key.parse::<usize>().ok()?)));
    }
    out
}

fn step(key: &str) -> String {
    inside("", key)
}

/// The part of a schema that is about the value at `pointer`. The schemas hold no references.
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

fn properties(schema: Option<&Value>) -> Vec<&str> {
    let map = schema.and_then(|s| s.get("properties")).and_then(Value::as_object);
    map.into_iter().flat_map(|m| m.keys()).map(String::as_str).collect()
}

/// What a schema asks for, in words.
fn right(schema: Option<&Value>, found: &Value) -> String {
    let Some(schema) = schema else { return "see the schema".to_owned() };
    let is = |name: &str| schema.get("type").and_then(Value::as_str) == Some(name);
    let mut text = if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        let shown: Vec<String> = words.iter().map(ToString::to_string).collect();
        format!("write one of {}", shown.join(", "))
    } else if schema.get("pattern").is_some() {
        "write a duration above 0, such as \"10m\" or \"1h30m\"".to_owned()
    } else if is("number") || is("integer") {
        format!("write a {} {}", if is("integer") { "whole number" } else { "number" }, range(schema))
    } else if is("boolean") {
        "write true or false".to_owned()
    } else if is("array") {
        "write a list".to_owned()
    } else if is("object") {
        "write fields and values, one `field: value` a line".to_owned()
    } else {
        "write a text that is not empty".to_owned()
    };
    let quoted = |s: &str| s.parse::<f64>().is_ok() || matches!(s, "true" | "false");
    if (is("number") || is("integer") || is("boolean")) && found.as_str().is_some_and(quoted) {
        text.push_str(", without quotes");
    }
    text
}

fn range(schema: &Value) -> String {
    let bound = |name: &str| schema.get(name).filter(|v| v.is_number()).map(plain);
    match (bound("minimum"), bound("exclusiveMinimum"), bound("maximum")) {
        (Some(min), _, Some(max)) => format!("from {min} to {max}"),
        (_, Some(min), Some(max)) => format!("above {min}, at most {max}"),
        (Some(min), _, None) => format!("of {min} or more"),
        (_, Some(min), None) => format!("above {min}"),
        (None, None, Some(max)) => format!("of at most {max}"),
        (None, None, None) => String::new(),
    }
}

/// `1.0` as a person would write it.
fn plain(number: &Value) -> String {
    number.as_f64().map_or_else(|| number.to_string(), |f| f.to_string())
}
