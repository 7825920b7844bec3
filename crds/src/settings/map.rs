//! Main ConfigMap and config file as texts by setting. The map has flat keys and an entry `config.yaml` with the same
//! keys.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value as Json;

use super::{SETTINGS, Setting};
use crate::look_alikes::cause_of_error;
use crate::parse_error::describe_yaml_error;

/// Entry of the map with nested keys.
pub const NESTED_ENTRY: &str = "config.yaml";
/// A hundred lines for each setting.
const MAX_BYTES: usize = 256 << 10;

/// Layout in which a key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// A key of `data`; takes precedence.
    Flat,
    /// A key in the entry `config.yaml`.
    Nested,
}

/// One key of the map with its value.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigKey {
    /// The key as written.
    pub key: String,
    /// `None` for an unknown key.
    pub setting: Option<&'static Setting>,
    /// The key is an old name.
    pub is_old_name: bool,
    /// Layout of the key.
    pub layout: Layout,
    /// Value, never empty: an empty one counts as not set.
    pub text: String,
}

impl fmt::Debug for ConfigKey {
    /// Omits the value, which may be a secret, even under a misspelt key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, layout, is_old_name, .. } = self;
        let mut output = f.debug_struct("ConfigKey");
        output
            .field("key", key)
            .field("layout", layout)
            .field("is_old_name", is_old_name)
            .finish_non_exhaustive()
    }
}

/// Errors of `config.yaml` or a config file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NestedError {
    /// The text is not YAML, or has a duplicate key.
    #[error("invalid YAML: {0}")]
    InvalidYaml(String),
    /// The YAML is not a map.
    #[error("not a map of keys to values; write one `KEY: \"value\"` per line")]
    NotAMap,
    /// A value is a map or a list.
    #[error("the value of {key} is a list or a map; use one value in quotes")]
    NotAScalar {
        /// The key.
        key: String,
    },
}

/// Flat keys first, each layout in the order of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapText {
    /// The keys.
    pub keys: Vec<ConfigKey>,
    /// Error of `config.yaml`, whose keys are then missing.
    pub nested_error: Option<NestedError>,
}

impl MapText {
    /// Ignores values that are not text.
    #[must_use]
    pub fn from_data(data: &serde_json::Map<String, Json>) -> Self {
        let flat = data.iter().filter(|(key, _)| *key != NESTED_ENTRY);
        let mut keys: Vec<ConfigKey> =
            flat.filter_map(|(key, value)| config_key(key, value.as_str()?, Layout::Flat)).collect();
        let mut nested_error = None;
        match data.get(NESTED_ENTRY).and_then(Json::as_str).map(parse_nested) {
            Some(Ok(nested)) => keys.extend(nested),
            Some(Err(error)) => nested_error = Some(error),
            None => {}
        }
        Self { keys, nested_error }
    }

    /// Flat before nested, the current name before an old one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&ConfigKey> {
        let is_of_setting = |w: &&ConfigKey| w.setting.is_some_and(|s| s.key == key);
        self.keys.iter().filter(is_of_setting).min_by_key(|w| (w.layout, w.is_old_name))
    }
}

/// Parses `config.yaml` or a config file.
///
/// # Errors
/// The first [`NestedError`].
pub fn parse_nested(text: &str) -> Result<Vec<ConfigKey>, NestedError> {
    if text.len() > MAX_BYTES {
        return Err(NestedError::InvalidYaml(format!(
            "the text has {} bytes; at most {MAX_BYTES} are allowed",
            text.len()
        )));
    }
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let value: Json = parse_yaml(text)?;
    let map = match value {
        Json::Null => return Ok(Vec::new()),
        Json::Object(map) => map,
        _ => return Err(NestedError::NotAMap),
    };
    if let Some((key, _)) = map.iter().find(|(_, value)| value.is_array() || value.is_object()) {
        return Err(NestedError::NotAScalar { key: key.clone() });
    }
    // A second pass for the values as written: the first turned `0123456` and `1.10` into numbers.
    let texts: BTreeMap<String, Option<String>> = parse_yaml(text)?;
    Ok(texts.iter().filter_map(|(key, text)| config_key(key, text.as_deref()?, Layout::Nested)).collect())
}

fn parse_yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, NestedError> {
    let error = |text: &str| read_yaml::<T>(text).err().map(|error| describe_yaml_error(&error));
    read_yaml(text).map_err(|problem| {
        let problem = describe_yaml_error(&problem);
        let cause = cause_of_error(text, &problem, error);
        NestedError::InvalidYaml(match cause {
            Some(cause) => format!("line {} has {cause}; {}", cause.line, cause.advice()),
            None => problem,
        })
    })
}

fn read_yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        // `.inf` is plain text here.
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        // Enough for about seventy keys with one value each.
        budget: serde_saphyr::budget! {
            max_depth: 8, max_events: 50_000, max_nodes: 20_000, max_aliases: 100, max_anchors: 100, max_merge_keys: 10,
            max_total_scalar_bytes: MAX_BYTES, max_recorded_anchor_events: 20_000, max_recorded_anchor_bytes: MAX_BYTES,
        },
    };
    serde_saphyr::from_str_with_options(text, options)
}

fn config_key(key: &str, text: &str, layout: Layout) -> Option<ConfigKey> {
    if text.is_empty() {
        return None;
    }
    let current = Setting::by_key(key);
    let old = || SETTINGS.iter().find(|s| s.old_keys().any(|old| old == key));
    let setting = current.or_else(old);
    Some(ConfigKey {
        key: key.to_owned(),
        setting,
        is_old_name: current.is_none() && setting.is_some(),
        layout,
        text: text.to_owned(),
    })
}

/// All keys, old names included.
#[must_use]
pub fn known_keys() -> Vec<&'static str> {
    let rows = SETTINGS.iter().filter(|s| s.in_map);
    rows.flat_map(|s| std::iter::once(s.key).chain(s.old_keys())).chain([NESTED_ENTRY]).collect()
}

/// Pairs of keys that give one setting different values.
#[must_use]
pub fn contradictions(map: &MapText) -> Vec<(&ConfigKey, &ConfigKey)> {
    let mut first: BTreeMap<&str, &ConfigKey> = BTreeMap::new();
    let mut pairs = Vec::new();
    for written in &map.keys {
        let Some(setting) = written.setting else { continue };
        if let Some(other) = first.get(setting.key) {
            // Compared as parsed values: `60s` equals `1m`.
            let is_same = match (setting.kind.parse(&other.text), setting.kind.parse(&written.text)) {
                (Ok(a), Ok(b)) => a == b,
                _ => other.text == written.text,
            };
            if !is_same {
                pairs.push((*other, written));
            }
        } else {
            first.insert(setting.key, written);
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(data: &Json) -> MapText {
        MapText::from_data(data.as_object().unwrap())
    }

    #[test]
    fn flat_keys_take_precedence() {
        let map = read(&json!({
            "GLOBAL_OPT_INTERVAL": "60s", "PROBE_ADDR": ":9", "WVA_NODE_SELECTOR": "", "OTHER": "x",
            "config.yaml": "GLOBAL_OPT_INTERVAL: 30s\nWVA_SCALE_TO_ZERO: true\nV: 3\nLOG_LEVEL:\n",
        }));
        let text = |key| map.get(key).map(|w| w.text.as_str());
        assert_eq!(text("GLOBAL_OPT_INTERVAL"), Some("60s"));
        assert_eq!(text("HEALTH_PROBE_BIND_ADDRESS"), Some(":9"), "old name");
        assert_eq!(text("WVA_SCALE_TO_ZERO"), Some("true"));
        assert_eq!(text("V"), Some("3"));
        assert_eq!(text("LOG_LEVEL"), None);
        assert_eq!(text("WVA_NODE_SELECTOR"), None, "an empty value is not set");
        assert_eq!(contradictions(&map).len(), 1);
        assert!(map.keys.iter().any(|w| w.key == "OTHER" && w.setting.is_none()));
    }

    #[test]
    fn values_are_compared_parsed() {
        let map = read(&json!({"GLOBAL_OPT_INTERVAL": "60s", "config.yaml": "GLOBAL_OPT_INTERVAL: 1m"}));
        assert!(contradictions(&map).is_empty());
    }

    #[test]
    fn unreadable_entry_is_an_error_and_hides_no_flat_key() {
        for (text, want) in [
            ("a: [1", "invalid YAML"),
            ("V: 1\nV: 2", "invalid YAML"),
            ("- V", "not a map"),
            ("V: [1]", "value of V is a list or a map"),
        ] {
            let map = read(&json!({"GLOBAL_OPT_INTERVAL": "60s", "config.yaml": text}));
            assert!(map.nested_error.as_ref().is_some_and(|e| e.to_string().contains(want)), "{map:?}");
            assert_eq!(map.keys.len(), 1);
        }
        assert_eq!(read(&json!({"config.yaml": "# nothing\n"})), MapText::default());
    }

    #[test]
    fn values_are_read_as_written() {
        for text in [
            "0123456", "1e5", "1.10", "0x1F", "0o17", "1_000", "+1", "-0", ".5", ".inf", ".nan", "no",
            "True", "yes", "on", "12345678901234567890123", "60s", "2001-01-01",
        ] {
            let map = read(&json!({"config.yaml": format!("V: {text} # comment\n")}));
            assert_eq!(map.get("V").map(|w| w.text.as_str()), Some(text), "{map:?}");
        }
        for (text, want) in [
            ("V: '1.10'", Some("1.10")),
            ("V: \"a\\tb\"", Some("a\tb")),
            ("V: |\n  a\n", Some("a\n")),
            ("V: null", None),
            ("V: ~", None),
            ("V: 'null'", Some("null")),
            ("V: ''", None),
            ("LOG_LEVEL: &x 007\nV: *x", Some("007")),
        ] {
            let map = read(&json!({"config.yaml": text}));
            assert_eq!((map.get("V").map(|w| w.text.as_str()), &map.nested_error), (want, &None), "{text:?}");
        }
    }

    #[test]
    fn aliases_do_not_multiply_the_work() {
        let laughs = (1..9).fold("a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned(), |text, n| {
            let alias = format!("*a{},", n - 1).repeat(9);
            format!("{text}a{n}: &a{n} [{alias}]\n")
        });
        let long = format!(
            "a: &a \"{}\"\n{}",
            "x".repeat(1 << 20),
            (0..90).map(|n| ["k", &n.to_string(), ": *a\n"].concat()).collect::<String>()
        );
        let many = (0..300_000).map(|n| ["k", &n.to_string(), ": 1\n"].concat()).collect::<String>();
        let deep = "[".repeat(100_000);
        for text in [laughs, long, many, deep] {
            let start = std::time::Instant::now();
            assert!(parse_nested(&text).is_err(), "{text:.40}");
            assert!(
                start.elapsed() < std::time::Duration::from_secs(5),
                "{:.40}: {:?}",
                text,
                start.elapsed()
            );
        }
    }

    #[test]
    fn debug_output_has_no_values() {
        let map = read(&json!({
            "PROMETHEUS_BEARER_TOKEN": "hunter2", "config.yaml": "PROMETHEUS_BEARER_TOKN: hunter2\nV: 2\nV: hunter2",
        }));
        assert!(!format!("{map:?}").contains("hunter2"), "{map:?}");
    }
}
