//! Rules that one object on its own can break, on creation and on updates.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wva_rules::{Check, Facts, Kind, Operation, RULES, Verdict, validate};

use crate::{ACCELERATOR, INSTANCE, MODE, SHARED, merge, rejects, va, warns};

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
