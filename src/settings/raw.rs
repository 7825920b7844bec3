//! Raw settings: the first step. Picks the source of each value (flag, environment, main ConfigMap, config file,
//! default, in this order) and parses it.

use std::collections::BTreeMap;
use std::fmt;

use wva_crds::settings::map::{ConfigKey, Layout, MapText, NESTED_ENTRY};
use wva_crds::settings::{SETTINGS, Setting, SettingsProblem, Value};
use wva_rules::{RunningSource, RunningValue};

use super::sources::Sources;
use crate::command_line::old_flags;

/// Source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A flag of the command line.
    Flag(&'static str),
    /// An environment variable.
    Environment(&'static str),
    /// A key of the main ConfigMap.
    Map(&'static str, Layout),
    /// A key of the config file.
    File(&'static str),
    /// Default in the table of settings.
    Default,
}

impl Source {
    /// A flag or an environment variable, which override all files.
    pub(super) fn is_from_command(self) -> bool {
        matches!(self, Self::Flag(_) | Self::Environment(_))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) if name.len() == 1 => write!(f, "flag -{name}"),
            Self::Flag(name) => write!(f, "flag --{name}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Map(name, Layout::Flat) => write!(f, "ConfigMap key {name}"),
            Self::Map(name, Layout::Nested) => write!(f, "ConfigMap key {NESTED_ENTRY}, {name}"),
            Self::File(name) => write!(f, "config file, {name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} ({value_source}): {problem}")]
pub(crate) struct InvalidSetting {
    pub(crate) key: &'static str,
    pub(crate) value_source: Source,
    pub(crate) problem: String,
    /// No other source can override the values.
    pub(super) is_from_command: bool,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SettingValue {
    pub(crate) value: Value,
    pub(crate) source: Source,
    /// May be a secret.
    text: String,
}

/// Parsed value of each setting that has one.
#[derive(Clone, Default)]
pub(crate) struct RawSettings {
    values: BTreeMap<&'static str, SettingValue>,
    /// Old names in use, each with its setting.
    pub(super) old_names: Vec<(Source, &'static Setting)>,
}

impl fmt::Debug for RawSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

impl RawSettings {
    /// Returns all invalid values.
    pub(super) fn read(sources: &Sources, map: &MapText) -> (Self, Vec<InvalidSetting>) {
        let mut raw = Self::default();
        let mut invalid = Vec::new();
        for setting in SETTINGS {
            let Some((text, source)) = raw.resolve(setting, sources, map) else { continue };
            match setting.kind.parse(&text) {
                Ok(value) => {
                    raw.values.insert(setting.key, SettingValue { value, source, text });
                }
                Err(e) => invalid.push(InvalidSetting {
                    key: setting.key,
                    value_source: source,
                    problem: setting.describe_error(&e),
                    is_from_command: source.is_from_command(),
                }),
            }
        }
        (raw, invalid)
    }

    fn resolve(
        &mut self,
        setting: &'static Setting,
        sources: &Sources,
        map: &MapText,
    ) -> Option<(String, Source)> {
        if let Some((name, text)) = setting.flag.and_then(|f| Some((f, sources.flag(f)?))) {
            return Some((text, Source::Flag(name)));
        }
        if let Some((name, text)) = old_flags(setting).find_map(|f| Some((f, sources.flag(f)?))) {
            self.old_names.push((Source::Flag(name), setting));
            return Some((text, Source::Flag(name)));
        }
        if let Some(text) = sources.variable(setting.key) {
            return Some((text, Source::Environment(setting.key)));
        }
        for name in setting.old_keys() {
            if let Some(text) = sources.variable(name) {
                self.old_names.push((Source::Environment(name), setting));
                return Some((text, Source::Environment(name)));
            }
        }
        if setting.in_map
            && let Some((text, source)) = self.resolve_in_files(setting, sources, map)
        {
            return Some((text, source));
        }
        setting.default.map(|text| (text.to_owned(), Source::Default))
    }

    fn resolve_in_files(
        &mut self,
        setting: &'static Setting,
        sources: &Sources,
        map: &MapText,
    ) -> Option<(String, Source)> {
        let in_map = map.get(setting.key).map(|written| (written, true));
        let in_file = || sources.file.get(setting.key).map(|written| (written, false));
        let (ConfigKey { key, is_old_name, layout, text, .. }, of_map) = in_map.or_else(in_file)?;
        let name = setting.old_keys().find(|old| old == key).unwrap_or(setting.key);
        let source = if of_map { Source::Map(name, *layout) } else { Source::File(name) };
        if *is_old_name {
            self.old_names.push((source, setting));
        }
        Some((text.clone(), source))
    }

    /// `None` if no source has a value.
    pub(super) fn get(&self, key: &'static str) -> Option<&SettingValue> {
        self.values.get(key)
    }

    pub(super) fn copy_value(&mut self, key: &'static str, from: &Self) {
        match from.values.get(key) {
            Some(entry) => drop(self.values.insert(key, entry.clone())),
            None => drop(self.values.remove(key)),
        }
    }

    /// Hides secrets.
    pub(super) fn display_value(&self, setting: &Setting) -> Option<String> {
        let entry = self.values.get(setting.key)?;
        Some(if entry.text.is_empty() { String::new() } else { setting.redact(&entry.text) })
    }

    /// Includes the values.
    pub(super) fn describe(&self, problem: &SettingsProblem) -> String {
        if let [_] = problem.keys {
            return problem.advice.to_owned();
        }
        let shown = |key: &&str| {
            let value = Setting::by_key(key).and_then(|setting| self.display_value(setting));
            format!("{key}={}", value.unwrap_or_default())
        };
        let found: Vec<String> = problem.keys.iter().map(shown).collect();
        format!("found {}: {}", found.join(", "), problem.advice)
    }

    pub(super) fn running_values(&self) -> BTreeMap<&'static str, RunningValue> {
        let source = |source: Source| match source {
            Source::Flag(_) | Source::Environment(_) => RunningSource::Override(source.to_string()),
            Source::Map(..) => RunningSource::Map,
            Source::File(_) => RunningSource::File,
            Source::Default => RunningSource::Default,
        };
        let value = |SettingValue { value, source: from, text }: &SettingValue| RunningValue {
            value: value.clone(),
            text: text.clone(),
            source: source(*from),
        };
        self.values.iter().map(|(key, entry)| (*key, value(entry))).collect()
    }
}
