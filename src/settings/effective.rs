//! Effective settings for display, without secrets.

use std::fmt::Write as _;

use wva_crds::settings::SETTINGS;

use super::Settings;
use super::raw::{RawSettings, Source};

/// Column of the source.
const WIDTH: usize = 72;

pub(crate) struct EffectiveSettings {
    pub(crate) given: String,
    pub(crate) defaults: String,
}

impl RawSettings {
    /// Every setting with its value and source, one on each line.
    pub(crate) fn lines(&self) -> String {
        let mut out = String::new();
        for setting in SETTINGS {
            let (value, source) = match (self.display_value(setting), self.get(setting.key)) {
                (Some(value), Some(entry)) => (value, entry.source.to_string()),
                _ => (String::new(), "not set".to_owned()),
            };
            let line = format!("{}={}", setting.key, one_line(&value));
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{line:WIDTH$}  # {source}");
        }
        out
    }
}

impl Settings {
    pub(crate) fn effective(&self) -> EffectiveSettings {
        let (mut given, mut defaults) = (Vec::new(), Vec::new());
        for setting in SETTINGS {
            let Some(entry) = self.given.values.get(setting.key) else { continue };
            let value = one_line(&self.given.values.display_value(setting).unwrap_or_default());
            match entry.source {
                Source::Default => defaults.push(format!("{}={value}", setting.key)),
                source => given.push(format!("{}={value} ({source})", setting.key)),
            }
        }
        EffectiveSettings { given: given.join("; "), defaults: defaults.join("; ") }
    }
}

/// Escapes control characters.
fn one_line(value: &str) -> String {
    if value.chars().any(char::is_control) { format!("{value:?}") } else { value.to_owned() }
}
