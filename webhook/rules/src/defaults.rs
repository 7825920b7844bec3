//! The defaults that the CRD's schema fills in on a real apiserver. Callers without one (`wva validate`, tests) apply
//! them first, so that they judge the object a webhook would have seen.

use serde_json::{Map, Value, json};
use wva_crds::names::DEFAULT_VARIANT_COST;

pub(crate) const API_VERSION: &str = "apps/v1";
pub(crate) const KIND: &str = "Deployment";

/// Fills in what the schema of `VariantAutoscaling` defaults, where it is absent or `null`: `spec.variantCost`,
/// `spec.scaleTargetRef.apiVersion` and `.kind`. Wrong types are left as they are, for a rule to name.
pub fn apply_defaults(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    default(spec, "variantCost", DEFAULT_VARIANT_COST);
    if let Some(target) = spec.get_mut("scaleTargetRef").and_then(Value::as_object_mut) {
        default(target, "apiVersion", API_VERSION);
        default(target, "kind", KIND);
    }
}

fn default(map: &mut Map<String, Value>, key: &str, value: &str) {
    if map.get(key).is_none_or(Value::is_null) {
        map.insert(key.to_owned(), json!(value));
    }
}
