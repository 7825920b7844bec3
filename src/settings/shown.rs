//! The settings in force, as they are printed and logged: each value with its source, and no secret.

use std::fmt::Write as _;

use wva_crds::settings::SETTINGS;

use super::Settings;
use super::raw::Source;

/// Columns of a line before its source, where the value leaves so much room.
const WIDTH: usize = 72;

/// Settings as texts.
pub(crate) struct SettingsInForce {
    /// Those that were set, each with its source.
    pub(crate) given: String,
    /// Those that have their defaults.
    pub(crate) defaults: String,
}

impl Settings {
    /// Every setting, one line each, in the notation of the environment.
    pub(crate) fn lines(&self) -> String {
        let mut out = String::new();
        for setting in SETTINGS {
            let (value, source) = match (self.values.shown(setting), self.values.get(setting.key)) {
                (Some(value), Some(held)) => (value, held.source.to_string()),
                _ => (String::new(), "not set".to_owned()),
            };
            let line = format!("{}={}", setting.key, one_line(&value));
            // Writing to a text cannot fail.
            let _ = writeln!(out, "{line:WIDTH$}  # {source}");
        }
        out
    }

    /// The settings in force, for the log.
    pub(crate) fn in_force(&self) -> SettingsInForce {
        let (mut given, mut defaults) = (Vec::new(), Vec::new());
        for setting in SETTINGS {
            let Some(held) = self.values.get(setting.key) else { continue };
            let value = one_line(&self.values.shown(setting).unwrap_or_default());
            match held.source {
                Source::Default => defaults.push(format!("{}={value}", setting.key)),
                source => given.push(format!("{}={value} ({source})", setting.key)),
            }
        }
        SettingsInForce { given: given.join("; "), defaults: defaults.join("; ") }
    }
}

/// A value in one line; what a terminal would act on is spelt out.
fn one_line(value: &str) -> String {
    if value.chars().any(char::is_control) { format!("{value:?}") } else { value.to_owned() }
}
