//! The table of settings: one row a setting, from which flags, environment variables, ConfigMap keys, defaults and
//! `--help` are made. A new setting is one new row in `table.rs`; nothing else names it but the code that reads it.

pub mod map;
mod matchers;
mod order;
mod table;
mod text;
mod value;

pub use order::{Problem, order_problems, problems};
pub use table::SETTINGS;
pub use text::{is_label_value, is_name, without_password};
pub use value::{Kind, Value, ValueError};

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Environment variable and ConfigMap key, e.g. `GLOBAL_OPT_INTERVAL`. Identifies the row.
    pub key: &'static str,
    /// Long flag without dashes, where the setting has one; `v` alone is the short flag `-v`.
    pub flag: Option<&'static str>,
    /// Names from the first releases: read, with a warning.
    pub aliases: &'static [Alias],
    /// What values are valid.
    pub kind: Kind,
    /// Value where no source gives one, in the notation of the sources; `None` where there is none.
    pub default: Option<&'static str>,
    /// Whether a change in the ConfigMap takes effect without a restart.
    pub mutable: bool,
    /// Whether the value may stand in the ConfigMap: what says where the map is cannot.
    pub in_map: bool,
    /// Whether the value is a secret and never printed.
    pub secret: bool,
    /// One sentence for `--help` and the documentation.
    pub help: &'static str,
}

/// An old name of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alias {
    /// A flag without its dashes.
    Flag(&'static str),
    /// An environment variable or ConfigMap key.
    Key(&'static str),
}

impl Setting {
    /// A row without flag or default that may stand in the map and needs a restart.
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

    /// The row of a key.
    #[must_use]
    pub fn by_key(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|s| s.key == key)
    }

    /// Environment variables and ConfigMap keys of the first releases.
    pub fn old_keys(&self) -> impl Iterator<Item = &'static str> {
        self.aliases.iter().filter_map(|alias| if let Alias::Key(name) = alias { Some(*name) } else { None })
    }

    /// A text of this setting as it may be printed: nothing of a secret, and no password of a URL.
    #[must_use]
    pub fn shown(&self, text: &str) -> String {
        match self.kind {
            _ if self.secret => "(a secret)".to_owned(),
            Kind::Url => without_password(text),
            _ => text.to_owned(),
        }
    }

    /// The problem of a text that does not parse, without any part of a secret.
    #[must_use]
    pub fn problem(&self, error: &ValueError) -> String {
        match error {
            ValueError::Token => error.to_string(),
            _ if self.secret => "the value is not valid".to_owned(),
            _ => error.to_string(),
        }
    }

    /// The default as a value; `None` where the setting has none.
    ///
    /// # Errors
    /// Never for the rows of the table: a test parses each default.
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
    fn secrets_and_passwords_are_not_shown() {
        let shown = |key, text| Setting::by_key(key).map(|s| s.shown(text));
        for (key, text, want) in [
            ("PROMETHEUS_BEARER_TOKEN", "hunter2", "(a secret)"),
            ("PROMETHEUS_BASE_URL", "https://u:hunter2@p", "https://u:***@p"),
            ("GLOBAL_OPT_INTERVAL", "u:hunter2@p", "u:hunter2@p"),
        ] {
            assert_eq!(shown(key, text).as_deref(), Some(want));
        }
    }

    #[test]
    fn what_says_where_the_map_is_or_who_reads_it_cannot_stand_in_it() {
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
