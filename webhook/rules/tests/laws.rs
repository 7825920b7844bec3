//! Laws that hold for every object, whatever it is: no panic, a second mutation changes nothing, an update that
//! changes nothing is never refused, and warnings keep their limits.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use wva_rules::{
    Facts, InstancePolicy, MAX_WARNING_BYTES, MAX_WARNING_CHARS, Operation, apply_defaults, mutate,
};

/// Keys that rules look at, so that arbitrary objects come near to real ones.
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

/// An object with the outline of a real one and anything in its parts.
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
        assert!(parent.get(&last).is_none_or(Value::is_null), "the patch adds only what is absent");
        parent.insert(last, op.value.clone());
    }
    done
}

proptest! {
    #[test]
    fn any_object_gets_a_verdict_within_the_limits(new in object(), old in object(), owned: bool) {
        let facts = Facts {
            operation: Operation::Update, old: Some(&old), instance: Some("a"), namespace_owned: owned,
            policy: InstancePolicy::Require, ..Facts::of(&new)
        };
        let verdict = mutate(&facts);
        prop_assert_eq!(verdict.denied(), verdict.to_status().is_some());
        prop_assert!(verdict.warnings.iter().all(|w| w.chars().count() <= MAX_WARNING_CHARS));
        prop_assert!(verdict.warnings.iter().map(String::len).sum::<usize>() <= MAX_WARNING_BYTES);
    }

    #[test]
    fn an_update_that_changes_nothing_is_never_refused(object in object(), owned: bool) {
        for policy in [InstancePolicy::Inject, InstancePolicy::Require] {
            let facts = Facts {
                operation: Operation::Update, old: Some(&object), instance: Some("a"), namespace_owned: owned,
                policy, ..Facts::of(&object)
            };
            let verdict = mutate(&facts);
            prop_assert!(!verdict.denied(), "{:#?}", verdict);
        }
    }

    #[test]
    fn a_second_mutation_changes_nothing(model in "[a-z]{1,9}", labels in proptest::option::of(proptest::collection::btree_map("[a-z]{1,5}", "[a-z]{1,5}", 0..3))) {
        let mut object = json!({
            "metadata": {"name": "x", "labels": labels}, "spec": {"scaleTargetRef": {"name": "y"}, "modelID": model},
        });
        apply_defaults(&mut object);
        let facts = Facts { instance: Some("a"), namespace_owned: true, ..Facts::of(&object) };
        let once = apply(&object, &mutate(&facts).patch);
        prop_assert_eq!(&once["metadata"]["labels"]["wva.llmd.ai/controller-instance"], "a");
        let again = mutate(&Facts { object: &once, ..facts });
        prop_assert!(again.patch.is_empty());
        let mut defaulted = once.clone();
        apply_defaults(&mut defaulted);
        prop_assert_eq!(defaulted, once);
    }
}
