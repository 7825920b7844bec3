//! Defaults of the CRD schema, for callers without an API server.

use serde_json::{Map, Value, json};
use wva_crds::names::DEFAULT_VARIANT_COST;
use wva_objects::{DEFAULT_API_VERSION, DEFAULT_KIND};

/// Defaults `spec.variantCost`, `spec.scaleTargetRef.apiVersion` and `.kind`. A `null` label or annotation becomes
/// empty text, as the API server stores it. Rules report values of a wrong type.
pub fn apply_defaults(object: &mut Value) {
    for texts in ["/metadata/labels", "/metadata/annotations"] {
        let texts = object.pointer_mut(texts).and_then(Value::as_object_mut);
        for text in texts.into_iter().flat_map(Map::values_mut).filter(|text| text.is_null()) {
            *text = json!("");
        }
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    set_default(spec, "variantCost", DEFAULT_VARIANT_COST);
    if let Some(target) = spec.get_mut("scaleTargetRef").and_then(Value::as_object_mut) {
        set_default(target, "apiVersion", DEFAULT_API_VERSION);
        set_default(target, "kind", DEFAULT_KIND);
    }
}

fn set_default(map: &mut Map<String, Value>, key: &str, value: &str) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), json!(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_labels_and_annotations_become_empty() {
        let mut object =
            json!({"metadata": {"labels": {"a": null, "b": "x"}, "annotations": {"c": null, "d": 7}}});
        apply_defaults(&mut object);
        assert_eq!(
            object,
            json!({"metadata": {"labels": {"a": "", "b": "x"}, "annotations": {"c": "", "d": 7}}})
        );
        let mut bare = json!({"metadata": {"labels": null, "annotations": "x"}});
        apply_defaults(&mut bare);
        assert_eq!(bare, json!({"metadata": {"labels": null, "annotations": "x"}}));
    }
}
