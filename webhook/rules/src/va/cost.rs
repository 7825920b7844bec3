//! Rules about `spec.variantCost`: a text that is a decimal number, finite in 64-bit floating point.

use serde_json::Value;

use crate::syntax::is_decimal;
use crate::table::{Check, Kind, Rule, Scope};
use crate::text::{quote, shorten};

/// The CRD's limit: 308 digits are the most that are finite in 64-bit floating point whatever they are.
const COST_CHARS: usize = 308;

pub(crate) const PATTERN: Rule = Rule {
    code: "WVA-VA-003",
    kind: Kind::Deny,
    scope: Scope::Object,
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
};
