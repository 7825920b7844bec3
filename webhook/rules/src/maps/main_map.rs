//! Rules about the main map's keys and values: what does not parse is refused, since the next start would fail on it;
//! what has no effect is told.

use serde_json::json;
use wva_crds::settings::map::{Layout, NESTED_ENTRY, Written, contradictions, known_keys};
use wva_crds::settings::{Setting, order_problems};

use crate::findings::MOST_HITS;
use crate::maps::facts::{MapFacts, RunningSource};
use crate::table::{Check, Kind, Rule, Scope};
use crate::text::{escape, nearest, quote, shorten, show};

/// The most characters of a parser's message.
const PROBLEM_CHARS: usize = 300;

pub(crate) const VALUE: Rule = Rule {
    code: "WVA-CM-002",
    kind: Kind::Deny,
    scope: Scope::Object,
    field: "data",
    reads: &[],
    message: "",
    docs: "Each value of the main map parses as its setting demands: durations, booleans, numbers, addresses, URLs of \
           the schemes http and https, and words out of a few. A value that does not would fail the next start.",
    check: Check::ConfigMap(|facts, out| {
        for written in keys(facts) {
            let Some(setting) = written.setting else { continue };
            if let Err(error) = setting.kind.parse(&written.text) {
                out.at(field(written), "", "");
                out.remedy(if setting.secret {
                    "the value is not valid".to_owned()
                } else {
                    shorten(&escape(&error.to_string(), false), PROBLEM_CHARS)
                });
                out.basis(written.text.as_str());
            }
        }
    }),
};

pub(crate) const CONTRADICTION: Rule = Rule {
    code: "WVA-CM-003",
    kind: Kind::Deny,
    scope: Scope::Object,
    field: "data",
    reads: &[],
    message: "found {found}, and {other}: one of the two would be ignored; give the key once",
    docs: "No setting has different values in the two layouts (a flat key, and a key inside the entry `config.yaml`), \
           or under its present and its old name.",
    check: Check::ConfigMap(|facts, out| {
        if facts.is_main() {
            for (first, second) in contradictions(facts.text()) {
                let shown = |w: &Written| {
                    if w.setting.is_some_and(|s| s.secret) { "(a secret)".to_owned() } else { quote(&w.text) }
                };
                out.at(field(second), shown(second), format!("{} in {}", shown(first), field(first)));
                out.basis(json!([first.text, second.text]));
            }
        }
    }),
};

pub(crate) const NESTED: Rule = Rule {
    code: "WVA-CM-004",
    kind: Kind::Deny,
    scope: Scope::Object,
    field: "data[config.yaml]",
    reads: &[],
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
};

pub(crate) const DATA: Rule = Rule {
    code: "WVA-CM-005",
    kind: Kind::Deny,
    scope: Scope::Object,
    field: "data",
    reads: &[],
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
            out.at(entry_field(key), show(value), "");
            out.basis(value.clone());
        }
    }),
};

pub(crate) const ORDER: Rule = Rule {
    code: "WVA-CM-006",
    kind: Kind::Deny,
    scope: Scope::Object,
    field: "data",
    reads: &[],
    message: "",
    docs: "Settings that belong together are in order: lease duration > renew deadline > retry period, and fresh <= \
           stale <= unavailable threshold of the metrics cache. The program would not start otherwise.",
    check: Check::ConfigMap(|facts, out| {
        if !facts.is_main() {
            return;
        }
        let text = facts.text();
        let value = |key: &'static str| {
            let hidden = facts.running.and_then(|r| r.values.get(key));
            if let Some(hidden) = hidden.filter(|v| matches!(v.source, RunningSource::Hides(_))) {
                return Some(hidden.value.clone());
            }
            let setting = Setting::by_key(key)?;
            match text.get(key) {
                Some(written) => setting.kind.parse(&written.text).ok(),
                None => setting.default_value().ok().flatten(),
            }
        };
        for problem in order_problems(value) {
            // What is wrong without this map is not its fault.
            let mut written = problem.keys.iter().filter_map(|key| text.get(key));
            if let Some(first) = written.next() {
                out.at(field(first), "", "");
                out.remedy(problem.to_string());
                let texts: Vec<_> =
                    problem.keys.iter().map(|k| text.get(k).map(|w| w.text.clone())).collect();
                out.basis(json!(texts));
            }
        }
    }),
};

pub(crate) const UNKNOWN: Rule = Rule {
    code: "WVA-CM-051",
    kind: Kind::Warn,
    scope: Scope::Object,
    field: "data",
    reads: &[],
    message: "nobody reads this key{other}",
    docs: "A key of the main map is none that is read. The nearest known one is named.",
    check: Check::ConfigMap(|facts, out| {
        let known = known_keys();
        // The nearest is looked for at length, so not for what is not told any more.
        for written in keys(facts).filter(|w| w.setting.is_none()).take(MOST_HITS) {
            let meant = nearest(&written.key, &known).map(|k| format!(": {k}?")).unwrap_or_default();
            out.at(field(written), "", meant);
        }
    }),
};

pub(crate) const HIDDEN: Rule = Rule {
    code: "WVA-CM-052",
    kind: Kind::Warn,
    scope: Scope::Object,
    field: "data",
    reads: &[],
    message: "has no effect: {other} wins",
    docs: "A flag or an environment variable of the running process gives this setting, and wins over the map.",
    check: Check::ConfigMap(|facts, out| {
        let Some(running) = facts.running else { return };
        for written in keys(facts) {
            let value = written.setting.and_then(|s| running.values.get(s.key));
            if let Some(RunningSource::Hides(by)) = value.map(|v| &v.source) {
                out.at(field(written), "", by.as_str());
            }
        }
    }),
};

pub(crate) const OLD_NAME: Rule = Rule {
    code: "WVA-CM-055",
    kind: Kind::Warn,
    scope: Scope::Object,
    field: "data",
    reads: &[],
    message: "is an old name of {other}",
    docs: "A key of the main map has the name it had in the first releases. It is read all the same.",
    check: Check::ConfigMap(|facts, out| {
        for written in keys(facts).filter(|w| w.old_name) {
            out.at(field(written), "", written.setting.map_or("", |s| s.key));
        }
    }),
};

pub(crate) const OUTSIDE: Rule = Rule {
    code: "WVA-CM-056",
    kind: Kind::Warn,
    scope: Scope::Object,
    field: "data",
    reads: &[],
    message: "is read from the environment alone: it says where this map is",
    docs: "`CONFIG_MAP_NAME`, `POD_NAMESPACE`, `POD_NAME`, `CONTROLLER_INSTANCE` and `CONFIG_FILE` are no keys of the \
           map.",
    check: Check::ConfigMap(|facts, out| {
        for written in all_keys(facts).filter(|w| w.setting.is_some_and(|s| !s.in_map)) {
            out.at(field(written), "", "");
        }
    }),
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

fn field(written: &Written) -> String {
    match written.layout {
        Layout::Flat => entry_field(&written.key),
        Layout::Nested => format!("data[{NESTED_ENTRY}].{}", escape(&written.key, false)),
    }
}

/// The field of an entry, as kubectl would print it: keys with dots stand in brackets.
pub(crate) fn entry_field(key: &str) -> String {
    let key = escape(key, false);
    if key.contains(['.', '/', '[']) { format!("data[{key}]") } else { format!("data.{key}") }
}
