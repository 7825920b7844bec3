//! Entries of a map, read: each is YAML that satisfies the JSON Schema of its kind. The schemas are the ones shipped
//! for editors, so what an editor marks is what admission refuses.

use std::sync::LazyLock;

use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use wva_crds::entries::{Kind, schema, yaml_value};
use wva_crds::names::SERVICE_CLASSES_KEY;

use crate::maps::main_map::entry_field;
use crate::maps::names::MapRole;
use crate::text::{escape, inside, nearest, quote, shorten, show};

/// The most characters of a parser's message.
const PROBLEM_CHARS: usize = 200;
/// Faults of one entry that are noted.
const MOST_FAULTS: usize = 1_000;

/// What can be wrong with one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It is no YAML, or no map.
    Form,
    /// A key stands in it twice.
    Duplicate,
    /// A field that does not exist.
    Unknown,
    /// A field that is missing.
    Missing,
    /// A value of the wrong type or out of range.
    Value,
}

/// One thing that is wrong with one entry.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) wrong: Wrong,
    pub(crate) field: String,
    pub(crate) found: String,
    pub(crate) right: String,
    /// What was looked at.
    pub(crate) basis: Value,
}

/// One entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// Its value, where it is YAML.
    pub(crate) value: Option<Value>,
    pub(crate) faults: Vec<Fault>,
}

/// All entries of a map, in order of their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries(pub(crate) Vec<Entry>);

impl Entry {
    /// It is a map of fields, right or wrong.
    pub(crate) fn is_map(&self) -> bool {
        self.value.as_ref().is_some_and(Value::is_object)
    }

    /// A field that holds a text; the empty one counts as left out.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.value.as_ref()?.get(field)?.as_str().filter(|text| !text.is_empty())
    }

    /// It says something about a field itself.
    pub(crate) fn gives(&self, field: &str) -> bool {
        self.value.as_ref().is_some_and(|v| v.get(field).is_some())
    }

    /// A field that does not exist is probably meant to be this one, and is told so.
    pub(crate) fn misspells(&self, field: &str) -> bool {
        let meant = format!("{}?", quote(field));
        self.faults.iter().any(|f| f.wrong == Wrong::Unknown && f.right == meant)
    }

    /// The entry as its type, where nothing is wrong with it.
    pub(crate) fn typed<T: DeserializeOwned>(&self) -> Option<T> {
        let value = self.value.clone().filter(|_| self.faults.is_empty())?;
        serde_json::from_value(value).ok()
    }
}

impl Entries {
    /// The entries that nothing is wrong with on their own.
    pub(crate) fn valid(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter().filter(|e| e.faults.is_empty())
    }

    pub(crate) fn of(role: MapRole, data: Option<&Map<String, Value>>) -> Self {
        let texts = data.into_iter().flatten().filter_map(|(key, v)| Some((key, text(v)?)));
        Self(texts.filter_map(|(key, text)| Some(read(kind(role, key)?, key, text))).collect())
    }
}

/// The text of an entry. The API server stores `null` as the empty one.
fn text(value: &Value) -> Option<&str> {
    if value.is_null() { Some("") } else { value.as_str() }
}

fn kind(role: MapRole, key: &str) -> Option<Kind> {
    match (role, key) {
        (MapRole::Main, _) => None,
        (MapRole::Saturation, _) => Some(Kind::Saturation),
        (MapRole::ScaleToZero, _) => Some(Kind::ScaleToZero),
        (MapRole::ServiceClasses, SERVICE_CLASSES_KEY) => Some(Kind::ServiceClassesList),
        (MapRole::ServiceClasses, _) => Some(Kind::ServiceClass),
    }
}

fn read(kind: Kind, key: &str, text: &str) -> Entry {
    let root = entry_field(key);
    let fault = |wrong, found: String, right: &str| Fault {
        wrong,
        field: root.clone(),
        found,
        right: right.to_owned(),
        basis: json!(text),
    };
    let mut entry = Entry { key: key.to_owned(), value: None, faults: Vec::new() };
    match yaml_value(text) {
        Err(serde_saphyr::Error::DuplicateMappingKey { key, location, .. }) => {
            let twice = key.unwrap_or_default();
            let found = format!("{} twice, again in line {}", quote(&shorten(&twice, 40)), location.line());
            entry.faults.push(fault(Wrong::Duplicate, found, ""));
        }
        Err(error) => {
            let problem = match error {
                serde_saphyr::Error::MultipleDocuments { .. } => {
                    "it holds more than one document (---)".to_owned()
                }
                other => shorten(&escape(&other.to_string(), false), PROBLEM_CHARS),
            };
            entry.faults.push(fault(Wrong::Form, "no YAML".to_owned(), &problem));
        }
        // An entry that says nothing inherits everything.
        Ok(Value::Null) if kind != Kind::ServiceClassesList => entry.value = Some(json!({})),
        Ok(value) => {
            entry.faults = check(kind, &root, &value);
            entry.value = Some(value);
        }
    }
    entry
}

/// The schemas, compiled once. A test shows that each compiles.
static VALIDATORS: LazyLock<Vec<(Kind, Value, Option<Validator>)>> = LazyLock::new(|| {
    let compiled = Kind::ALL.into_iter().map(|kind| {
        let schema = schema(kind);
        let validator = jsonschema::validator_for(&schema).ok();
        (kind, schema, validator)
    });
    compiled.collect()
});

fn check(kind: Kind, root: &str, value: &Value) -> Vec<Fault> {
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
        let field = field(root, pointer, value);
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let known = properties(about);
                for key in unexpected {
                    let meant = nearest_field(key, &known);
                    let right = match meant {
                        Some(meant) => format!("{}?", quote(meant)),
                        None => format!("known are {}", known.join(", ")),
                    };
                    faults.push(Fault {
                        wrong: Wrong::Unknown,
                        field: format!("{field}{}", step(key)),
                        found: quote(&shorten(key, 40)),
                        right,
                        basis: json!(key),
                    });
                }
            }
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                let path = format!("{pointer}/{name}");
                faults.push(Fault {
                    wrong: Wrong::Missing,
                    field: format!("{field}{}", step(name)),
                    found: "nothing".to_owned(),
                    right: right(subschema(schema, &path), &Value::Null),
                    basis: here.clone(),
                });
            }
            // One value can break several keywords of its schema; what is right is said once.
            _ if faults.iter().any(|f| f.wrong == Wrong::Value && f.field == field) => {}
            _ => faults.push(Fault {
                wrong: if pointer.is_empty() { Wrong::Form } else { Wrong::Value },
                field,
                found: show(here),
                right: right(about, here),
                basis: here.clone(),
            }),
        }
    }
    faults
}

/// A misspelt field: near by letters, or the same word in the other spelling (`modelID` for `model_id`).
fn nearest_field<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let plain = |s: &str| s.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    known.iter().find(|k| plain(k) == plain(key)).copied().or_else(|| nearest(key, known))
}

/// A JSON pointer as kubectl prints fields.
fn field(root: &str, pointer: &str, value: &Value) -> String {
    let mut out = root.to_owned();
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
