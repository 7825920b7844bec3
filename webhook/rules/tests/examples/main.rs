//! Examples of the rules. The rule reports nothing for the accepted object and its violation for the other one. An update
//! that leaves the violation unchanged causes only a warning.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod example;

use std::collections::BTreeSet;

use example::{Example, Outcome, folder, object};
use serde_json::{Value, json};
use wva_crds::names::{KIND, SERVICE_CLASS_MAP_NAME};
use wva_rules::{Kind, RULES, Rule, Severity, Verdict};

/// Code of unreadable files, which is not a rule. The rule reference tests its example with `wva validate`.
const FILE_CODE: &str = "WVA-FILE-001";

fn codes(verdict: &Verdict, severity: Severity) -> BTreeSet<&str> {
    verdict.violations.iter().filter(|v| v.severity == severity).map(|v| v.code).collect()
}

#[track_caller]
fn check(rule: &Rule, example: &Example) {
    let code = rule.code;
    let (accepted, shown) = example.verdicts();
    assert!(accepted.violations.is_empty(), "{code}: the accepted example has violations: {accepted:#?}");
    let (outcome, _) = example.violation();
    let is_sentence = |text: &str| text.trim_end().ends_with('.');
    assert!(!is_sentence(&example.title), "{code}: a title must not be a sentence");
    assert!(example.exception.is_empty() || is_sentence(&example.exception), "{code}: {}", example.exception);
    let is_for_files = rule.docs.contains("`wva validate`");
    assert_eq!(example.only_in_files, is_for_files, "{code}: rule and example must agree");

    let only_this = BTreeSet::from([code]);
    let (wanted, denied, warned) = match rule.kind {
        Kind::Deny => (Outcome::Denied, only_this, BTreeSet::new()),
        Kind::Warn => (Outcome::Warned, BTreeSet::new(), only_this),
        Kind::Mutate => (Outcome::Completed, BTreeSet::new(), BTreeSet::new()),
    };
    assert_eq!(codes(&shown, Severity::Deny), denied, "{code}: {shown:#?}");
    assert_eq!(codes(&shown, Severity::Warn), warned, "{code}: {shown:#?}");
    assert_eq!(outcome, wanted, "{code}: outcome of the example");
    assert!(accepted.patch.is_empty(), "{code}: the accepted example must be complete");
    assert_eq!(shown.patch.is_empty(), rule.kind != Kind::Mutate, "{code}: {shown:#?}");
    assert_not_cut(&shown);
}

#[test]
fn each_rule_has_an_example() {
    let files: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let rules: BTreeSet<String> =
        RULES.iter().map(|r| r.code).chain([FILE_CODE]).map(str::to_owned).collect();
    assert_eq!(files, rules);
}

#[test]
fn examples_have_the_expected_verdicts() {
    for rule in RULES {
        check(rule, &Example::load(rule.code));
    }
}

/// The denied object with a change in a field that its rule does not read.
fn change_elsewhere(rule: &Rule, denied: &Value) -> Value {
    let mut object = denied.clone();
    if object["kind"] == KIND {
        let about_spec = rule.reads.iter().any(|path| path[0] == "spec");
        let (pointer, key) =
            if about_spec { ("labels", "team") } else { ("annotations", "wva.llmd.ai/allow-shared-target") };
        if rule.code == "WVA-VA-020" {
            object["spec"]["variantCost"] = json!("35");
        } else {
            object["metadata"][pointer][key] = json!("true");
        }
    } else {
        let is_of_classes = object["metadata"]["name"] == SERVICE_CLASS_MAP_NAME;
        let other =
            if is_of_classes { "{name: Other, priority: 9, data: []}" } else { "model_id: another/model" };
        object["data"]["unrelated"] = json!(other);
    }
    object
}

#[test]
fn an_unchanged_violation_causes_only_a_warning() {
    let mut tried = 0;
    for rule in RULES.iter().filter(|r| r.kind == Kind::Deny) {
        let example = Example::load(rule.code);
        // A rule about the change itself has no violation in a stored object.
        if example.given.before.is_some() {
            continue;
        }
        let old = object(example.violation().1);
        let new = change_elsewhere(rule, &old);
        let verdict = example.verdict(&new, Some(&old), false);
        assert!(codes(&verdict, Severity::Warn).contains(rule.code), "{}: {verdict:#?}", rule.code);
        assert!(!verdict.is_denied(), "{}: {verdict:#?}", rule.code);
        assert_not_cut(&verdict);
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
}

/// Asserts that no warning is cut off.
#[track_caller]
fn assert_not_cut(verdict: &Verdict) {
    for warning in &verdict.warnings {
        assert!(!warning.ends_with("..."), "cut off: {warning}");
    }
}
