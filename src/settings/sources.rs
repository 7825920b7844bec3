//! The sources of settings but for the main ConfigMap: flags, environment and config file, taken once when the process
//! starts. The map alone changes while it runs.

use std::collections::BTreeMap;

use clap::ArgMatches;
use wva_crds::settings::map::{MapText, NESTED_ENTRY};
use wva_crds::settings::{Kind, SETTINGS, Setting, Value};

use super::files::{self, MapName};
use super::raw::{Raw, Source, Wrong};
use super::reader::Reader;
use super::{Log, Settings, SettingsError};

/// What the process was started with.
#[derive(Clone, Default)]
pub(crate) struct Sources {
    flags: ArgMatches,
    environment: BTreeMap<&'static str, String>,
    /// What the config file says.
    pub(super) file: MapText,
    /// Why the config file cannot be read.
    file_error: Option<Wrong>,
}

impl std::fmt::Debug for Sources {
    /// Without the values, which may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Sources {
    /// Takes what flags and environment say, and reads the config file that they name.
    pub(crate) fn collect(flags: &ArgMatches, environment: impl Fn(&str) -> Option<String>) -> Self {
        let names = SETTINGS.iter().flat_map(|s| std::iter::once(s.key).chain(s.old_keys()));
        // An empty variable counts as not set, because charts render one for a value without a choice. An empty token
        // is a Secret gone wrong.
        let is_token = |name| Setting::by_key(name).is_some_and(|s| s.kind == Kind::Token);
        let set = names.filter_map(|name| {
            Some((name, environment(name).filter(|text| !text.is_empty() || is_token(name))?))
        });
        let sources = Self { flags: flags.clone(), environment: set.collect(), ..Self::default() };
        sources.with_file()
    }

    fn with_file(mut self) -> Self {
        let (raw, _) = Raw::read(&self, &MapText::default());
        if let Some(held) = raw.get("CONFIG_FILE")
            && let Value::Text(path) = &held.value
            && !path.is_empty()
        {
            match files::config_file(path) {
                Ok(file) => self.file = file,
                Err(error) => {
                    self.file_error = Some(Wrong {
                        key: "CONFIG_FILE",
                        source_of_value: held.source,
                        problem: format!("{error:#}"),
                        of_the_command: true,
                    });
                }
            }
        }
        self
    }

    pub(super) fn flag(&self, name: &str) -> Option<String> {
        self.flags.try_get_one::<String>(name).ok().flatten().cloned()
    }

    pub(super) fn variable(&self, name: &str) -> Option<String> {
        self.environment.get(name).cloned()
    }

    /// Where the main map is. That alone is read from the environment alone.
    pub(crate) fn main_map(&self) -> MapName {
        let read = |key: &str| {
            let default = || Some(Setting::by_key(key)?.default?.to_owned());
            self.variable(key).or_else(default).unwrap_or_default()
        };
        MapName { namespace: read("POD_NAMESPACE"), name: read("CONFIG_MAP_NAME") }
    }

    /// How to log until all sources are read; what does not parse counts as not set.
    pub(crate) fn first_log(&self) -> Log {
        let (raw, wrong) = Raw::read(self, &MapText::default());
        Reader { raw: &raw, wrong }.log()
    }

    /// All sources into settings.
    ///
    /// # Errors
    /// All settings that are wrong, each with its source, the value found and what would be right.
    pub(crate) fn read(&self, map: &MapText) -> Result<Settings, SettingsError> {
        let (raw, mut wrong) = Raw::read(self, map);
        wrong.extend(self.file_error.clone());
        wrong.extend(nested_error(map));
        let mut reader = Reader { raw: &raw, wrong };
        let settings = reader.settings();
        if reader.wrong.is_empty() { Ok(settings) } else { Err(SettingsError { wrong: reader.wrong }) }
    }
}

/// What is wrong with the entry of the map that holds keys of its own, whose keys are then missing.
pub(super) fn nested_error(map: &MapText) -> Option<Wrong> {
    let error = map.nested_error.as_ref()?;
    Some(Wrong {
        key: NESTED_ENTRY,
        source_of_value: Source::Map(NESTED_ENTRY, wva_crds::settings::map::Layout::Flat),
        problem: error.to_string(),
        of_the_command: false,
    })
}
