//! Laws for all objects: no panic, mutations are idempotent, an update without changes is never denied, and warnings stay
//! within their limits.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use wva_rules::{
    Facts, InstancePolicy, MAX_WARNING_BYTES, MAX_WARNING_CHARS, Operation, apply_defaults, mutate,
};

/// Mostly keys that rules read, so that random objects are similar to real ones.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => proptest::sample::select(vec![
            "metadata", "spec", "name", "labels", "annotations", "scaleTargetRef", "kind", "apiVersion", "modelID",
            "variantCost", "minReplicas", "maxReplicas", "wva.llmd.ai/controller-instance", "wva.llmd.ai/mode",
            "inference.optimization/acceleratorName", "wva.llmd.ai/controler-instance",
        ]).prop_map(str::to_owned),
        1 => ".*",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,80}".prop_map(Value::from),
        Just(json!("a")),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key(), inner, 0..8)
                .prop_map(|m| Value::Object(m.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// An object with the structure of a variant and random parts.
fn object() -> impl Strategy<Value = Value> {
    let part = || prop_oneof![value(), Just(json!({})), Just(Value::Null)];
    prop_oneof![
        value(),
        (part(), part(), part(), part()).prop_map(|(labels, annotations, target, model)| json!({
            "metadata": {"name": "x", "labels": labels, "annotations": annotations},
            "spec": {"scaleTargetRef": target, "modelID": model},
        })),
    ]
}

fn apply(object: &Value, patch: &[wva_rules::PatchOp]) -> Value {
    let mut done = object.clone();
    for op in patch {
        let (parent, last) = op.path.rsplit_once('/').unwrap();
        let last = last.replace("~1", "/").replace("~0", "~");
        let parent = done.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        assert!(parent.get(&last).is_none_or(Value::is_null), "the patch adds only absent fields");
        parent.insert(last, op.value.clone());
    }
    done
}

proptest! {
    #[test]
    fn verdicts_stay_within_the_limits(new in object(), old in object(), owned: bool) {
        let facts = Facts {
            operation: Operation::Update, old: Some(&old), instance: Some("a"), is_namespace_owned: owned,
            policy: InstancePolicy::Require, ..Facts::new(&new)
        };
        let verdict = mutate(&facts);
        prop_assert_eq!(verdict.is_denied(), verdict.to_status().is_some());
        prop_assert!(verdict.warnings.iter().all(|w| w.chars().count() <= MAX_WARNING_CHARS));
        prop_assert!(verdict.warnings.iter().map(String::len).sum::<usize>() <= MAX_WARNING_BYTES);
    }

    #[test]
    fn admits_an_update_without_changes(object in object(), owned: bool) {
        for policy in [InstancePolicy::Inject, InstancePolicy::Require] {
            let facts = Facts {
                operation: Operation::Update, old: Some(&object), instance: Some("a"), is_namespace_owned: owned,
                policy, ..Facts::new(&object)
            };
            let verdict = mutate(&facts);
            prop_assert!(!verdict.is_denied(), "{:#?}", verdict);
        }
    }

    #[test]
    fn mutation_is_idempotent(model in "[a-z]{1,9}", labels in proptest::option::of(proptest::collection::btree_map("[a-z]{1,5}", "[a-z]{1,5}", 0..3))) {
        let mut object = json!({
            "metadata": {"name": "x", "labels": labels}, "spec": {"scaleTargetRef": {"name": "y"}, "modelID": model},
        });
        apply_defaults(&mut object);
        let facts = Facts { instance: Some("a"), is_namespace_owned: true, ..Facts::new(&object) };
        let once = apply(&object, &mutate(&facts).patch);
        prop_assert_eq!(&once["metadata"]["labels"]["wva.llmd.ai/controller-instance"], "a");
        let again = mutate(&Facts { object: &once, ..facts });
        prop_assert!(again.patch.is_empty());
        let mut defaulted = once.clone();
        apply_defaults(&mut defaulted);
        prop_assert_eq!(defaulted, once);
    }
}
