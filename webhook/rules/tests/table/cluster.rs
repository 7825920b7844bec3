//! Rules that look beyond the object: other variants, the namespace, and what follows the metric.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use wva_rules::{Facts, MetricReader, NamespaceState, Operation, Reach, SeriesSelector, mutate, validate};

use crate::{ACCELERATOR, INSTANCE, MODE, SHARED, find, other, rejects, silent, va, warns};

#[test]
fn a_target_shared_within_the_instance_is_refused() {
    let others = [
        other("x", None, "apps/v1", "2026-01-01T00:00:00Z"),
        other("younger", None, "apps/v1", "2026-03-01T00:00:00Z"),
        other("older", None, "apps/v1beta2", "2026-02-01T00:00:00Z"),
        other("foreign-kind", None, "example.com/v1", "2026-01-01T00:00:00Z"),
    ];
    let (object, allowed) = (va(json!({})), va(json!({"metadata": {"annotations": {SHARED: "true"}}})));
    let facts = Facts { others: &others, ..Facts::of(&object) };
    rejects(&facts, "WVA-VA-015");
    let verdict = validate(&facts);
    let message = &find(&verdict, "WVA-VA-015").message;
    assert!(message.contains("\"older\"") && message.contains("\"Deployment llama\""), "{message}");
    warns(&Facts { object: &allowed, ..facts }, "WVA-VA-053");
    warns(&Facts { operation: Operation::Update, old: Some(&object), ..facts }, "WVA-VA-015");
    let elsewhere = va(json!({"spec": {"scaleTargetRef": {"name": "other"}}}));
    rejects(&Facts { operation: Operation::Update, old: Some(&elsewhere), ..facts }, "WVA-VA-015");
    silent(&Facts { others: &others[..1], ..facts }, "WVA-VA-015");
    silent(&Facts { others: &others[3..], ..facts }, "WVA-VA-015");
}

#[test]
fn a_target_shared_across_instances_is_a_warning() {
    let others = [other("y", Some("b"), "apps/v1", "2026-01-01T00:00:00Z")];
    let object = va(json!({}));
    warns(&Facts { others: &others, ..Facts::of(&object) }, "WVA-VA-052");
    let injected = Facts {
        others: &others,
        instance: Some("b"),
        namespace_owned: true,
        reach: Reach::Own,
        ..Facts::of(&object)
    };
    let verdict = mutate(&injected);
    assert!(verdict.denied(), "the object becomes one of instance b: {verdict:#?}");
    assert!(verdict.patch.is_empty(), "a refusal carries no patch");
}

#[test]
fn before_the_caches_are_there_rules_about_others_are_skipped_and_say_so() {
    let others = [other("y", None, "apps/v1", "2026-01-01T00:00:00Z")];
    let object = va(json!({}));
    let facts = Facts { synced: false, others: &others, target_exists: Some(false), ..Facts::of(&object) };
    warns(&facts, "WVA-VA-058");
    silent(&facts, "WVA-VA-015");
    silent(&facts, "WVA-VA-054");
    silent(&Facts { synced: true, ..facts }, "WVA-VA-058");
}

#[test]
fn a_namespace_in_which_nothing_is_managed_is_told() {
    let object = va(json!({}));
    for (state, code) in [(NamespaceState::Excluded, "WVA-VA-060"), (NamespaceState::Unwatched, "WVA-VA-061")]
    {
        let facts = Facts { namespace: state, ..Facts::of(&object) };
        warns(&facts, code);
        assert!(find(&validate(&facts), code).message.contains("\"ns\""));
        silent(&Facts::of(&object), code);
    }
    // Namespaces come from a cache, the setting does not.
    silent(&Facts { namespace: NamespaceState::Excluded, synced: false, ..Facts::of(&object) }, "WVA-VA-060");
    warns(&Facts { namespace: NamespaceState::Unwatched, synced: false, ..Facts::of(&object) }, "WVA-VA-061");
}

#[test]
fn a_cost_left_at_the_default_is_told_where_another_variant_sets_one() {
    for (cost, set_by, told) in [
        (json!("10.0"), Some("y"), true),
        (json!("10.0"), None, false),
        (json!("10"), Some("y"), false),
        (json!("40"), Some("y"), false),
    ] {
        let object = va(json!({"spec": {"variantCost": cost}}));
        let facts = Facts { cost_set_by: set_by, ..Facts::of(&object) };
        if told { warns(&facts, "WVA-VA-062") } else { silent(&facts, "WVA-VA-062") }
    }
    for (cost, chosen) in [("10.0", false), ("10", false), ("010.00", false), ("9.99", true), ("x", false)] {
        let object = va(json!({"spec": {"variantCost": cost}}));
        assert_eq!(wva_rules::sets_cost(&object), chosen.then_some("meta/llama"), "{cost}");
    }
}

#[test]
fn a_variant_whose_metric_nobody_reads_is_told() {
    let (object, recommend) = (va(json!({})), va(json!({"metadata": {"annotations": {MODE: "recommend"}}})));
    let reader = [MetricReader { name: "scaled".into(), selectors: Vec::new() }];
    let facts = Facts { readers_complete: true, ..Facts::of(&object) };
    warns(&facts, "WVA-VA-063");
    silent(&Facts { readers: &reader, ..facts }, "WVA-VA-063");
    silent(&Facts { readers_complete: false, ..facts }, "WVA-VA-063");
    silent(&Facts { synced: false, ..facts }, "WVA-VA-063");
    silent(&Facts { object: &recommend, ..facts }, "WVA-VA-063");
}

/// An HPA that reads the metric with these selectors.
fn hpa(selectors: &[Value]) -> [MetricReader; 1] {
    let selector = |s: &Value| serde_json::from_value::<LabelSelector>(s.clone()).unwrap();
    let selectors = selectors.iter().map(|s| SeriesSelector::from(&selector(s))).collect();
    [MetricReader { name: "llama-hpa".into(), selectors }]
}

fn is(key: &str, value: &str) -> Value {
    json!({"matchLabels": {key: value}})
}

fn that(key: &str, operator: &str, values: &[&str]) -> Value {
    let values = Some(values).filter(|values| !values.is_empty());
    json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
}

#[test]
fn an_hpa_that_can_never_match_is_told_with_the_label_and_the_right_value() {
    let plain = va(json!({}));
    let owned = va(json!({"metadata": {"labels": {INSTANCE: "a"}}}));
    let bare = va(json!({"metadata": {"labels": {ACCELERATOR: null}}}));
    let generated = va(json!({"metadata": {"name": null, "generateName": "x-"}}));
    let rows = [
        (&plain, is("variant_name", "x"), None),
        (&plain, is("variant_name", "y"), Some("llama-hpa wants variant_name=y; here: x")),
        (&generated, is("variant_name", "y"), None),
        (&plain, that("variant_name", "In", &["x", "y"]), None),
        (&plain, that("variant_name", "In", &["y", "z"]), Some("variant_name in (y,z); here: x")),
        (&plain, that("variant_name", "NotIn", &["x"]), Some("variant_name notin (x); here: x")),
        (&plain, that("variant_name", "DoesNotExist", &[]), Some("wants !variant_name; here: x")),
        (&plain, that("variant_name", "Exists", &[]), None),
        (&plain, is("exported_namespace", "ns"), None),
        (&plain, is("exported_namespace", "default"), Some("exported_namespace=default; here: ns")),
        // What Prometheus puts in the place of the variant's own, unless it honours labels.
        (&plain, is("namespace", "ns"), None),
        (&plain, is("namespace", "wva-system"), None),
        (&plain, is("namespace", "default"), Some("namespace=default; here: ns")),
        (&plain, is("accelerator_type", "H100"), None),
        (&plain, is("accelerator_type", "A100"), Some("accelerator_type=A100; here: H100")),
        (&bare, is("accelerator_type", "A100"), None),
        (&plain, is("controller_instance", "a"), Some("controller_instance=a; here: no such label")),
        (&plain, that("controller_instance", "Exists", &[]), Some("wants controller_instance; here: no")),
        (&plain, that("controller_instance", "NotIn", &["b"]), None),
        (&owned, is("controller_instance", "a"), None),
        (&owned, is("controller_instance", "b"), Some("controller_instance=b; here: a")),
        (&plain, is("job", "anything"), None),
        (&plain, json!({}), None),
    ];
    for (object, selector, told) in rows {
        let readers = hpa(std::slice::from_ref(&selector));
        let facts =
            Facts { readers: &readers, controller_namespace: Some("wva-system"), ..Facts::of(object) };
        let Some(told) = told else {
            silent(&facts, "WVA-VA-064");
            continue;
        };
        warns(&facts, "WVA-VA-064");
        let verdict = validate(&facts);
        let message = &find(&verdict, "WVA-VA-064").message;
        assert!(message.contains(told), "{selector}: {message}");
        silent(&Facts { synced: false, ..facts }, "WVA-VA-064");
    }
}

#[test]
fn an_hpa_is_judged_by_what_prometheus_writes() {
    let plain = va(json!({}));
    let bare = va(json!({"metadata": {"labels": {ACCELERATOR: null}}}));
    // Nothing says what the accelerator is: the series say so too.
    let readers = hpa(&[is("accelerator_type", "A100")]);
    let unresolved = Facts { readers: &readers, accelerator_derivable: Some(false), ..Facts::of(&bare) };
    assert!(find(&validate(&unresolved), "WVA-VA-064").message.ends_with("here: unresolved"));
    // One metric that matches is enough, and without our namespace nobody can tell what Prometheus writes.
    let either = hpa(&[is("variant_name", "y"), is("variant_name", "x")]);
    silent(&Facts { readers: &either, ..Facts::of(&plain) }, "WVA-VA-064");
    let elsewhere = hpa(&[is("namespace", "default")]);
    silent(&Facts { readers: &elsewhere, ..Facts::of(&plain) }, "WVA-VA-064");
}

#[test]
fn an_hpa_that_follows_a_variant_does_not_ask_for_a_label_that_is_injected() {
    let object = va(json!({}));
    let readers = hpa(&[json!({"matchLabels": {"controller_instance": "a"}})]);
    let facts = Facts {
        readers: &readers,
        instance: Some("a"),
        namespace_owned: true,
        reach: Reach::Own,
        ..Facts::of(&object)
    };
    assert!(mutate(&facts).warnings.is_empty(), "it will carry the label");
}
