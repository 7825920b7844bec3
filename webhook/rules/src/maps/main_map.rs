//! Keys and values of the main map. Invalid values are denied, because the next start would fail; keys without effect
//! cause a warning.

use serde_json::json;
use wva_crds::settings::map::{ConfigKey, Layout, NESTED_ENTRY, contradictions, known_keys};
use wva_crds::settings::{Setting, find_order_problems};

use crate::findings::MAX_REPORTED;
use crate::maps::facts::{MapFacts, RunningSource};
use crate::maps::{DENY, WARN};
use crate::rule::{Check, Rule};
use crate::text::{escape, join_field, nearest, quote, shorten, show};

/// Longest part of a parser's message.
const MAX_PROBLEM_CHARS: usize = 300;

pub(crate) const VALUE: Rule = Rule {
    code: "WVA-CM-002",
    message: "",
    docs: "Each value of the main map must be valid for its setting: a duration, boolean, number, address, http or https \
           URL, or one of several words. The next start would fail with an invalid value.",
    check: Check::ConfigMap(|facts, out| {
        for written in keys(facts) {
            let Some(setting) = written.setting else { continue };
            if let Err(error) = setting.kind.parse(&written.text) {
                out.add_at(field(written), "", "");
                out.set_remedy(shorten(&escape(&setting.describe_error(&error), false), MAX_PROBLEM_CHARS));
                out.set_basis(written.text.as_str());
            }
        }
    }),
    ..DENY
};

pub(crate) const CONTRADICTION: Rule = Rule {
    code: "WVA-CM-003",
    message: "{found} contradicts {other}; set the key only once",
    docs: "A setting must not have different values as a flat key and in the entry `config.yaml`, or under its current and \
           its old name.",
    check: Check::ConfigMap(|facts, out| {
        if facts.is_main() {
            for (first, second) in contradictions(facts.main_keys()) {
                let value =
                    |w: &ConfigKey| w.setting.map_or_else(String::new, |s| quote_redacted(s, &w.text));
                out.add_at(field(second), value(second), format!("{} in {}", value(first), field(first)));
                out.set_basis(json!([first.text, second.text]));
            }
        }
    }),
    ..DENY
};

pub(crate) const NESTED: Rule = Rule {
    code: "WVA-CM-004",
    field: "data[config.yaml]",
    message: "",
    docs: "The entry `config.yaml` must be a YAML map of unique keys to single values.",
    check: Check::ConfigMap(|facts, out| {
        if !facts.is_main() {
            return;
        }
        if let Some(error) = &facts.main_keys().nested_error {
            out.add("", "");
            out.set_remedy(shorten(&escape(&error.to_string(), false), MAX_PROBLEM_CHARS));
            out.set_basis(facts.data().and_then(|d| d.get(NESTED_ENTRY)).cloned().unwrap_or_default());
        }
    }),
    ..DENY
};

pub(crate) const DATA: Rule = Rule {
    code: "WVA-CM-005",
    message: "{found} is not allowed; a ConfigMap maps text to text, so put numbers and booleans in quotes, and nested \
              YAML after `|`",
    docs: "`data` must map text to text. The API server denies anything else; `wva validate` reports it earlier.",
    check: Check::ConfigMap(|facts, out| {
        let Some(data) = wva_objects::json::at(facts.object, &["data"]) else { return };
        let Some(map) = data.as_object() else {
            out.add_value(data);
            out.set_basis(data.clone());
            return;
        };
        for (key, value) in map.iter().filter(|(_, v)| !v.is_string() && !v.is_null()) {
            // Without the number, which may be a secret token.
            let found = match value {
                serde_json::Value::Number(_) => "a number".to_owned(),
                other => show(other),
            };
            out.add_at(entry_field(key), found, "");
            out.set_basis(value.clone());
        }
    }),
    ..DENY
};

/// Limit of a ConfigMap key.
const MAX_KEY_CHARS: usize = 253;

pub(crate) const KEY: Rule = Rule {
    code: "WVA-CM-007",
    message: "{found} is not a valid key; use 1 to 253 letters, digits, '-', '_' or '.' without leading '..', and name a \
              model by model_id in the entry",
    docs: "Each key of `data` must be a valid ConfigMap key. Put a model name with `/` into the entry. \
           The API server denies other keys; `wva validate` reports it earlier.",
    check: Check::ConfigMap(|facts, out| {
        let is_valid = |key: &str| {
            (1..=MAX_KEY_CHARS).contains(&key.len())
                && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
                && key != "."
                && !key.starts_with("..")
        };
        for key in facts.data().into_iter().flat_map(serde_json::Map::keys).filter(|key| !is_valid(key)) {
            out.add_at(entry_field(key), quote(&shorten(key, 60)), "");
            out.set_basis(key.as_str());
        }
    }),
    ..DENY
};

pub(crate) const ORDER: Rule = Rule {
    code: "WVA-CM-006",
    message: "{found} are not in order; wva would not start",
    docs: "Related settings must be in order: lease duration > renew deadline > retry period, and fresh <= stale <= \
           unavailable threshold of the metrics cache. Otherwise wva does not start.",
    check: Check::ConfigMap(|facts, out| {
        if !facts.is_main() {
            return;
        }
        let keys = facts.main_keys();
        let old = facts.old_main_keys();
        // Values that only the process knows are replaced by their source.
        let effective = |key: &'static str| {
            let setting = Setting::by_key(key)?;
            let running = facts.running.and_then(|r| r.values.get(key));
            let (text, source) = match (running.map(|v| &v.source), keys.get(key)) {
                (Some(RunningSource::Override(by)), _) => (running?.text.as_str(), by.split(' ').next()),
                (Some(RunningSource::File), None) => (running?.text.as_str(), Some("config file")),
                (_, Some(written)) => (written.text.as_str(), None),
                (_, None) => (setting.default?, None),
            };
            Some((setting, text, source))
        };
        let is_valid =
            |key: &'static str| effective(key).is_none_or(|(s, text, _)| s.kind.parse(text).is_ok());
        // Another rule reports invalid values.
        let problems =
            find_order_problems(|key| effective(key).and_then(|(s, text, _)| s.kind.parse(text).ok()));
        for problem in problems.into_iter().filter(|problem| problem.keys.iter().all(|key| is_valid(key))) {
            // Only if this map has one of the keys, or no longer has it.
            let mut written = problem.keys.iter().filter_map(|key| keys.get(key));
            let removed = problem.keys.iter().find(|key| old.is_some_and(|old| old.get(key).is_some()));
            let location = written.next().map(field).or_else(|| removed.map(|key| entry_field(key)));
            if let Some(location) = location {
                let values = problem.keys.iter().filter_map(|key| effective(key));
                let describe = |(s, text, source): (&Setting, &str, Option<&str>)| {
                    source.map_or_else(|| escape(&s.redact(text), false), |source| format!("({source})"))
                };
                let values: Vec<String> = values.map(describe).collect();
                let found = if values.is_empty() { "nothing".to_owned() } else { values.join(", ") };
                out.add_at(location, found, "");
                out.set_remedy(format!("; {} ({})", problem.advice, problem.keys.join(", ")));
                let texts: Vec<_> =
                    problem.keys.iter().map(|k| keys.get(k).map(|w| w.text.clone())).collect();
                out.set_basis(json!(texts));
            }
        }
    }),
    ..DENY
};

pub(crate) const UNKNOWN: Rule = Rule {
    code: "WVA-CM-051",
    message: "{other}",
    docs: "The main map has an unknown key, which is ignored. The message suggests a similar key, if any.",
    check: Check::ConfigMap(|facts, out| {
        let known = known_keys();
        // Only for reported keys: the search is slow.
        for written in keys(facts).filter(|w| w.setting.is_none()).take(MAX_REPORTED) {
            let suggestion = nearest(&written.key, &known);
            let problem =
                suggestion.map_or_else(|| "unknown key, ignored".to_owned(), |k| format!("typo of {k}?"));
            out.add_at(field(written), "", problem);
        }
    }),
    ..WARN
};

pub(crate) const HIDDEN: Rule = Rule {
    code: "WVA-CM-052",
    message: "no effect; {other} takes precedence",
    docs: "A flag or environment variable of the running process sets this value and takes precedence over the map. Change \
           it there, or remove it there and restart, so that the map applies.",
    check: Check::ConfigMap(|facts, out| {
        let Some(running) = facts.running else { return };
        for written in keys(facts) {
            let value = written.setting.and_then(|s| running.values.get(s.key));
            if let Some(RunningSource::Override(by)) = value.map(|v| &v.source) {
                out.add_at(field(written), "", by.as_str());
            }
        }
    }),
    ..WARN
};

pub(crate) const OLD_NAME: Rule = Rule {
    code: "WVA-CM-055",
    message: "old name of {other}; both work",
    docs: "A key of the main map has its name of llm-d WVA. It still works, so renaming is optional.",
    check: Check::ConfigMap(|facts, out| {
        for written in keys(facts).filter(|w| w.is_old_name) {
            out.add_at(field(written), "", written.setting.map_or("", |s| s.key));
        }
    }),
    ..WARN
};

pub(crate) const OUTSIDE: Rule = Rule {
    code: "WVA-CM-056",
    message: "ignored in the map; set it as an environment variable",
    docs: "`CONFIG_MAP_NAME`, `POD_NAMESPACE`, `POD_NAME`, `DEPLOYMENT_NAME`, `CONTROLLER_INSTANCE` and `CONFIG_FILE` \
           cannot be set in the map, because they are needed to find it. Set them as environment variables; `CONFIG_FILE` \
           also has a flag.",
    check: Check::ConfigMap(|facts, out| {
        for written in all_keys(facts).filter(|w| w.setting.is_some_and(|s| !s.in_map)) {
            out.add_at(field(written), "", "");
        }
    }),
    ..WARN
};

/// None of another map.
fn all_keys<'f>(facts: &'f MapFacts<'_>) -> impl Iterator<Item = &'f ConfigKey> {
    let text = facts.is_main().then(|| facts.main_keys());
    text.into_iter().flat_map(|t| &t.keys)
}

/// Keys that may be in the map, and unknown ones.
pub(crate) fn keys<'f>(facts: &'f MapFacts<'_>) -> impl Iterator<Item = &'f ConfigKey> {
    all_keys(facts).filter(|w| w.setting.is_none_or(|s| s.in_map))
}

/// Quotes the text of a setting, unless it is a secret.
pub(crate) fn quote_redacted(setting: &Setting, text: &str) -> String {
    let redacted = setting.redact(text);
    if setting.secret { redacted } else { quote(&redacted) }
}

/// Format of kubectl.
pub(crate) fn field(written: &ConfigKey) -> String {
    match written.layout {
        Layout::Flat => entry_field(&written.key),
        Layout::Nested => format!("data[{NESTED_ENTRY}].{}", escape(&written.key, false)),
    }
}

pub(crate) fn entry_field(key: &str) -> String {
    join_field("data", key)
}
