//! Rules about `spec.variantCost`: a finite decimal number as text, and explicit if another variant sets its cost.

use serde_json::Value;
use wva_crds::names::DEFAULT_VARIANT_COST;

use crate::rule::{Check, DENY, Rule, Scope, WARN};
use crate::syntax::is_decimal;
use crate::text::{quote, shorten};
use wva_objects::json::at;

/// Same limit as in the CRD: all numbers of up to 308 digits are finite in 64-bit floating point.
const MAX_COST_CHARS: usize = 308;

pub(crate) const PATTERN: Rule = Rule {
    code: "WVA-VA-003",
    field: "spec.variantCost",
    reads: &[&["spec", "variantCost"]],
    message: "{found} is not a decimal number in quotes; use a number such as \"10.0\" without sign, unit or exponent",
    docs: "`spec.variantCost` must be text that matches `^\\d+(\\.\\d+)?$`, with at most 308 characters, so that the \
           number is finite.",
    check: Check::Variant(|facts, out| match facts.spec("variantCost") {
        Some(Value::String(cost)) if is_decimal(cost) && cost.len() <= MAX_COST_CHARS => {}
        Some(Value::String(cost)) if cost.len() > MAX_COST_CHARS => {
            out.add(format!("{} ({} bytes)", quote(&shorten(cost, 40)), cost.len()), "");
            out.set_remedy(", and at most 308 characters");
        }
        None | Some(Value::Null) => {}
        Some(v) => out.add_value(v),
    }),
    ..DENY
};

pub(crate) const DEFAULT: Rule = Rule {
    code: "WVA-VA-062",
    scope: Scope::Cluster,
    field: "spec.variantCost",
    message: "default cost, but variant {found} sets its own; set this one, too",
    docs: "`spec.variantCost` has the default value, but another variant of the model in the namespace sets its own cost. \
           The controller compares both. An explicit `\"10.0\"` looks like the default, so write `\"10\"` instead.",
    check: Check::Variant(|facts, out| {
        let is_default = match facts.spec("variantCost") {
            Some(Value::Null) => true,
            Some(Value::String(cost)) => cost == DEFAULT_VARIANT_COST,
            _ => false,
        };
        if is_default && let Some(other) = facts.variant_with_own_cost {
            out.add(quote(other), "");
        }
    }),
    ..WARN
};

/// Model of a variant whose cost differs from the default, as a number.
#[must_use]
pub fn model_with_own_cost(object: &Value) -> Option<&str> {
    let text = |field| at(object, &["spec", field]).and_then(Value::as_str);
    let cost = text("variantCost").filter(|cost| is_decimal(cost))?;
    text("modelID").filter(|_| cost.parse::<f64>().ok() != DEFAULT_VARIANT_COST.parse().ok())
}
