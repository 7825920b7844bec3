//! Parts of the object that must be maps, and a warning while caches are incomplete. Other rules ignore parts of the
//! wrong type.

use serde_json::Value;

use crate::facts::Facts;
use crate::findings::Findings;
use crate::rule::{Check, DENY, Rule, WARN};
use crate::text::{escape, show};

pub(crate) const SPEC: Rule = Rule {
    code: "WVA-VA-018",
    field: "spec",
    reads: &[&["spec"]],
    message: "{found} is not a map; set at least scaleTargetRef and modelID",
    docs: "`spec` is required and must be a map.",
    check: Check::Variant(|facts, out| match facts.get(&["spec"]) {
        None => out.add_missing(),
        Some(spec) if !spec.is_object() => out.add_value(spec),
        Some(_) => {}
    }),
    ..DENY
};

pub(crate) const LABELS: Rule = Rule {
    code: "WVA-VA-019",
    field: "metadata.labels",
    reads: &[&["metadata", "labels"]],
    message: "{found} is not allowed; labels map text to text, so put numbers and booleans in quotes",
    docs: "Labels must map text to text. The API server denies anything else; `wva validate` reports it earlier.",
    check: Check::Variant(|facts, out| check_texts(facts, "labels", out)),
    ..DENY
};

pub(crate) const ANNOTATIONS: Rule = Rule {
    code: "WVA-VA-020",
    field: "metadata.annotations",
    reads: &[&["metadata", "annotations"]],
    message: "{found} is not allowed; annotations map text to text, so put numbers and booleans in quotes",
    docs: "Annotations must map text to text. The API server denies anything else; `wva validate` reports it earlier.",
    check: Check::Variant(|facts, out| check_texts(facts, "annotations", out)),
    ..DENY
};

pub(crate) const NOT_SYNCED: Rule = Rule {
    code: "WVA-VA-058",
    field: "spec.scaleTargetRef",
    message: "not compared with other objects; the controller is starting",
    docs: "The caches of the controller were incomplete, so the rules about other objects were skipped. No action is \
           needed: the controller checks the object again before it scales.",
    check: Check::Variant(|facts, out| {
        if !facts.is_synced {
            out.add("", "");
        }
    }),
    ..WARN
};

/// Absent, or text to text.
fn check_texts(facts: &Facts<'_>, field: &str, out: &mut Findings) {
    match facts.get(&["metadata", field]) {
        None => {}
        Some(Value::Object(map)) => {
            for (key, value) in map.iter().filter(|(_, v)| !v.is_string() && !v.is_null()) {
                out.add_at(format!("metadata.{field}[{}]", escape(key, false)), show(value), "");
            }
        }
        Some(other) => out.add_value(other),
    }
}
