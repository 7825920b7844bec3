//! What is told of a change of the maps in force: one line for each map with the old and the new value of what changed,
//! one for each entry that cannot be used, and a counter.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::layers::InForce;
use super::read::{Keyed, MapEntry, ReadMap, Wrong};
use super::reloads::{Config, ConfigReloads};

/// Changes of one map that are told; a map can hold tens of thousands of entries.
const MOST_TOLD: usize = 20;

/// Tells what is in force now and was not, or not so, before.
pub(super) fn tell<E: MapEntry>(
    config: Config,
    before: &InForce<E>,
    after: &InForce<E>,
    reloads: &ConfigReloads,
) {
    tell_map(config, before.global.as_deref(), after.global.as_deref(), reloads);
    tell_each(config, [before.local.values(), after.local.values()], reloads);
    if let Some(read) = after.global.as_ref().filter(|_| before.behind != after.behind)
        && !after.behind.is_empty()
    {
        tracing::warn!(
            read = read.title(),
            ignored = after.behind.join(", "),
            "Several global ConfigMaps of one kind exist: only the first is read; delete the others"
        );
    }
}

/// Tells the same of maps that are in force side by side.
pub(super) fn tell_each<'m, E: MapEntry + 'm>(
    config: Config,
    before_and_after: [impl Iterator<Item = &'m Arc<ReadMap<E>>>; 2],
    reloads: &ConfigReloads,
) {
    let mut pairs: BTreeMap<_, [Option<&ReadMap<E>>; 2]> = BTreeMap::new();
    for (at, maps) in before_and_after.into_iter().enumerate() {
        for map in maps {
            pairs.entry((&map.namespace, &map.name)).or_default()[at] = Some(map);
        }
    }
    for [before, after] in pairs.into_values() {
        tell_map(config, before, after, reloads);
    }
}

fn tell_map<E: MapEntry>(
    config: Config,
    before: Option<&ReadMap<E>>,
    after: Option<&ReadMap<E>>,
    reloads: &ConfigReloads,
) {
    // What has not changed is not compared field by field.
    if before.map(std::ptr::from_ref) == after.map(std::ptr::from_ref) {
        return;
    }
    reloads.count(config, after.is_none_or(|map| map.wrong.is_empty()));
    let entries = |map: Option<&ReadMap<E>>| map.map_or(0, |map| map.entries.len());
    let title = |map: Option<&ReadMap<E>>| map.map_or_else(|| "none".to_owned(), ReadMap::title);
    let changes = shortened(changes(entries_of(before), entries_of(after)));
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
            config.updated()
        );
    }
    if let Some(after) = after {
        tell_wrong(before, after);
    }
}

/// What cannot be used and was not told of the map before.
fn tell_wrong<E: MapEntry>(before: Option<&ReadMap<E>>, after: &ReadMap<E>) {
    let map = after.title();
    let (told, more_told) = before.map_or((&[][..], 0), |before| (&before.wrong[..], before.more_wrong));
    for Wrong { key, problem, kept } in after.wrong.iter().filter(|wrong| !told.contains(wrong)) {
        let instead = if *kept { "its last good value holds" } else { "it is left out" };
        tracing::warn!(map, entry = &**key, problem, "An entry of a ConfigMap cannot be used: {instead}");
    }
    if after.more_wrong > 0 && after.more_wrong != more_told {
        tracing::warn!(map, entries = after.more_wrong, "More entries of the ConfigMap cannot be used");
    }
}

fn entries_of<E>(map: Option<&ReadMap<E>>) -> &[Keyed<E>] {
    map.map_or(&[], |map| &map.entries)
}

/// What changed, one text for each field, in order of the keys.
fn changes<E: MapEntry>(before: &[Keyed<E>], after: &[Keyed<E>]) -> Vec<String> {
    let mut keys: BTreeMap<&str, [Option<&E>; 2]> = BTreeMap::new();
    for (at, entries) in [before, after].into_iter().enumerate() {
        for keyed in entries {
            keys.entry(&keyed.key).or_default()[at] = Some(&keyed.entry);
        }
    }
    let changed = keys.into_iter().filter(|(_, [old, new])| old != new);
    changed.flat_map(|(key, [old, new])| fields(key, old, new)).collect()
}

fn fields<E: MapEntry>(key: &str, old: Option<&E>, new: Option<&E>) -> Vec<String> {
    let of = |entry: Option<&E>| match entry.and_then(|entry| serde_json::to_value(entry).ok()) {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (of_old, of_new) = (of(old), of(new));
    let names = of_old.keys().chain(of_new.keys().filter(|name| !of_old.contains_key(*name)));
    let shown = |value: Option<&Value>| value.map_or_else(|| "unset".to_owned(), ToString::to_string);
    let changed = names.filter(|name| of_old.get(*name) != of_new.get(*name));
    let mut told: Vec<String> = changed
        .map(|name| format!("{key}.{name}: {} -> {}", shown(of_old.get(name)), shown(of_new.get(name))))
        .collect();
    match (old, new) {
        (None, Some(_)) if told.is_empty() => told.push(format!("{key}: added, and says nothing")),
        (Some(_), None) => told = vec![format!("{key}: removed")],
        _ => {}
    }
    told
}

fn shortened(mut changes: Vec<String>) -> String {
    let rest = changes.len().saturating_sub(MOST_TOLD);
    changes.truncate(MOST_TOLD);
    if rest > 0 {
        changes.push(format!("and {rest} more"));
    }
    changes.join(", ")
}

#[cfg(test)]
mod tests;
