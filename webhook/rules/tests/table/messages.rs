//! Messages of verdicts: complete, within limits, and safe for terminals.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use wva_objects::{MetricReader, Target};
use wva_rules::{
    Facts, MAX_WARNING_BYTES, MAX_WARNING_CHARS, NamespaceState, OtherVariant, Verdict, validate,
};

use crate::{ACCELERATOR, INSTANCE, MODE, assert_absent, assert_warned, update, va};

#[test]
fn warns_about_single_objects() {
    let rows: Vec<(&str, Value)> = vec![
        (
            "WVA-VA-051",
            json!({"spec": {"scaleTargetRef": {"kind": "Rollout", "apiVersion": "argoproj.io/v1"}}}),
        ),
        ("WVA-VA-051", json!({"spec": {"scaleTargetRef": {"apiVersion": "apps/v2"}}})),
        ("WVA-VA-055", json!({"metadata": {"labels": null}})),
        ("WVA-VA-056", json!({"metadata": {"labels": {"wva.llmd.ai/controler-instance": "a"}}})),
        ("WVA-VA-056", json!({"metadata": {"labels": {"inference.optimization/acceleratorname": "A100"}}})),
        ("WVA-VA-057", json!({"metadata": {"annotations": {"wva.llmd.ai/modes": "auto"}}})),
        ("WVA-VA-059", json!({"spec": {"modelId": "m"}})),
    ];
    for (code, change) in rows {
        assert_absent(&Facts::new(&va(json!({}))), code);
        assert_warned(&Facts::new(&va(change)), code);
    }
    let object = va(json!({}));
    assert_warned(&Facts { target_exists: Some(false), ..Facts::new(&object) }, "WVA-VA-054");
    assert_absent(&Facts { target_exists: Some(true), ..Facts::new(&object) }, "WVA-VA-054");
    let bare = va(json!({"metadata": {"labels": null}}));
    assert_absent(&Facts { is_accelerator_known: Some(true), ..Facts::new(&bare) }, "WVA-VA-055");
}

#[test]
fn suggests_the_correct_key_completely() {
    for (change, warning) in [
        (
            json!({"spec": {"modelId": "m"}}),
            "[WVA-VA-059] spec.modelId: unknown field, ignored; did you mean modelID?",
        ),
        (json!({"spec": {"a.b": 1}}), "[WVA-VA-059] spec[a.b]: unknown field, ignored"),
        (
            json!({"metadata": {"labels": {"inference.optimization/acceleratorNameXX": "A100"}}}),
            "[WVA-VA-056] metadata.labels[inference.optimization/acceleratorNameXX]: typo of \
             inference.optimization/acceleratorName?",
        ),
        (
            json!({"metadata": {"annotations": {"wva.llmd.ai/allow-instance-changesX": "true"}}}),
            "[WVA-VA-057] metadata.annotations[wva.llmd.ai/allow-instance-changesX]: typo of \
             wva.llmd.ai/allow-instance-change?",
        ),
    ] {
        let verdict = validate(&Facts::new(&va(change)));
        assert_eq!(verdict.warnings, [warning]);
        assert!(warning.contains(&format!(" {}: ", verdict.violations[0].field)), "{verdict:#?}");
    }
}

#[test]
fn shortens_a_warning_by_complete_clauses() {
    for (change, end) in [
        (
            json!({"spec": {"minReplicas": 3, "maxReplicas": 2}}),
            "3 is above maxReplicas 2; lower minReplicas or raise maxReplicas",
        ),
        (
            json!({"metadata": {"annotations": {MODE: "off; really: off"}}}),
            "\"off; really: off\" is not a mode",
        ),
    ] {
        let object = va(change);
        let warnings = validate(&update(&object, &object)).warnings;
        assert!(warnings.len() == 1 && warnings[0].ends_with(end), "{warnings:#?}");
    }
}

#[test]
fn a_denial_has_all_violations() {
    let object = va(json!({"spec": {"modelID": null, "variantCost": "abc"}}));
    let verdict = validate(&Facts::new(&object));
    let status = verdict.to_status().unwrap();
    let message = status.message.unwrap();
    let start = "VariantAutoscaling \"x\" is invalid: [WVA-VA-003] spec.variantCost: \"abc\" is not ";
    assert!(message.starts_with(start), "{message}");
    assert!(message.contains("; [WVA-VA-006] spec.modelID: missing; "), "{message}");
    assert_eq!((status.reason.as_deref(), status.code), (Some("Invalid"), Some(422)));
    let details = status.details.unwrap();
    assert_eq!((details.kind.as_deref(), details.name.as_deref()), (Some("VariantAutoscaling"), Some("x")));
    let causes = details.causes.unwrap();
    let fields: Vec<_> = causes.iter().map(|c| c.field.as_deref().unwrap()).collect();
    assert_eq!(fields, ["spec.variantCost", "spec.modelID"]);
    assert!(causes.iter().all(|c| c.message.as_ref().unwrap().starts_with("[WVA-VA-")));
    assert!(validate(&Facts::new(&va(json!({})))).to_status().is_none());
}

#[test]
fn messages_have_short_values_without_control_characters() {
    let hostile = format!("\u{1b}[2J{}\u{202e}", "x\n".repeat(100_000));
    let labels = json!({hostile.clone(): 1, INSTANCE: hostile.clone()});
    let object = va(json!({
        "metadata": {"name": hostile, "labels": labels, "annotations": {MODE: hostile}},
        "spec": {"variantCost": hostile, "modelID": hostile, hostile.clone(): 1,
            "scaleTargetRef": {"name": hostile, "kind": hostile, "apiVersion": hostile}},
    }));
    let verdict = validate(&Facts::new(&object));
    let message = verdict.message();
    assert!(message.len() < 8192, "{}", message.len());
    assert!(message.chars().chain(verdict.warnings.iter().flat_map(|w| w.chars())).all(|c| !c.is_control()));
    assert!(!message.contains('\u{202e}'));
}

#[test]
fn bounds_the_violations_of_one_object() {
    let labels: serde_json::Map<String, Value> = (0..100_000).map(|n| (format!("k{n}"), json!(0))).collect();
    let old = va(json!({"metadata": {"labels": labels}}));
    let mut new = old.clone();
    new["spec"]["modelID"] = json!("another");
    let created = validate(&Facts::new(&new));
    assert!(created.is_denied() && created.violations.len() < 200, "{} violations", created.violations.len());
    assert!(validate(&update(&old, &new)).violations.len() < 200);
}

/// Verdict on an object with many violations and the longest names, with or without an HPA that reads its metric.
fn longest_warnings(has_reader: bool) -> Verdict {
    let long = "n".repeat(253);
    let mut spec =
        json!({"scaleTargetRef": {"name": long, "kind": "Widget", "apiVersion": "example.com/v1"}});
    for n in 0..200 {
        spec[format!("field{n}{long}")] = json!(1);
    }
    let object = va(json!({"spec": spec, "metadata": {"labels": {ACCELERATOR: null}}}));
    let others = [OtherVariant {
        name: long.clone(),
        instance: Some(long.clone()),
        target: Target::from_object(&object).unwrap(),
        created: None,
    }];
    let reader = |key: &str, value: &str| {
        let selector: LabelSelector = serde_json::from_value(json!({"matchLabels": {key: value}})).unwrap();
        MetricReader { name: long.clone(), selectors: vec![(&selector).into()] }
    };
    let readers = [reader("variant_name", &long), reader("controller_instance", &long)];
    let facts = Facts {
        other_variants: &others,
        target_exists: Some(false),
        namespace: NamespaceState::Excluded,
        variant_with_own_cost: Some(&long),
        readers: &readers,
        ..Facts::new(&object)
    };
    if has_reader {
        return validate(&facts);
    }
    validate(&Facts { namespace: NamespaceState::Unwatched, readers: &[], has_all_readers: true, ..facts })
}

#[test]
fn warnings_stay_within_the_api_limits() {
    let verdict = longest_warnings(true);
    assert!(verdict.warnings.iter().all(|w| w.chars().count() <= MAX_WARNING_CHARS), "{verdict:#?}");
    assert!(verdict.warnings.iter().map(String::len).sum::<usize>() <= MAX_WARNING_BYTES);
    let last = verdict.warnings.last().unwrap();
    let shown = verdict.warnings.len() - 1;
    assert!(last.contains(&format!("and {} more warnings", verdict.violations.len() - shown)), "{last}");
    for code in ["WVA-VA-051", "WVA-VA-052", "WVA-VA-054", "WVA-VA-055"] {
        assert!(verdict.warnings.iter().any(|w| w.contains(code)), "{code} is within the limit");
    }
}

#[test]
fn a_shortened_warning_keeps_the_message_of_the_rule() {
    let (read, unread) = (longest_warnings(true).warnings, longest_warnings(false).warnings);
    for (code, end) in [
        ("WVA-VA-051", "this release does not scale \"example.com/v1 Widget\""),
        ("WVA-VA-052", "of another instance"),
        ("WVA-VA-054", "when it does"),
        ("WVA-VA-055", "H100"),
        ("WVA-VA-060", "wva.llmd.ai/exclude"),
        ("WVA-VA-061", "WATCH_NAMESPACE is another namespace"),
        ("WVA-VA-062", "set this one, too"),
        ("WVA-VA-063", "reads wva_desired_replicas yet"),
    ] {
        let warning = read.iter().chain(&unread).find(|w| w.contains(code)).unwrap();
        assert!(warning.ends_with(end), "{warning}");
    }
    let contradictions: Vec<_> = read.iter().filter(|w| w.contains("WVA-VA-064")).collect();
    assert!(contradictions[0].contains("variant_name=nnn") && contradictions[0].ends_with("; actual: x"));
    assert!(contradictions[1].contains("controller_instance=n"), "{}", contradictions[1]);
    assert!(contradictions[1].ends_with("; actual: no such label"), "{}", contradictions[1]);
}
