//! The rules that CEL can say without any context, as parts of `ValidatingAdmissionPolicy` objects: the API server
//! evaluates them by itself, so they hold while no replica answers. Codes, fields, texts and what an update
//! leaves alone come from the table of rules; only the conditions are written a second time, in CEL. A policy refuses
//! nothing that the rules admit: where CEL cannot know, it admits.

use serde_json::{Value, json};
use wva_crds::names::{
    ACCELERATOR_LABEL, ALLOW_INSTANCE_CHANGE_ANNOTATION, INSTANCE_LABEL, MODE_ANNOTATION,
    RESTART_REVISION_ANNOTATION,
};
use wva_crds::settings::map::NESTED_ENTRY;
use wva_crds::settings::{Kind, SETTINGS, Setting};

use crate::findings::parts;
use crate::maps::immutable;
use crate::rule::Rule;
use crate::text::FOUND_CHARS;
use crate::va::{instance, labels};

/// Codes that the policy for variants refuses.
pub const VARIANT_POLICY_CODES: [&str; 5] = [
    instance::VALUE.code,
    instance::REQUIRED.code,
    instance::CHANGED.code,
    labels::ACCELERATOR_SHORT.code,
    labels::MODE.code,
];

/// What the policy for variants depends on, as texts that stand in its expressions. A template has placeholders there.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInstance<'a> {
    /// `CONTROLLER_INSTANCE`; empty for none.
    pub instance: &'a str,
    /// `WVA_INSTANCE_POLICY`.
    pub instance_policy: &'a str,
    /// `one` where the controller watches one namespace, which is its own; else `all`.
    pub namespaces: &'a str,
}

/// One rule as CEL.
struct CelRule {
    rule: &'static Rule,
    /// The variables that hold what the rule reads.
    name: &'static str,
    /// True where the object breaks the rule.
    broken: String,
    /// The texts for `{found}` and `{other}`.
    found: String,
    other: String,
}

/// Conditions, variables and validations for a `VariantAutoscaling`. The webhook's own match condition comes on top.
#[must_use]
pub fn variant_policy(of: PolicyInstance<'_>) -> Value {
    // Lists of one text, or of none where the key is absent.
    let mut variables = Vec::new();
    for (name, field, key) in [
        ("instance", "labels", INSTANCE_LABEL),
        ("accelerator", "labels", ACCELERATOR_LABEL),
        ("mode", "annotations", MODE_ANNOTATION),
        ("move", "annotations", ALLOW_INSTANCE_CHANGE_ANNOTATION),
    ] {
        for (side, object) in [("now", "object"), ("before", "oldObject")] {
            let CelEntry { is_there, value } = entry(object, field, key);
            let there = format!("{object} != null && {is_there}");
            variables.push(json!({
                "name": format!("{name}_{side}"), "expression": format!("{there} ? [{value}] : []"),
            }));
        }
    }
    let validations: Vec<Value> = variant_rules(of).iter().map(CelRule::validation).collect();
    json!({
        "matchConditions": [{"name": "is-of-this-controller", "expression": judged(of.instance)}],
        "variables": variables,
        "validations": validations,
    })
}

/// The objects that the controller judges: without a label, or of its instance before the update or after it.
fn judged(instance: &str) -> String {
    let instance = literal(instance);
    let CelEntry { is_there: is_now, value: now } = entry("object", "labels", INSTANCE_LABEL);
    let CelEntry { is_there: was, value: before } = entry("oldObject", "labels", INSTANCE_LABEL);
    format!(
        "!({is_now}) || {now} in ['', {instance}] || ({instance} != '' && oldObject != null && {was} && {before} == \
         {instance})"
    )
}

/// A label or an annotation of an object, in CEL.
struct CelEntry {
    /// Whether the object has it.
    is_there: String,
    value: String,
}

/// Server-side apply leaves nulls where they are.
fn entry(object: &str, field: &str, key: &str) -> CelEntry {
    let (map, key) = (format!("{object}.metadata.{field}"), literal(key));
    let value = format!("{map}[{key}]");
    CelEntry { is_there: format!("has({map}) && {map} != null && {key} in {map} && {value} != null"), value }
}

fn variant_rules(of: PolicyInstance<'_>) -> Vec<CelRule> {
    let [value, required, changed] = instance_rules(of);
    let accelerator = CelRule {
        rule: &labels::ACCELERATOR_SHORT,
        name: "accelerator",
        broken: "variables.accelerator_now.exists(a, size(a) < 2)".to_owned(),
        found: quoted("variables.accelerator_now"),
        other: literal(""),
    };
    let mode = CelRule {
        rule: &labels::MODE,
        name: "mode",
        broken: "variables.mode_now.exists(m, !(m in ['auto', 'recommend', 'paused'] || \
                 (m.matches('^fixed=0*[0-9]{1,10}$') && int(m.substring(6)) <= 2147483647)))"
            .to_owned(),
        found: quoted("variables.mode_now"),
        other: literal(""),
    };
    vec![value, required, changed, accelerator, mode]
}

/// The rules about the label of the controller instance.
fn instance_rules(of: PolicyInstance<'_>) -> [CelRule; 3] {
    let (instance, key) = (literal(of.instance), literal(INSTANCE_LABEL));
    let own_namespace = format!(
        "{} == 'one' || (has(namespaceObject.metadata.labels) && {key} in namespaceObject.metadata.labels && \
         namespaceObject.metadata.labels[{key}] == {instance})",
        literal(of.namespaces)
    );
    let requires = format!("{instance} != '' && {} == 'require'", literal(of.instance_policy));
    let rule = |rule, broken: String, found, other| CelRule { rule, name: "instance", broken, found, other };
    [
        rule(
            &instance::VALUE,
            "variables.instance_now == ['']".to_owned(),
            quoted("variables.instance_now"),
            literal(""),
        ),
        rule(
            &instance::REQUIRED,
            format!("{requires} && variables.instance_now == [] && ({own_namespace})"),
            literal("nothing"),
            quoted(&format!("[{instance}]")),
        ),
        rule(
            &instance::CHANGED,
            "variables.instance_before != [] && variables.instance_before != [''] && variables.instance_now != variables.instance_before && \
             (variables.move_now != ['true'] || variables.move_before == ['true'])"
                .to_owned(),
            format!("(variables.instance_now == [] ? 'nothing' : {})", quoted("variables.instance_now")),
            quoted("variables.instance_before"),
        ),
    ]
}

impl CelRule {
    fn validation(&self) -> Value {
        let Self { rule, name, broken, found, other } = self;
        let untouched = format!("oldObject != null && variables.{name}_now == variables.{name}_before");
        json!({
            "expression": format!("!({broken}) || ({untouched})"),
            "messageExpression": message(rule, found, other),
            "message": format!("{}: [{}] {}", rule.field, rule.code, rule.docs),
        })
    }
}

/// Conditions, variables and validations for an update of the main map.
#[must_use]
pub fn main_map_policy() -> Value {
    let revision = literal(RESTART_REVISION_ANNOTATION);
    let annotated = |object: &str| {
        format!("has({object}.metadata.annotations) && {revision} in {object}.metadata.annotations")
    };
    let unstated = format!(
        "!({}) || ({} && object.metadata.annotations[{revision}] == oldObject.metadata.annotations[{revision}])",
        annotated("object"),
        annotated("oldObject"),
    );
    let data = |object: &str| format!("has({object}.data) ? {object}.data : {{}}");
    json!({
        "matchConditions": [{"name": "restart-is-not-stated", "expression": unstated}],
        "variables": [
            {"name": "now", "expression": data("object")},
            {"name": "before", "expression": data("oldObject")},
            {"name": "settings", "expression": settings()},
            {"name": "written", "expression": written()},
            {"name": "values", "expression": values()},
            {"name": "changed", "expression": format!("variables.values.filter(v, {})", differs())},
        ],
        "validations": [{
            "expression": "size(variables.changed) == 0",
            "messageExpression": format!("variables.changed.map(v, {}).join('; ') + {}", change(), remedy()),
            "message": format!(
                "{}: [{}] settings that are read at the start alone were changed: set annotation {} in the same \
                 change, and restart the controller",
                immutable::CHANGED.field, immutable::CHANGED.code, RESTART_REVISION_ANNOTATION
            ),
        }],
    })
}

/// Characters of the entry `config.yaml` that CEL searches for keys: its cost is bounded, and a search costs by length. Keys
/// that only a longer one may mention are left to the webhook.
const SEARCHED: usize = 8192;

/// The settings that need a restart, as a list of maps.
fn settings() -> String {
    let row = |setting: &Setting| {
        let old = setting.old_keys().next().unwrap_or_default();
        format!(
            "{{'key': {}, 'old': {}, 'kind': '{}', 'default': {}}}",
            literal(setting.key),
            literal(old),
            kind(setting),
            literal(setting.default.unwrap_or_default())
        )
    };
    let rows: Vec<String> = SETTINGS.iter().filter(|s| s.in_map && !s.mutable).map(row).collect();
    format!("[{}]", rows.join(", "))
}

/// How values are compared and shown.
fn kind(setting: &Setting) -> &'static str {
    match setting.kind {
        _ if setting.secret => "secret",
        Kind::Bool => "bool",
        Kind::Int { .. } => "int",
        Kind::Duration { .. } => "duration",
        Kind::Address | Kind::LoopbackAddress => "address",
        Kind::Url => "url",
        Kind::Matchers => "trimmed",
        _ => "text",
    }
}

/// Each setting with the text of its flat key before and now, empty where it has none. A setting that the entry
/// `config.yaml` may hold is left out: CEL reads no YAML.
fn written() -> String {
    let text = |map: &str| {
        format!(
            "(s.key in variables.{map} && variables.{map}[s.key] != '' ? variables.{map}[s.key] : \
             s.old in variables.{map} ? variables.{map}[s.old] : '')"
        )
    };
    let nested = literal(NESTED_ENTRY);
    let known = |map: &str| {
        let entry = format!("variables.{map}[{nested}]");
        format!(
            "({} != '' || !({nested} in variables.{map} && (size({entry}) > {SEARCHED} || {entry}.contains(s.key) || (s.old != '' && \
             {entry}.contains(s.old)))))",
            text(map)
        )
    };
    format!(
        "variables.settings.filter(s, {} && {}).map(s, {{'key': s.key in variables.now || !(s.old in variables.now) ? \
         s.key : s.old, 'kind': s.kind, 'default': s.default, 'now': string{}, 'before': string{}}})",
        known("now"),
        known("before"),
        text("now"),
        text("before")
    )
}

/// The same with what holds: a key without a text has its default. Booleans and addresses are in one spelling.
fn values() -> String {
    let held = |side: &str| format!("(w.{side} == '' ? w.default : w.{side})");
    let one_spelling = |side: &str| {
        let held = held(side);
        format!(
            "(w.kind == 'bool' ? ({held} in ['1', 't', 'T', 'true', 'TRUE', 'True'] ? 'true' : {held} in ['0', 'f', \
             'F', 'false', 'FALSE', 'False'] ? 'false' : {held}) : w.kind in ['secret', 'trimmed'] ? {held}.trim() : w.kind != 'address' ? {held} : \
             {held}.startsWith(':') ? '[::]' + {held} : {held}.replace('localhost:', '127.0.0.1:', 1))"
        )
    };
    format!(
        "variables.written.map(w, {{'key': w.key, 'kind': w.kind, 'default': w.default, 'now': w.now, 'before': \
         w.before, 'a': {}, 'b': {}}})",
        one_spelling("before"),
        one_spelling("now")
    )
}

/// Whether the values before and now differ, compared parsed as the rule does: `60s` is `1m`. What CEL could fail to
/// parse is compared as text; two spellings of one IPv6 address count as equal.
fn differs() -> String {
    const INT: &str = "^[+-]?0*[0-9]{1,18}$";
    // So few digits that eight parts stay below the longest duration.
    const DURATION: &str = "^[+-]?(0|((0*[0-9]{1,5}([.][0-9]*)?|[.][0-9]+)h|(0*[0-9]{1,7}([.][0-9]*)?|[.][0-9]+)m|\
        (0*[0-9]{1,9}([.][0-9]*)?|[.][0-9]+)s|(0*[0-9]{1,12}([.][0-9]*)?|[.][0-9]+)ms|\
        (0*[0-9]{1,15}([.][0-9]*)?|[.][0-9]+)(us|\u{b5}s|\u{3bc}s)|(0*[0-9]{1,18}([.][0-9]*)?|[.][0-9]+)ns){1,8})$";
    const IPV6: &str = "^\\[.*\\]:[0-9]+$";
    let both = |form: &str| format!("v.a.matches({0}) && v.b.matches({0})", literal(form));
    let port = |side: &str| format!("v.{side}.substring(v.{side}.lastIndexOf(':'))");
    format!(
        "v.kind == 'int' && {} ? int(v.a) != int(v.b) : v.kind == 'duration' && {} ? duration(v.a) != duration(v.b) : \
         v.kind == 'address' && {} ? {} != {} : v.a != v.b",
        both(INT),
        both(DURATION),
        both(IPV6),
        port("a"),
        port("b")
    )
}

/// One change as the webhook tells it.
fn change() -> String {
    let shown = |side: &str| {
        let text = format!("v.{side}");
        format!(
            "({text} == '' ? 'nothing' + (v.default == '' ? '' : ' (default ' + {} + ')') : v.kind == 'secret' ? \
             '(a secret)' : v.kind == 'url' && {text}.contains('@') ? '(a URL with a password)' : {})",
            quoted("[v.default]"),
            quoted(&format!("[{text}]"))
        )
    };
    let rule = &immutable::CHANGED;
    format!(
        "'{}.' + v.key + ': [{}] ' + {}",
        rule.field,
        rule.code,
        filled(rule.message, &shown("now"), &shown("before"))
    )
}

/// What to do, as the webhook tells it where it knows no process. The version of the stored map is a new revision.
fn remedy() -> String {
    format!(
        "{} + oldObject.metadata.resourceVersion + {} + request.namespace",
        literal(&format!("; set annotation {RESTART_REVISION_ANNOTATION}: \"")),
        literal(
            "\" in the same change, and restart with it: kubectl rollout restart deployment -l \
             control-plane=controller-manager -n "
        )
    )
}

/// The message of a rule, behind field and code.
fn message(rule: &Rule, found: &str, other: &str) -> String {
    let prefix = literal(&format!("{}: [{}] ", rule.field, rule.code));
    format!("{prefix} + {}", filled(rule.message, found, other))
}

/// A rule's text with `{found}` and `{other}` as CEL.
fn filled(text: &str, found: &str, other: &str) -> String {
    parts(text, literal, found, other).join(" + ")
}

/// The text in a list in double quotes, escaped, and cut off as messages do.
fn quoted(list: &str) -> String {
    let kept = FOUND_CHARS - 3;
    format!(
        "{list}.map(t, strings.quote(size(t) > {FOUND_CHARS} ? t.substring(0, {kept}) + '...' : t)).join('')"
    )
}

/// A text as a CEL literal.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Scope;
    use crate::table::RULES;

    #[test]
    fn policies_cover_rules_without_context() {
        let rules =
            variant_rules(PolicyInstance { instance: "a", instance_policy: "require", namespaces: "all" });
        let codes: Vec<&str> = rules.iter().map(|r| r.rule.code).collect();
        assert_eq!(codes, VARIANT_POLICY_CODES);
        for rule in rules.iter().map(|r| r.rule).chain([&immutable::CHANGED]) {
            let row = RULES.iter().find(|row| row.code == rule.code).map(|row| (row.kind, row.scope));
            assert_eq!(row, Some((crate::Kind::Deny, Scope::Object)), "{}", rule.code);
        }
    }

    #[test]
    fn settings_have_at_most_one_old_key() {
        assert!(SETTINGS.iter().all(|s| s.old_keys().count() <= 1), "the policy reads one");
    }

    #[test]
    fn literals_are_escaped() {
        assert_eq!(literal("a'b\\c"), r"'a\'b\\c'");
        assert_eq!(filled("x {found}, {other}.", "f", "o"), "'x ' + f + ', ' + o + '.'");
    }
}
