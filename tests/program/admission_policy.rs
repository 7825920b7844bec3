//! The admission policies of the chart against the rules: codes, texts and settings. The end-to-end tests of admission
//! compare the verdicts on the API server.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wva_crds::names::RESTART_REVISION_ANNOTATION;
use wva_crds::settings::SETTINGS;
use wva_crds::text::FOUND_CHARS;
use wva_rules::{IMMUTABLE, InstancePolicy, Owner, RULES, Rule, Scope};
use wva_webhook::registration::{
    ConfigurationOptions, ENTRIES, FailurePolicy, Subject, render_configurations,
};

const FILE: &str = include_str!("../../charts/workload-variant-autoscaler/files/admission-policy.yaml");

fn policies() -> Value {
    serde_saphyr::from_str(FILE).unwrap()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

/// Validations by the code of their rule.
fn validations(part: &str) -> BTreeMap<String, Value> {
    let all = policies()[part]["validations"].as_array().cloned().unwrap();
    let by_code = all.into_iter().map(|validation| {
        let code = text(&validation, "message").split(['[', ']']).find(|word| word.starts_with("WVA-"));
        (code.unwrap().to_owned(), validation)
    });
    by_code.collect()
}

/// A rule that needs no other object and denies.
fn rule(code: &str) -> &'static Rule {
    let rule = RULES.iter().find(|rule| rule.code == code).unwrap();
    assert_eq!((rule.kind, rule.scope), (wva_rules::Kind::Deny, Scope::Object), "{code}");
    rule
}

/// Asserts that the texts are in `expression`, in their order.
#[track_caller]
fn assert_in_order(expression: &str, texts: &[&str]) {
    let mut rest = expression;
    for text in texts {
        rest = rest.split_once(text).unwrap_or_else(|| panic!("{text:?} is not in {rest:?}")).1;
    }
}

#[test]
fn policy_for_variants_has_the_texts_of_its_rules() {
    let validations = validations("variants");
    let codes: Vec<&str> = validations.keys().map(String::as_str).collect();
    assert_eq!(codes, ["WVA-VA-012", "WVA-VA-013", "WVA-VA-014", "WVA-VA-016", "WVA-VA-017"]);
    for (code, validation) in &validations {
        let rule = rule(code);
        let prefix = format!("{}: [{code}] ", rule.field);
        let message = rule.message.replace("{other}", "{found}");
        if validation["messageExpression"].is_null() {
            // One violation has one value.
            let value = if *code == "WVA-VA-012" { "\"\"" } else { "\"$(instance)\"" };
            assert_eq!(text(validation, "message"), format!("{prefix}{}", message.replace("{found}", value)));
        } else {
            assert_eq!(text(validation, "message"), format!("{prefix}{}", rule.docs));
            let (first, rest) = message.split_once("{found}").unwrap();
            let texts: Vec<String> = std::iter::once(format!("'{prefix}{first}'"))
                .chain(rest.split("{found}").map(|part| format!("'{part}'")))
                .collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            assert_in_order(text(validation, "messageExpression"), &texts);
        }
    }
}

#[test]
fn policy_for_the_main_map_has_the_texts_of_its_rule() {
    let validations = validations("mainMap");
    assert!(validations.keys().eq([IMMUTABLE]));
    let (rule, expression) = (rule(IMMUTABLE), text(&validations[IMMUTABLE], "messageExpression"));
    assert_eq!(rule.message, "changed from {other} to {found}; this setting needs a restart");
    let prefix = format!("': [{IMMUTABLE}] changed from '");
    assert_in_order(expression, &["'data.' + w.key", &prefix, "' to '", "'; this setting needs a restart'"]);
    // A URL with `@` may have a password.
    let secret = SETTINGS.iter().find(|setting| setting.secret).unwrap().redact("x");
    assert_in_order(
        expression,
        &["w.kind == 'secret'", &secret, "w.kind == 'url' && t.contains('@')", "strings.quote("],
    );
    let git = Owner::ArgoCd(None).advice().replace("its application of Argo CD", "the tool that applies it");
    let helm = Owner::Helm(None).advice();
    let annotation = format!("; set annotation {RESTART_REVISION_ANNOTATION}: \"'");
    assert_in_order(expression, &[&git, RESTART_REVISION_ANNOTATION, &helm, &annotation]);
}

/// As messages of the rules do.
#[test]
fn policies_shorten_values() {
    let shortened = format!("size(t) > {FOUND_CHARS} ? t.substring(0, {}) + '...' : t", FOUND_CHARS - 3);
    assert_eq!(FILE.matches("size(t)").count(), FILE.matches(&shortened).count());
}

#[test]
fn policies_judge_what_the_webhooks_judge() {
    let policies = policies();
    let rules = |subject| ENTRIES.iter().find(|entry| entry.subject == subject).unwrap().rules();
    let mut of_main_map = rules(Subject::MainConfigMap);
    of_main_map[0]["operations"] = json!(["UPDATE"]);
    of_main_map[0]["resourceNames"] = json!(["$(mainMap)"]);
    assert_eq!(policies["variants"]["matchConstraints"]["resourceRules"], rules(Subject::Variants));
    assert_eq!(policies["mainMap"]["matchConstraints"]["resourceRules"], of_main_map);
    let options = ConfigurationOptions {
        name: "",
        service: "",
        namespace: "",
        instance: None,
        policy: InstancePolicy::Inject,
        watch_namespace: None,
        variants: FailurePolicy::Fail,
        config_maps: FailurePolicy::Fail,
        main_config_map: "",
        entry_config_maps: &[],
    };
    let of_webhook = &render_configurations(&options)["items"][1]["webhooks"][0]["matchConditions"][0];
    let of_policy = &policies["variants"]["matchConditions"][1];
    let without_spaces =
        |condition: &Value| text(condition, "expression").split_whitespace().collect::<Vec<_>>().concat();
    assert_eq!(of_policy["name"], of_webhook["name"]);
    assert_eq!(without_spaces(of_policy), without_spaces(of_webhook));
}
