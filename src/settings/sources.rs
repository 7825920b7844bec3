//! Flags, environment and config file, which are read once at the start.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clap::ArgMatches;
use wva_crds::settings::map::{MapText, NESTED_ENTRY};
use wva_crds::settings::{Key, Kind, SETTINGS, Setting, Value, keys};

use super::files::{self, MapName};
use super::raw::{InvalidSetting, RawSettings, Source};
use super::reader::SettingsReader;
use super::{Log, Settings, SettingsError};

#[derive(Clone, Default)]
pub(crate) struct Sources {
    flags: ArgMatches,
    environment: BTreeMap<&'static str, String>,
    /// Texts of the config file.
    pub(super) file: MapText,
    /// Error of the config file.
    file_error: Option<InvalidSetting>,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Sources {
    pub(crate) fn collect(flags: &ArgMatches, environment: impl Fn(&str) -> Option<String>) -> Self {
        let names = SETTINGS.iter().flat_map(|s| std::iter::once(s.key).chain(s.old_keys()));
        // Charts render an empty variable for an empty value. An empty token is an error: its Secret is broken.
        let is_token = |name| Setting::by_key(name).is_some_and(|s| s.kind == Kind::Token);
        let set = names.filter_map(|name| {
            Some((name, environment(name).filter(|text| !text.is_empty() || is_token(name))?))
        });
        let sources = Self { flags: flags.clone(), environment: set.collect(), ..Self::default() };
        sources.with_file()
    }

    fn with_file(mut self) -> Self {
        let (raw, _) = RawSettings::read(&self, &MapText::default());
        if let Some(entry) = raw.get(keys::CONFIG_FILE.name())
            && let Value::Text(path) = &entry.value
            && !path.is_empty()
        {
            match files::config_file(path) {
                Ok(file) => self.file = file,
                Err(error) => {
                    self.file_error = Some(InvalidSetting {
                        key: keys::CONFIG_FILE.name(),
                        value_source: entry.source,
                        problem: format!("{error:#}"),
                        is_from_command: true,
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

    /// Namespace and name of the main map. Only the environment sets these.
    pub(crate) fn main_map(&self) -> MapName {
        let read = |key: Key<String>| {
            let default = || Some(Setting::by_key(key.name())?.default?.to_owned());
            self.variable(key.name()).or_else(default).unwrap_or_default()
        };
        MapName { namespace: read(keys::POD_NAMESPACE), name: read(keys::CONFIG_MAP_NAME) }
    }

    /// Used until all sources are read. Invalid values count as not set.
    pub(crate) fn first_log(&self) -> Log {
        let (raw, invalid) = RawSettings::read(self, &MapText::default());
        SettingsReader { raw: &raw, invalid }.log()
    }

    /// Address of `/healthz` and `/readyz` until all sources are read. Invalid values count as not set.
    pub(crate) fn first_health_address(&self) -> Option<SocketAddr> {
        let (raw, invalid) = RawSettings::read(self, &MapText::default());
        SettingsReader { raw: &raw, invalid }.health_address()
    }

    /// The values of all sources, without those that are invalid.
    pub(crate) fn values(&self, map: &MapText) -> RawSettings {
        RawSettings::read(self, map).0
    }

    /// Parses all sources.
    ///
    /// # Errors
    /// All invalid settings.
    pub(crate) fn read(&self, map: &MapText) -> Result<Settings, SettingsError> {
        let (raw, mut invalid) = RawSettings::read(self, map);
        invalid.extend(self.file_error.clone());
        invalid.extend(nested_error(map));
        let mut reader = SettingsReader { raw: &raw, invalid };
        let settings = reader.settings();
        if reader.invalid.is_empty() { Ok(settings) } else { Err(SettingsError { invalid: reader.invalid }) }
    }
}

/// Error in the map's entry `config.yaml`, whose keys are then missing.
pub(super) fn nested_error(map: &MapText) -> Option<InvalidSetting> {
    let error = map.nested_error.as_ref()?;
    Some(InvalidSetting {
        key: NESTED_ENTRY,
        value_source: Source::Map(NESTED_ENTRY, wva_crds::settings::map::Layout::Flat),
        problem: error.to_string(),
        is_from_command: false,
    })
}
