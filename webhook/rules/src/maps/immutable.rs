//! The rule that keeps settings as they are until a restart: a change that the running process cannot see would wait,
//! unseen, for whatever restarts the program next. The refusal hands over the command that makes the change properly.

use serde_json::{Map, Value, json};
use wva_crds::digest::fnv1a;
use wva_crds::names::RESTART_REVISION_ANNOTATION;
use wva_crds::settings::map::{Layout, Written};
use wva_crds::settings::{SETTINGS, Setting, Value as SettingValue};

use crate::facts::{Operation, at};
use crate::maps::facts::{MapFacts, RunningSource, RunningValue};
use crate::maps::main_map::{entry_field, field, shown_value};
use crate::maps::{DENY, WARN};
use crate::rule::{Check, Rule};
use crate::text::{quote, shell};

/// Code of the rule whose refusal is also told by an event.
pub const IMMUTABLE: &str = "WVA-CM-001";

/// Stands for a value that the process alone knows: a caller that could only guess it is not shown it.
const RUNNING_VALUE: &str = "another value in the running process";

/// The longest value that a command repeats.
const MOST_COMMAND_CHARS: usize = 1000;

pub(crate) const CHANGED: Rule = Rule {
    code: IMMUTABLE,
    message: "found {found}, before {other}: this setting is read at the start alone, so the change would wait \
              unseen for the next restart",
    docs: "A setting that holds until a restart is not changed in the main map, unless the same request changes the \
           annotation `wva.llmd.ai/restart-revision`, which states that a rollout comes with it. Values are compared \
           parsed (`60s` is `1m`), and a key that is absent has its default. Deleting the map and creating it \
           again changes nothing: a new map is compared with what the process was started with. The answer names the keys \
           that differ and not the values of the process, which its log line `Settings in force` has.",
    check: Check::ConfigMap(|facts, out| {
        if !facts.is_main() || restart_is_stated(facts) {
            return;
        }
        let changes = changes(facts);
        for change in &changes {
            out.at(change.field(), change.shown_new(), change.shown_old());
        }
        if !changes.is_empty() {
            out.remedy(remedy(facts, &changes));
        }
    }),
    ..DENY
};

pub(crate) const AT_RESTART: Rule = Rule {
    code: "WVA-CM-054",
    message: "in force from the restart on, until then {other}",
    docs: "A setting that holds until a restart was changed, and the annotation `wva.llmd.ai/restart-revision` with \
           it: the new value takes effect when the program restarts.",
    check: Check::ConfigMap(|facts, out| {
        if facts.is_main() && restart_is_stated(facts) {
            for change in changes(facts).into_iter().filter(|c| !c.hidden) {
                out.at(change.field(), "", change.shown_old());
            }
        }
    }),
    ..WARN
};

/// One setting that would change.
struct Change<'f> {
    setting: &'static Setting,
    new: Option<&'f Written>,
    old: Option<&'f str>,
    /// `old` is of the process, and not of the request.
    old_is_running: bool,
    /// A flag or a variable of the process wins over it.
    hidden: bool,
}

impl Change<'_> {
    fn field(&self) -> String {
        self.new.map_or_else(|| entry_field(self.setting.key), field)
    }

    fn shown_new(&self) -> String {
        shown(self.setting, self.new.map(|w| w.text.as_str()))
    }

    fn shown_old(&self) -> String {
        if self.old_is_running { RUNNING_VALUE.to_owned() } else { shown(self.setting, self.old) }
    }

    /// The value before, where the caller knows it.
    fn known_old(&self) -> Option<&str> {
        self.old.filter(|_| !self.old_is_running)
    }
}

/// A value as a person may see it.
fn shown(setting: &Setting, text: Option<&str>) -> String {
    match (text, setting.default) {
        (Some(text), _) => shown_value(setting, text),
        (None, Some(default)) if !default.is_empty() => format!("nothing (default {})", quote(default)),
        (None, _) => "nothing".to_owned(),
    }
}

/// A value to compare: parsed where it can be.
#[derive(PartialEq)]
enum Comparable {
    Parsed(SettingValue),
    Text(String),
}

fn comparable(setting: &Setting, text: &str) -> Comparable {
    setting.kind.parse(text).map_or_else(|_| Comparable::Text(text.to_owned()), Comparable::Parsed)
}

/// Every setting that needs a restart and would change.
fn changes<'f>(facts: &'f MapFacts<'_>) -> Vec<Change<'f>> {
    let update = facts.operation == Operation::Update;
    // There is nothing to compare with.
    if if update { facts.old.is_none() } else { facts.running.is_none() } {
        return Vec::new();
    }
    let new = facts.text();
    let mut found = Vec::new();
    for setting in SETTINGS.iter().filter(|s| s.in_map && !s.mutable) {
        let running = facts.running.and_then(|r| r.values.get(setting.key));
        let absent = absent(setting, running);
        // A new map gets round nothing by what a flag or a variable hides. A changed one is refused all the same: files
        // and pipelines, which know no process, must come to the same verdict.
        let hidden = matches!(running, Some(RunningValue { source: RunningSource::Hides(_), .. }));
        if hidden && !update {
            continue;
        }
        let before = facts.old_text().filter(|_| update).and_then(|m| m.get(setting.key));
        let from_map = running.filter(|value| !update && value.source == RunningSource::Map);
        let old = before.map(|w| w.text.as_str()).or(from_map.map(|value| value.text.as_str()));
        let written = new.get(setting.key);
        // What does not parse is refused by another rule, and no command could make it right. An entry `config.yaml`
        // that cannot be read says nothing about its keys.
        let gone_with_the_rest =
            new.nested_error.is_some() && before.is_none_or(|w| w.layout == Layout::Nested);
        let unreadable = written.is_some_and(|w| setting.kind.parse(&w.text).is_err());
        if unreadable || (written.is_none() && gone_with_the_rest) {
            continue;
        }
        let value = |text: Option<&str>| text.or(absent).map(|t| comparable(setting, t));
        if value(written.map(|w| w.text.as_str())) != value(old) {
            found.push(Change { setting, new: written, old, old_is_running: !update, hidden });
        }
    }
    found
}

/// What holds where the map is silent.
fn absent<'f>(setting: &Setting, running: Option<&'f RunningValue>) -> Option<&'f str> {
    match running {
        Some(value) if value.source == RunningSource::File => Some(&value.text),
        _ => setting.default,
    }
}

/// The same request changes the annotation by which a rollout is announced.
fn restart_is_stated(facts: &MapFacts<'_>) -> bool {
    let before = match (facts.operation, facts.old) {
        (Operation::Update, Some(old)) => {
            at(old, &["metadata", "annotations", RESTART_REVISION_ANNOTATION]).and_then(Value::as_str)
        }
        _ => facts.running.and_then(|r| r.restart_revision.as_deref()),
    };
    facts.restart_revision().is_some_and(|now| Some(now) != before)
}

/// What a person does to make the change properly: keys and annotation in one request, then the rollout. As one
/// command where there is a map to patch and nothing in it that must not be repeated; files and pipelines get the
/// annotation to set, since what is patched by hand would not last there.
fn remedy(facts: &MapFacts<'_>, changes: &[Change<'_>]) -> String {
    let revision = revision(facts, changes);
    let namespace = shell(facts.namespace);
    let rollout =
        facts.running.map_or("deployment -l control-plane=controller-manager", |r| r.rollout.as_str());
    let restart = format!("kubectl rollout restart {rollout} -n {namespace}");
    let Some(data) = facts.running.and_then(|_| patch(facts)) else {
        return format!(
            "; set annotation {RESTART_REVISION_ANNOTATION}: \"{revision}\" in the same change, and restart with it: \
             {restart}"
        );
    };
    let patch = json!({"metadata": {"annotations": {RESTART_REVISION_ANNOTATION: revision}}, "data": data});
    format!(
        "; change it and restart in one step: kubectl patch configmap {} -n {namespace} --type=merge -p {} && {restart}",
        shell(facts.name()),
        shell(&ascii(&patch.to_string())),
    )
}

/// The difference of the two maps as a merge patch. `None` where there is no old one, and where a value is a secret,
/// might be one, or is too long.
fn patch(facts: &MapFacts<'_>) -> Option<Map<String, Value>> {
    let old = at(facts.old?, &["data"]).and_then(Value::as_object);
    let new = facts.data();
    let keys = old.into_iter().chain(new).flat_map(Map::keys);
    let mut data = Map::new();
    for key in keys {
        let [before, now] = [old, new].map(|map| map.and_then(|m| m.get(key)));
        if before == now || data.contains_key(key) {
            continue;
        }
        if let Some(text) = now.and_then(Value::as_str) {
            let known = Setting::by_key(key).is_some_and(|s| s.shown(text) == text);
            // Comments and misspelt keys inside the entry may hold anything.
            if !known || text.chars().count() > MOST_COMMAND_CHARS {
                return None;
            }
        }
        data.insert(key.clone(), now.cloned().unwrap_or(Value::Null));
    }
    Some(data)
}

/// JSON in plain ASCII: nothing in it that a terminal would act on.
fn ascii(json: &str) -> String {
    let mut out = String::new();
    for c in json.chars() {
        if matches!(c, ' '..='~') {
            out.push(c);
        } else {
            out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out
}

/// A revision that differs from the one before: made from the change itself, since rules know no clock. The same in every
/// build, as the rule reference prints it.
fn revision(facts: &MapFacts<'_>, changes: &[Change<'_>]) -> String {
    let before = facts.old.and_then(|old| at(old, &["metadata", "annotations", RESTART_REVISION_ANNOTATION]));
    let running = facts.running.and_then(|r| r.restart_revision.as_deref());
    let mut texts = vec![before.and_then(Value::as_str), running];
    for change in changes {
        texts.extend([Some(change.setting.key), change.new.map(|w| w.text.as_str()), change.known_old()]);
    }
    let bytes = texts.into_iter().flat_map(|text| text.unwrap_or_default().bytes().chain([0]));
    format!("{:016x}", fnv1a(bytes))
}
