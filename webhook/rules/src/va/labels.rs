//! Rules about the accelerator label and the annotations for mode and pod deletion cost.

use serde_json::Value;
use wva_crds::intent::{Mode, stated_accelerator};
use wva_crds::names::{ACCELERATOR_LABEL, MODE_ANNOTATION, POD_DELETION_COST_ANNOTATION};

use crate::rule::{Check, DENY, Rule, WARN};
use wva_objects::Target;

pub(crate) const ACCELERATOR_SHORT: Rule = Rule {
    code: "WVA-VA-016",
    field: "metadata.labels[inference.optimization/acceleratorName]",
    reads: &[&["metadata", "labels", ACCELERATOR_LABEL]],
    message: "{found} is not an accelerator name; use a name such as H100, or remove the label",
    docs: "The accelerator label, if present, must have at least 2 characters.",
    check: Check::Variant(|facts, out| match facts.label(ACCELERATOR_LABEL) {
        Some(value @ Value::String(name)) if name.chars().count() < 2 => out.add_value(value),
        _ => {}
    }),
    ..DENY
};

pub(crate) const ACCELERATOR_ABSENT: Rule = Rule {
    code: "WVA-VA-055",
    field: "metadata.labels",
    message: "unknown accelerator; set spec.accelerator, such as H100",
    docs: "`spec.accelerator` and the accelerator label are missing, and the target does not determine the accelerator. \
           Metrics then have the accelerator `unresolved`.",
    check: Check::Variant(|facts, out| {
        let labels = facts.get(&["metadata", "labels"]);
        if facts.is_accelerator_known != Some(true)
            && labels.is_none_or(Value::is_object)
            && facts.label(ACCELERATOR_LABEL).is_none()
            && stated_accelerator(facts.object).is_none()
        {
            out.add("", "");
        }
    }),
    ..WARN
};

pub(crate) const MODE: Rule = Rule {
    code: "WVA-VA-017",
    field: "metadata.annotations[wva.llmd.ai/mode]",
    reads: &[&["metadata", "annotations", MODE_ANNOTATION]],
    message: "{found} is not a mode; use auto, recommend, paused or fixed=N with N from 0 to 2147483647",
    docs: "The mode annotation, if present, must be `auto` (the default), `recommend` (decide but do not publish), \
           `paused` (hold the current target) or `fixed=N` (publish N, within the bounds).",
    check: Check::Variant(|facts, out| match facts.annotation(MODE_ANNOTATION) {
        Some(value @ Value::String(mode)) if !is_mode(mode) => out.add_value(value),
        _ => {}
    }),
    ..DENY
};

pub(crate) const DELETION_COST: Rule = Rule {
    code: "WVA-VA-021",
    field: "metadata.annotations[wva.llmd.ai/pod-deletion-cost]",
    reads: &[&["metadata", "annotations", POD_DELETION_COST_ANNOTATION]],
    message: "{found} is not valid; use \"true\" or \"false\", or remove the annotation",
    docs: "The annotation for pod deletion costs, if present, must be `\"true\"` (mark the pods that a scale-down should \
           remove first) or `\"false\"` (do not).",
    check: Check::Variant(|facts, out| match facts.annotation(POD_DELETION_COST_ANNOTATION) {
        Some(value @ Value::String(text)) if !matches!(text.as_str(), "true" | "false") => {
            out.add_value(value);
        }
        _ => {}
    }),
    ..DENY
};

pub(crate) const DELETION_COST_UNUSED: Rule = Rule {
    code: "WVA-VA-065",
    field: "metadata.annotations[wva.llmd.ai/pod-deletion-cost]",
    message: "no effect: only the pods of a Deployment have a deletion cost",
    docs: "The annotation asks for pod deletion costs, but the target is not a Deployment. Kubernetes reads the cost only \
           for pods of a ReplicaSet. A StatefulSet and a LeaderWorkerSet always remove the replica with the highest \
           index.",
    check: Check::Variant(|facts, out| {
        let is_wanted =
            facts.annotation(POD_DELETION_COST_ANNOTATION).and_then(Value::as_str) == Some("true");
        if is_wanted && Target::from_object(facts.object).is_some_and(|target| target.kind != "Deployment") {
            out.add("", "");
        }
    }),
    ..WARN
};

fn is_mode(text: &str) -> bool {
    match text.parse() {
        Ok(Mode::Fixed(number)) => i32::try_from(number).is_ok(),
        Ok(_) => !text.is_empty(),
        Err(_) => false,
    }
}
