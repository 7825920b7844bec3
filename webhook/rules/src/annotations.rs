//! Violations of variants that annotations of llm-d WVA v0.9 describe.

use serde_json::Value;
use wva_crds::names::{MODEL_ANNOTATION, VARIANT_COST_ANNOTATION};

use crate::defaults::apply_defaults;
use crate::evaluate::validate;
use crate::facts::Facts;
use crate::verdict::Severity;

/// Violations of the rules about a single object, in terms of the autoscaler's fields. Empty if there are none.
#[must_use]
pub fn annotation_violations(variant: &Value) -> Vec<String> {
    let mut object = variant.clone();
    apply_defaults(&mut object);
    let verdict = validate(&Facts { is_synced: false, ..Facts::new(&object) });
    let denied = verdict.violations.iter().filter(|v| v.severity == Severity::Deny);
    denied.map(|v| format!("{}: {} [{}]", source_field(&v.field), v.message, v.code)).collect()
}

/// The field of the autoscaler from which a field of the variant comes.
fn source_field(field: &str) -> String {
    let annotation = match field {
        "spec.modelID" => MODEL_ANNOTATION,
        "spec.variantCost" => VARIANT_COST_ANNOTATION,
        other => return other.to_owned(),
    };
    format!("metadata.annotations[{annotation}]")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wva_objects::AnnotatedVariant;

    use super::*;

    fn hpa(annotations: &Value) -> Value {
        json!({"kind": "HorizontalPodAutoscaler", "metadata": {"name": "h", "annotations": annotations},
            "spec": {"scaleTargetRef": {"name": "d"}}})
    }

    #[test]
    fn violations_name_annotation_value_and_remedy() {
        let violations = |annotations: Value| {
            let variant = AnnotatedVariant::from_autoscaler(&hpa(&annotations)).unwrap();
            annotation_violations(&variant.object())
        };
        let cost = |cost: &str| json!({MODEL_ANNOTATION: "m", VARIANT_COST_ANNOTATION: cost});
        for good in ["10", "0", "40.5"] {
            assert_eq!(violations(cost(good)), Vec::<String>::new(), "{good}");
        }
        for bad in ["$40/h", "-1", "1e3", "NaN"] {
            let found = violations(cost(bad)).join("; ");
            for part in
                ["metadata.annotations[llm-d.ai/variant-cost]: ", bad, "use a number such as", "[WVA-VA-003]"]
            {
                assert!(found.contains(part), "{part:?} is not in {found:?}");
            }
        }
        let model = violations(json!({MODEL_ANNOTATION: "a\tb"})).join("; ");
        assert!(
            model.starts_with("metadata.annotations[llm-d.ai/model-id]: ") && model.contains("[WVA-VA-008]"),
            "{model}"
        );
    }
}
