//! Rules about other objects: other variants, the namespace, and autoscalers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use wva_objects::{MetricReader, SeriesSelector};
use wva_rules::{Facts, InstanceScope, NamespaceState, Operation, mutate, validate};

use crate::{
    ACCELERATOR, INSTANCE, MODE, SHARED, assert_absent, assert_denied, assert_warned, find, other, va,
};

#[test]
fn denies_a_shared_target_within_an_instance() {
    let others = [
        other("x", None, "apps/v1", "2026-01-01T00:00:00Z"),
        other("younger", None, "apps/v1", "2026-03-01T00:00:00Z"),
        other("older", None, "apps/v1beta2", "2026-02-01T00:00:00Z"),
        other("foreign-kind", None, "example.com/v1", "2026-01-01T00:00:00Z"),
    ];
    let (object, allowed) = (va(json!({})), va(json!({"metadata": {"annotations": {SHARED: "true"}}})));
    let facts = Facts { other_variants: &others, ..Facts::new(&object) };
    assert_denied(&facts, "WVA-VA-015");
    let verdict = validate(&facts);
    let message = &find(&verdict, "WVA-VA-015").message;
    assert!(message.contains("\"older\"") && message.contains("\"Deployment llama\""), "{message}");
    assert_warned(&Facts { object: &allowed, ..facts }, "WVA-VA-053");
    assert_warned(&Facts { operation: Operation::Update, old: Some(&object), ..facts }, "WVA-VA-015");
    let elsewhere = va(json!({"spec": {"scaleTargetRef": {"name": "other"}}}));
    assert_denied(&Facts { operation: Operation::Update, old: Some(&elsewhere), ..facts }, "WVA-VA-015");
    assert_absent(&Facts { other_variants: &others[..1], ..facts }, "WVA-VA-015");
    assert_absent(&Facts { other_variants: &others[3..], ..facts }, "WVA-VA-015");
}

#[test]
fn warns_of_a_shared_target_across_instances() {
    let others = [other("y", Some("b"), "apps/v1", "2026-01-01T00:00:00Z")];
    let object = va(json!({}));
    assert_warned(&Facts { other_variants: &others, ..Facts::new(&object) }, "WVA-VA-052");
    let injected = Facts {
        other_variants: &others,
        instance: Some("b"),
        is_namespace_owned: true,
        instance_scope: InstanceScope::Own,
        ..Facts::new(&object)
    };
    let verdict = mutate(&injected);
    assert!(verdict.is_denied(), "the object gets the label of instance b: {verdict:#?}");
    assert!(verdict.patch.is_empty(), "a denial has no patch");
}

#[test]
fn skips_rules_about_other_objects_until_synced() {
    let others = [other("y", None, "apps/v1", "2026-01-01T00:00:00Z")];
    let object = va(json!({}));
    let facts = Facts {
        is_synced: false,
        other_variants: &others,
        target_exists: Some(false),
        ..Facts::new(&object)
    };
    assert_warned(&facts, "WVA-VA-058");
    assert_absent(&facts, "WVA-VA-015");
    assert_absent(&facts, "WVA-VA-054");
    assert_absent(&Facts { is_synced: true, ..facts }, "WVA-VA-058");
}

#[test]
fn warns_of_an_unmanaged_namespace() {
    let object = va(json!({}));
    for (state, code) in [(NamespaceState::Excluded, "WVA-VA-060"), (NamespaceState::Unwatched, "WVA-VA-061")]
    {
        let facts = Facts { namespace: state, ..Facts::new(&object) };
        assert_warned(&facts, code);
        assert!(find(&validate(&facts), code).message.contains("\"ns\""));
        assert_absent(&Facts::new(&object), code);
    }
    // Namespaces come from a cache, WATCH_NAMESPACE does not.
    assert_absent(
        &Facts { namespace: NamespaceState::Excluded, is_synced: false, ..Facts::new(&object) },
        "WVA-VA-060",
    );
    assert_warned(
        &Facts { namespace: NamespaceState::Unwatched, is_synced: false, ..Facts::new(&object) },
        "WVA-VA-061",
    );
}

#[test]
fn warns_of_a_default_cost_next_to_an_own_cost() {
    for (cost, other, is_warned) in [
        (json!("10.0"), Some("y"), true),
        (json!("10.0"), None, false),
        (json!("10"), Some("y"), false),
        (json!("40"), Some("y"), false),
    ] {
        let object = va(json!({"spec": {"variantCost": cost}}));
        let facts = Facts { variant_with_own_cost: other, ..Facts::new(&object) };
        if is_warned { assert_warned(&facts, "WVA-VA-062") } else { assert_absent(&facts, "WVA-VA-062") }
    }
    for (cost, is_own) in [("10.0", false), ("10", false), ("010.00", false), ("9.99", true), ("x", false)] {
        let object = va(json!({"spec": {"variantCost": cost}}));
        assert_eq!(wva_rules::model_with_own_cost(&object), is_own.then_some("meta/llama"), "{cost}");
    }
}

#[test]
fn warns_of_a_metric_without_readers() {
    let (object, recommend) = (va(json!({})), va(json!({"metadata": {"annotations": {MODE: "recommend"}}})));
    let reader = [MetricReader { name: "scaled".into(), selectors: Vec::new() }];
    let facts = Facts { has_all_readers: true, ..Facts::new(&object) };
    assert_warned(&facts, "WVA-VA-063");
    assert_absent(&Facts { readers: &reader, ..facts }, "WVA-VA-063");
    assert_absent(&Facts { has_all_readers: false, ..facts }, "WVA-VA-063");
    assert_absent(&Facts { is_synced: false, ..facts }, "WVA-VA-063");
    assert_absent(&Facts { object: &recommend, ..facts }, "WVA-VA-063");
}

/// An HPA with these metric selectors.
fn hpa(selectors: &[Value]) -> [MetricReader; 1] {
    let selector = |s: &Value| serde_json::from_value::<LabelSelector>(s.clone()).unwrap();
    let selectors = selectors.iter().map(|s| SeriesSelector::from(&selector(s))).collect();
    [MetricReader { name: "llama-hpa".into(), selectors }]
}

fn matches_label(key: &str, value: &str) -> Value {
    json!({"matchLabels": {key: value}})
}

fn matches_expression(key: &str, operator: &str, values: &[&str]) -> Value {
    let values = Some(values).filter(|values| !values.is_empty());
    json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
}

#[test]
fn warns_of_an_hpa_that_never_matches() {
    let plain = va(json!({}));
    let owned = va(json!({"metadata": {"labels": {INSTANCE: "a"}}}));
    let bare = va(json!({"metadata": {"labels": {ACCELERATOR: null}}}));
    let generated = va(json!({"metadata": {"name": null, "generateName": "x-"}}));
    let rows = [
        (&plain, matches_label("variant_name", "x"), None),
        (&plain, matches_label("variant_name", "y"), Some("llama-hpa selects variant_name=y; actual: x")),
        (&generated, matches_label("variant_name", "y"), None),
        (&plain, matches_expression("variant_name", "In", &["x", "y"]), None),
        (&plain, matches_expression("variant_name", "Exists", &[]), None),
        (&plain, matches_label("exported_namespace", "ns"), None),
        (
            &plain,
            matches_label("exported_namespace", "default"),
            Some("exported_namespace=default; actual: ns"),
        ),
        // Without honorLabels, Prometheus sets the namespace of the controller.
        (&plain, matches_label("namespace", "ns"), None),
        (&plain, matches_label("namespace", "wva-system"), None),
        (&plain, matches_label("namespace", "default"), Some("namespace=default; actual: ns")),
        (&plain, matches_label("accelerator_type", "H100"), None),
        (&plain, matches_label("accelerator_type", "A100"), Some("accelerator_type=A100; actual: H100")),
        (&bare, matches_label("accelerator_type", "A100"), None),
        (
            &plain,
            matches_label("controller_instance", "a"),
            Some("controller_instance=a; actual: no such label"),
        ),
        (&plain, matches_expression("controller_instance", "NotIn", &["b"]), None),
        (&owned, matches_label("controller_instance", "a"), None),
        (&owned, matches_label("controller_instance", "b"), Some("controller_instance=b; actual: a")),
        (&plain, matches_label("job", "anything"), None),
        (&plain, json!({}), None),
    ];
    for row in rows {
        check_selector(row);
    }
    let expressions: [(_, _, &[&str], _); 4] = [
        ("variant_name", "In", &["y", "z"], "variant_name in (y,z); actual: x"),
        ("variant_name", "NotIn", &["x"], "variant_name notin (x); actual: x"),
        ("variant_name", "DoesNotExist", &[], "selects !variant_name; actual: x"),
        ("controller_instance", "Exists", &[], "selects controller_instance; actual: no"),
    ];
    for (key, operator, values, part) in expressions {
        check_selector((&plain, matches_expression(key, operator, values), Some(part)));
    }
}

/// Object, selector of its HPA, and a part of the warning, if there is one.
fn check_selector((object, selector, part): (&Value, Value, Option<&str>)) {
    let readers = hpa(std::slice::from_ref(&selector));
    let facts = Facts { readers: &readers, controller_namespace: Some("wva-system"), ..Facts::new(object) };
    let Some(part) = part else {
        assert_absent(&facts, "WVA-VA-064");
        return;
    };
    assert_warned(&facts, "WVA-VA-064");
    let verdict = validate(&facts);
    let message = &find(&verdict, "WVA-VA-064").message;
    assert!(message.contains(part), "{selector}: {message}");
    assert_absent(&Facts { is_synced: false, ..facts }, "WVA-VA-064");
}

#[test]
fn compares_an_hpa_with_the_stored_series() {
    let plain = va(json!({}));
    let bare = va(json!({"metadata": {"labels": {ACCELERATOR: null}}}));
    // Series of an unknown accelerator have `unresolved`.
    let readers = hpa(&[matches_label("accelerator_type", "A100")]);
    let unresolved = Facts { readers: &readers, is_accelerator_known: Some(false), ..Facts::new(&bare) };
    assert!(find(&validate(&unresolved), "WVA-VA-064").message.ends_with("actual: unresolved"));
    // One matching metric is enough. Without the controller's namespace, the label `namespace` is unknown.
    let either = hpa(&[matches_label("variant_name", "y"), matches_label("variant_name", "x")]);
    assert_absent(&Facts { readers: &either, ..Facts::new(&plain) }, "WVA-VA-064");
    let elsewhere = hpa(&[matches_label("namespace", "default")]);
    assert_absent(&Facts { readers: &elsewhere, ..Facts::new(&plain) }, "WVA-VA-064");
}

#[test]
fn considers_the_injected_label() {
    let object = va(json!({}));
    let readers = hpa(&[json!({"matchLabels": {"controller_instance": "a"}})]);
    let facts = Facts {
        readers: &readers,
        instance: Some("a"),
        is_namespace_owned: true,
        instance_scope: InstanceScope::Own,
        ..Facts::new(&object)
    };
    assert!(mutate(&facts).warnings.is_empty(), "the object gets the label");
}
