//! First step from text to meaning: what each source says, and which source wins. Flag before environment before the
//! main ConfigMap before the config file before the default; nothing is interpreted here beyond the row's own kind.

use std::collections::BTreeMap;
use std::fmt;

use wva_crds::settings::map::{ConfigKey, Layout, MapText, NESTED_ENTRY};
use wva_crds::settings::{SETTINGS, Setting, SettingsProblem, Value};
use wva_rules::{RunningSource, RunningValue};

use super::sources::Sources;
use crate::cli::old_flags;

/// Where a value came from, as an operator would look for it.
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
    /// The table.
    Default,
}

impl Source {
    /// Whether it was given with the command: what wins over every file.
    pub(super) fn is_of_the_command(self) -> bool {
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

/// One setting that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} ({source_of_value}): {problem}")]
pub(crate) struct Wrong {
    pub(crate) key: &'static str,
    pub(crate) source_of_value: Source,
    pub(crate) problem: String,
    /// Flags and environment alone are to blame: no other source can mend it.
    pub(super) of_the_command: bool,
}

/// A value that holds.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) value: Value,
    pub(crate) source: Source,
    /// As it was written; it may be a secret.
    text: String,
}

/// The winning value of every setting that has one, parsed.
#[derive(Clone, Default)]
pub(crate) struct Raw {
    values: BTreeMap<&'static str, Held>,
    /// Old names in use, each with the present one.
    pub(super) old_names: Vec<(Source, &'static str)>,
}

impl fmt::Debug for Raw {
    /// Without the values, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

impl Raw {
    /// Reads all sources. Every value that does not parse is told, not only the first.
    pub(super) fn read(sources: &Sources, map: &MapText) -> (Self, Vec<Wrong>) {
        let mut raw = Self::default();
        let mut wrong = Vec::new();
        for setting in SETTINGS {
            let Some((text, source)) = raw.winner(setting, sources, map) else { continue };
            match setting.kind.parse(&text) {
                Ok(value) => {
                    raw.values.insert(setting.key, Held { value, source, text });
                }
                Err(e) => wrong.push(Wrong {
                    key: setting.key,
                    source_of_value: source,
                    problem: setting.describe_error(&e),
                    of_the_command: source.is_of_the_command(),
                }),
            }
        }
        (raw, wrong)
    }

    fn winner(
        &mut self,
        setting: &'static Setting,
        sources: &Sources,
        map: &MapText,
    ) -> Option<(String, Source)> {
        if let Some((name, text)) = setting.flag.and_then(|f| Some((f, sources.flag(f)?))) {
            return Some((text, Source::Flag(name)));
        }
        if let Some((name, text)) = old_flags(setting).find_map(|f| Some((f, sources.flag(f)?))) {
            self.old_names.push((Source::Flag(name), setting.key));
            return Some((text, Source::Flag(name)));
        }
        if let Some(text) = sources.variable(setting.key) {
            return Some((text, Source::Environment(setting.key)));
        }
        for name in setting.old_keys() {
            if let Some(text) = sources.variable(name) {
                self.old_names.push((Source::Environment(name), setting.key));
                return Some((text, Source::Environment(name)));
            }
        }
        if setting.in_map
            && let Some((text, source)) = self.in_files(setting, sources, map)
        {
            return Some((text, source));
        }
        setting.default.map(|text| (text.to_owned(), Source::Default))
    }

    fn in_files(
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
            self.old_names.push((source, setting.key));
        }
        Some((text.clone(), source))
    }

    /// The value of a key and where it came from; `None` where no source gives one.
    pub(super) fn get(&self, key: &'static str) -> Option<&Held> {
        self.values.get(key)
    }

    /// Puts the value that another reading had in place of the one that this one has.
    pub(super) fn keep(&mut self, key: &'static str, of: &Self) {
        match of.values.get(key) {
            Some(held) => drop(self.values.insert(key, held.clone())),
            None => drop(self.values.remove(key)),
        }
    }

    /// A value as it may be shown; `None` where there is none.
    pub(super) fn shown(&self, setting: &Setting) -> Option<String> {
        let held = self.values.get(setting.key)?;
        Some(if held.text.is_empty() { String::new() } else { setting.redact(&held.text) })
    }

    /// What is wrong between settings, with the values that are.
    pub(super) fn told(&self, problem: &SettingsProblem) -> String {
        if let [_] = problem.keys {
            return problem.advice.to_owned();
        }
        let shown = |key: &&str| {
            let value = Setting::by_key(key).and_then(|setting| self.shown(setting));
            format!("{key}={}", value.unwrap_or_default())
        };
        let found: Vec<String> = problem.keys.iter().map(shown).collect();
        format!("found {}: {}", found.join(", "), problem.advice)
    }

    /// All values in force, as the rules on the main map compare them.
    pub(super) fn running(&self) -> BTreeMap<&'static str, RunningValue> {
        let source = |source: Source| match source {
            Source::Flag(_) | Source::Environment(_) => RunningSource::Override(source.to_string()),
            Source::Map(..) => RunningSource::Map,
            Source::File(_) => RunningSource::File,
            Source::Default => RunningSource::Default,
        };
        let value = |Held { value, source: from, text }: &Held| RunningValue {
            value: value.clone(),
            text: text.clone(),
            source: source(*from),
        };
        self.values.iter().map(|(key, held)| (*key, value(held))).collect()
    }
}
