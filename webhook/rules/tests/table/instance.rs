//! The instance label: who injects it, who demands it, and when it may change.

use serde_json::{Value, json};
use wva_rules::{Facts, InstancePolicy, Operation, Reach, mutate};

use crate::{CHANGE, INSTANCE, other, rejects, silent, update, va};

#[test]
fn instance_label_under_each_policy() {
    let (bare, mine) = (va(json!({})), va(json!({"metadata": {"labels": {INSTANCE: "a"}}})));
    let at = |object, policy, owned| Facts {
        instance: Some("a"),
        policy,
        namespace_owned: owned,
        reach: Reach::Own,
        ..Facts::of(object)
    };
    rejects(&at(&bare, InstancePolicy::Require, true), "WVA-VA-013");
    silent(&at(&bare, InstancePolicy::Require, false), "WVA-VA-013");
    silent(&at(&bare, InstancePolicy::Ignore, true), "WVA-VA-013");
    silent(&at(&mine, InstancePolicy::Require, true), "WVA-VA-013");
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
fn the_patch_touches_absent_fields_alone() {
    let at = |object: &Value| {
        let facts = Facts { instance: Some("a"), namespace_owned: true, ..Facts::of(object) };
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
fn the_instance_label_moves_only_when_the_same_update_says_so() {
    let with = |label: Option<&str>, allow: Option<&str>| {
        va(json!({"metadata": {"labels": {INSTANCE: label}, "annotations": {CHANGE: allow}}}))
    };
    let code = "WVA-VA-014";
    let yes = Some("true");
    for (old, new, refused) in [
        (with(Some("a"), None), with(Some("a"), None), false),
        (with(Some("a"), None), with(Some("b"), None), true),
        (with(Some("a"), None), with(None, None), true),
        (with(Some("a"), None), with(Some("b"), yes), false),
        (with(Some("a"), yes), with(Some("b"), yes), true),
        (with(Some("a"), Some("false")), with(Some("b"), yes), false),
        (with(Some("a"), None), with(Some("b"), Some("yes")), true),
        (with(None, None), with(Some("b"), None), false),
    ] {
        for reach in [Reach::All, Reach::Own] {
            let facts = Facts { instance: Some("a"), reach, ..update(&old, &new) };
            if refused { rejects(&facts, code) } else { silent(&facts, code) }
        }
    }
}

#[test]
fn a_removed_label_is_put_back_where_the_namespace_is_the_instances_own() {
    let (old, new) = (va(json!({"metadata": {"labels": {INSTANCE: "a"}}})), va(json!({})));
    let facts = Facts { instance: Some("a"), namespace_owned: true, ..update(&old, &new) };
    assert_eq!(mutate(&facts).patch.len(), 1);
    rejects(&facts, "WVA-VA-014");
}

#[test]
fn an_update_of_finalizers_alone_gets_no_label_that_could_refuse_it() {
    let others = [other("y", Some("a"), "apps/v1", "2026-01-01T00:00:00Z")];
    let (old, new) = (va(json!({"metadata": {"finalizers": ["f"]}})), va(json!({})));
    let facts = Facts { instance: Some("a"), namespace_owned: true, others: &others, ..update(&old, &new) };
    let verdict = mutate(&facts);
    assert!(!verdict.denied() && verdict.patch.is_empty(), "{verdict:#?}");
    assert!(mutate(&Facts { operation: Operation::Create, old: None, ..facts }).denied());
}

#[test]
fn objects_of_others_are_not_judged() {
    let bad = va(json!({"metadata": {"labels": {INSTANCE: "b"}}, "spec": null}));
    for (instance, reach, judged) in [
        (None, Reach::Own, false),
        (Some("a"), Reach::Own, false),
        (Some("b"), Reach::Own, true),
        (None, Reach::All, true),
    ] {
        let facts = Facts { instance, reach, ..Facts::of(&bad) };
        assert_eq!(mutate(&facts).denied(), judged, "{instance:?} {reach:?}");
    }
}
