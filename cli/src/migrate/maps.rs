//! ConfigMaps: local maps stay, global ones move. In llm-d WVA, a saturation entry without an analyzer means the
//! percentage analyzer, so `wva migrate` adds the name.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wva_crds::entries::{DEFAULT_ENTRY, SaturationEntry, read_text};
use wva_rules::{MapFacts, MapRole, MapScope, Severity, validate_map};

use super::destination::Destination;
use super::global_maps::{MovedMap, plan_maps};
use super::objects::user_metadata;
use super::options::PlanOptions;
use super::plan::Plan;
use super::step::Step;
use super::variant::Conversion;
use crate::cluster::text;
use crate::installs::InstalledController;
use crate::validate::SourceObject;

const LINE: &str = "analyzerName: percentage";

pub(super) fn add_maps(plan: &mut Plan, objects: &[SourceObject], options: PlanOptions<'_>) {
    let controllers: Vec<InstalledController> = objects
        .iter()
        .filter_map(|source| InstalledController::from_object(&source.object, &source.namespace))
        .collect();
    let destination = Destination::choose(&controllers, options);
    let maps = plan_maps(objects, &controllers, destination.as_ref());
    let saturation = maps.moved.iter().filter(|map| map.role == MapRole::Saturation);
    let all = maps.kept.iter().map(|map| &map.object).chain(saturation.map(|map| &map.object));
    // Others may inherit the analyzer of any `default`.
    let needs_analyzer = !all.clone().any(names_analyzer);
    let converted = |object: &Value| name_analyzer(object).filter(|_| needs_analyzer);
    for map in &maps.kept {
        plan.read += 1;
        match converted(&map.object) {
            Some(conversion) => plan.steps.push(Step::new(map, conversion)),
            None => plan.unchanged += 1,
        }
    }
    plan.read += maps.unchanged;
    plan.unchanged += maps.unchanged;
    plan.unresolved.extend(maps.unresolved);
    for mut map in maps.moved {
        if map.role == MapRole::Saturation
            && let Some(Conversion { object, changes }) = converted(&map.object)
        {
            map.object = object;
            map.changes.extend(changes);
        }
        add_moved(plan, map);
    }
    plan.has_chart = destination.is_some_and(|destination| destination.is_chart);
}

/// Leaves out a map that the rules refuse.
fn add_moved(plan: &mut Plan, mut map: MovedMap<'_>) {
    plan.read += map.sources;
    let replaced = map.merge_target();
    if map.is_in_target() {
        plan.unchanged += map.sources;
        return;
    }
    let refused = violations(&map);
    if !refused.is_empty() {
        plan.unresolved.extend(refused.into_iter().map(|violation| format!("{}: {violation}", map.place)));
        return;
    }
    if !replaced.is_empty() {
        let (namespace, name) =
            (text(&map.object, "/metadata/namespace"), text(&map.object, "/metadata/name"));
        plan.unresolved.push(format!(
            "{}: replaces other content of {namespace}/{name}: {}. Delete what you do not want from either map",
            map.place,
            replaced.join(", ")
        ));
    }
    if map.becomes_values {
        plan.values.add(&map);
    } else {
        plan.steps.push(Step { place: map.place, object: map.object, changes: map.changes });
    }
}

fn violations(map: &MovedMap<'_>) -> Vec<String> {
    let namespace = text(&map.object, "/metadata/namespace");
    let facts = MapFacts::new(&map.object, namespace, map.role, MapScope::Global);
    let denied = validate_map(&facts).violations.into_iter().filter(|v| v.severity == Severity::Deny);
    denied.map(|v| format!("{}: {} [{}]", v.field, v.message, v.code)).collect()
}

fn names_analyzer(map: &Value) -> bool {
    entries(map).any(|(key, entry)| key == DEFAULT_ENTRY && entry.analyzer_name.is_some())
}

/// Adds the analyzer to `default`, or to each entry if there is no `default`. `None` if all have one.
fn name_analyzer(map: &Value) -> Option<Conversion> {
    let all: BTreeMap<&str, SaturationEntry> = entries(map).collect();
    let keys: Vec<&str> = match all.get_key_value(DEFAULT_ENTRY) {
        Some((key, _)) => vec![key],
        None => all.iter().filter(|(_, entry)| entry.analyzer_name.is_none()).map(|(key, _)| *key).collect(),
    };
    if keys.is_empty() {
        return None;
    }
    let mut data: BTreeMap<&str, String> = BTreeMap::new();
    for (key, value) in map.pointer("/data").and_then(Value::as_object)? {
        let text = value.as_str()?;
        let named = keys.contains(&key.as_str()).then(|| with_line(text)).flatten();
        data.insert(key, named.unwrap_or_else(|| text.to_owned()));
    }
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": user_metadata(map), "data": data});
    let changes = keys.iter().map(|key| format!("data[{key}]: added {LINE}")).collect();
    Some(Conversion { object, changes })
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
