//! Settings that need a restart: a change would take effect unexpectedly at the next one. The denial shows a command
//! that changes the setting and restarts the controller.

use serde_json::{Map, Value, json};
use wva_crds::digest::fnv1a;
use wva_crds::names::RESTART_REVISION_ANNOTATION;
use wva_crds::settings::map::{ConfigKey, Layout};
use wva_crds::settings::{SETTINGS, Setting, Value as SettingValue};

use crate::facts::Operation;
use crate::maps::facts::{MapFacts, RunningSource, RunningValue};
use crate::maps::main_map::{entry_field, field, quote_redacted};
use crate::maps::{DENY, WARN};
use crate::owner::Owner;
use crate::rule::{Check, Rule};
use crate::text::{quote, shell_quote};
use wva_objects::json::at;

/// Code of a refused change of a setting that needs a restart. A denial with it also creates an event.
pub const IMMUTABLE: &str = "WVA-CM-001";

/// Stands for a value that only the running process knows, which must not be revealed to the caller.
const RUNNING_VALUE: &str = "another value in the running process";

/// Longest value in a command.
const MAX_COMMAND_CHARS: usize = 1000;

pub(crate) const CHANGED: Rule = Rule {
    code: IMMUTABLE,
    message: "changed from {other} to {found}; this setting needs a restart",
    docs: "A setting that needs a restart must not change in the main map, unless the same request changes the annotation \
           `wva.llmd.ai/restart-revision`, which announces a rollout. Parsed values are compared (`60s` equals `1m`), and \
           a missing key has its default. A re-created map is compared with the settings of the running process. The \
           message then has the changed keys but not the values of the process, which are in its log line `Settings in \
           force`.",
    check: Check::ConfigMap(|facts, out| {
        if !facts.is_main() || announces_restart(facts) {
            return;
        }
        let changes = find_changes(facts);
        for change in &changes {
            out.add_at(change.field(), change.new_text(), change.old_text());
        }
        if !changes.is_empty() {
            out.set_remedy(remedy(facts, &changes));
        }
    }),
    ..DENY
};

pub(crate) const AT_RESTART: Rule = Rule {
    code: "WVA-CM-054",
    message: "takes effect at the restart; until then {other}",
    docs: "A setting that needs a restart was changed together with the annotation `wva.llmd.ai/restart-revision`. The new \
           value takes effect when the controller restarts.",
    check: Check::ConfigMap(|facts, out| {
        if facts.is_main() && announces_restart(facts) {
            for change in find_changes(facts).into_iter().filter(|c| !c.is_overridden) {
                out.add_at(change.field(), "", change.old_text());
            }
        }
    }),
    ..WARN
};

struct Change<'f> {
    setting: &'static Setting,
    new: Option<&'f ConfigKey>,
    old: Option<&'f str>,
    /// True if the old value comes from the running process instead of the stored map.
    old_is_running: bool,
    /// True if a flag or environment variable of the process sets the value.
    is_overridden: bool,
}

impl Change<'_> {
    fn field(&self) -> String {
        self.new.map_or_else(|| entry_field(self.setting.key), field)
    }

    fn new_text(&self) -> String {
        describe_value(self.setting, self.new.map(|w| w.text.as_str()))
    }

    fn old_text(&self) -> String {
        if self.old_is_running { RUNNING_VALUE.to_owned() } else { describe_value(self.setting, self.old) }
    }

    /// Old value, if the caller knows it.
    fn known_old(&self) -> Option<&str> {
        self.old.filter(|_| !self.old_is_running)
    }
}

fn describe_value(setting: &Setting, text: Option<&str>) -> String {
    match (text, setting.default) {
        (Some(text), _) => quote_redacted(setting, text),
        (None, Some(default)) if !default.is_empty() => format!("nothing (default {})", quote(default)),
        (None, _) => "nothing".to_owned(),
    }
}

/// Parsed if valid, else text.
#[derive(PartialEq)]
enum Comparable {
    Parsed(SettingValue),
    Text(String),
}

fn comparable(setting: &Setting, text: &str) -> Comparable {
    setting.kind.parse(text).map_or_else(|_| Comparable::Text(text.to_owned()), Comparable::Parsed)
}

fn find_changes<'f>(facts: &'f MapFacts<'_>) -> Vec<Change<'f>> {
    let is_update = facts.operation == Operation::Update;
    let has_reference = if is_update { facts.old.is_some() } else { facts.running.is_some() };
    if !has_reference {
        return Vec::new();
    }
    let new = facts.main_keys();
    let mut changes = Vec::new();
    for setting in SETTINGS.iter().filter(|s| s.in_map && !s.mutable) {
        let running = facts.running.and_then(|r| r.values.get(setting.key));
        let absent_value = absent_value(setting, running);
        // An overridden setting of a new map has no effect. Its change is denied anyway, so that `wva validate`, which
        // knows no process, gives the same verdict.
        let is_overridden = matches!(running, Some(RunningValue { source: RunningSource::Override(_), .. }));
        if is_overridden && !is_update {
            continue;
        }
        let before = facts.old_main_keys().filter(|_| is_update).and_then(|m| m.get(setting.key));
        let from_map = running.filter(|value| !is_update && value.source == RunningSource::Map);
        let old = before.map(|w| w.text.as_str()).or(from_map.map(|value| value.text.as_str()));
        let written = new.get(setting.key);
        // Another rule denies invalid values. The keys of an unreadable `config.yaml` are unknown.
        let is_unknown = new.nested_error.is_some() && before.is_none_or(|w| w.layout == Layout::Nested);
        let is_invalid = written.is_some_and(|w| setting.kind.parse(&w.text).is_err());
        if is_invalid || (written.is_none() && is_unknown) {
            continue;
        }
        let value = |text: Option<&str>| text.or(absent_value).map(|t| comparable(setting, t));
        if value(written.map(|w| w.text.as_str())) != value(old) {
            changes.push(Change { setting, new: written, old, old_is_running: !is_update, is_overridden });
        }
    }
    changes
}

/// Value of a key that is not in the map.
fn absent_value<'f>(setting: &Setting, running: Option<&'f RunningValue>) -> Option<&'f str> {
    match running {
        Some(value) if value.source == RunningSource::File => Some(&value.text),
        _ => setting.default,
    }
}

fn announces_restart(facts: &MapFacts<'_>) -> bool {
    let before = match (facts.operation, facts.old) {
        (Operation::Update, Some(old)) => {
            at(old, &["metadata", "annotations", RESTART_REVISION_ANNOTATION]).and_then(Value::as_str)
        }
        _ => facts.running.and_then(|r| r.restart_revision.as_deref()),
    };
    facts.restart_revision().is_some_and(|now| Some(now) != before)
}

/// Keys and annotation in one request, then the rollout. For a stored map without secrets a `kubectl patch` command,
/// else the annotation to set. For files always the annotation: a pipeline would revert a patch. A map of a release or of Git
/// changes there: after a patch the next upgrade of the release would fail.
fn remedy(facts: &MapFacts<'_>, changes: &[Change<'_>]) -> String {
    let owner = facts.running.and_then(|_| facts.old.and_then(Owner::of).or_else(|| Owner::of(facts.object)));
    if let Some(owner) = owner {
        return owned_remedy(&owner);
    }
    let revision = revision(facts, changes);
    let namespace = shell_quote(facts.namespace);
    let rollout =
        facts.running.map_or("deployment -l control-plane=controller-manager", |r| r.rollout.as_str());
    let restart = format!("kubectl rollout restart {rollout} -n {namespace}");
    let Some(data) = facts.running.and_then(|_| merge_patch(facts)) else {
        return format!(
            "; set annotation {RESTART_REVISION_ANNOTATION}: \"{revision}\" in the same change, then restart: {restart}"
        );
    };
    let patch = json!({"metadata": {"annotations": {RESTART_REVISION_ANNOTATION: revision}}, "data": data});
    format!(
        "; change it and restart: kubectl patch configmap {} -n {namespace} --type=merge -p {} && {restart}",
        shell_quote(facts.name()),
        shell_quote(&to_ascii(&patch.to_string())),
    )
}

/// The rest of a message about a map that a tool owns.
fn owned_remedy(owner: &Owner) -> String {
    let advice = owner.advice();
    if matches!(owner, Owner::Helm(_)) {
        return format!("; {advice}: that sets the annotation too and restarts the pods");
    }
    format!("; {advice}. Set annotation {RESTART_REVISION_ANNOTATION} to a new value in the same change")
}

/// `None` without a stored map, or if a value is too long or may be a secret.
fn merge_patch(facts: &MapFacts<'_>) -> Option<Map<String, Value>> {
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
            let is_public = Setting::by_key(key).is_some_and(|s| s.redact(text) == text);
            // Comments and misspelt keys of `config.yaml` may contain secrets.
            if !is_public || text.chars().count() > MAX_COMMAND_CHARS {
                return None;
            }
        }
        data.insert(key.clone(), now.cloned().unwrap_or(Value::Null));
    }
    Some(data)
}

/// Safe for terminals.
fn to_ascii(json: &str) -> String {
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

/// Derived from the change: rules have no clock. It is stable across builds, because the rule reference shows it.
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
