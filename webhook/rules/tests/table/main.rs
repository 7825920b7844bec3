//! Rules about variants: accepted and violating objects, laws for all rules, and messages.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod cluster;
mod copies;
mod instance;
mod messages;
mod object;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wva_objects::Target;
use wva_rules::{Facts, Operation, OtherVariant, Severity, Verdict, apply_defaults, validate};

const ACCELERATOR: &str = "inference.optimization/acceleratorName";
const INSTANCE: &str = "wva.llmd.ai/controller-instance";
const CHANGE: &str = "wva.llmd.ai/allow-instance-change";
const SHARED: &str = "wva.llmd.ai/allow-shared-target";
const MODE: &str = "wva.llmd.ai/mode";

/// A valid object with `change` merged over it (RFC 7386: `null` removes).
fn va(change: Value) -> Value {
    let mut object = json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {"name": "x", "namespace": "ns", "labels": {ACCELERATOR: "H100"}},
        "spec": {"scaleTargetRef": {"name": "llama"}, "modelID": "meta/llama"},
    });
    apply_defaults(&mut object);
    merge(&mut object, change);
    object
}

fn merge(target: &mut Value, change: Value) {
    let Value::Object(change) = change else {
        *target = change;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in change {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(&key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

fn update<'a>(old: &'a Value, new: &'a Value) -> Facts<'a> {
    Facts { operation: Operation::Update, old: Some(old), ..Facts::new(new) }
}

fn other(name: &str, instance: Option<&str>, api_version: &str, created: &str) -> OtherVariant {
    let target = Target { api_version: api_version.into(), kind: "Deployment".into(), name: "llama".into() };
    OtherVariant {
        name: name.into(),
        instance: instance.map(str::to_owned),
        target,
        created: created.parse().ok(),
    }
}

#[track_caller]
fn find<'v>(verdict: &'v Verdict, code: &str) -> &'v wva_rules::Violation {
    let found = verdict.violations.iter().find(|v| v.code == code);
    found.unwrap_or_else(|| panic!("no {code} in {verdict:#?}"))
}

/// Asserts a denial by this rule only.
#[track_caller]
fn assert_denied(facts: &Facts<'_>, code: &str) {
    let verdict = validate(facts);
    let codes: BTreeSet<_> = verdict.denials().map(|v| v.code).collect();
    assert_eq!(codes, BTreeSet::from([code]), "{verdict:#?}");
}

/// Asserts an admission with a warning of this rule.
#[track_caller]
fn assert_warned(facts: &Facts<'_>, code: &str) {
    let verdict = validate(facts);
    assert!(!verdict.is_denied(), "{verdict:#?}");
    assert_eq!(find(&verdict, code).severity, Severity::Warn);
    assert!(verdict.warnings.iter().any(|w| w.contains(code)), "{verdict:#?}");
}

/// Asserts that this rule reports nothing.
#[track_caller]
fn assert_absent(facts: &Facts<'_>, code: &str) {
    let verdict = validate(facts);
    assert!(verdict.violations.iter().all(|v| v.code != code), "{verdict:#?}");
}
