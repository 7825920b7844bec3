//! Rules without context as CEL for `ValidatingAdmissionPolicy` objects, which apply while no webhook answers. Texts
//! come from the table of rules; only conditions are duplicated. A policy denies nothing that the rules admit: if CEL
//! cannot decide, it admits.

use serde_json::{Value, json};
use wva_crds::names::{
    ACCELERATOR_LABEL, ALLOW_INSTANCE_CHANGE_ANNOTATION, INSTANCE_LABEL, MODE_ANNOTATION,
    RESTART_REVISION_ANNOTATION,
};
use wva_crds::settings::map::NESTED_ENTRY;
use wva_crds::settings::{Kind, SETTINGS, Setting};

use crate::findings::template_parts;
use crate::maps::immutable;
use crate::owner::{Owner, owned_in_cel};
use crate::rule::Rule;
use crate::text::FOUND_CHARS;
use crate::va::{instance, labels};

/// Codes of the rules in the policy for variants.
pub const VARIANT_POLICY_CODES: [&str; 5] = [
    instance::VALUE.code,
    instance::REQUIRED.code,
    instance::CHANGED.code,
    labels::ACCELERATOR_SHORT.code,
    labels::MODE.code,
];

/// Parameters of the policy for variants, as text in its expressions. The chart has placeholders there.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInstance<'a> {
    /// `CONTROLLER_INSTANCE`, possibly empty.
    pub instance: &'a str,
    /// `WVA_INSTANCE_POLICY`.
    pub instance_policy: &'a str,
    /// `one` if the controller watches one namespace, which then belongs to it; else `all`.
    pub namespaces: &'a str,
}

struct CelRule {
    rule: &'static Rule,
    /// Prefix of the variables.
    name: &'static str,
    /// True if the object violates the rule.
    is_violated: String,
    /// CEL expressions of `{found}` and `{other}`.
    found: String,
    other: String,
}

/// Match conditions, variables and validations for a `VariantAutoscaling`.
#[must_use]
pub fn variant_policy(instance: PolicyInstance<'_>) -> Value {
    // A list with one text, or empty if the key is missing.
    let mut variables = Vec::new();
    for (name, field, key) in [
        ("instance", "labels", INSTANCE_LABEL),
        ("accelerator", "labels", ACCELERATOR_LABEL),
        ("mode", "annotations", MODE_ANNOTATION),
        ("move", "annotations", ALLOW_INSTANCE_CHANGE_ANNOTATION),
    ] {
        for (side, object) in [("now", "object"), ("before", "oldObject")] {
            let CelEntry { is_present, value } = entry(object, field, key);
            let is_present = format!("{object} != null && {is_present}");
            variables.push(json!({
                "name": format!("{name}_{side}"), "expression": format!("{is_present} ? [{value}] : []"),
            }));
        }
    }
    let validations: Vec<Value> = variant_rules(instance).iter().map(CelRule::validation).collect();
    json!({
        "matchConditions": [{"name": "is-of-this-controller", "expression": is_of_controller(instance.instance)}],
        "variables": variables,
        "validations": validations,
    })
}

/// True without the instance label, or with that of its instance before or after the update.
fn is_of_controller(instance: &str) -> String {
    let instance = literal(instance);
    let CelEntry { is_present: is_now, value: now } = entry("object", "labels", INSTANCE_LABEL);
    let CelEntry { is_present: was, value: before } = entry("oldObject", "labels", INSTANCE_LABEL);
    format!(
        "!({is_now}) || {now} in ['', {instance}] || ({instance} != '' && oldObject != null && {was} && {before} == \
         {instance})"
    )
}

struct CelEntry {
    is_present: String,
    value: String,
}

/// A label or annotation may be null after a server-side apply.
fn entry(object: &str, field: &str, key: &str) -> CelEntry {
    let (map, key) = (format!("{object}.metadata.{field}"), literal(key));
    let value = format!("{map}[{key}]");
    CelEntry {
        is_present: format!("has({map}) && {map} != null && {key} in {map} && {value} != null"),
        value,
    }
}

fn variant_rules(instance: PolicyInstance<'_>) -> Vec<CelRule> {
    let [value, required, changed] = instance_rules(instance);
    let accelerator = CelRule {
        rule: &labels::ACCELERATOR_SHORT,
        name: "accelerator",
        is_violated: "variables.accelerator_now.exists(a, size(a) < 2)".to_owned(),
        found: quoted("variables.accelerator_now"),
        other: literal(""),
    };
    let mode = CelRule {
        rule: &labels::MODE,
        name: "mode",
        is_violated: "variables.mode_now.exists(m, !(m in ['auto', 'recommend', 'paused'] || \
                 (m.matches('^fixed=0*[0-9]{1,10}$') && int(m.substring(6)) <= 2147483647)))"
            .to_owned(),
        found: quoted("variables.mode_now"),
        other: literal(""),
    };
    vec![value, required, changed, accelerator, mode]
}

fn instance_rules(parameters: PolicyInstance<'_>) -> [CelRule; 3] {
    let (instance, key) = (literal(parameters.instance), literal(INSTANCE_LABEL));
    let own_namespace = format!(
        "{} == 'one' || (has(namespaceObject.metadata.labels) && {key} in namespaceObject.metadata.labels && \
         namespaceObject.metadata.labels[{key}] == {instance})",
        literal(parameters.namespaces)
    );
    let requires = format!("{instance} != '' && {} == 'require'", literal(parameters.instance_policy));
    let rule = |rule, is_violated: String, found, other| CelRule {
        rule,
        name: "instance",
        is_violated,
        found,
        other,
    };
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
            literal(""),
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
        let Self { rule, name, is_violated, found, other } = self;
        let is_unchanged = format!("oldObject != null && variables.{name}_now == variables.{name}_before");
        json!({
            "expression": format!("!({is_violated}) || ({is_unchanged})"),
            "messageExpression": message(rule, found, other),
            "message": format!("{}: [{}] {}", rule.field, rule.code, rule.docs),
        })
    }
}

/// Policy for an update of the main map.
#[must_use]
pub fn main_map_policy() -> Value {
    let revision = literal(RESTART_REVISION_ANNOTATION);
    let has_revision = |object: &str| {
        format!("has({object}.metadata.annotations) && {revision} in {object}.metadata.annotations")
    };
    let is_unannounced = format!(
        "!({}) || ({} && object.metadata.annotations[{revision}] == oldObject.metadata.annotations[{revision}])",
        has_revision("object"),
        has_revision("oldObject"),
    );
    let data = |object: &str| format!("has({object}.data) ? {object}.data : {{}}");
    json!({
        "matchConditions": [{"name": "restart-is-not-stated", "expression": is_unannounced}],
        "variables": [
            {"name": "now", "expression": data("object")},
            {"name": "before", "expression": data("oldObject")},
            {"name": "settings", "expression": settings_list()},
            {"name": "written", "expression": written_values()},
            {"name": "values", "expression": effective_values()},
            {"name": "changed", "expression": format!("variables.values.filter(v, {})", is_changed())},
        ],
        "validations": [{
            "expression": "size(variables.changed) == 0",
            "messageExpression": format!("variables.changed.map(v, {}).join('; ') + {}", change_message(), remedy()),
            "message": format!(
                "{}: [{}] changed settings need a restart; change them where the map comes from, or set annotation {} in \
                 the same change and restart the controller",
                immutable::CHANGED.field, immutable::CHANGED.code, RESTART_REVISION_ANNOTATION
            ),
        }],
    })
}

/// Longest searched entry `config.yaml`. The webhook covers longer ones.
const MAX_SEARCHED_CHARS: usize = 8192;

fn settings_list() -> String {
    let row = |setting: &Setting| {
        let old = setting.old_keys().next().unwrap_or_default();
        format!(
            "{{'key': {}, 'old': {}, 'kind': '{}', 'default': {}}}",
            literal(setting.key),
            literal(old),
            comparison_kind(setting),
            literal(setting.default.unwrap_or_default())
        )
    };
    let rows: Vec<String> = SETTINGS.iter().filter(|s| s.in_map && !s.mutable).map(row).collect();
    format!("[{}]", rows.join(", "))
}

/// How values are compared and shown.
fn comparison_kind(setting: &Setting) -> &'static str {
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

/// Flat keys before and now. Omits settings that `config.yaml` may contain, because CEL cannot parse YAML.
fn written_values() -> String {
    let text = |map: &str| {
        format!(
            "(s.key in variables.{map} && variables.{map}[s.key] != '' ? variables.{map}[s.key] : \
             s.old in variables.{map} ? variables.{map}[s.old] : '')"
        )
    };
    let nested = literal(NESTED_ENTRY);
    let is_known = |map: &str| {
        let entry = format!("variables.{map}[{nested}]");
        format!(
            "({} != '' || !({nested} in variables.{map} && (size({entry}) > {MAX_SEARCHED_CHARS} || {entry}.contains(s.key) || (s.old != '' && \
             {entry}.contains(s.old)))))",
            text(map)
        )
    };
    format!(
        "variables.settings.filter(s, {} && {}).map(s, {{'key': s.key in variables.now || !(s.old in variables.now) ? \
         s.key : s.old, 'kind': s.kind, 'default': s.default, 'now': string{}, 'before': string{}}})",
        is_known("now"),
        is_known("before"),
        text("now"),
        text("before")
    )
}

/// Missing keys get their defaults. Booleans and addresses are normalised.
fn effective_values() -> String {
    let effective = |side: &str| format!("(w.{side} == '' ? w.default : w.{side})");
    let normalised = |side: &str| {
        let value = effective(side);
        format!(
            "(w.kind == 'bool' ? ({value} in ['1', 't', 'T', 'true', 'TRUE', 'True'] ? 'true' : {value} in ['0', 'f', \
             'F', 'false', 'FALSE', 'False'] ? 'false' : {value}) : w.kind in ['secret', 'trimmed'] ? {value}.trim() : w.kind != 'address' ? {value} : \
             {value}.startsWith(':') ? '[::]' + {value} : {value}.replace('localhost:', '127.0.0.1:', 1))"
        )
    };
    format!(
        "variables.written.map(w, {{'key': w.key, 'kind': w.kind, 'default': w.default, 'now': w.now, 'before': \
         w.before, 'a': {}, 'b': {}}})",
        normalised("before"),
        normalised("now")
    )
}

/// Whether the values before and now differ as parsed values: `60s` equals `1m`. Values that CEL might fail to parse are
/// compared as text. IPv6 addresses are compared by port only.
fn is_changed() -> String {
    const INT: &str = "^[+-]?0*[0-9]{1,18}$";
    // Few digits, so that eight parts stay below the maximum duration.
    const DURATION: &str = "^[+-]?(0|((0*[0-9]{1,5}([.][0-9]*)?|[.][0-9]+)h|(0*[0-9]{1,7}([.][0-9]*)?|[.][0-9]+)m|\
        (0*[0-9]{1,9}([.][0-9]*)?|[.][0-9]+)s|(0*[0-9]{1,12}([.][0-9]*)?|[.][0-9]+)ms|\
        (0*[0-9]{1,15}([.][0-9]*)?|[.][0-9]+)(us|\u{b5}s|\u{3bc}s)|(0*[0-9]{1,18}([.][0-9]*)?|[.][0-9]+)ns){1,8})$";
    const IPV6: &str = "^\\[.*\\]:[0-9]+$";
    let both_match = |form: &str| format!("v.a.matches({0}) && v.b.matches({0})", literal(form));
    let port = |side: &str| format!("v.{side}.substring(v.{side}.lastIndexOf(':'))");
    format!(
        "v.kind == 'int' && {} ? int(v.a) != int(v.b) : v.kind == 'duration' && {} ? duration(v.a) != duration(v.b) : \
         v.kind == 'address' && {} ? {} != {} : v.a != v.b",
        both_match(INT),
        both_match(DURATION),
        both_match(IPV6),
        port("a"),
        port("b")
    )
}

fn change_message() -> String {
    let describe = |side: &str| {
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
        fill_template(rule.message, &describe("now"), &describe("before"))
    )
}

/// Where to change the map, as the webhook says it, by what the map itself tells about its owner. `resourceVersion` of the
/// stored map is the new revision.
fn remedy() -> String {
    let [git, helm] = owned_in_cel("oldObject");
    format!(
        "({git} ? {} : {helm} ? {} : {} + oldObject.metadata.resourceVersion + {} + request.namespace)",
        literal(&immutable::owned_remedy(&Owner::Git)),
        literal(&immutable::owned_remedy(&Owner::Helm(None))),
        literal(&format!("; set annotation {RESTART_REVISION_ANNOTATION}: \"")),
        literal(
            "\" in the same change, then restart: kubectl rollout restart deployment -l \
             control-plane=controller-manager -n "
        )
    )
}

fn message(rule: &Rule, found: &str, other: &str) -> String {
    let prefix = literal(&format!("{}: [{}] ", rule.field, rule.code));
    format!("{prefix} + {}", fill_template(rule.message, found, other))
}

fn fill_template(text: &str, found: &str, other: &str) -> String {
    template_parts(text, literal, found, other).join(" + ")
}

/// The text in a list, quoted and shortened as in messages.
fn quoted(list: &str) -> String {
    let kept_chars = FOUND_CHARS - 3;
    format!(
        "{list}.map(t, strings.quote(size(t) > {FOUND_CHARS} ? t.substring(0, {kept_chars}) + '...' : t)).join('')"
    )
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Scope;
    use crate::table::RULES;

    #[test]
    fn policies_have_rules_without_context() {
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
        assert!(SETTINGS.iter().all(|s| s.old_keys().count() <= 1), "the policy reads only one");
    }

    #[test]
    fn escapes_literals() {
        assert_eq!(literal("a'b\\c"), r"'a\'b\\c'");
        assert_eq!(fill_template("x {found}, {other}.", "f", "o"), "'x ' + f + ', ' + o + '.'");
    }
}
