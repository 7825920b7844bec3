//! Rules about `spec.modelID`, which metric labels and queries contain.

use serde_json::Value;

use crate::rule::{Check, DENY, Rule};
use crate::text::{quote, shorten};

/// Enough for names on model hubs, short enough for a metric label.
const MAX_MODEL_BYTES: usize = 512;

pub(crate) const REQUIRED: Rule = Rule {
    code: "WVA-VA-006",
    field: "spec.modelID",
    reads: &[&["spec", "modelID"]],
    message: "{found} is not a model name; use the name that the model server reports, such as meta-llama/Llama-3.1-8B",
    docs: "`spec.modelID` is required and must be text that is not only white space.",
    check: Check::Variant(|facts, out| match facts.spec("modelID") {
        None => {}
        Some(Value::Null) => out.add_missing(),
        Some(Value::String(id)) if !id.chars().all(char::is_whitespace) => {}
        Some(v) => out.add_value(v),
    }),
    ..DENY
};

pub(crate) const LENGTH: Rule = Rule {
    code: "WVA-VA-007",
    field: "spec.modelID",
    reads: &[&["spec", "modelID"]],
    message: "{found} is too long for a metric label; use at most 512 bytes",
    docs: "`spec.modelID` must have at most 512 bytes.",
    check: Check::Variant(|facts, out| {
        if let Some(Value::String(id)) = facts.spec("modelID")
            && id.len() > MAX_MODEL_BYTES
        {
            out.add(format!("{} ({} bytes)", quote(&shorten(id, 40)), id.len()), "");
        }
    }),
    ..DENY
};

pub(crate) const CONTROL: Rule = Rule {
    code: "WVA-VA-008",
    field: "spec.modelID",
    reads: &[&["spec", "modelID"]],
    message: "{found} contains a control character; remove it (in YAML, `|` and `>` add a line break, `|-` and `>-` do not)",
    docs: "`spec.modelID` must not contain control characters. The most common one is the line break that `|` and `>` add \
           in YAML; `|-` and `>-` add none.",
    check: Check::Variant(|facts, out| {
        if let Some(value @ Value::String(id)) = facts.spec("modelID")
            && id.chars().any(char::is_control)
        {
            out.add_value(value);
        }
    }),
    ..DENY
};

/// Satisfies all these rules.
pub(crate) fn is_model(id: &str) -> bool {
    id.len() <= MAX_MODEL_BYTES && !id.chars().all(char::is_whitespace) && !id.chars().any(char::is_control)
}
