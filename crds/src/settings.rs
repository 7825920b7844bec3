//! Table of settings: flags, variables, ConfigMap keys, defaults and `--help` come from its rows. To add a setting, add
//! a row in `table.rs` and read it by its key in [`keys`].

mod key;
pub mod map;
mod matchers;
mod order;
mod table;
mod text;
mod value;

pub use key::{Key, SettingType};
pub use order::{SettingsProblem, find_order_problems, find_problems};
pub use table::{SETTINGS, keys};
pub use text::{is_label_key, is_label_value, is_name, without_password};
pub use value::{Kind, Value, ValueError};

/// Row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Environment variable and ConfigMap key, such as `GLOBAL_OPT_INTERVAL`.
    pub key: &'static str,
    /// Long flag without dashes. `v` is the short flag `-v`.
    pub flag: Option<&'static str>,
    /// Read with a warning.
    pub aliases: &'static [Alias],
    /// Kind of its values.
    pub kind: Kind,
    /// Default value as text.
    pub default: Option<&'static str>,
    /// A change in the ConfigMap takes effect without a restart.
    pub mutable: bool,
    /// Settings that locate the map cannot be in it.
    pub in_map: bool,
    /// The value is secret and never printed.
    pub secret: bool,
    /// One sentence for `--help` and the documentation.
    pub help: &'static str,
}

/// Old name of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alias {
    /// Flag without dashes.
    Flag(&'static str),
    /// Environment variable or ConfigMap key.
    Key(&'static str),
}

impl Setting {
    /// A setting without flag or default that can be in the map and needs a restart.
    const fn new(key: &'static str, kind: Kind, help: &'static str) -> Self {
        Self {
            key,
            flag: None,
            aliases: &[],
            kind,
            default: None,
            mutable: false,
            in_map: true,
            secret: false,
            help,
        }
    }

    const fn default(mut self, text: &'static str) -> Self {
        self.default = Some(text);
        self
    }

    const fn flag(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }

    const fn aliases(mut self, aliases: &'static [Alias]) -> Self {
        self.aliases = aliases;
        self
    }

    const fn mutable(mut self) -> Self {
        self.mutable = true;
        self
    }

    const fn outside_the_map(mut self) -> Self {
        self.in_map = false;
        self
    }

    const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// Finds a setting by its key.
    #[must_use]
    pub fn by_key(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|s| s.key == key)
    }

    /// Environment variable or ConfigMap key.
    pub fn old_keys(&self) -> impl Iterator<Item = &'static str> {
        self.aliases.iter().filter_map(|alias| if let Alias::Key(name) = alias { Some(*name) } else { None })
    }

    /// Masks secrets, and passwords in URLs.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        match self.kind {
            _ if self.secret => "(a secret)".to_owned(),
            Kind::Url => without_password(text),
            _ => text.to_owned(),
        }
    }

    /// Describes an error without any part of a secret.
    #[must_use]
    pub fn describe_error(&self, error: &ValueError) -> String {
        match error {
            ValueError::Token => error.to_string(),
            _ if self.secret => "the value is not valid".to_owned(),
            _ => error.to_string(),
        }
    }

    /// Parsed default, if any.
    ///
    /// # Errors
    /// None for the rows of the table, as a test checks.
    pub fn default_value(&self) -> Result<Option<Value>, ValueError> {
        self.default.map(|text| self.kind.parse(text)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_default_is_valid_and_every_name_is_unique() {
        let mut names = BTreeSet::new();
        for s in SETTINGS {
            assert!(s.default_value().is_ok(), "{}: {:?}", s.key, s.default_value());
            assert!(names.insert(s.key), "{} twice", s.key);
            assert!(s.flag.is_none_or(|f| names.insert(f)), "{:?} twice", s.flag);
            for alias in s.aliases {
                let (Alias::Flag(name) | Alias::Key(name)) = alias;
                assert!(names.insert(name), "{name} twice");
            }
            assert!(s.help.ends_with('.'), "{}: help is a sentence", s.key);
        }
    }

    #[test]
    fn redacts_secrets_and_passwords() {
        let redacted = |key, text| Setting::by_key(key).map(|s| s.redact(text));
        for (key, text, want) in [
            ("PROMETHEUS_BEARER_TOKEN", "hunter2", "(a secret)"),
            ("PROMETHEUS_BASE_URL", "https://u:hunter2@p", "https://u:***@p"),
            ("GLOBAL_OPT_INTERVAL", "u:hunter2@p", "u:hunter2@p"),
        ] {
            assert_eq!(redacted(key, text).as_deref(), Some(want));
        }
    }

    #[test]
    fn settings_that_locate_the_map_are_not_in_it() {
        let outside: Vec<_> = SETTINGS.iter().filter(|s| !s.in_map).map(|s| s.key).collect();
        assert_eq!(
            outside,
            [
                "CONFIG_MAP_NAME", "POD_NAMESPACE", "POD_NAME", "DEPLOYMENT_NAME", "CONTROLLER_INSTANCE",
                "CONFIG_FILE"
            ]
        );
    }
}
