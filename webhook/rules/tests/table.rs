//! Every rule against an object it accepts and one it refuses, the laws that hold for all rules, and the form in
//! which a verdict is told.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wva_rules::{
    Check, Facts, InstancePolicy, Kind, MAX_WARNING_BYTES, MAX_WARNING_CHARS, Operation, OtherVariant, RULES,
    Reach, Severity, Target, Verdict, apply_defaults, mutate, validate,
};

const ACCELERATOR: &str = "inference.optimization/acceleratorName";
const INSTANCE: &str = "wva.llmd.ai/controller-instance";
const CHANGE: &str = "wva.llmd.ai/allow-instance-change";
const SHARED: &str = "wva.llmd.ai/allow-shared-target";
const MODE: &str = "wva.llmd.ai/mode";

/// An object without a fault, with `change` merged over it (RFC 7386: `null` removes).
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

fn other(name: &str, instance: Option<&str>, api_version: &str, created: &str) -> OtherVariant {
    let target = Target { api_version: api_version.into(), kind: "Deployment".into(), name: "llama".into() };
    OtherVariant {
        name: name.into(),
        instance: instance.map(str::to_owned),
        target,
        created: Some(created.into()),
    }
}

#[track_caller]
fn find<'v>(verdict: &'v Verdict, code: &str) -> &'v wva_rules::Violation {
    let found = verdict.violations.iter().find(|v| v.code == code);
    found.unwrap_or_else(|| panic!("no {code} in {verdict:#?}"))
}

/// Refused, and by this rule alone.
#[track_caller]
fn rejects(facts: &Facts<'_>, code: &str) {
    let verdict = validate(facts);
    let codes: BTreeSet<_> = verdict.denials().map(|v| v.code).collect();
    assert_eq!(codes, BTreeSet::from([code]), "{verdict:#?}");
}

#[track_caller]
fn warns(facts: &Facts<'_>, code: &str) {
    let verdict = validate(facts);
    assert!(!verdict.denied(), "{verdict:#?}");
    assert_eq!(find(&verdict, code).severity, Severity::Warn);
    assert!(verdict.warnings.iter().any(|w| w.contains(code)), "{verdict:#?}");
}

#[track_caller]
fn silent(facts: &Facts<'_>, code: &str) {
    let verdict = validate(facts);
    assert!(verdict.violations.iter().all(|v| v.code != code), "{verdict:#?}");
}

#[expect(clippy::too_many_lines, reason = "a table")]
/// Rules that one object on its own can break: code, an accepted change, refused changes.
fn alone() -> Vec<(&'static str, Value, Vec<Value>)> {
    let name = |n: Value| json!({"spec": {"scaleTargetRef": {"name": n}}});
    let kind = |k: Value| json!({"spec": {"scaleTargetRef": {"kind": k}}});
    let version = |v: Value| json!({"spec": {"scaleTargetRef": {"apiVersion": v}}});
    let model = |m: Value| json!({"spec": {"modelID": m}});
    let cost = |c: Value| json!({"spec": {"variantCost": c}});
    let min = |n: Value| json!({"spec": {"minReplicas": n}});
    let max = |n: Value| json!({"spec": {"maxReplicas": n}});
    let instance = |l: Value| json!({"metadata": {"labels": {INSTANCE: l}}});
    let accelerator = |l: Value| json!({"metadata": {"labels": {ACCELERATOR: l}}});
    let mode = |m: Value| json!({"metadata": {"annotations": {MODE: m}}});
    vec![
        (
            "WVA-VA-001",
            json!({}),
            vec![json!({"spec": {"scaleTargetRef": null}}), json!({"spec": {"scaleTargetRef": "llama"}})],
        ),
        (
            "WVA-VA-002",
            name(json!("a.b-1")),
            vec![
                name(Value::Null),
                name(json!("")),
                name(json!("Llama")),
                name(json!(7)),
                name(json!("a".repeat(254))),
            ],
        ),
        (
            "WVA-VA-003",
            cost(json!("0.25")),
            vec![
                cost(json!("abc")),
                cost(json!("-1")),
                cost(json!("1e400")),
                cost(json!(10)),
                cost(json!("")),
                cost(json!("9".repeat(309))),
            ],
        ),
        (
            "WVA-VA-004",
            kind(json!("StatefulSet")),
            vec![
                kind(json!("Pod")),
                kind(json!("CronJob")),
                kind(json!("")),
                kind(json!(1)),
                kind(json!("K".repeat(64))),
            ],
        ),
        (
            "WVA-VA-005",
            version(json!("apps/v1")),
            vec![version(json!("")), version(json!(["apps/v1"])), version(json!("a".repeat(318)))],
        ),
        (
            "WVA-VA-006",
            model(json!("a b")),
            vec![
                model(Value::Null),
                model(json!("")),
                model(json!("   ")),
                model(json!("\u{a0}")),
                model(json!({"a": 1})),
            ],
        ),
        (
            "WVA-VA-007",
            model(json!("m".repeat(512))),
            vec![model(json!("m".repeat(513))), model(json!("é".repeat(257)))],
        ),
        (
            "WVA-VA-008",
            model(json!("größe")),
            vec![model(json!("a\nb")), model(json!("a\u{7f}")), model(json!("a\u{85}b"))],
        ),
        (
            "WVA-VA-009",
            min(json!(0)),
            vec![min(json!(-1)), min(json!("1")), min(json!(1.5)), min(json!(2_147_483_648_i64))],
        ),
        ("WVA-VA-010", max(json!(2_147_483_647)), vec![max(json!(-1)), max(json!(true))]),
        (
            "WVA-VA-011",
            json!({"spec": {"minReplicas": 2, "maxReplicas": 2}}),
            vec![
                json!({"spec": {"minReplicas": 3, "maxReplicas": 2}}),
                json!({"spec": {"minReplicas": 3.0, "maxReplicas": 2}}),
            ],
        ),
        ("WVA-VA-012", instance(json!("a-1")), vec![instance(json!("")), instance(json!("a b"))]),
        ("WVA-VA-016", accelerator(json!("H1")), vec![accelerator(json!("H")), accelerator(json!(""))]),
        (
            "WVA-VA-017",
            mode(json!("fixed=3")),
            vec![
                mode(json!("Auto")),
                mode(json!("")),
                mode(json!("fixed=")),
                mode(json!("fixed=-1")),
                mode(json!("fixed=+1")),
                mode(json!("fixed=2147483648")),
            ],
        ),
        ("WVA-VA-018", json!({}), vec![json!({"spec": null}), json!({"spec": []})]),
        (
            "WVA-VA-019",
            json!({"metadata": {"labels": null}}),
            vec![json!({"metadata": {"labels": "a"}}), json!({"metadata": {"labels": {"a": true}}})],
        ),
        ("WVA-VA-020", json!({}), vec![json!({"metadata": {"annotations": {"a": 1}}})]),
    ]
}

#[test]
fn an_object_without_a_fault_passes_in_silence() {
    assert_eq!(validate(&Facts::of(&va(json!({})))), Verdict { name: "x".into(), ..Verdict::default() });
}

#[test]
fn each_rule_of_one_object_refuses_and_accepts() {
    for (code, accepted, refused) in alone() {
        let accepted = va(accepted);
        let verdict = validate(&Facts::of(&accepted));
        assert!(!verdict.denied(), "{code}: {verdict:#?}");
        for change in refused {
            rejects(&Facts::of(&va(change)), code);
        }
    }
}

#[test]
fn a_fault_that_was_there_before_is_a_warning_and_a_new_one_is_not() {
    for (code, accepted, refused) in alone() {
        let (good, bad, faultless) =
            (va(accepted), va(refused[0].clone()), va(json!({"spec": {"variantCost": "7"}})));
        let mut touched_elsewhere = bad.clone();
        let elsewhere = if code == "WVA-VA-020" {
            json!({"spec": {"variantCost": "3"}})
        } else {
            json!({"metadata": {"annotations": {SHARED: "true"}}})
        };
        merge(&mut touched_elsewhere, elsewhere);
        let update = |new, old| Facts { operation: Operation::Update, old: Some(old), ..Facts::of(new) };
        warns(&update(&touched_elsewhere, &bad), code);
        rejects(&update(&bad, &faultless), code);
        assert!(!validate(&update(&good, &bad)).denied(), "{code}: a repair is admitted");
        warns(&update(&bad, &bad), code);
        assert!(!validate(&Facts { operation: Operation::Delete, ..Facts::of(&bad) }).denied());
    }
}

#[test]
fn a_fault_that_an_update_makes_differently_wrong_is_refused() {
    let (old, new) = (
        va(json!({"spec": {"minReplicas": 5, "maxReplicas": 3}})),
        va(json!({"spec": {"minReplicas": 5, "maxReplicas": 4}})),
    );
    rejects(&Facts { operation: Operation::Update, old: Some(&old), ..Facts::of(&new) }, "WVA-VA-011");
}

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
            let facts = Facts {
                operation: Operation::Update,
                old: Some(&old),
                instance: Some("a"),
                reach,
                ..Facts::of(&new)
            };
            if refused { rejects(&facts, code) } else { silent(&facts, code) }
        }
    }
}

#[test]
fn a_removed_label_is_put_back_where_the_namespace_is_the_instances_own() {
    let (old, new) = (va(json!({"metadata": {"labels": {INSTANCE: "a"}}})), va(json!({})));
    let facts = Facts {
        operation: Operation::Update,
        old: Some(&old),
        instance: Some("a"),
        namespace_owned: true,
        ..Facts::of(&new)
    };
    assert_eq!(mutate(&facts).patch.len(), 1);
    rejects(&facts, "WVA-VA-014");
}

#[test]
fn an_update_of_finalizers_alone_gets_no_label_that_could_refuse_it() {
    let others = [other("y", Some("a"), "apps/v1", "2026-01-01T00:00:00Z")];
    let (old, new) = (va(json!({"metadata": {"finalizers": ["f"]}})), va(json!({})));
    let facts = Facts {
        operation: Operation::Update,
        old: Some(&old),
        instance: Some("a"),
        namespace_owned: true,
        others: &others,
        ..Facts::of(&new)
    };
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
    let misspelt = va(json!({"spec": {"modelId": "m"}}));
    assert!(validate(&Facts::of(&misspelt)).warnings[0].contains("modelID?"));
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
    let updated = Facts { operation: Operation::Update, old: Some(&old), ..Facts::of(&new) };
    assert!(validate(&updated).violations.len() < 200);
}

#[test]
fn warnings_stay_within_the_apiservers_limits() {
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
    let facts = Facts { others: &others, target_exists: Some(false), ..Facts::of(&object) };
    let verdict = validate(&facts);
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
    let whole = |code: &str, end: &str| {
        let told = verdict.warnings.iter().find(|w| w.contains(code)).unwrap();
        assert!(told.ends_with(end), "the rule's own words are whole: {told}");
    };
    whole("WVA-VA-051", "/scale subresource");
    whole("WVA-VA-052", "of another instance");
    whole("WVA-VA-054", "when it does");
    whole("WVA-VA-055", "H100");
}

#[test]
fn the_table_is_in_order() {
    let codes: BTreeSet<_> = RULES.iter().map(|r| r.code).collect();
    assert_eq!(codes.len(), RULES.len(), "codes are unique");
    for rule in RULES {
        let (subject, number) = rule.code.rsplit_once('-').unwrap();
        let number: u32 = number.parse().unwrap();
        let want = match number {
            0..50 => Kind::Deny,
            50..90 => Kind::Warn,
            _ => Kind::Mutate,
        };
        assert_eq!(rule.kind, want, "{}", rule.code);
        assert!(rule.docs.ends_with('.'), "{}: docs are sentences", rule.code);
        let about_variants = matches!(rule.check, Check::Variant(_));
        assert_eq!(subject, if about_variants { "WVA-VA" } else { "WVA-CM" }, "{}", rule.code);
        let refuses = rule.kind == Kind::Deny && about_variants;
        assert_eq!(refuses, !rule.reads.is_empty(), "{}: refusals of variants say what they read", rule.code);
        if refuses {
            assert!(rule.message.starts_with("found {found}"), "{}: says what was found", rule.code);
            assert!(
                rule.message.contains(": ") && rule.message.contains("; "),
                "{}: and why, and what",
                rule.code
            );
        }
    }
    let tested: BTreeSet<_> = alone().into_iter().map(|(code, ..)| code).collect();
    let elsewhere = BTreeSet::from(["WVA-VA-013", "WVA-VA-014", "WVA-VA-015"]);
    let denies: BTreeSet<_> = RULES
        .iter()
        .filter(|r| r.kind == Kind::Deny && matches!(r.check, Check::Variant(_)))
        .map(|r| r.code)
        .collect();
    assert_eq!(denies, &tested | &elsewhere, "every refusal has its fixtures");
}
