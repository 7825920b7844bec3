//! First step from text to meaning: what each source says, and which source wins. Flag before environment before the
//! main ConfigMap before the config file before the default; nothing is interpreted here beyond the row's own kind.

use std::collections::BTreeMap;
use std::fmt;

use clap::ArgMatches;
use wva_crds::settings::map::{MapText, Written};
use wva_crds::settings::{SETTINGS, Setting, Value, ValueError};

use wva_rules::{RunningSource, RunningValue};

use crate::cli::old_flags;

/// What is read besides flags and environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    /// The main ConfigMap.
    pub(crate) map: MapText,
    /// The config file.
    pub(crate) file: MapText,
}

/// Where a value came from, as an operator would look for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A flag of the command line.
    Flag(&'static str),
    /// An environment variable.
    Environment(&'static str),
    /// The main ConfigMap.
    Map,
    /// The config file.
    File,
    /// The table.
    Default,
}

impl Source {
    /// Whether it was given with the command: what wins over every file.
    pub(crate) fn is_of_the_command(self) -> bool {
        matches!(self, Self::Flag(_) | Self::Environment(_))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) if name.len() == 1 => write!(f, "flag -{name}"),
            Self::Flag(name) => write!(f, "flag --{name}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Map => f.write_str("the main ConfigMap"),
            Self::File => f.write_str("the config file"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// One setting that is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{key} ({source_of_value}): {problem}")]
pub(crate) struct Wrong {
    pub(crate) key: &'static str,
    pub(crate) source_of_value: Source,
    pub(crate) problem: String,
    /// Flags and environment alone are to blame: no other source can mend it.
    pub(crate) of_the_command: bool,
}

/// The winning value of every setting that has one, parsed.
pub(crate) struct Raw {
    values: BTreeMap<&'static str, (Value, Source, String)>,
    /// Old names in use: (old, new).
    pub(crate) old_names: Vec<(String, &'static str)>,
}

impl Raw {
    /// Reads all sources. Every value that does not parse is in the error, not only the first.
    pub(crate) fn read(
        flags: &ArgMatches,
        environment: impl Fn(&str) -> Option<String>,
        files: &Files,
    ) -> (Self, Vec<Wrong>) {
        let mut raw = Self { values: BTreeMap::new(), old_names: Vec::new() };
        let mut wrong = Vec::new();
        for setting in SETTINGS {
            let Some((text, source)) = raw.winner(setting, flags, &environment, files) else { continue };
            match setting.kind.parse(&text) {
                Ok(value) => {
                    raw.values.insert(setting.key, (value, source, text));
                }
                Err(e) => wrong.push(Wrong {
                    key: setting.key,
                    source_of_value: source,
                    problem: problem(setting, &e),
                    of_the_command: source.is_of_the_command(),
                }),
            }
        }
        (raw, wrong)
    }

    fn winner(
        &mut self,
        setting: &'static Setting,
        flags: &ArgMatches,
        environment: &impl Fn(&str) -> Option<String>,
        files: &Files,
    ) -> Option<(String, Source)> {
        let flag = |name: &'static str| flags.try_get_one::<String>(name).ok().flatten().cloned();
        if let Some((name, text)) = setting.flag.and_then(|f| Some((f, flag(f)?))) {
            return Some((text, Source::Flag(name)));
        }
        if let Some((name, text)) = old_flags(setting).find_map(|f| Some((f, flag(f)?))) {
            self.old_names.push((format!("--{name}"), setting.key));
            return Some((text, Source::Flag(name)));
        }
        // A variable that is set to nothing, as charts render what nobody chose, is not set.
        let environment = |name: &str| environment(name).filter(|text| !text.is_empty());
        if let Some(text) = environment(setting.key) {
            return Some((text, Source::Environment(setting.key)));
        }
        for name in setting.old_keys() {
            if let Some(text) = environment(name) {
                self.old_names.push((name.to_owned(), setting.key));
                return Some((text, Source::Environment(name)));
            }
        }
        for (texts, source) in [(&files.map, Source::Map), (&files.file, Source::File)] {
            if let Some(Written { key, old_name, text, .. }) =
                texts.get(setting.key).filter(|_| setting.in_map)
            {
                if *old_name {
                    self.old_names.push((format!("{key} ({source})"), setting.key));
                }
                return Some((text.clone(), source));
            }
        }
        setting.default.map(|text| (text.to_owned(), Source::Default))
    }

    /// The value of a key and where it came from; `None` where no source gives one.
    pub(crate) fn get(&self, key: &'static str) -> Option<(&Value, Source)> {
        self.values.get(key).map(|(v, s, _)| (v, *s))
    }

    /// All values in force, as the rules on the main map compare them.
    pub(crate) fn running(&self) -> BTreeMap<&'static str, RunningValue> {
        let source = |source: Source| match source {
            Source::Flag(_) | Source::Environment(_) => RunningSource::Hides(source.to_string()),
            Source::Map => RunningSource::Map,
            Source::File => RunningSource::File,
            Source::Default => RunningSource::Default,
        };
        let value = |(value, from, text): &(Value, Source, String)| RunningValue {
            value: value.clone(),
            text: text.clone(),
            source: source(*from),
        };
        self.values.iter().map(|(key, found)| (*key, value(found))).collect()
    }
}

/// A secret that does not parse is not repeated in the message.
fn problem(setting: &Setting, error: &ValueError) -> String {
    if setting.secret { "the value is not valid".to_owned() } else { error.to_string() }
}
