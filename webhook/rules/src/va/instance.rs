//! Rules about the instance label: valid, present if required, and not changed by accident.

use serde_json::{Value, json};
use wva_crds::names::INSTANCE_LABEL;

use crate::facts::{Facts, InstancePolicy};
use crate::rule::{Check, DENY, Kind, Rule};
use crate::syntax::is_label_value;
use crate::text::quote;

const FIELD: &str = "metadata.labels[wva.llmd.ai/controller-instance]";
const PATH: &[&str] = &["metadata", "labels", INSTANCE_LABEL];

pub(crate) const VALUE: Rule = Rule {
    code: "WVA-VA-012",
    field: FIELD,
    reads: &[PATH],
    message: "{found} is not an instance name; use 1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at \
              both ends, or remove the label",
    docs: "The instance label, if present, must be a label value and must not be empty.",
    check: Check::Variant(|facts, out| match facts.label(INSTANCE_LABEL) {
        Some(Value::String(label)) if is_label_value(label) => {}
        Some(v) => out.add_value(v),
        None => {}
    }),
    ..DENY
};

pub(crate) const REQUIRED: Rule = Rule {
    code: "WVA-VA-013",
    field: FIELD,
    reads: &[PATH],
    message: "missing; variants in this namespace must name their instance, so add the label with value {other}",
    docs: "With the policy `require`, variants in the namespaces of the instance must have the instance label.",
    check: Check::Variant(|facts, out| {
        if facts.has_policy(InstancePolicy::Require) && facts.label(INSTANCE_LABEL).is_none() {
            out.add("", quote(facts.instance.unwrap_or_default()));
        }
    }),
    ..DENY
};

pub(crate) const CHANGED: Rule = Rule {
    code: "WVA-VA-014",
    field: FIELD,
    reads: &[PATH],
    message: "changed from {other} to {found}; two controllers could scale the workload; delete and recreate the object, \
              or set annotation wva.llmd.ai/allow-instance-change: \"true\" in the same update",
    docs: "An update must not change or remove the instance label, unless it also sets the annotation \
           `wva.llmd.ai/allow-instance-change: \"true\"`. It may add the label to an object without one.",
    check: Check::Variant(|facts, out| {
        let Some(old) = facts.old_instance_label().filter(|l| !l.is_empty()) else { return };
        let new = facts.instance_label();
        if new != Some(old) && !facts.allows_instance_change() {
            out.add(new.map_or_else(|| "nothing".to_owned(), quote), quote(old));
        }
    }),
    ..DENY
};

pub(crate) const INJECT: Rule = Rule {
    code: "WVA-VA-090",
    kind: Kind::Mutate,
    field: FIELD,
    docs: "With the policy `inject`, a variant without the instance label gets the label of the instance that owns its \
           namespace.",
    check: Check::Variant(|facts, out| {
        let Some(instance) = facts.instance.filter(|_| injects(facts)) else { return };
        match facts.get(&["metadata", "labels"]) {
            None => out.add_patch("/metadata/labels", json!({ INSTANCE_LABEL: instance })),
            Some(Value::Object(_)) => {
                // A JSON pointer needs these escapes.
                let key = INSTANCE_LABEL.replace('~', "~0").replace('/', "~1");
                out.add_patch(format!("/metadata/labels/{key}"), json!(instance));
            }
            Some(_) => {}
        }
    }),
    ..DENY
};

fn injects(facts: &Facts<'_>) -> bool {
    facts.has_policy(InstancePolicy::Inject)
        && facts.get(&["metadata"]).is_some_and(Value::is_object)
        && facts.label(INSTANCE_LABEL).is_none()
}
