//! What becomes of a change of the main ConfigMap while the process runs. A pure step: what was in force and the new
//! map give what is in force now, and what there is to tell. A key that is wrong keeps the value it had, and so does
//! one that is read at the start alone; the rest holds at once.

use std::collections::{BTreeMap, BTreeSet};

use wva_crds::settings::map::{Layout, MapText};
use wva_crds::settings::{SETTINGS, Setting, find_order_problems};

use super::files::{MainMap, MapName};
use super::raw::{Raw, Source, Wrong};
use super::reader::Reader;
use super::sources::{Sources, nested_error};

/// What is in force, with where it comes from. One owner: the watch of the main map.
#[derive(Debug)]
pub(crate) struct Live {
    sources: Sources,
    /// The map as it was taken in last.
    map: MainMap,
    /// What is read of it. Of an entry `config.yaml` that cannot be read, what it said before.
    text: MapText,
    in_force: Raw,
    /// Changes that wait for a restart, by key, as they were told.
    waiting: BTreeMap<&'static str, Change>,
    wrong: Vec<Wrong>,
}

/// A setting with its value before and after, as both may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) key: &'static str,
    pub(crate) old: String,
    pub(crate) new: String,
    /// Where the new value stands.
    pub(crate) source: Source,
}

/// What a change of the map comes to.
#[derive(Debug)]
pub(crate) struct Update {
    /// What holds from now on.
    pub(crate) changed: Vec<Change>,
    /// What is read at the start alone and was not told yet.
    pub(crate) refused: Vec<Change>,
    /// The change of those says itself that a restart comes with it.
    pub(crate) restart_stated: bool,
    /// What keeps the value it had, and was not told yet.
    pub(crate) wrong: Vec<Wrong>,
    /// What else there is to say of the map, and was not said yet.
    pub(crate) warnings: Vec<String>,
    /// Nothing is wrong with the map.
    pub(crate) valid: bool,
    /// The object, for events; where it is gone, as it was last.
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) engine: wva_controller::EngineConfig,
    pub(crate) level: tracing::Level,
}

impl Live {
    /// The process was started with these sources and this map, and settings could be read of them.
    pub(crate) fn new(sources: Sources, map: MainMap, in_force: Raw) -> Self {
        let text = map.text.clone();
        Self { sources, map, text, in_force, waiting: BTreeMap::new(), wrong: Vec::new() }
    }

    /// Where the map is.
    pub(crate) fn main_map(&self) -> MapName {
        self.sources.main_map()
    }

    /// Takes in the map as it is now; one that is gone is empty. `None` where it says what it said before.
    pub(crate) fn take_in(&mut self, map: MainMap) -> Option<Update> {
        if map.text == self.map.text {
            self.map = map;
            return None;
        }
        let nested = nested_error(&map.text);
        let text = if nested.is_some() { with_nested_of(&map.text, &self.text) } else { map.text.clone() };
        let (mut next, wrong) = Raw::read(&self.sources, &text);
        let mut wrong: Vec<Wrong> = nested.into_iter().chain(wrong).collect();
        for Wrong { key, .. } in &wrong {
            next.keep(key, &self.in_force);
        }
        let waiting = self.immutable(&mut next);
        wrong.extend(self.out_of_order(&mut next));
        let update = Update {
            changed: self.changed(&next),
            refused: waiting.values().filter(|c| self.waiting.get(c.key) != Some(*c)).cloned().collect(),
            restart_stated: map.restart_revision.is_some()
                && map.restart_revision != self.map.restart_revision,
            wrong: wrong.iter().filter(|w| !self.wrong.contains(w)).cloned().collect(),
            warnings: map.warnings.iter().filter(|w| !self.map.warnings.contains(w)).cloned().collect(),
            valid: wrong.is_empty(),
            uid: map.uid.clone().or_else(|| self.map.uid.clone()),
            version: map.version.clone().or_else(|| self.map.version.clone()),
            engine: Reader { raw: &next, wrong: Vec::new() }.engine(),
            level: Reader { raw: &next, wrong: Vec::new() }.log().level,
        };
        (self.map, self.text) = (map, text);
        (self.in_force, self.waiting, self.wrong) = (next, waiting, wrong);
        Some(update)
    }

    /// Puts back what is read at the start alone, and gives what would have changed of it.
    fn immutable(&self, next: &mut Raw) -> BTreeMap<&'static str, Change> {
        let fixed = SETTINGS.iter().filter(|s| s.in_map && !s.mutable);
        let changes: Vec<Change> = fixed.filter_map(|s| self.change(s, next)).collect();
        for change in &changes {
            next.keep(change.key, &self.in_force);
        }
        changes.into_iter().map(|change| (change.key, change)).collect()
    }

    /// Puts back what would be out of order, all settings of an order together.
    fn out_of_order(&self, next: &mut Raw) -> Vec<Wrong> {
        let problems = find_order_problems(|key| next.get(key).map(|held| held.value.clone()));
        let mut wrong = Vec::new();
        for problem in problems {
            let changed = |key: &&&'static str| next.get(key) != self.in_force.get(key);
            if let Some(key) = problem.keys.iter().find(changed).copied() {
                let source_of_value = next.get(key).map_or(Source::Default, |held| held.source);
                let problem = next.told(&problem);
                wrong.push(Wrong { key, source_of_value, problem, of_the_command: false });
            }
            for key in problem.keys {
                next.keep(key, &self.in_force);
            }
        }
        wrong
    }

    fn changed(&self, next: &Raw) -> Vec<Change> {
        SETTINGS.iter().filter_map(|setting| self.change(setting, next)).collect()
    }

    /// What changes of a setting. Values are compared parsed: `60s` is `1m`.
    fn change(&self, setting: &'static Setting, next: &Raw) -> Option<Change> {
        let [old, new] = [&self.in_force, next].map(|raw| raw.get(setting.key));
        if old.map(|held| &held.value) == new.map(|held| &held.value) {
            return None;
        }
        let shown = |raw: &Raw| raw.shown(setting).unwrap_or_default();
        Some(Change {
            key: setting.key,
            old: shown(&self.in_force),
            new: shown(next),
            source: new.map_or(Source::Default, |held| held.source),
        })
    }
}

/// A map with the keys that the entry `config.yaml` of another one holds.
fn with_nested_of(map: &MapText, other: &MapText) -> MapText {
    let nested = other.keys.iter().filter(|key| key.layout == Layout::Nested).cloned();
    MapText { keys: map.keys.iter().cloned().chain(nested).collect(), nested_error: None }
}

/// Every key that a restart would change, as a person lists them.
pub(crate) fn keys(changes: &[Change]) -> String {
    let keys: BTreeSet<&str> = changes.iter().map(|change| change.key).collect();
    keys.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
