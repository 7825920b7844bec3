//! Logs and counts changes of the effective maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use wva_rules::MapRole;

use super::layers::EffectiveMaps;
use super::parsed_map::{InvalidEntry, KeyedEntry, MapEntry, ParsedMap};
use super::reloads::{ConfigReloads, change_message};

/// A map can have tens of thousands of entries.
const MAX_LOGGED: usize = 20;

/// Logs and counts the changes of the effective maps of one role.
pub(super) fn log_changes<E: MapEntry>(
    role: MapRole,
    before: &EffectiveMaps<E>,
    after: &EffectiveMaps<E>,
    reloads: &ConfigReloads,
) {
    log_map_change(role, before.global.as_deref(), after.global.as_deref(), reloads);
    log_map_changes(role, [before.local.values(), after.local.values()], reloads);
    if let Some(read) = after.global.as_ref().filter(|_| before.ignored != after.ignored)
        && !after.ignored.is_empty()
    {
        tracing::warn!(
            read = read.title(),
            ignored = after.ignored.join(", "),
            "Several global ConfigMaps of one kind exist: only the first is read; delete the others"
        );
    }
}

pub(super) fn log_map_changes<'m, E: MapEntry + 'm>(
    role: MapRole,
    before_and_after: [impl Iterator<Item = &'m Arc<ParsedMap<E>>>; 2],
    reloads: &ConfigReloads,
) {
    let mut pairs: BTreeMap<_, [Option<&ParsedMap<E>>; 2]> = BTreeMap::new();
    for (at, maps) in before_and_after.into_iter().enumerate() {
        for map in maps {
            pairs.entry((&map.namespace, &map.name)).or_default()[at] = Some(map);
        }
    }
    for [before, after] in pairs.into_values() {
        log_map_change(role, before, after, reloads);
    }
}

fn log_map_change<E: MapEntry>(
    role: MapRole,
    before: Option<&ParsedMap<E>>,
    after: Option<&ParsedMap<E>>,
    reloads: &ConfigReloads,
) {
    // An unchanged map is not compared field by field.
    if before.map(std::ptr::from_ref) == after.map(std::ptr::from_ref) {
        return;
    }
    reloads.count(role, after.is_none_or(|map| map.invalid.is_empty()));
    let entries = |map: Option<&ParsedMap<E>>| map.map_or(0, |map| map.entries.len());
    let title = |map: Option<&ParsedMap<E>>| map.map_or_else(|| "none".to_owned(), ParsedMap::title);
    let changes = join_changes(changes(entries_of(before), entries_of(after)));
    if !changes.is_empty() || title(before) != title(after) {
        let (map, old_map) = (title(after), title(before));
        let (old_entries, new_entries) = (entries(before), entries(after));
        tracing::info!(
            map,
            oldMap = old_map,
            oldEntries = old_entries,
            newEntries = new_entries,
            changes,
            "{}",
            change_message(role)
        );
    }
    if let Some(after) = after {
        log_invalid_entries(before, after);
    }
}

fn log_invalid_entries<E: MapEntry>(before: Option<&ParsedMap<E>>, after: &ParsedMap<E>) {
    let map = after.title();
    let (logged, more_logged) =
        before.map_or((&[][..], 0), |before| (&before.invalid[..], before.more_invalid));
    for InvalidEntry { key, problem, has_last_valid } in
        after.invalid.iter().filter(|entry| !logged.contains(entry))
    {
        let effect = if *has_last_valid { "keeping its last valid value" } else { "ignoring it" };
        tracing::warn!(map, entry = &**key, problem, "Invalid ConfigMap entry; {effect}");
    }
    if after.more_invalid > 0 && after.more_invalid != more_logged {
        tracing::warn!(map, entries = after.more_invalid, "The ConfigMap has further invalid entries");
    }
}

fn entries_of<E>(map: Option<&ParsedMap<E>>) -> &[KeyedEntry<E>] {
    map.map_or(&[], |map| &map.entries)
}

/// One text each, ordered by key.
fn changes<E: MapEntry>(before: &[KeyedEntry<E>], after: &[KeyedEntry<E>]) -> Vec<String> {
    let mut keys: BTreeMap<&str, [Option<&E>; 2]> = BTreeMap::new();
    for (at, entries) in [before, after].into_iter().enumerate() {
        for keyed in entries {
            keys.entry(&keyed.key).or_default()[at] = Some(&keyed.entry);
        }
    }
    let changed = keys.into_iter().filter(|(_, [old, new])| old != new);
    changed.flat_map(|(key, [old, new])| field_changes(key, old, new)).collect()
}

fn field_changes<E: MapEntry>(key: &str, old: Option<&E>, new: Option<&E>) -> Vec<String> {
    let fields = |entry: Option<&E>| match entry.and_then(|entry| serde_json::to_value(entry).ok()) {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (old_fields, new_fields) = (fields(old), fields(new));
    let added = new_fields.keys().filter(|name| !old_fields.contains_key(*name));
    let names = old_fields.keys().chain(added);
    let display = |value: Option<&Value>| value.map_or_else(|| "unset".to_owned(), ToString::to_string);
    let differing = names.filter(|name| old_fields.get(*name) != new_fields.get(*name));
    let mut changes: Vec<String> = differing
        .map(|name| {
            format!("{key}.{name}: {} -> {}", display(old_fields.get(name)), display(new_fields.get(name)))
        })
        .collect();
    match (old, new) {
        (None, Some(_)) if changes.is_empty() => changes.push(format!("{key}: added without fields")),
        (Some(_), None) => changes = vec![format!("{key}: removed")],
        _ => {}
    }
    changes
}

fn join_changes(mut changes: Vec<String>) -> String {
    let rest = changes.len().saturating_sub(MAX_LOGGED);
    changes.truncate(MAX_LOGGED);
    if rest > 0 {
        changes.push(format!("and {rest} more"));
    }
    changes.join(", ")
}

#[cfg(test)]
mod tests;
