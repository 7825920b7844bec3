//! Texts of an object with their fields, for rules about any text.

use serde_json::Value;
use wva_crds::settings::Setting;

use crate::facts::Facts;
use crate::maps::facts::MapFacts;
use crate::maps::main_map::{entry_field, field, keys};
use crate::maps::parse::Entry;
use crate::text::join_field;

/// Name, labels and spec; annotations of other tools may contain anything.
pub(crate) fn variant_strings<'f>(facts: &Facts<'f>) -> Vec<(String, &'f str)> {
    let mut out = Vec::new();
    for path in [&["metadata", "name"][..], &["metadata", "namespace"], &["metadata", "labels"], &["spec"]] {
        if let Some(value) = facts.get(path) {
            add_strings(path.join("."), value, &mut out);
        }
    }
    out
}

/// None of an entry that is not YAML.
pub(crate) fn entry_strings(entry: &Entry) -> Vec<(String, &str)> {
    let mut out = Vec::new();
    if let Some(value) = entry.value() {
        add_strings(entry_field(&entry.key), value, &mut out);
    }
    out
}

/// Texts of the main map, with the setting of each key, which knows what must not be shown.
pub(crate) fn main_map_values<'f>(
    facts: &'f MapFacts<'_>,
) -> impl Iterator<Item = (String, Option<&'static Setting>, &'f str)> {
    keys(facts).map(|written| (field(written), written.setting, written.text.as_str()))
}

fn add_strings<'v>(field: String, value: &'v Value, out: &mut Vec<(String, &'v str)>) {
    match value {
        Value::String(text) => out.push((field, text)),
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                add_strings(format!("{field}[{i}]"), item, out);
            }
        }
        Value::Object(map) => {
            for (key, item) in map {
                add_strings(join_field(&field, key), item, out);
            }
        }
        _ => {}
    }
}
