//! The main ConfigMap and the config file as texts by setting: flat keys, and one `config.yaml` entry that holds the
//! same keys. What a value means is the row's business; here it is found, whichever way it is written.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value as Json;

use super::{SETTINGS, Setting};
use crate::plain::yaml_problem;

/// The entry of the map that holds keys of its own.
pub const NESTED_ENTRY: &str = "config.yaml";
/// The most bytes of the entry `config.yaml`, or of a config file: a hundred lines for each setting.
const MOST_BYTES: usize = 256 << 10;

/// Where a value stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// A key of `data`; it wins.
    Flat,
    /// A key inside the entry `config.yaml`.
    Nested,
}

/// A key that somebody wrote.
#[derive(Clone, PartialEq, Eq)]
pub struct Written {
    /// The key as it is written.
    pub key: String,
    /// Its row; `None` for a key that nobody reads.
    pub setting: Option<&'static Setting>,
    /// The key is a name from the first releases.
    pub old_name: bool,
    /// Where it stands.
    pub layout: Layout,
    /// The value, in the notation of flags and environment. Never empty: what is set to nothing is not set.
    pub text: String,
}

impl fmt::Debug for Written {
    /// Without the value, which may be a secret, also under a misspelt key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, layout, old_name, .. } = self;
        let mut shown = f.debug_struct("Written");
        shown.field("key", key).field("layout", layout).field("old_name", old_name).finish_non_exhaustive()
    }
}

/// Why the entry `config.yaml`, or a config file, cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NestedError {
    /// It is no YAML, or a key stands in it twice.
    #[error("it is no YAML: {0}")]
    NoYaml(String),
    /// It is something other than keys and values.
    #[error("it is no map from keys to values: write one `KEY: \"value\"` a line")]
    NoMap,
    /// A value is a map or a list.
    #[error("{key} holds a list or a map: write one value in quotes")]
    NoScalar {
        /// The key.
        key: String,
    },
}

/// All keys that are written in the map, flat ones first, each layout in order of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapText {
    /// The keys.
    pub written: Vec<Written>,
    /// What is wrong with the entry `config.yaml`, whose keys are then missing.
    pub nested_error: Option<NestedError>,
}

impl MapText {
    /// Reads the `data` of a ConfigMap. Values that are no texts, which the apiserver refuses, are passed over.
    #[must_use]
    pub fn of(data: &serde_json::Map<String, Json>) -> Self {
        let flat = data.iter().filter(|(key, _)| *key != NESTED_ENTRY);
        let mut written: Vec<Written> =
            flat.filter_map(|(key, value)| write(key, value.as_str()?, Layout::Flat)).collect();
        let mut nested_error = None;
        match data.get(NESTED_ENTRY).and_then(Json::as_str).map(nested) {
            Some(Ok(keys)) => written.extend(keys),
            Some(Err(error)) => nested_error = Some(error),
            None => {}
        }
        Self { written, nested_error }
    }

    /// The text that counts for a setting: flat before nested, the present name before an old one.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Written> {
        let of = |w: &&Written| w.setting.is_some_and(|s| s.key == key);
        self.written.iter().filter(of).min_by_key(|w| (w.layout, w.old_name))
    }
}

/// Reads a text that holds keys and values: the entry `config.yaml`, or a config file.
///
/// # Errors
/// [`NestedError`], the first thing that is wrong.
pub fn nested(text: &str) -> Result<Vec<Written>, NestedError> {
    if text.len() > MOST_BYTES {
        return Err(NestedError::NoYaml(format!("it has {} bytes, more than {MOST_BYTES}", text.len())));
    }
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let value: Json = yaml(text)?;
    let map = match value {
        Json::Null => return Ok(Vec::new()),
        Json::Object(map) => map,
        _ => return Err(NestedError::NoMap),
    };
    if let Some((key, _)) = map.iter().find(|(_, value)| value.is_array() || value.is_object()) {
        return Err(NestedError::NoScalar { key: key.clone() });
    }
    // A second time, for the values as they are written: the first has made a number of `0123456` and of `1.10`.
    let texts: BTreeMap<String, Option<String>> = yaml(text)?;
    Ok(texts.iter().filter_map(|(key, text)| write(key, text.as_deref()?, Layout::Nested)).collect())
}

fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, NestedError> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        with_snippet: false,
        // `.inf` is a text here like any other.
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
        // There are some seventy keys, each with one value: a person needs no more than this.
        budget: serde_saphyr::budget! {
            max_depth: 8, max_events: 50_000, max_nodes: 20_000, max_aliases: 100, max_anchors: 100, max_merge_keys: 10,
            max_total_scalar_bytes: MOST_BYTES, max_recorded_anchor_events: 20_000, max_recorded_anchor_bytes: MOST_BYTES,
        },
    };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| NestedError::NoYaml(yaml_problem(&error)))
}

fn write(key: &str, text: &str, layout: Layout) -> Option<Written> {
    if text.is_empty() {
        return None;
    }
    let current = Setting::by_key(key);
    let old = || SETTINGS.iter().find(|s| s.old_keys().any(|old| old == key));
    let setting = current.or_else(old);
    Some(Written {
        key: key.to_owned(),
        setting,
        old_name: current.is_none() && setting.is_some(),
        layout,
        text: text.to_owned(),
    })
}

/// Every key the map may hold, old names included: what a misspelt key is compared with.
#[must_use]
pub fn known_keys() -> Vec<&'static str> {
    let rows = SETTINGS.iter().filter(|s| s.in_map);
    rows.flat_map(|s| std::iter::once(s.key).chain(s.old_keys())).chain([NESTED_ENTRY]).collect()
}

/// Keys that two layouts, or a present and an old name, give different texts for one setting.
#[must_use]
pub fn contradictions(map: &MapText) -> Vec<(&Written, &Written)> {
    let mut first: BTreeMap<&str, &Written> = BTreeMap::new();
    let mut found = Vec::new();
    for written in &map.written {
        let Some(setting) = written.setting else { continue };
        if let Some(other) = first.get(setting.key) {
            // Values are compared parsed: `60s` is `1m`.
            let same = match (setting.kind.parse(&other.text), setting.kind.parse(&written.text)) {
                (Ok(a), Ok(b)) => a == b,
                _ => other.text == written.text,
            };
            if !same {
                found.push((*other, written));
            }
        } else {
            first.insert(setting.key, written);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(data: &Json) -> MapText {
        MapText::of(data.as_object().unwrap())
    }

    #[test]
    fn both_layouts_are_read_and_flat_keys_win() {
        let map = read(&json!({
            "GLOBAL_OPT_INTERVAL": "60s", "PROBE_ADDR": ":9", "WVA_NODE_SELECTOR": "", "OTHER": "x",
            "config.yaml": "GLOBAL_OPT_INTERVAL: 30s\nWVA_SCALE_TO_ZERO: true\nV: 3\nLOG_LEVEL:\n",
        }));
        let text = |key| map.get(key).map(|w| w.text.as_str());
        assert_eq!(text("GLOBAL_OPT_INTERVAL"), Some("60s"));
        assert_eq!(text("HEALTH_PROBE_BIND_ADDRESS"), Some(":9"), "by its old name");
        assert_eq!(text("WVA_SCALE_TO_ZERO"), Some("true"));
        assert_eq!(text("V"), Some("3"));
        assert_eq!(text("LOG_LEVEL"), None);
        assert_eq!(text("WVA_NODE_SELECTOR"), None, "set to nothing is not set");
        assert_eq!(contradictions(&map).len(), 1);
        assert!(map.written.iter().any(|w| w.key == "OTHER" && w.setting.is_none()));
    }

    #[test]
    fn values_are_compared_parsed() {
        let map = read(&json!({"GLOBAL_OPT_INTERVAL": "60s", "config.yaml": "GLOBAL_OPT_INTERVAL: 1m"}));
        assert!(contradictions(&map).is_empty());
    }

    #[test]
    fn what_cannot_be_read_says_so_and_hides_no_flat_key() {
        for (text, want) in [
            ("a: [1", "no YAML"),
            ("V: 1\nV: 2", "no YAML"),
            ("- V", "no map"),
            ("V: [1]", "V holds a list or a map"),
        ] {
            let map = read(&json!({"GLOBAL_OPT_INTERVAL": "60s", "config.yaml": text}));
            assert!(map.nested_error.as_ref().is_some_and(|e| e.to_string().contains(want)), "{map:?}");
            assert_eq!(map.written.len(), 1);
        }
        assert_eq!(read(&json!({"config.yaml": "# nothing\n"})), MapText::default());
    }

    #[test]
    fn values_are_taken_as_they_are_written() {
        for text in [
            "0123456", "1e5", "1.10", "0x1F", "0o17", "1_000", "+1", "-0", ".5", ".inf", ".nan", "no",
            "True", "yes", "on", "12345678901234567890123", "60s", "2001-01-01",
        ] {
            let map = read(&json!({"config.yaml": format!("V: {text} # as it is\n")}));
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
    fn aliases_cannot_make_work() {
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
            assert!(nested(&text).is_err(), "{text:.40}");
            assert!(
                start.elapsed() < std::time::Duration::from_secs(5),
                "{:.40}: {:?}",
                text,
                start.elapsed()
            );
        }
    }

    #[test]
    fn a_value_is_no_part_of_what_debug_prints() {
        let map = read(&json!({
            "PROMETHEUS_BEARER_TOKEN": "hunter2", "config.yaml": "PROMETHEUS_BEARER_TOKN: hunter2\nV: 2\nV: hunter2",
        }));
        assert!(!format!("{map:?}").contains("hunter2"), "{map:?}");
    }
}
