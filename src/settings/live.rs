//! Changes of the main ConfigMap at run time. A pure step computes new values and changes to report. An invalid key
//! keeps its value, and so does a setting that needs a restart.

use std::collections::{BTreeMap, BTreeSet};

use wva_crds::settings::map::{Layout, MapText};
use wva_crds::settings::{SETTINGS, Setting, find_order_problems};

use super::files::{MainMap, MapName};
use super::raw::{InvalidSetting, RawSettings, Source};
use super::reader::SettingsReader;
use super::sources::{Sources, nested_error};

#[derive(Debug)]
pub(crate) struct LiveSettings {
    sources: Sources,
    map: MainMap,
    /// Keys of the map. If `config.yaml` is not valid, with its last valid keys.
    text: MapText,
    current: RawSettings,
    /// Changes that were reported, by key.
    pending_restart: BTreeMap<&'static str, SettingChange>,
    /// Reported.
    invalid: Vec<InvalidSetting>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SettingChange {
    pub(crate) key: &'static str,
    pub(crate) old: String,
    pub(crate) new: String,
    pub(crate) source: Source,
}

/// Result of a change of the map.
#[derive(Debug)]
pub(crate) struct SettingsUpdate {
    pub(crate) changed: Vec<SettingChange>,
    /// They need a restart.
    pub(crate) refused: Vec<SettingChange>,
    pub(crate) announces_restart: bool,
    /// They keep their values.
    pub(crate) invalid: Vec<InvalidSetting>,
    /// New warnings about the map.
    pub(crate) warnings: Vec<String>,
    /// Whether all settings of the map are valid.
    pub(crate) is_valid: bool,
    /// Named in events; of a deleted map, the last identity.
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) engine: wva_controller::EngineConfig,
    pub(crate) level: tracing::Level,
}

impl LiveSettings {
    /// State of a process that was started with these sources and this map.
    pub(crate) fn new(sources: Sources, map: MainMap, current: RawSettings) -> Self {
        let text = map.text.clone();
        Self { sources, map, text, current, pending_restart: BTreeMap::new(), invalid: Vec::new() }
    }

    pub(crate) fn main_map(&self) -> MapName {
        self.sources.main_map()
    }

    /// A deleted map is empty. `None` if neither its texts nor its warnings have changed.
    pub(crate) fn apply(&mut self, map: MainMap) -> Option<SettingsUpdate> {
        if map.text == self.map.text && map.warnings == self.map.warnings {
            self.map = map;
            return None;
        }
        let nested = nested_error(&map.text);
        let text = if nested.is_some() { with_nested_from(&map.text, &self.text) } else { map.text.clone() };
        let (mut next, invalid) = RawSettings::read(&self.sources, &text);
        let mut invalid: Vec<InvalidSetting> = nested.into_iter().chain(invalid).collect();
        for InvalidSetting { key, .. } in &invalid {
            next.copy_value(key, &self.current);
        }
        let pending_restart = self.revert_immutable(&mut next);
        invalid.extend(self.revert_out_of_order(&mut next));
        let update = SettingsUpdate {
            changed: self.changes(&next),
            refused: pending_restart
                .values()
                .filter(|c| self.pending_restart.get(c.key) != Some(*c))
                .cloned()
                .collect(),
            announces_restart: map.restart_revision.is_some()
                && map.restart_revision != self.map.restart_revision,
            invalid: invalid.iter().filter(|w| !self.invalid.contains(w)).cloned().collect(),
            warnings: map.warnings.iter().filter(|w| !self.map.warnings.contains(w)).cloned().collect(),
            is_valid: invalid.is_empty(),
            uid: map.uid.clone().or_else(|| self.map.uid.clone()),
            version: map.version.clone().or_else(|| self.map.version.clone()),
            engine: SettingsReader { raw: &next, invalid: Vec::new() }.engine(),
            level: SettingsReader { raw: &next, invalid: Vec::new() }.log().level,
        };
        (self.map, self.text) = (map, text);
        (self.current, self.pending_restart, self.invalid) = (next, pending_restart, invalid);
        Some(update)
    }

    /// Returns the changes that need a restart.
    fn revert_immutable(&self, next: &mut RawSettings) -> BTreeMap<&'static str, SettingChange> {
        let fixed = SETTINGS.iter().filter(|s| s.in_map && !s.mutable);
        let changes: Vec<SettingChange> = fixed.filter_map(|s| self.change(s, next)).collect();
        for change in &changes {
            next.copy_value(change.key, &self.current);
        }
        changes.into_iter().map(|change| (change.key, change)).collect()
    }

    /// All settings of an order together.
    fn revert_out_of_order(&self, next: &mut RawSettings) -> Vec<InvalidSetting> {
        let problems = find_order_problems(|key| next.get(key).map(|entry| entry.value.clone()));
        let mut invalid = Vec::new();
        for problem in problems {
            let changed = |key: &&&'static str| next.get(key) != self.current.get(key);
            if let Some(key) = problem.keys.iter().find(changed).copied() {
                let value_source = next.get(key).map_or(Source::Default, |entry| entry.source);
                let problem = next.describe(&problem);
                invalid.push(InvalidSetting { key, value_source, problem, is_from_command: false });
            }
            for key in problem.keys {
                next.copy_value(key, &self.current);
            }
        }
        invalid
    }

    fn changes(&self, next: &RawSettings) -> Vec<SettingChange> {
        SETTINGS.iter().filter_map(|setting| self.change(setting, next)).collect()
    }

    /// Compares parsed values: `60s` equals `1m`.
    fn change(&self, setting: &'static Setting, next: &RawSettings) -> Option<SettingChange> {
        let [old, new] = [&self.current, next].map(|raw| raw.get(setting.key));
        if old.map(|entry| &entry.value) == new.map(|entry| &entry.value) {
            return None;
        }
        let shown = |raw: &RawSettings| raw.display_value(setting).unwrap_or_default();
        Some(SettingChange {
            key: setting.key,
            old: shown(&self.current),
            new: shown(next),
            source: new.map_or(Source::Default, |entry| entry.source),
        })
    }
}

/// Adds the `config.yaml` keys of another map.
fn with_nested_from(map: &MapText, other: &MapText) -> MapText {
    let nested = other.keys.iter().filter(|key| key.layout == Layout::Nested).cloned();
    MapText { keys: map.keys.iter().cloned().chain(nested).collect(), nested_error: None }
}

/// Sorted, separated by commas.
pub(crate) fn changed_keys(changes: &[SettingChange]) -> String {
    let keys: BTreeSet<&str> = changes.iter().map(|change| change.key).collect();
    keys.into_iter().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
