//! Saturation ConfigMaps of llm-d WVA. There, an entry without an analyzer means the percentage analyzer, so `wva
//! migrate` adds the name.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wva_crds::entries::{DEFAULT_ENTRY, SaturationEntry, read_text};
use wva_rules::{MapNames, MapRole};

use super::objects::user_metadata;
use super::step::Step;
use crate::cluster::text;
use crate::validate::SourceObject;

const LINE: &str = "analyzerName: percentage";

pub(super) fn is_saturation(object: &Value) -> bool {
    let name = text(object, "/metadata/name");
    // The chart of llm-d WVA puts the release before the name.
    text(object, "/kind") == "ConfigMap"
        && MapNames::default().global_names(MapRole::Saturation).iter().any(|known| name.ends_with(known))
}

/// Adds the analyzer to maps without one. Does nothing if any entry `default` has one: others may inherit it.
pub(super) fn name_analyzers(maps: &[&SourceObject]) -> Vec<Step> {
    let inherits_name = |map: &&SourceObject| {
        entries(&map.object).any(|(key, entry)| key == DEFAULT_ENTRY && entry.analyzer_name.is_some())
    };
    if maps.iter().any(inherits_name) {
        return Vec::new();
    }
    maps.iter().filter_map(|map| name_analyzer(map)).collect()
}

/// Changes `default`, or each entry if there is no `default`.
fn name_analyzer(map: &SourceObject) -> Option<Step> {
    let all: BTreeMap<&str, SaturationEntry> = entries(&map.object).collect();
    let keys: Vec<&str> = match all.get_key_value(DEFAULT_ENTRY) {
        Some((key, _)) => vec![key],
        None => all.iter().filter(|(_, entry)| entry.analyzer_name.is_none()).map(|(key, _)| *key).collect(),
    };
    if keys.is_empty() {
        return None;
    }
    let mut data: BTreeMap<&str, String> = BTreeMap::new();
    for (key, value) in map.object.pointer("/data").and_then(Value::as_object)? {
        let text = value.as_str()?;
        let named = keys.contains(&key.as_str()).then(|| with_line(text)).flatten();
        data.insert(key, named.unwrap_or_else(|| text.to_owned()));
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": user_metadata(&map.object), "data": data});
    let changes = keys.iter().map(|key| format!("data[{key}]: added {LINE}")).collect();
    Some(Step { place: map.place.clone(), object, changes })
}

/// Adds the analyzer as the first line, which keeps comments. An entry in braces is serialised again.
fn with_line(text: &str) -> Option<String> {
    let named = format!("{LINE}\n{text}");
    let is_named = |text: &str| read_text(text).is_ok_and(|e: SaturationEntry| e.analyzer_name.is_some());
    if is_named(&named) {
        return Some(named);
    }
    let entry: Value = serde_json::to_value(read_text::<SaturationEntry>(text).ok()?).ok()?;
    Some(format!("{LINE}\n{}", serde_saphyr::to_string(&entry).ok()?)).filter(|text| is_named(text))
}

fn entries(object: &Value) -> impl Iterator<Item = (&str, SaturationEntry)> {
    let data = object.pointer("/data").and_then(Value::as_object).into_iter().flatten();
    data.filter_map(|(key, value)| Some((key.as_str(), read_text(value.as_str()?).ok()?)))
}
