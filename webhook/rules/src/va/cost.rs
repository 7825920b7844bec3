//! Rules about `spec.variantCost`: a text that is a decimal number, finite in 64-bit floating point, and one that
//! somebody chose where it is compared with others.

use serde_json::Value;
use wva_crds::names::DEFAULT_VARIANT_COST;

use crate::facts::at;
use crate::rule::{Check, DENY, Rule, Scope, WARN};
use crate::syntax::is_decimal;
use crate::text::{quote, shorten};

/// The CRD's limit: 308 digits are the most that are finite in 64-bit floating point whatever they are.
const COST_CHARS: usize = 308;

pub(crate) const PATTERN: Rule = Rule {
    code: "WVA-VA-003",
    field: "spec.variantCost",
    reads: &[&["spec", "variantCost"]],
    message: "found {found}: costs are compared as numbers; write the cost of one replica as a decimal number \
              in quotes, without sign, unit or exponent, e.g. \"10.0\"",
    docs: "`spec.variantCost` is a text that matches `^\\d+(\\.\\d+)?$`, of at most 308 characters, which keeps it \
           finite.",
    check: Check::Variant(|facts, out| match facts.spec("variantCost") {
        Some(Value::String(cost)) if is_decimal(cost) && cost.len() <= COST_CHARS => {}
        Some(Value::String(cost)) if cost.len() > COST_CHARS => {
            out.text(format!("{} ({} bytes)", quote(&shorten(cost, 40)), cost.len()), "");
        }
        None | Some(Value::Null) => {}
        Some(v) => out.value(v),
    }),
    ..DENY
};

pub(crate) const DEFAULT: Rule = Rule {
    code: "WVA-VA-062",
    scope: Scope::Cluster,
    field: "spec.variantCost",
    message: "left at the default, while {found} sets its own: they are compared",
    docs: "`spec.variantCost` is left at the default while another variant of the model in the namespace sets one of \
           its own. The schema fills the default in, so a `\"10.0\"` that was chosen looks the same: write `\"10\"`.",
    check: Check::Variant(|facts, out| {
        let left = match facts.spec("variantCost") {
            Some(Value::Null) => true,
            Some(Value::String(cost)) => cost == DEFAULT_VARIANT_COST,
            _ => false,
        };
        if left && let Some(other) = facts.cost_set_by {
            out.text(quote(other), "");
        }
    }),
    ..WARN
};

/// The model of a variant whose cost somebody chose: any but the default, however that is written.
#[must_use]
pub fn sets_cost(object: &Value) -> Option<&str> {
    let text = |field| at(object, &["spec", field]).and_then(Value::as_str);
    let cost = text("variantCost").filter(|cost| is_decimal(cost))?;
    text("modelID").filter(|_| cost.parse::<f64>().ok() != DEFAULT_VARIANT_COST.parse().ok())
}
