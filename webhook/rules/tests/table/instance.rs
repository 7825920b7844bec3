//! Rules about the instance label: injected, required, and changed.

use serde_json::{Value, json};
use wva_rules::{Facts, InstancePolicy, InstanceScope, Operation, mutate};

use crate::{CHANGE, INSTANCE, assert_absent, assert_denied, other, update, va};

#[test]
fn instance_label_under_each_policy() {
    let (bare, mine) = (va(json!({})), va(json!({"metadata": {"labels": {INSTANCE: "a"}}})));
    let at = |object, policy, owned| Facts {
        instance: Some("a"),
        policy,
        is_namespace_owned: owned,
        instance_scope: InstanceScope::Own,
        ..Facts::new(object)
    };
    assert_denied(&at(&bare, InstancePolicy::Require, true), "WVA-VA-013");
    assert_absent(&at(&bare, InstancePolicy::Require, false), "WVA-VA-013");
    assert_absent(&at(&bare, InstancePolicy::Ignore, true), "WVA-VA-013");
    assert_absent(&at(&mine, InstancePolicy::Require, true), "WVA-VA-013");
    for (policy, owned, injected) in [
        (InstancePolicy::Inject, true, true),
        (InstancePolicy::Inject, false, false),
        (InstancePolicy::Require, true, false),
        (InstancePolicy::Ignore, true, false),
    ] {
        assert_eq!(!mutate(&at(&bare, policy, owned)).patch.is_empty(), injected, "{policy:?} {owned}");
        assert!(mutate(&at(&mine, policy, owned)).patch.is_empty(), "{policy:?} {owned}");
    }
}

#[test]
fn the_patch_adds_only_absent_fields() {
    let at = |object: &Value| {
        let facts = Facts { instance: Some("a"), is_namespace_owned: true, ..Facts::new(object) };
        serde_json::to_value(mutate(&facts).patch).unwrap()
    };
    assert_eq!(
        at(&va(json!({}))),
        json!([{"op": "add", "path": "/metadata/labels/wva.llmd.ai~1controller-instance", "value": "a"}])
    );
    assert_eq!(
        at(&va(json!({"metadata": {"labels": null}}))),
        json!([{"op": "add", "path": "/metadata/labels", "value": {INSTANCE: "a"}}])
    );
    assert_eq!(at(&va(json!({"metadata": {"labels": {INSTANCE: ""}}}))), json!([]));
}

#[test]
fn denies_a_label_change_without_the_annotation() {
    let with = |label: Option<&str>, allow: Option<&str>| {
        va(json!({"metadata": {"labels": {INSTANCE: label}, "annotations": {CHANGE: allow}}}))
    };
    let code = "WVA-VA-014";
    let yes = Some("true");
    for (old, new, is_denied) in [
        (with(Some("a"), None), with(Some("a"), None), false),
        (with(Some("a"), None), with(Some("b"), None), true),
        (with(Some("a"), None), with(None, None), true),
        (with(Some("a"), None), with(Some("b"), yes), false),
        (with(Some("a"), yes), with(Some("b"), yes), true),
        (with(Some("a"), Some("false")), with(Some("b"), yes), false),
        (with(Some("a"), None), with(Some("b"), Some("yes")), true),
        (with(None, None), with(Some("b"), None), false),
    ] {
        for instance_scope in [InstanceScope::All, InstanceScope::Own] {
            let facts = Facts { instance: Some("a"), instance_scope, ..update(&old, &new) };
            if is_denied { assert_denied(&facts, code) } else { assert_absent(&facts, code) }
        }
    }
}

#[test]
fn restores_a_removed_label_in_an_owned_namespace() {
    let (old, new) = (va(json!({"metadata": {"labels": {INSTANCE: "a"}}})), va(json!({})));
    let facts = Facts { instance: Some("a"), is_namespace_owned: true, ..update(&old, &new) };
    assert_eq!(mutate(&facts).patch.len(), 1);
    assert_denied(&facts, "WVA-VA-014");
}

#[test]
fn does_not_complete_an_update_of_finalizers() {
    let others = [other("y", Some("a"), "apps/v1", "2026-01-01T00:00:00Z")];
    let (old, new) = (va(json!({"metadata": {"finalizers": ["f"]}})), va(json!({})));
    let facts = Facts {
        instance: Some("a"),
        is_namespace_owned: true,
        other_variants: &others,
        ..update(&old, &new)
    };
    let verdict = mutate(&facts);
    assert!(!verdict.is_denied() && verdict.patch.is_empty(), "{verdict:#?}");
    assert!(mutate(&Facts { operation: Operation::Create, old: None, ..facts }).is_denied());
}

#[test]
fn ignores_objects_of_other_instances() {
    let bad = va(json!({"metadata": {"labels": {INSTANCE: "b"}}, "spec": null}));
    for (instance, instance_scope, is_checked) in [
        (None, InstanceScope::Own, false),
        (Some("a"), InstanceScope::Own, false),
        (Some("b"), InstanceScope::Own, true),
        (None, InstanceScope::All, true),
    ] {
        let facts = Facts { instance, instance_scope, ..Facts::new(&bad) };
        assert_eq!(mutate(&facts).is_denied(), is_checked, "{instance:?} {instance_scope:?}");
    }
}
