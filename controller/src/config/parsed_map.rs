//! A parsed ConfigMap. Invalid entries are skipped, because admission may not have run. The last valid value of an
//! entry stays in use as long as the map exists.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Map, Value, json};
use wva_crds::entries::{Conflict, DEFAULT_ENTRY, Entry, Fault, MAX_ENTRIES, Scoped, read_entry};
use wva_rules::MapScope;

const MAX_FAULTS: usize = 5;

/// More invalid entries are only counted.
const MAX_INVALID: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MapKey {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl MapKey {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub(super) fn from_map(map: &ConfigMap) -> Self {
        Self::new(map.metadata.namespace.as_deref().unwrap_or_default(), &map.name_any())
    }
}

pub(super) type Maps<E> = BTreeMap<MapKey, Arc<ParsedMap<E>>>;

/// An entry of a map.
pub(super) trait MapEntry: Scoped + Clone + PartialEq + Serialize {
    /// Parses an entry.
    ///
    /// # Errors
    /// The faults as text.
    fn parse(key: &str, text: &str) -> Result<Self, String>;

    /// Why the entry is invalid, regardless of other entries.
    fn fault(&self, _key: &str, _place: MapScope, _namespace: &str) -> Option<String> {
        None
    }
}

impl<E: Entry + Scoped + Clone + PartialEq + Serialize> MapEntry for E {
    fn parse(key: &str, text: &str) -> Result<Self, String> {
        read_entry(key, text).map_err(|faults| join_faults(&faults))
    }

    fn fault(&self, key: &str, place: MapScope, namespace: &str) -> Option<String> {
        let is_base = key == DEFAULT_ENTRY && place == MapScope::Global;
        scope_fault(self, key, place, namespace).or_else(|| conflict(self, is_base))
    }
}

fn scope_fault(entry: &impl Scoped, key: &str, place: MapScope, namespace: &str) -> Option<String> {
    if key == DEFAULT_ENTRY {
        return None;
    }
    if entry.model_id().is_none() {
        return Some("model_id is missing; set it, or name the entry default".to_owned());
    }
    let named = entry.namespace().filter(|named| place == MapScope::Local && *named != namespace)?;
    Some(format!("namespace {named:?} is not the namespace of the map, {namespace:?}; remove the field"))
}

/// `is_base`: the entry inherits only from the built-in defaults.
fn conflict(entry: &(impl Scoped + Serialize), is_base: bool) -> Option<String> {
    let conflicts = entry.conflicts();
    if conflicts.is_empty() {
        return None;
    }
    // Conflicts with inherited values are found when the layers are merged.
    let own = serde_json::to_value(entry).unwrap_or_default();
    let has_both = |c: &Conflict| own.get(c.field).is_some() && own.get(c.other).is_some();
    conflicts.iter().find(|c| is_base || has_both(c)).map(ToString::to_string)
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ParsedMap<E> {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    /// Distinguishes a recreated map.
    uid: Box<str>,
    pub(super) entries: Vec<KeyedEntry<E>>,
    pub(super) invalid: Vec<InvalidEntry>,
    pub(super) more_invalid: usize,
    default: Option<usize>,
    by_model: BTreeMap<Box<str>, ModelEntries>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeyedEntry<E> {
    pub(super) key: Box<str>,
    pub(super) entry: E,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InvalidEntry {
    pub(super) key: Box<str>,
    pub(super) problem: String,
    pub(super) has_last_valid: bool,
}

/// Entries of one model. If several have the same scope, the first by key counts.
#[derive(Clone, Debug, Default, PartialEq)]
struct ModelEntries {
    wide: Option<usize>,
    narrow: BTreeMap<Box<str>, usize>,
}

/// kubectl puts a file there if one byte of it is not UTF-8.
const IN_BINARY_DATA: &str = "it is in binaryData, which wva does not read; save the file as UTF-8";

/// Keys of `binaryData` have no text.
fn data_and_binary_keys(map: &ConfigMap) -> impl Iterator<Item = (&str, Option<&str>)> {
    let data = map.data.iter().flatten().map(|(key, text)| (key.as_str(), Some(text.as_str())));
    data.chain(map.binary_data.iter().flatten().map(|(key, _)| (key.as_str(), None)))
}

impl<E: MapEntry> ParsedMap<E> {
    /// `before`: previous state of the map of this name.
    pub(super) fn parse(map: &ConfigMap, place: MapScope, before: Option<&Self>) -> Self {
        let mut parsed = Self {
            namespace: map.namespace().unwrap_or_default().into(),
            name: map.name_any().into(),
            uid: map.uid().unwrap_or_default().into(),
            entries: Vec::new(),
            invalid: Vec::new(),
            more_invalid: 0,
            default: None,
            by_model: BTreeMap::new(),
        };
        // The valid values of a deleted map of this name do not count.
        let before = before.filter(|before| before.uid == parsed.uid);
        // In order, and `default` always: admission may not have run.
        let texts: BTreeMap<&str, Option<&str>> = data_and_binary_keys(map).collect();
        for (at, (key, text)) in texts.into_iter().enumerate() {
            let key: Box<str> = key.into();
            if at >= MAX_ENTRIES && &*key != DEFAULT_ENTRY {
                let problem = format!("the map has more than {MAX_ENTRIES} entries; delete some");
                parsed.add_invalid(InvalidEntry { key, problem, has_last_valid: false });
                continue;
            }
            let entry = text
                .ok_or_else(|| IN_BINARY_DATA.to_owned())
                .and_then(|text| parsed.parse_entry(&key, text, place));
            match entry {
                Ok(entry) => parsed.entries.push(KeyedEntry { key, entry }),
                Err(problem) => {
                    let last = before.and_then(|before| before.get(&key)).cloned();
                    parsed.add_invalid(InvalidEntry { key, problem, has_last_valid: last.is_some() });
                    parsed.entries.extend(last);
                }
            }
        }
        parsed.index(place);
        parsed
    }

    /// JSON is valid YAML.
    pub(super) fn to_object(&self) -> Value {
        let text = |keyed: &KeyedEntry<E>| {
            Some((keyed.key.to_string(), serde_json::to_string(&keyed.entry).ok()?.into()))
        };
        let data: Map<String, Value> = self.entries.iter().filter_map(text).collect();
        json!({"metadata": {"name": self.name}, "data": data})
    }

    fn parse_entry(&self, key: &str, text: &str, place: MapScope) -> Result<E, String> {
        let entry = E::parse(key, text)?;
        entry.fault(key, place, &self.namespace).map_or(Ok(entry), Err)
    }

    /// Adds duplicates to the invalid entries.
    fn index(&mut self, place: MapScope) {
        let mut duplicates: Vec<InvalidEntry> = Vec::new();
        for (at, KeyedEntry { key, entry }) in self.entries.iter().enumerate() {
            if &**key == DEFAULT_ENTRY {
                self.default = Some(at);
                continue;
            }
            let Some(model) = entry.model_id() else { continue };
            let entries = self.by_model.entry(model.into()).or_default();
            let first = match entry.namespace().filter(|_| place == MapScope::Global) {
                Some(namespace) => *entries.narrow.entry(namespace.into()).or_insert(at),
                None => *entries.wide.get_or_insert(at),
            };
            if first != at {
                let other = &self.entries[first].key;
                let problem = format!("model {model:?} already has the entry {other}; delete one of them");
                duplicates.push(InvalidEntry { key: key.clone(), problem, has_last_valid: false });
            }
        }
        for duplicate in duplicates {
            self.add_invalid(duplicate);
        }
        self.invalid.sort_by(|a, b| a.key.cmp(&b.key));
    }

    /// `default` is always stored, because models depend on it.
    fn add_invalid(&mut self, entry: InvalidEntry) {
        if self.invalid.len() < MAX_INVALID || &*entry.key == DEFAULT_ENTRY {
            self.invalid.push(entry);
        } else {
            self.more_invalid += 1;
        }
    }
}

impl<E> ParsedMap<E> {
    pub(super) fn layers(&self, namespace: &str, model: &str) -> impl Iterator<Item = &KeyedEntry<E>> {
        let entries = self.by_model.get(model);
        let wide = entries.and_then(|entries| entries.wide);
        let narrow = entries.and_then(|entries| entries.narrow.get(namespace).copied());
        [self.default, wide, narrow].into_iter().flatten().filter_map(|at| self.entries.get(at))
    }

    pub(super) fn default_entry(&self) -> Option<&E> {
        self.entries.get(self.default?).map(|keyed| &keyed.entry)
    }

    /// `default`, if it is invalid and has no last valid value.
    pub(super) fn lost_default(&self) -> Option<&InvalidEntry> {
        let at = self.invalid.binary_search_by(|entry| (*entry.key).cmp(DEFAULT_ENTRY)).ok()?;
        self.invalid.get(at).filter(|entry| !entry.has_last_valid)
    }

    /// `NAMESPACE/NAME`.
    pub(super) fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn get(&self, key: &str) -> Option<&KeyedEntry<E>> {
        let at = self.entries.binary_search_by(|keyed| (*keyed.key).cmp(key)).ok()?;
        self.entries.get(at)
    }
}

/// The first faults of an entry as one text.
pub(super) fn join_faults(faults: &[Fault]) -> String {
    let mut texts: Vec<String> = faults.iter().take(MAX_FAULTS).map(ToString::to_string).collect();
    if let Some(more) = faults.len().checked_sub(texts.len()).filter(|more| *more > 0) {
        texts.push(format!("and {more} more"));
    }
    texts.join("; ")
}

#[cfg(test)]
mod tests;
