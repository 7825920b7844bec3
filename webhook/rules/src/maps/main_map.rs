//! Rules about the main map's keys and values: what does not parse is refused, since the next start would fail on it;
//! what has no effect is told.

use serde_json::json;
use wva_crds::settings::map::{Layout, NESTED_ENTRY, Written, contradictions, known_keys};
use wva_crds::settings::{Setting, order_problems};

use crate::findings::MOST_TOLD;
use crate::maps::facts::{MapFacts, RunningSource};
use crate::maps::{DENY, WARN};
use crate::rule::{Check, Rule};
use crate::text::{escape, inside, nearest, quote, shorten, show};

/// The most characters of a parser's message.
const PROBLEM_CHARS: usize = 300;

pub(crate) const VALUE: Rule = Rule {
    code: "WVA-CM-002",
    message: "",
    docs: "Each value of the main map parses as its setting demands: durations, booleans, numbers, addresses, URLs of \
           the schemes http and https, and words out of a few. A value that does not would fail the next start.",
    check: Check::ConfigMap(|facts, out| {
        for written in keys(facts) {
            let Some(setting) = written.setting else { continue };
            if let Err(error) = setting.kind.parse(&written.text) {
                out.at(field(written), "", "");
                out.remedy(shorten(&escape(&setting.problem(&error), false), PROBLEM_CHARS));
                out.basis(written.text.as_str());
            }
        }
    }),
    ..DENY
};

pub(crate) const CONTRADICTION: Rule = Rule {
    code: "WVA-CM-003",
    message: "found {found}, and {other}: one of the two would be ignored; give the key once",
    docs: "No setting has different values in the two layouts (a flat key, and a key inside the entry `config.yaml`), \
           or under its present and its old name.",
    check: Check::ConfigMap(|facts, out| {
        if facts.is_main() {
            for (first, second) in contradictions(facts.text()) {
                let shown = |w: &Written| w.setting.map_or_else(String::new, |s| shown_value(s, &w.text));
                out.at(field(second), shown(second), format!("{} in {}", shown(first), field(first)));
                out.basis(json!([first.text, second.text]));
            }
        }
    }),
    ..DENY
};

pub(crate) const NESTED: Rule = Rule {
    code: "WVA-CM-004",
    field: "data[config.yaml]",
    message: "",
    docs: "The entry `config.yaml` is a YAML map from keys to single values, each key once.",
    check: Check::ConfigMap(|facts, out| {
        if !facts.is_main() {
            return;
        }
        if let Some(error) = &facts.text().nested_error {
            out.text("", "");
            out.remedy(shorten(&escape(&error.to_string(), false), PROBLEM_CHARS));
            out.basis(facts.data().and_then(|d| d.get(NESTED_ENTRY)).cloned().unwrap_or_default());
        }
    }),
    ..DENY
};

pub(crate) const DATA: Rule = Rule {
    code: "WVA-CM-005",
    message: "found {found}: a ConfigMap holds texts; put values that look like numbers or booleans in quotes, and \
              maps under a key with `|`",
    docs: "`data` is a map from text to text. The apiserver refuses anything else; `wva validate` says it earlier.",
    check: Check::ConfigMap(|facts, out| {
        let Some(data) = crate::facts::at(facts.object, &["data"]) else { return };
        let Some(map) = data.as_object() else {
            out.value(data);
            out.basis(data.clone());
            return;
        };
        for (key, value) in map.iter().filter(|(_, v)| !v.is_string() && !v.is_null()) {
            // A token of digits alone is no less a secret.
            let found = match value {
                serde_json::Value::Number(_) => "a number".to_owned(),
                other => show(other),
            };
            out.at(entry_field(key), found, "");
            out.basis(value.clone());
        }
    }),
    ..DENY
};

/// The longest key of a ConfigMap.
const KEY_CHARS: usize = 253;

pub(crate) const KEY: Rule = Rule {
    code: "WVA-CM-007",
    message: "found the key {found}: a key has 1 to 253 letters, digits, `-`, `_` or `.`, and is not `.` nor begins \
              with `..`; any such key will do for a model, which the entry names by model_id",
    docs: "Each key of `data` is one that a ConfigMap may have. A model's name with a `/` is none; it stands in the \
           entry. The apiserver refuses other keys; `wva validate` says it earlier.",
    check: Check::ConfigMap(|facts, out| {
        let fits = |key: &str| {
            (1..=KEY_CHARS).contains(&key.len())
                && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
                && key != "."
                && !key.starts_with("..")
        };
        for key in facts.data().into_iter().flat_map(serde_json::Map::keys).filter(|key| !fits(key)) {
            out.at(entry_field(key), quote(&shorten(key, 60)), "");
            out.basis(key.as_str());
        }
    }),
    ..DENY
};

pub(crate) const ORDER: Rule = Rule {
    code: "WVA-CM-006",
    message: "found {found}: the program would not start with it",
    docs: "Settings that belong together are in order: lease duration > renew deadline > retry period, and fresh <= \
           stale <= unavailable threshold of the metrics cache. The program would not start otherwise.",
    check: Check::ConfigMap(|facts, out| {
        if !facts.is_main() {
            return;
        }
        let text = facts.text();
        let old = facts.old_text();
        // What holds: a flag or a variable, the map, the config file, or the default. A value that the process alone knows
        // is shown as where it comes from.
        let in_force = |key: &'static str| {
            let setting = Setting::by_key(key)?;
            let running = facts.running.and_then(|r| r.values.get(key));
            let (text, source) = match (running.map(|v| &v.source), text.get(key)) {
                (Some(RunningSource::Hides(by)), _) => (running?.text.as_str(), by.split(' ').next()),
                (Some(RunningSource::File), None) => (running?.text.as_str(), Some("config file")),
                (_, Some(written)) => (written.text.as_str(), None),
                (_, None) => (setting.default?, None),
            };
            Some((setting, text, source))
        };
        let valid = |key: &'static str| in_force(key).is_none_or(|(s, text, _)| s.kind.parse(text).is_ok());
        // What does not parse is told by another rule.
        let problems = order_problems(|key| in_force(key).and_then(|(s, text, _)| s.kind.parse(text).ok()));
        for problem in problems.into_iter().filter(|problem| problem.keys.iter().all(|key| valid(key))) {
            // What is wrong without this map is not its fault; what it says no longer, is.
            let mut written = problem.keys.iter().filter_map(|key| text.get(key));
            let removed = problem.keys.iter().find(|key| old.is_some_and(|old| old.get(key).is_some()));
            let place = written.next().map(field).or_else(|| removed.map(|key| entry_field(key)));
            if let Some(place) = place {
                let values = problem.keys.iter().filter_map(|key| in_force(key));
                let shown = |(s, text, source): (&Setting, &str, Option<&str>)| {
                    source.map_or_else(|| escape(&s.shown(text), false), |source| format!("({source})"))
                };
                let values: Vec<String> = values.map(shown).collect();
                let found = if values.is_empty() { "nothing".to_owned() } else { values.join(", ") };
                out.at(place, found, "");
                out.remedy(format!("; {} ({})", problem.right, problem.keys.join(", ")));
                let texts: Vec<_> =
                    problem.keys.iter().map(|k| text.get(k).map(|w| w.text.clone())).collect();
                out.basis(json!(texts));
            }
        }
    }),
    ..DENY
};

pub(crate) const UNKNOWN: Rule = Rule {
    code: "WVA-CM-051",
    message: "nobody reads this key{other}",
    docs: "A key of the main map is none that is read. Where a known one is near, it is named.",
    check: Check::ConfigMap(|facts, out| {
        let known = known_keys();
        // The nearest is looked for at length, so not for what is not told any more.
        for written in keys(facts).filter(|w| w.setting.is_none()).take(MOST_TOLD) {
            let meant = nearest(&written.key, &known).map(|k| format!(": {k}?")).unwrap_or_default();
            out.at(field(written), "", meant);
        }
    }),
    ..WARN
};

pub(crate) const HIDDEN: Rule = Rule {
    code: "WVA-CM-052",
    message: "has no effect: {other} wins",
    docs: "A flag or an environment variable of the running process gives this setting, and wins over the map. \
           Change it there, or remove it there and restart, to have the map decide.",
    check: Check::ConfigMap(|facts, out| {
        let Some(running) = facts.running else { return };
        for written in keys(facts) {
            let value = written.setting.and_then(|s| running.values.get(s.key));
            if let Some(RunningSource::Hides(by)) = value.map(|v| &v.source) {
                out.at(field(written), "", by.as_str());
            }
        }
    }),
    ..WARN
};

pub(crate) const OLD_NAME: Rule = Rule {
    code: "WVA-CM-055",
    message: "is an old name of {other}",
    docs: "A key of the main map has the name it had in the first releases. It is read all the same, \
           so there is no hurry to rename it.",
    check: Check::ConfigMap(|facts, out| {
        for written in keys(facts).filter(|w| w.old_name) {
            out.at(field(written), "", written.setting.map_or("", |s| s.key));
        }
    }),
    ..WARN
};

pub(crate) const OUTSIDE: Rule = Rule {
    code: "WVA-CM-056",
    message: "is read from the environment alone: it says where this map is",
    docs: "`CONFIG_MAP_NAME`, `POD_NAMESPACE`, `POD_NAME`, `DEPLOYMENT_NAME`, `CONTROLLER_INSTANCE` and `CONFIG_FILE` \
           are no keys of the map: they say where the map is and who reads it, and are read from the environment (the \
           last also from its flag).",
    check: Check::ConfigMap(|facts, out| {
        for written in all_keys(facts).filter(|w| w.setting.is_some_and(|s| !s.in_map)) {
            out.at(field(written), "", "");
        }
    }),
    ..WARN
};

/// The keys of the main map, where this process reads it.
fn all_keys<'f>(facts: &'f MapFacts<'_>) -> impl Iterator<Item = &'f Written> {
    let text = facts.is_main().then(|| facts.text());
    text.into_iter().flat_map(|t| &t.written)
}

/// Those of them that are keys of the map, and those that nobody knows.
fn keys<'f>(facts: &'f MapFacts<'_>) -> impl Iterator<Item = &'f Written> {
    all_keys(facts).filter(|w| w.setting.is_none_or(|s| s.in_map))
}

/// A value as a person may see it, in quotes where it is one.
pub(crate) fn shown_value(setting: &Setting, text: &str) -> String {
    let shown = setting.shown(text);
    if setting.secret { shown } else { quote(&shown) }
}

/// The field of a key, as kubectl prints it.
pub(crate) fn field(written: &Written) -> String {
    match written.layout {
        Layout::Flat => entry_field(&written.key),
        Layout::Nested => format!("data[{NESTED_ENTRY}].{}", escape(&written.key, false)),
    }
}

/// The field of an entry.
pub(crate) fn entry_field(key: &str) -> String {
    inside("data", key)
}
