//! Rules about the accelerator label and the mode annotation.

use serde_json::Value;
use wva_crds::names::{ACCELERATOR_LABEL, MODE_ANNOTATION};

use crate::rule::{Check, DENY, Rule, WARN};

pub(crate) const ACCELERATOR_SHORT: Rule = Rule {
    code: "WVA-VA-016",
    field: "metadata.labels[inference.optimization/acceleratorName]",
    reads: &[&["metadata", "labels", ACCELERATOR_LABEL]],
    message: "found {found}: no accelerator has so short a name; give its name, e.g. H100, or remove the label",
    docs: "The accelerator label, where present, has 2 characters or more.",
    check: Check::Variant(|facts, out| match facts.label(ACCELERATOR_LABEL) {
        Some(value @ Value::String(name)) if name.chars().count() < 2 => out.value(value),
        _ => {}
    }),
    ..DENY
};

pub(crate) const ACCELERATOR_ABSENT: Rule = Rule {
    code: "WVA-VA-055",
    field: "metadata.labels",
    message: "no inference.optimization/acceleratorName, e.g. H100",
    docs: "The accelerator label is absent and the accelerator cannot be told from the target; metrics then say \
           `unresolved`.",
    check: Check::Variant(|facts, out| {
        let labels = facts.get(&["metadata", "labels"]);
        if facts.accelerator_derivable != Some(true)
            && labels.is_none_or(Value::is_object)
            && facts.label(ACCELERATOR_LABEL).is_none()
        {
            out.text("", "");
        }
    }),
    ..WARN
};

pub(crate) const MODE: Rule = Rule {
    code: "WVA-VA-017",
    field: "metadata.annotations[wva.llmd.ai/mode]",
    reads: &[&["metadata", "annotations", MODE_ANNOTATION]],
    message: "found {found}: that is no mode, and guessing could scale the workload; use auto, recommend, paused \
              or fixed=N with N from 0 to 2147483647",
    docs: "The mode annotation, where present, is `auto` (the default), `recommend` (decide and show, publish nothing), \
           `paused` (hold the present target) or `fixed=N` (publish N, within the bounds).",
    check: Check::Variant(|facts, out| match facts.annotation(MODE_ANNOTATION) {
        Some(value @ Value::String(mode)) if !is_mode(mode) => out.value(value),
        _ => {}
    }),
    ..DENY
};

fn is_mode(mode: &str) -> bool {
    let fixed = |n: &str| n.bytes().all(|b| b.is_ascii_digit()) && n.parse::<i32>().is_ok();
    matches!(mode, "auto" | "recommend" | "paused") || mode.strip_prefix("fixed=").is_some_and(fixed)
}
