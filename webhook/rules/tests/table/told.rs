//! The form in which a verdict is told: complete, bounded, and harmless to a terminal.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use wva_rules::{
    Facts, MAX_WARNING_BYTES, MAX_WARNING_CHARS, MetricReader, NamespaceState, OtherVariant, Target, Verdict,
    validate,
};

use crate::{ACCELERATOR, INSTANCE, MODE, silent, update, va, warns};

#[test]
fn warnings_of_their_own() {
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
        silent(&Facts::of(&va(json!({}))), code);
        warns(&Facts::of(&va(change)), code);
    }
    let object = va(json!({}));
    warns(&Facts { target_exists: Some(false), ..Facts::of(&object) }, "WVA-VA-054");
    silent(&Facts { target_exists: Some(true), ..Facts::of(&object) }, "WVA-VA-054");
    let bare = va(json!({"metadata": {"labels": null}}));
    silent(&Facts { accelerator_derivable: Some(true), ..Facts::of(&bare) }, "WVA-VA-055");
}

#[test]
fn a_misspelt_key_is_the_field_and_the_right_one_is_told_whole() {
    for (change, told) in [
        (
            json!({"spec": {"modelId": "m"}}),
            "[WVA-VA-059] spec.modelId: there is no such field; it is ignored: modelID?",
        ),
        (json!({"spec": {"a.b": 1}}), "[WVA-VA-059] spec[a.b]: there is no such field; it is ignored"),
        (
            json!({"metadata": {"labels": {"inference.optimization/acceleratorNameXX": "A100"}}}),
            "[WVA-VA-056] metadata.labels[inference.optimization/acceleratorNameXX]: unknown: \
             inference.optimization/acceleratorName?",
        ),
        (
            json!({"metadata": {"annotations": {"wva.llmd.ai/allow-instance-changesX": "true"}}}),
            "[WVA-VA-057] metadata.annotations[wva.llmd.ai/allow-instance-changesX]: unknown: \
             wva.llmd.ai/allow-instance-change?",
        ),
    ] {
        let verdict = validate(&Facts::of(&va(change)));
        assert_eq!(verdict.warnings, [told]);
        assert!(told.contains(&format!(" {}: ", verdict.violations[0].field)), "{verdict:#?}");
    }
}

#[test]
fn a_refusal_told_as_a_warning_leaves_out_whole_clauses() {
    for (change, told) in [
        (
            json!({"spec": {"minReplicas": 3, "maxReplicas": 2}}),
            "found 3, above maxReplicas 2: no number of replicas satisfies both",
        ),
        (json!({"metadata": {"annotations": {MODE: "off; really: off"}}}), "found \"off; really: off\""),
    ] {
        let object = va(change);
        let warnings = validate(&update(&object, &object)).warnings;
        assert!(warnings.len() == 1 && warnings[0].ends_with(told), "{warnings:#?}");
    }
}

#[test]
fn a_refusal_says_everything_at_once() {
    let object = va(json!({"spec": {"modelID": null, "variantCost": "abc"}}));
    let verdict = validate(&Facts::of(&object));
    let status = verdict.to_status().unwrap();
    let message = status.message.unwrap();
    let start = "VariantAutoscaling \"x\" is invalid: [WVA-VA-003] spec.variantCost: found \"abc\": ";
    assert!(message.starts_with(start), "{message}");
    assert!(message.contains("; [WVA-VA-006] spec.modelID: found nothing: "), "{message}");
    assert_eq!((status.reason.as_deref(), status.code), (Some("Invalid"), Some(422)));
    let details = status.details.unwrap();
    assert_eq!((details.kind.as_deref(), details.name.as_deref()), (Some("VariantAutoscaling"), Some("x")));
    let causes = details.causes.unwrap();
    let fields: Vec<_> = causes.iter().map(|c| c.field.as_deref().unwrap()).collect();
    assert_eq!(fields, ["spec.variantCost", "spec.modelID"]);
    assert!(causes.iter().all(|c| c.message.as_ref().unwrap().starts_with("[WVA-VA-")));
    assert!(validate(&Facts::of(&va(json!({})))).to_status().is_none());
}

#[test]
fn messages_repeat_no_more_of_a_value_than_a_bound_and_no_control_characters() {
    let hostile = format!("\u{1b}[2J{}\u{202e}", "x\n".repeat(100_000));
    let labels = json!({hostile.clone(): 1, INSTANCE: hostile.clone()});
    let object = va(json!({
        "metadata": {"name": hostile, "labels": labels, "annotations": {MODE: hostile}},
        "spec": {"variantCost": hostile, "modelID": hostile, hostile.clone(): 1,
            "scaleTargetRef": {"name": hostile, "kind": hostile, "apiVersion": hostile}},
    }));
    let verdict = validate(&Facts::of(&object));
    let told = verdict.message();
    assert!(told.len() < 8192, "{}", told.len());
    assert!(told.chars().chain(verdict.warnings.iter().flat_map(|w| w.chars())).all(|c| !c.is_control()));
    assert!(!told.contains('\u{202e}'));
}

#[test]
fn a_flood_of_faults_is_refused_in_few_words_and_little_time() {
    let labels: serde_json::Map<String, Value> = (0..100_000).map(|n| (format!("k{n}"), json!(0))).collect();
    let old = va(json!({"metadata": {"labels": labels}}));
    let mut new = old.clone();
    new["spec"]["modelID"] = json!("another");
    let created = validate(&Facts::of(&new));
    assert!(created.denied() && created.violations.len() < 200, "{} violations", created.violations.len());
    assert!(validate(&update(&old, &new)).violations.len() < 200);
}

/// The verdict on an object with many faults and the longest names. An HPA reads its metric, or none does.
fn longest_warnings(is_read: bool) -> Verdict {
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
        target: Target::of(&object).unwrap(),
        created: None,
    }];
    let reader = |key: &str, value: &str| {
        let selector: LabelSelector = serde_json::from_value(json!({"matchLabels": {key: value}})).unwrap();
        MetricReader { name: long.clone(), selectors: vec![(&selector).into()] }
    };
    let readers = [reader("variant_name", &long), reader("controller_instance", &long)];
    let facts = Facts {
        others: &others,
        target_exists: Some(false),
        namespace: NamespaceState::Excluded,
        cost_set_by: Some(&long),
        readers: &readers,
        ..Facts::of(&object)
    };
    if is_read {
        return validate(&facts);
    }
    validate(&Facts { namespace: NamespaceState::Unwatched, readers: &[], readers_complete: true, ..facts })
}

#[test]
fn warnings_stay_within_the_apiservers_limits() {
    let verdict = longest_warnings(true);
    assert!(verdict.warnings.iter().all(|w| w.chars().count() <= MAX_WARNING_CHARS), "{verdict:#?}");
    assert!(verdict.warnings.iter().map(String::len).sum::<usize>() <= MAX_WARNING_BYTES);
    let last = verdict.warnings.last().unwrap();
    let told = verdict.warnings.len() - 1;
    assert!(last.contains(&format!("and {} more warnings", verdict.violations.len() - told)), "{last}");
    for code in ["WVA-VA-051", "WVA-VA-052", "WVA-VA-054", "WVA-VA-055"] {
        assert!(
            verdict.warnings.iter().any(|w| w.contains(code)),
            "{code} is told before the budget is used up"
        );
    }
}

#[test]
fn a_shortened_warning_keeps_the_rules_own_words() {
    let (read, unread) = (longest_warnings(true).warnings, longest_warnings(false).warnings);
    for (code, end) in [
        ("WVA-VA-051", "that this release scales"),
        ("WVA-VA-052", "of another instance"),
        ("WVA-VA-054", "when it does"),
        ("WVA-VA-055", "H100"),
        ("WVA-VA-060", "wva.llmd.ai/exclude"),
        ("WVA-VA-061", "not managed"),
        ("WVA-VA-062", "they are compared"),
        ("WVA-VA-063", "(yet)"),
    ] {
        let warning = read.iter().chain(&unread).find(|w| w.contains(code)).unwrap();
        assert!(warning.ends_with(end), "the rule's own words are whole: {warning}");
    }
    let contradictions: Vec<_> = read.iter().filter(|w| w.contains("WVA-VA-064")).collect();
    assert!(contradictions[0].contains("variant_name=nnn") && contradictions[0].ends_with("; here: x"));
    assert!(contradictions[1].contains("controller_instance=n"), "{}", contradictions[1]);
    assert!(contradictions[1].ends_with("; here: no such label"), "{}", contradictions[1]);
}
