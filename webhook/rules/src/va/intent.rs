//! Rules about `spec.accelerator`, `spec.mode` and `spec.fixedReplicas`, and about the label and annotation that spelt
//! them before.

use serde::Deserialize;
use serde_json::Value;
use wva_crds::VariantMode;
use wva_crds::intent::Mode;
use wva_crds::names::{ACCELERATOR_LABEL, MODE_ANNOTATION};

use super::bounds::check_count;
use crate::rule::{Check, DENY, Rule};
use crate::text::{quote, show};

/// Longest value of a label.
const MAX_ACCELERATOR_BYTES: usize = 63;

pub(crate) const ACCELERATOR: Rule = Rule {
    code: "WVA-VA-023",
    field: "spec.accelerator",
    reads: &[&["spec", "accelerator"]],
    message: "{found} is not an accelerator name; use 2 to 63 letters, digits, '-', '_' and '.', such as H100, or remove \
              the field",
    docs: "`spec.accelerator`, if present, must have 2 to 63 letters, digits, `-`, `_` and `.`, and begin and end with a \
           letter or digit.",
    check: Check::Variant(|facts, out| match facts.spec("accelerator") {
        None | Some(Value::Null) => {}
        Some(Value::String(name)) if is_accelerator(name) => {}
        Some(value) => out.add_value(value),
    }),
    ..DENY
};

pub(crate) const MODE: Rule = Rule {
    code: "WVA-VA-024",
    field: "spec.mode",
    reads: &[&["spec", "mode"]],
    message: "{found} is not a mode; use Auto, Recommend, Paused or Fixed",
    docs: "`spec.mode`, if present, must be `Auto` (the default), `Recommend` (decide but do not publish), `Paused` (hold \
           the current target) or `Fixed` (publish `spec.fixedReplicas`, within the bounds).",
    check: Check::Variant(|facts, out| match facts.spec("mode") {
        None | Some(Value::Null) => {}
        Some(value) if VariantMode::deserialize(value).is_ok() => {}
        Some(value) => out.add_value(value),
    }),
    ..DENY
};

pub(crate) const FIXED_REPLICAS: Rule = Rule {
    code: "WVA-VA-025",
    field: "spec.fixedReplicas",
    reads: &[&["spec", "fixedReplicas"]],
    message: "{found} is not a whole number from 0 to 2147483647; use such a number without quotes, or remove the field",
    docs: "`spec.fixedReplicas` must be a whole number from 0 to 2147483647.",
    check: Check::Variant(|facts, out| check_count(facts, "fixedReplicas", out)),
    ..DENY
};

pub(crate) const FIXED_MODE: Rule = Rule {
    code: "WVA-VA-026",
    field: "spec.fixedReplicas",
    reads: &[&["spec", "fixedReplicas"], &["spec", "mode"]],
    message: "{found} in mode {other}; set fixedReplicas with mode Fixed, and in no other mode",
    docs: "Mode `Fixed` requires `spec.fixedReplicas`, and no other mode may have it: it would have no effect.",
    check: Check::Variant(|facts, out| {
        let [Some(number), Some(mode)] = [facts.spec("fixedReplicas"), facts.spec("mode")] else { return };
        let is_fixed = VariantMode::deserialize(mode).is_ok_and(|mode| mode == VariantMode::Fixed);
        if number.is_null() == is_fixed {
            let or =
                |value: &Value, absent: &str| if value.is_null() { absent.to_owned() } else { show(value) };
            out.add(or(number, "nothing"), or(mode, "Auto"));
        }
    }),
    ..DENY
};

pub(crate) const ACCELERATOR_TWICE: Rule = Rule {
    code: "WVA-VA-027",
    field: "metadata.labels[inference.optimization/acceleratorName]",
    reads: &[&["metadata", "labels", ACCELERATOR_LABEL], &["spec", "accelerator"]],
    message: "{found}, but spec.accelerator is {other}, which wins; remove the label",
    docs: "`spec.accelerator` and the label `inference.optimization/acceleratorName`, its older spelling, name two \
           accelerators. Keep one of them. If such an object is stored nevertheless, the spec wins.",
    check: Check::Variant(|facts, out| {
        if let (Some(Value::String(label)), Some(Value::String(name))) =
            (facts.label(ACCELERATOR_LABEL), facts.spec("accelerator"))
            && label != name
        {
            out.add(quote(label), quote(name));
        }
    }),
    ..DENY
};

pub(crate) const MODE_TWICE: Rule = Rule {
    code: "WVA-VA-028",
    field: "metadata.annotations[wva.llmd.ai/mode]",
    reads: &[&["metadata", "annotations", MODE_ANNOTATION], &["spec", "mode"], &["spec", "fixedReplicas"]],
    message: "{found}, but spec.mode is {other}, which wins; remove the annotation, or change spec.mode",
    docs: "`spec.mode` and the annotation `wva.llmd.ai/mode`, its older spelling, state two modes. Keep one of them. If \
           such an object is stored nevertheless, the spec wins.",
    check: Check::Variant(|facts, out| {
        if let (Some(Value::String(text)), Some(mode)) =
            (facts.annotation(MODE_ANNOTATION), Mode::in_spec(facts.object))
            && text.parse::<Mode>().is_ok_and(|stated| stated != mode)
        {
            let number = match mode {
                Mode::Fixed(number) => format!(" with fixedReplicas {number}"),
                _ => String::new(),
            };
            out.add(quote(text), format!("{:?}{number}", mode.kind()));
        }
    }),
    ..DENY
};

fn is_accelerator(name: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    (2..=MAX_ACCELERATOR_BYTES).contains(&bytes.len())
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}
