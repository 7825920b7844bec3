//! The rule that keeps settings as they are until a restart: a change that the running process cannot see would wait,
//! unseen, for whatever restarts the program next. The refusal hands over the command that makes the change properly.

use serde_json::{Map, Value, json};
use wva_crds::names::RESTART_REVISION_ANNOTATION;
use wva_crds::settings::map::{Layout, MapText, NESTED_ENTRY, Written};
use wva_crds::settings::{SETTINGS, Setting, Value as SettingValue};

use crate::facts::{Operation, at};
use crate::maps::facts::{MapFacts, RunningSource, RunningValue};
use crate::table::{Check, Kind, Rule, Scope};
use crate::text::{quote, shell};

/// Code of the rule whose refusal is also told by an event.
pub const IMMUTABLE: &str = "WVA-CM-001";

/// The longest value that a command repeats.
const MOST_COMMAND_CHARS: usize = 1000;

pub(crate) const CHANGED: Rule = Rule {
    code: IMMUTABLE,
    kind: Kind::Deny,
    scope: Scope::Object,
    field: "data",
    reads: &[],
    message: "found {found}, in force {other}: this setting is read at the start alone, so the change would wait \
              unseen for the next restart",
    docs: "A setting that holds until a restart is not changed in the main map, unless the same request changes the \
           annotation `wva.llmd.ai/restart-revision`, which states that a rollout comes with it. Values are compared \
           parsed (`60s` is `1m`), and a key that is absent has its default. Deleting the map and creating it anew \
           is no way round: a new map is compared with what the process was started with.",
    check: Check::ConfigMap(|facts, out| {
        if !facts.is_main() || restart_is_stated(facts) {
            return;
        }
        let changes = changes(facts);
        for change in &changes {
            out.at(change.field(), change.shown(change.new), change.shown_old());
        }
        if !changes.is_empty() {
            out.remedy(format!("; change it and restart in one step: {}", command(facts, &changes)));
        }
    }),
};

pub(crate) const AT_RESTART: Rule = Rule {
    code: "WVA-CM-054",
    kind: Kind::Warn,
    scope: Scope::Object,
    field: "data",
    reads: &[],
    message: "in force from the restart on, until then {other}",
    docs: "A setting that holds until a restart was changed, and the annotation `wva.llmd.ai/restart-revision` with \
           it: the new value takes effect when the program restarts.",
    check: Check::ConfigMap(|facts, out| {
        if facts.is_main() && restart_is_stated(facts) {
            for change in changes(facts) {
                out.at(change.field(), "", change.shown_old());
            }
        }
    }),
};

/// One setting that would change.
struct Change<'f> {
    setting: &'static Setting,
    new: Option<&'f Written>,
    old: Option<String>,
}

impl Change<'_> {
    fn field(&self) -> String {
        match self.new {
            Some(w) if w.layout == Layout::Nested => format!("data[{NESTED_ENTRY}].{}", w.key),
            Some(w) => format!("data.{}", w.key),
            None => format!("data.{}", self.setting.key),
        }
    }

    fn shown(&self, written: Option<&Written>) -> String {
        shown(self.setting, written.map(|w| w.text.as_str()))
    }

    fn shown_old(&self) -> String {
        shown(self.setting, self.old.as_deref())
    }
}

/// A value as a person may see it.
fn shown(setting: &Setting, text: Option<&str>) -> String {
    match (text, setting.default) {
        (Some(_), _) if setting.secret => "(a secret)".to_owned(),
        (Some(text), _) => quote(text),
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
    let old_map = match (facts.operation, facts.old) {
        (Operation::Update, Some(old)) => at(old, &["data"]).and_then(Value::as_object).map(MapText::of),
        (Operation::Update, None) => return Vec::new(),
        _ if facts.running.is_none() => return Vec::new(),
        _ => None,
    };
    let new = facts.text();
    // A text that cannot be read says nothing about its keys; another rule refuses it.
    if new.nested_error.is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for setting in SETTINGS.iter().filter(|s| s.in_map && !s.mutable) {
        let running = facts.running.and_then(|r| r.values.get(setting.key));
        let absent = absent(setting, running);
        let old = if facts.operation == Operation::Update {
            old_map.as_ref().and_then(|m| m.get(setting.key)).map(|w| w.text.clone())
        } else {
            match running {
                // What a flag or a variable hides was never in force, so there is nothing to get round.
                Some(RunningValue { source: RunningSource::Hides(_), .. }) => continue,
                Some(value) if value.source == RunningSource::Map => Some(value.text.clone()),
                _ => None,
            }
        };
        let written = new.get(setting.key);
        // What does not parse is refused by another rule, and no command could make it right.
        if written.is_some_and(|w| setting.kind.parse(&w.text).is_err()) {
            continue;
        }
        let value = |text: Option<&str>| text.or(absent.as_deref()).map(|t| comparable(setting, t));
        if value(written.map(|w| w.text.as_str())) != value(old.as_deref()) {
            found.push(Change { setting, new: written, old });
        }
    }
    found
}

/// What holds where the map is silent.
fn absent(setting: &Setting, running: Option<&RunningValue>) -> Option<String> {
    match running {
        Some(value) if value.source == RunningSource::File => Some(value.text.clone()),
        _ => setting.default.map(str::to_owned),
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

/// The one command that makes the change: keys and annotation in one request, then the rollout.
fn command(facts: &MapFacts<'_>, changes: &[Change<'_>]) -> String {
    let mut data = Map::new();
    for change in changes {
        match change.new {
            Some(w) if w.layout == Layout::Nested => {
                let text = facts
                    .data()
                    .and_then(|d| d.get(NESTED_ENTRY))
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let secret = facts
                    .text()
                    .written
                    .iter()
                    .any(|w| w.layout == Layout::Nested && w.setting.is_some_and(|s| s.secret));
                data.insert(
                    NESTED_ENTRY.to_owned(),
                    json!(repeated(text, secret, "<the entry as it shall be>")),
                );
            }
            Some(w) => {
                data.insert(
                    w.key.clone(),
                    json!(repeated(&w.text, change.setting.secret, "<the new value>")),
                );
            }
            None => {
                data.insert(change.setting.key.to_owned(), Value::Null);
            }
        }
    }
    let name = at(facts.object, &["metadata", "name"]).and_then(Value::as_str).unwrap_or_default();
    let patch = json!({
        "metadata": {"annotations": {RESTART_REVISION_ANNOTATION: revision(facts, changes)}}, "data": data,
    });
    let rollout =
        facts.running.map_or("deployment -l control-plane=controller-manager", |r| r.rollout.as_str());
    let namespace = shell(facts.namespace);
    format!(
        "kubectl patch configmap {} -n {namespace} --type=merge -p {} && kubectl rollout restart {rollout} -n {namespace}",
        shell(name),
        shell(&patch.to_string()),
    )
}

fn repeated<'t>(text: &'t str, secret: bool, instead: &'t str) -> &'t str {
    if secret || text.chars().count() > MOST_COMMAND_CHARS { instead } else { text }
}

/// A revision that differs from the one before: made from the change itself, since rules know no clock. FNV-1a, whose
/// result is the same in every build, as the rule reference prints it.
fn revision(facts: &MapFacts<'_>, changes: &[Change<'_>]) -> String {
    let before = facts.old.and_then(|old| at(old, &["metadata", "annotations", RESTART_REVISION_ANNOTATION]));
    let running = facts.running.and_then(|r| r.restart_revision.as_deref());
    let mut texts = vec![before.and_then(Value::as_str), running];
    for change in changes {
        texts.extend([Some(change.setting.key), change.new.map(|w| w.text.as_str()), change.old.as_deref()]);
    }
    let bytes = texts.into_iter().flat_map(|text| text.unwrap_or_default().bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
