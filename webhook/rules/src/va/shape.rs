//! Parts of the object that are no maps where maps must be, and caches that are not there yet. The other rules say
//! nothing about what lies inside a part of the wrong shape.

use serde_json::Value;

use crate::facts::Facts;
use crate::findings::Findings;
use crate::rule::{Check, DENY, Rule, WARN};
use crate::text::{escape, show};

pub(crate) const SPEC: Rule = Rule {
    code: "WVA-VA-018",
    field: "spec",
    reads: &[&["spec"]],
    message: "found {found}: a VariantAutoscaling without a spec says nothing; give a map with at least \
              scaleTargetRef and modelID",
    docs: "`spec` is required and is a map.",
    check: Check::Variant(|facts, out| match facts.get(&["spec"]) {
        None => out.absent(),
        Some(spec) if !spec.is_object() => out.value(spec),
        Some(_) => {}
    }),
    ..DENY
};

pub(crate) const LABELS: Rule = Rule {
    code: "WVA-VA-019",
    field: "metadata.labels",
    reads: &[&["metadata", "labels"]],
    message: "found {found}: labels are a map from text to text; put values that look like numbers or booleans \
              in quotes",
    docs: "Labels are a map from text to text. The apiserver refuses anything else; `wva validate` says it earlier.",
    check: Check::Variant(|facts, out| texts(facts, "labels", out)),
    ..DENY
};

pub(crate) const ANNOTATIONS: Rule = Rule {
    code: "WVA-VA-020",
    field: "metadata.annotations",
    reads: &[&["metadata", "annotations"]],
    message: "found {found}: annotations are a map from text to text; put values that look like numbers or \
              booleans in quotes",
    docs: "Annotations are a map from text to text. The apiserver refuses anything else; `wva validate` says it \
           earlier.",
    check: Check::Variant(|facts, out| texts(facts, "annotations", out)),
    ..DENY
};

pub(crate) const NOT_SYNCED: Rule = Rule {
    code: "WVA-VA-058",
    field: "spec.scaleTargetRef",
    message: "not compared with other objects: the controller is starting",
    docs: "The controller's caches were not complete yet, so the rules that look at other objects were skipped. Nothing \
           has to be done: the controller looks again before it acts.",
    check: Check::Variant(|facts, out| {
        if !facts.synced {
            out.text("", "");
        }
    }),
    ..WARN
};

/// A map from text to text under `metadata`, or absent.
fn texts(facts: &Facts<'_>, field: &str, out: &mut Findings) {
    match facts.get(&["metadata", field]) {
        None => {}
        Some(Value::Object(map)) => {
            for (key, value) in map.iter().filter(|(_, v)| !v.is_string() && !v.is_null()) {
                out.at(format!("metadata.{field}[{}]", escape(key, false)), show(value), "");
            }
        }
        Some(other) => out.value(other),
    }
}
