//! Rules about `spec.modelID`. The name goes into metric labels and queries, so it is bounded and printable; beyond
//! that it is whatever the model server says.

use serde_json::Value;

use crate::rule::{Check, DENY, Rule};
use crate::text::{quote, shorten};

/// Long enough for every name seen on model hubs, short enough for a metric label.
const MODEL_BYTES: usize = 512;

pub(crate) const REQUIRED: Rule = Rule {
    code: "WVA-VA-006",
    field: "spec.modelID",
    reads: &[&["spec", "modelID"]],
    message: "found {found}: without the model's name its load cannot be told from others'; give it as its server \
              does, e.g. meta-llama/Llama-3.1-8B",
    docs: "`spec.modelID` is required, is a text, and holds more than white space.",
    check: Check::Variant(|facts, out| match facts.spec("modelID") {
        None => {}
        Some(Value::Null) => out.absent(),
        Some(Value::String(id)) if !id.chars().all(char::is_whitespace) => {}
        Some(v) => out.value(v),
    }),
    ..DENY
};

pub(crate) const LENGTH: Rule = Rule {
    code: "WVA-VA-007",
    field: "spec.modelID",
    reads: &[&["spec", "modelID"]],
    message: "found {found}: a model's name becomes a metric label, which must stay short; use at most 512 bytes",
    docs: "`spec.modelID` has at most 512 bytes.",
    check: Check::Variant(|facts, out| {
        if let Some(Value::String(id)) = facts.spec("modelID")
            && id.len() > MODEL_BYTES
        {
            out.text(format!("{} ({} bytes)", quote(&shorten(id, 40)), id.len()), "");
        }
    }),
    ..DENY
};

pub(crate) const CONTROL: Rule = Rule {
    code: "WVA-VA-008",
    field: "spec.modelID",
    reads: &[&["spec", "modelID"]],
    message: "found {found}: it holds a control character, which no model's name has; remove it (often a line \
              break left by YAML's `|` or `>`)",
    docs: "`spec.modelID` holds no control characters. The most common one is the line break that YAML's `|` and `>` leave \
           at the end, and `|-` and `>-` do not.",
    check: Check::Variant(|facts, out| {
        if let Some(value @ Value::String(id)) = facts.spec("modelID")
            && id.chars().any(char::is_control)
        {
            out.value(value);
        }
    }),
    ..DENY
};

/// A name that all of these rules accept.
pub(crate) fn is_model(id: &str) -> bool {
    id.len() <= MODEL_BYTES && !id.chars().all(char::is_whitespace) && !id.chars().any(char::is_control)
}
