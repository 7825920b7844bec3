//! Every rule keeps to its examples: about the accepted object it says nothing, about the other exactly what its kind
//! says, and an update that leaves the fault alone is only warned of.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod example;

use std::collections::BTreeSet;

use example::{Example, Outcome, folder, object};
use serde_json::{Value, json};
use wva_crds::names::KIND;
use wva_rules::{Kind, RULES, Rule, Severity, Verdict};

/// Of files, and found before any rule is asked; the program itself judges its examples where the
/// reference is made.
const FILE_CODE: &str = "WVA-FILE-001";

fn codes(verdict: &Verdict, severity: Severity) -> BTreeSet<&str> {
    verdict.violations.iter().filter(|v| v.severity == severity).map(|v| v.code).collect()
}

#[track_caller]
fn check(rule: &Rule, example: &Example) {
    let code = rule.code;
    let (accepted, shown) = example.verdicts();
    assert!(accepted.violations.is_empty(), "{code}: the accepted example is not fine: {accepted:#?}");
    let (outcome, _) = example.shown();
    let sentence = |text: &str| text.trim_end().ends_with('.');
    assert!(!sentence(&example.title), "{code}: a title is no sentence");
    assert!(example.exception.is_empty() || sentence(&example.exception), "{code}: {}", example.exception);
    let says = rule.docs.contains("`wva validate`");
    assert_eq!(example.in_files_alone, says, "{code}: rule and example say the same of who sees it");

    let alone = BTreeSet::from([code]);
    let (wanted, denied, warned) = match rule.kind {
        Kind::Deny => (Outcome::Refused, alone, BTreeSet::new()),
        Kind::Warn => (Outcome::Warned, BTreeSet::new(), alone),
        Kind::Mutate => (Outcome::Completed, BTreeSet::new(), BTreeSet::new()),
    };
    assert_eq!(codes(&shown, Severity::Deny), denied, "{code}: {shown:#?}");
    assert_eq!(codes(&shown, Severity::Warn), warned, "{code}: {shown:#?}");
    assert_eq!(outcome, wanted, "{code}: what the example says of itself");
    assert!(accepted.patch.is_empty(), "{code}: the accepted example is complete");
    assert_eq!(shown.patch.is_empty(), rule.kind != Kind::Mutate, "{code}: {shown:#?}");
}

#[test]
fn every_rule_has_its_examples_and_every_example_its_rule() {
    let files: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let rules: BTreeSet<String> =
        RULES.iter().map(|r| r.code).chain([FILE_CODE]).map(str::to_owned).collect();
    assert_eq!(files, rules);
}

#[test]
fn rules_keep_to_their_examples() {
    for rule in RULES {
        check(rule, &Example::of(rule.code));
    }
}

/// The refused object with something changed that its rule does not look at.
fn touched_elsewhere(rule: &Rule, refused: &Value) -> Value {
    let mut object = refused.clone();
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
        object["data"]["unrelated"] = json!("model_id: another/model");
    }
    object
}

#[test]
fn an_update_that_leaves_the_fault_alone_is_only_warned_of() {
    let mut tried = 0;
    for rule in RULES.iter().filter(|r| r.kind == Kind::Deny) {
        let example = Example::of(rule.code);
        // A rule about the change itself finds nothing in an object that is stored already.
        if example.given.before.is_some() {
            continue;
        }
        let old = object(example.shown().1);
        let new = touched_elsewhere(rule, &old);
        let verdict = example.judge(&new, Some(&old), false);
        assert!(codes(&verdict, Severity::Warn).contains(rule.code), "{}: {verdict:#?}", rule.code);
        assert!(!verdict.denied(), "{}: {verdict:#?}", rule.code);
        whole(&verdict);
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
}

/// No warning loses its end.
#[track_caller]
fn whole(verdict: &Verdict) {
    for warning in &verdict.warnings {
        assert!(!warning.ends_with("..."), "cut off: {warning}");
    }
}

#[test]
fn no_warning_of_an_example_is_cut_off() {
    for rule in RULES {
        whole(&Example::of(rule.code).verdicts().1);
    }
}
