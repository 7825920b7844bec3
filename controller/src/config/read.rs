//! One ConfigMap, read once when it comes in. An entry that cannot be used is skipped with the reason, and its last
//! good value stays as long as the map does: admission is never trusted to have run.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Map, Value, json};
use wva_crds::entries::{Conflict, DEFAULT_ENTRY, Entry, Fault, Scoped, read_text};
use wva_rules::Place;

/// Faults of one entry that are told: whoever mends these sees the rest then.
const MOST_FAULTS: usize = 5;

/// Keys of one map that are looked at, in their order, and `default` in any case. A megabyte of the shortest entries
/// would be fifty of memory, in every namespace that somebody means ill with.
const MOST_KEYS: usize = 10_000;
/// Entries of one map that cannot be used and of which it is kept why; more are counted.
const MOST_WRONG: usize = 20;

/// Names one map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MapKey {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl MapKey {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub(super) fn of(map: &ConfigMap) -> Self {
        Self::new(map.metadata.namespace.as_deref().unwrap_or_default(), &map.name_any())
    }
}

/// The maps of one kind.
pub(super) type Maps<E> = BTreeMap<MapKey, Arc<ReadMap<E>>>;

/// What stands under one key of a map.
pub(super) trait MapEntry: Clone + PartialEq + Serialize {
    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong, in words.
    fn read(key: &str, text: &str) -> Result<Self, String>;

    /// The model it is for.
    fn model_id(&self) -> Option<&str>;

    /// The namespace it is for.
    fn namespace(&self) -> Option<&str>;

    /// Why it cannot be used under this key of a map of this place and namespace, whatever other entries say.
    fn fault(&self, key: &str, place: Place, namespace: &str) -> Option<String>;
}

impl<E: Entry + Scoped + Clone + PartialEq + Serialize> MapEntry for E {
    fn read(_: &str, text: &str) -> Result<Self, String> {
        read_text(text).map_err(|faults| few(&faults))
    }

    fn model_id(&self) -> Option<&str> {
        Scoped::model_id(self)
    }

    fn namespace(&self) -> Option<&str> {
        Scoped::namespace(self)
    }

    fn fault(&self, key: &str, place: Place, namespace: &str) -> Option<String> {
        let whole = key == DEFAULT_ENTRY && place == Place::Global;
        misplaced(self, key, place, namespace).or_else(|| contradiction(self, whole))
    }
}

/// Why an entry is for nobody.
fn misplaced(entry: &impl Scoped, key: &str, place: Place, namespace: &str) -> Option<String> {
    if key == DEFAULT_ENTRY {
        return None;
    }
    if entry.model_id().is_none() {
        return Some("it names no model: give its model_id, or call the entry default".to_owned());
    }
    let named = entry.namespace().filter(|named| place == Place::Local && *named != namespace)?;
    Some(format!("namespace {named:?} is not the one the map stands in, {namespace:?}: leave the field out"))
}

/// What the fields of an entry alone contradict; `whole`: nothing stands below it but the built-in defaults.
fn contradiction(entry: &(impl Scoped + Serialize), whole: bool) -> Option<String> {
    let conflicts = entry.conflicts();
    if conflicts.is_empty() {
        return None;
    }
    // What conflicts with an inherited value is judged where the layers are merged.
    let own = serde_json::to_value(entry).unwrap_or_default();
    let gives_both = |c: &Conflict| own.get(c.field).is_some() && own.get(c.other).is_some();
    conflicts.iter().find(|c| whole || gives_both(c)).map(ToString::to_string)
}

/// A ConfigMap as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ReadMap<E> {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    /// Tells a map that was made anew from the one before.
    uid: Box<str>,
    /// The entries that hold, in order of their keys.
    pub(super) entries: Vec<Keyed<E>>,
    /// What cannot be used of what the map says now, in order of the keys.
    pub(super) wrong: Vec<Wrong>,
    /// How much more there is.
    pub(super) more_wrong: usize,
    /// Where the entry `default` stands.
    default: Option<usize>,
    /// Where the entries for one model stand.
    of_model: BTreeMap<Box<str>, Scopes>,
}

/// An entry with its key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Keyed<E> {
    pub(super) key: Box<str>,
    pub(super) entry: E,
}

/// An entry that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) key: Box<str>,
    pub(super) problem: String,
    /// An earlier value of it holds on.
    pub(super) kept: bool,
}

/// Where the entries for one model stand; of several for the same the first by key counts.
#[derive(Clone, Debug, Default, PartialEq)]
struct Scopes {
    /// For every namespace that reads the map.
    wide: Option<usize>,
    /// For one namespace.
    narrow: BTreeMap<Box<str>, usize>,
}

impl<E: MapEntry> ReadMap<E> {
    /// Reads a map; `before` is what was read of the map of this name last.
    pub(super) fn read(map: &ConfigMap, place: Place, before: Option<&Self>) -> Self {
        let mut read = Self {
            namespace: map.namespace().unwrap_or_default().into(),
            name: map.name_any().into(),
            uid: map.uid().unwrap_or_default().into(),
            entries: Vec::new(),
            wrong: Vec::new(),
            more_wrong: 0,
            default: None,
            of_model: BTreeMap::new(),
        };
        // What was good in another map of this name says nothing about this one.
        let before = before.filter(|before| before.uid == read.uid);
        for (at, (key, text)) in map.data.iter().flatten().enumerate() {
            let key: Box<str> = key.as_str().into();
            if at >= MOST_KEYS && &*key != DEFAULT_ENTRY {
                let problem = format!("the map has more than {MOST_KEYS} entries: delete some");
                read.skip(Wrong { key, problem, kept: false });
                continue;
            }
            match read.usable(&key, text, place) {
                Ok(entry) => read.entries.push(Keyed { key, entry }),
                Err(problem) => {
                    let last = before.and_then(|before| before.get(&key)).cloned();
                    read.skip(Wrong { key, problem, kept: last.is_some() });
                    read.entries.extend(last);
                }
            }
        }
        read.index(place);
        read
    }

    /// The map with the entries that hold, as JSON, which is YAML.
    pub(super) fn object(&self) -> Value {
        let text = |keyed: &Keyed<E>| {
            Some((keyed.key.to_string(), serde_json::to_string(&keyed.entry).ok()?.into()))
        };
        let data: Map<String, Value> = self.entries.iter().filter_map(text).collect();
        json!({"metadata": {"name": self.name}, "data": data})
    }

    /// The entry, where it can be used on its own.
    fn usable(&self, key: &str, text: &str, place: Place) -> Result<E, String> {
        let entry = E::read(key, text)?;
        entry.fault(key, place, &self.namespace).map_or(Ok(entry), Err)
    }

    /// Notes where the entries stand, and those that stand behind another one for the same.
    fn index(&mut self, place: Place) {
        let mut behind: Vec<Wrong> = Vec::new();
        for (at, Keyed { key, entry }) in self.entries.iter().enumerate() {
            if &**key == DEFAULT_ENTRY {
                self.default = Some(at);
                continue;
            }
            let Some(model) = entry.model_id() else { continue };
            let scopes = self.of_model.entry(model.into()).or_default();
            let first = match entry.namespace().filter(|_| place == Place::Global) {
                Some(namespace) => *scopes.narrow.entry(namespace.into()).or_insert(at),
                None => *scopes.wide.get_or_insert(at),
            };
            if first != at {
                let other = &self.entries[first].key;
                let problem =
                    format!("it is for model {model:?}, as the entry {other} is: delete one of them");
                behind.push(Wrong { key: key.clone(), problem, kept: false });
            }
        }
        for wrong in behind {
            self.skip(wrong);
        }
        self.wrong.sort_by(|a, b| a.key.cmp(&b.key));
    }

    /// Notes an entry that cannot be used. That of `default` is always named: models depend on it.
    fn skip(&mut self, wrong: Wrong) {
        if self.wrong.len() < MOST_WRONG || &*wrong.key == DEFAULT_ENTRY {
            self.wrong.push(wrong);
        } else {
            self.more_wrong += 1;
        }
    }
}

impl<E> ReadMap<E> {
    /// The entries that hold for a model, the least specific first.
    pub(super) fn layers(&self, namespace: &str, model: &str) -> impl Iterator<Item = &Keyed<E>> {
        let scopes = self.of_model.get(model);
        let wide = scopes.and_then(|scopes| scopes.wide);
        let narrow = scopes.and_then(|scopes| scopes.narrow.get(namespace).copied());
        [self.default, wide, narrow].into_iter().flatten().filter_map(|at| self.entries.get(at))
    }

    /// The entry `default`.
    pub(super) fn default_entry(&self) -> Option<&E> {
        self.entries.get(self.default?).map(|keyed| &keyed.entry)
    }

    /// What is wrong with the entry `default`, where no earlier value of it holds.
    pub(super) fn default_lost(&self) -> Option<&Wrong> {
        let at = self.wrong.binary_search_by(|wrong| (*wrong.key).cmp(DEFAULT_ENTRY)).ok()?;
        self.wrong.get(at).filter(|wrong| !wrong.kept)
    }

    /// Namespace and name, as kubectl users write them.
    pub(super) fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn get(&self, key: &str) -> Option<&Keyed<E>> {
        let at = self.entries.binary_search_by(|keyed| (*keyed.key).cmp(key)).ok()?;
        self.entries.get(at)
    }
}

/// The first faults of an entry, in one line.
pub(super) fn few(faults: &[Fault]) -> String {
    let mut told: Vec<String> = faults.iter().take(MOST_FAULTS).map(ToString::to_string).collect();
    if let Some(more) = faults.len().checked_sub(told.len()).filter(|more| *more > 0) {
        told.push(format!("and {more} more"));
    }
    told.join("; ")
}

#[cfg(test)]
mod tests;
