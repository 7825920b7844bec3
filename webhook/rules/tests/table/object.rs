//! Rules about single objects, on creation and on updates.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wva_rules::{Check, Facts, Kind, Operation, RULES, Verdict, validate};

use crate::{ACCELERATOR, INSTANCE, MODE, SHARED, assert_denied, assert_warned, merge, update, va};

/// A rule about single objects, with an accepted change and denied ones.
struct Case {
    code: &'static str,
    accepted: Value,
    denied: Vec<Value>,
}

/// Makes a case from an accepted value and denied values of the field at `path`.
fn case(code: &'static str, path: &[&str], accepted: Value, denied: Value) -> Case {
    let change = |value: Value| path.iter().rev().fold(value, |inner, key| json!({*key: inner}));
    let Value::Array(denied) = denied else { panic!("{code}: denied values must be a list") };
    Case { code, accepted: change(accepted), denied: denied.into_iter().map(change).collect() }
}

fn cases() -> Vec<Case> {
    spec_cases().into_iter().chain(intent_cases()).chain(metadata_cases()).collect()
}

fn spec_cases() -> Vec<Case> {
    let target = ["spec", "scaleTargetRef"];
    let target_field = |field| ["spec", "scaleTargetRef", field];
    vec![
        case("WVA-VA-001", &target, json!({}), json!([null, "llama"])),
        case(
            "WVA-VA-002",
            &target_field("name"),
            json!("a.b-1"),
            json!([null, "", "Llama", 7, "a".repeat(254)]),
        ),
        case(
            "WVA-VA-003",
            &["spec", "variantCost"],
            json!("0.25"),
            json!(["abc", "-1", "1e400", 10, "", "9".repeat(309)]),
        ),
        case(
            "WVA-VA-004",
            &target_field("kind"),
            json!("StatefulSet"),
            json!(["Pod", "CronJob", "", 1, "K".repeat(64)]),
        ),
        case(
            "WVA-VA-005",
            &target_field("apiVersion"),
            json!("apps/v1"),
            json!(["", ["apps/v1"], "a".repeat(318)]),
        ),
        case("WVA-VA-006", &["spec", "modelID"], json!("a b"), json!([null, "", "   ", "\u{a0}", {"a": 1}])),
        case(
            "WVA-VA-007",
            &["spec", "modelID"],
            json!("m".repeat(512)),
            json!(["m".repeat(513), "é".repeat(257)]),
        ),
        case("WVA-VA-008", &["spec", "modelID"], json!("größe"), json!(["a\nb", "a\u{7f}", "a\u{85}b"])),
        case("WVA-VA-009", &["spec", "minReplicas"], json!(0), json!([-1, "1", 1.5, 2_147_483_648_i64])),
        case("WVA-VA-010", &["spec", "maxReplicas"], json!(2_147_483_647), json!([-1, true])),
        case(
            "WVA-VA-011",
            &["spec"],
            json!({"minReplicas": 2, "maxReplicas": 2}),
            json!([{"minReplicas": 3, "maxReplicas": 2}, {"minReplicas": 3.0, "maxReplicas": 2}]),
        ),
        case("WVA-VA-018", &["spec"], json!({}), json!([null, []])),
    ]
}

fn intent_cases() -> [Case; 7] {
    let target = ["spec", "scaleTargetRef"];
    let paused = json!({"annotations": {MODE: "paused"}});
    [
        case(
            "WVA-VA-022",
            &target,
            json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}),
            json!([{"kind": "LeaderWorkerSet"}, {"apiVersion": "apps/v2", "kind": "Rollout"}]),
        ),
        case(
            "WVA-VA-023",
            &[],
            json!({"metadata": {"labels": null}, "spec": {"accelerator": "L4"}}),
            json!([
                {"metadata": {"labels": null}, "spec": {"accelerator": "H"}},
                {"metadata": {"labels": null}, "spec": {"accelerator": "H100 NVL"}},
                {"metadata": {"labels": null}, "spec": {"accelerator": "A".repeat(64)}},
                {"spec": {"accelerator": 100}},
            ]),
        ),
        case("WVA-VA-024", &["spec", "mode"], json!("Paused"), json!(["paused", "", 1])),
        case(
            "WVA-VA-025",
            &["spec"],
            json!({"mode": "Fixed", "fixedReplicas": 0}),
            json!([{"mode": "Fixed", "fixedReplicas": -1}, {"mode": "Fixed", "fixedReplicas": "3"}]),
        ),
        case(
            "WVA-VA-026",
            &["spec"],
            json!({"mode": "Fixed", "fixedReplicas": 3}),
            json!([{"mode": "Fixed"}, {"mode": "Auto", "fixedReplicas": 3}, {"fixedReplicas": 3}]),
        ),
        case("WVA-VA-027", &["spec", "accelerator"], json!("H100"), json!(["A100"])),
        case(
            "WVA-VA-028",
            &[],
            json!({"metadata": paused, "spec": {"mode": "Paused"}}),
            json!([
                {"metadata": paused, "spec": {"mode": "Auto"}},
                {"metadata": {"annotations": {MODE: "fixed=3"}}, "spec": {"mode": "Fixed", "fixedReplicas": 4}},
            ]),
        ),
    ]
}

fn metadata_cases() -> [Case; 6] {
    [
        case("WVA-VA-012", &["metadata", "labels", INSTANCE], json!("a-1"), json!(["", "a b"])),
        case("WVA-VA-016", &["metadata", "labels", ACCELERATOR], json!("H1"), json!(["H", ""])),
        case(
            "WVA-VA-017",
            &["metadata", "annotations", MODE],
            json!("fixed=3"),
            json!(["Auto", "", "fixed=", "fixed=-1", "fixed=+1", "fixed=2147483648"]),
        ),
        case(
            "WVA-VA-021",
            &["metadata", "annotations", "wva.llmd.ai/pod-deletion-cost"],
            json!("true"),
            json!(["True", "", "yes"]),
        ),
        case("WVA-VA-019", &["metadata", "labels"], Value::Null, json!(["a", {"a": true}])),
        case("WVA-VA-020", &["metadata", "annotations"], json!({}), json!([{"a": 1}])),
    ]
}

#[test]
fn admits_a_valid_object_without_warnings() {
    assert_eq!(validate(&Facts::new(&va(json!({})))), Verdict { name: "x".into(), ..Verdict::default() });
}

#[test]
fn each_rule_accepts_and_denies_its_cases() {
    for Case { code, accepted, denied } in cases() {
        let accepted = va(accepted);
        let verdict = validate(&Facts::new(&accepted));
        assert!(!verdict.is_denied(), "{code}: {verdict:#?}");
        for change in denied {
            assert_denied(&Facts::new(&va(change)), code);
        }
    }
}

#[test]
fn an_old_violation_is_a_warning_and_a_new_one_a_denial() {
    for Case { code, accepted, denied } in cases() {
        let (good, bad, valid) =
            (va(accepted), va(denied[0].clone()), va(json!({"spec": {"variantCost": "7"}})));
        let mut changed_elsewhere = bad.clone();
        let elsewhere = if code == "WVA-VA-020" {
            json!({"spec": {"variantCost": "3"}})
        } else {
            json!({"metadata": {"annotations": {SHARED: "true"}}})
        };
        merge(&mut changed_elsewhere, elsewhere);
        assert_warned(&update(&bad, &changed_elsewhere), code);
        assert_denied(&update(&valid, &bad), code);
        assert!(!validate(&update(&bad, &good)).is_denied(), "{code}: a fix is admitted");
        assert_warned(&update(&bad, &bad), code);
        assert!(!validate(&Facts { operation: Operation::Delete, ..Facts::new(&bad) }).is_denied());
    }
}

#[test]
fn denies_an_update_that_changes_a_violation() {
    let (old, new) = (
        va(json!({"spec": {"minReplicas": 5, "maxReplicas": 3}})),
        va(json!({"spec": {"minReplicas": 5, "maxReplicas": 4}})),
    );
    assert_denied(&update(&old, &new), "WVA-VA-011");
}

#[test]
fn the_table_is_consistent() {
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
        assert!(rule.docs.ends_with('.'), "{}: docs must be sentences", rule.code);
        let about_variants = matches!(rule.check, Check::Variant(_));
        let prefix = match rule.check {
            Check::Variant(_) => "WVA-VA",
            Check::ConfigMap(_) => "WVA-CM",
            Check::Autoscaler(_) => "WVA-HPA",
        };
        assert_eq!(subject, prefix, "{}", rule.code);
        let denies = rule.kind == Kind::Deny && about_variants;
        assert_eq!(denies, !rule.reads.is_empty(), "{}: deny rules for variants need reads", rule.code);
        if denies {
            let (problem, remedy) = rule.message.split_once("; ").unwrap_or_default();
            assert!(!remedy.is_empty(), "{}: the message needs a remedy", rule.code);
            let has_value = problem.contains("{found}") || problem == "missing";
            assert!(has_value, "{}: the message needs the found value", rule.code);
        }
    }
    let tested: BTreeSet<_> = cases().into_iter().map(|case| case.code).collect();
    let elsewhere = BTreeSet::from(["WVA-VA-013", "WVA-VA-014", "WVA-VA-015"]);
    let denies: BTreeSet<_> = RULES
        .iter()
        .filter(|r| r.kind == Kind::Deny && matches!(r.check, Check::Variant(_)))
        .map(|r| r.code)
        .collect();
    assert_eq!(denies, &tested | &elsewhere, "every deny rule has its cases");
}
