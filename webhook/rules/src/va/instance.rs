//! Rules about the label that says which controller instance manages an object: a valid value, there where the
//! instance demands it, and never changed by accident.

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
    message: "found {found}: that names no controller instance; give the instance's name (1 to 63 letters, \
              digits, '-', '_' and '.', a letter or digit at both ends) or remove the label",
    docs: "The instance label, where present, is a label value and not empty.",
    check: Check::Variant(|facts, out| match facts.label(INSTANCE_LABEL) {
        Some(Value::String(label)) if is_label_value(label) => {}
        Some(v) => out.value(v),
        None => {}
    }),
    ..DENY
};

pub(crate) const REQUIRED: Rule = Rule {
    code: "WVA-VA-013",
    field: FIELD,
    reads: &[PATH],
    message: "found {found}: in this namespace every VariantAutoscaling must say who manages it; add the label \
              with value {other}",
    docs: "Under the policy `require` the instance label is there, in the namespaces that are the instance's own.",
    check: Check::Variant(|facts, out| {
        if facts.policy_acts(InstancePolicy::Require) && facts.label(INSTANCE_LABEL).is_none() {
            out.text("nothing", quote(facts.instance.unwrap_or_default()));
        }
    }),
    ..DENY
};

pub(crate) const CHANGED: Rule = Rule {
    code: "WVA-VA-014",
    field: FIELD,
    reads: &[PATH],
    message: "found {found}, before {other}: two controllers could both scale the workload meanwhile; delete and \
              create the object, or set annotation wva.llmd.ai/allow-instance-change: \"true\" in this same update",
    docs: "The instance label is not changed or removed by an update, unless the same update sets the annotation \
           `wva.llmd.ai/allow-instance-change: \"true\"`. An object without the label may be given one.",
    check: Check::Variant(|facts, out| {
        let Some(old) = facts.old_instance_label().filter(|l| !l.is_empty()) else { return };
        let new = facts.instance_label();
        if new != Some(old) && !facts.instance_change_allowed() {
            out.text(new.map_or_else(|| "nothing".to_owned(), quote), quote(old));
        }
    }),
    ..DENY
};

pub(crate) const INJECT: Rule = Rule {
    code: "WVA-VA-090",
    kind: Kind::Mutate,
    field: FIELD,
    docs: "Under the policy `inject` an object without the instance label is given that of the instance whose \
           namespace it is in.",
    check: Check::Variant(|facts, out| {
        let Some(instance) = facts.instance.filter(|_| injects(facts)) else { return };
        match facts.get(&["metadata", "labels"]) {
            None => out.add("/metadata/labels", json!({ INSTANCE_LABEL: instance })),
            Some(Value::Object(_)) => {
                // `/` is written `~1` in a JSON pointer.
                let key = INSTANCE_LABEL.replace('~', "~0").replace('/', "~1");
                out.add(format!("/metadata/labels/{key}"), json!(instance));
            }
            Some(_) => {}
        }
    }),
    ..DENY
};

fn injects(facts: &Facts<'_>) -> bool {
    facts.policy_acts(InstancePolicy::Inject)
        && facts.get(&["metadata"]).is_some_and(Value::is_object)
        && facts.label(INSTANCE_LABEL).is_none()
}
