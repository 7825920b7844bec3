//! Warnings about keys that are probably misspelt: a label one letter off is stored without a word and does nothing.

use wva_crds::names::{
    ACCELERATOR_LABEL, ALLOW_INSTANCE_CHANGE_ANNOTATION, ALLOW_SHARED_TARGET_ANNOTATION, INSTANCE_LABEL,
    MODE_ANNOTATION,
};

use crate::facts::Facts;
use crate::findings::Findings;
use crate::rule::{Check, Rule, WARN};
use crate::text::{escape, inside, nearest};

const KNOWN_LABELS: &[&str] = &[ACCELERATOR_LABEL, INSTANCE_LABEL];
const KNOWN_ANNOTATIONS: &[&str] =
    &[MODE_ANNOTATION, ALLOW_INSTANCE_CHANGE_ANNOTATION, ALLOW_SHARED_TARGET_ANNOTATION];
const KNOWN_SPEC: &[&str] = &["scaleTargetRef", "modelID", "variantCost", "minReplicas", "maxReplicas"];

pub(crate) const LABELS: Rule = Rule {
    code: "WVA-VA-056",
    field: "metadata.labels",
    message: "unknown: {other}?",
    docs: "A label key is one or two letters off a known one. It is stored as it is and does nothing.",
    check: Check::Variant(|facts, out| near(facts, &["metadata", "labels"], KNOWN_LABELS, out)),
    ..WARN
};

pub(crate) const ANNOTATIONS: Rule = Rule {
    code: "WVA-VA-057",
    field: "metadata.annotations",
    message: "unknown: {other}?",
    docs: "An annotation key is one or two letters off a known one. It is stored as it is and does nothing.",
    check: Check::Variant(|facts, out| near(facts, &["metadata", "annotations"], KNOWN_ANNOTATIONS, out)),
    ..WARN
};

pub(crate) const SPEC: Rule = Rule {
    code: "WVA-VA-059",
    field: "spec",
    message: "there is no such field; it is ignored{other}",
    docs: "`spec` holds a field that does not exist. An apiserver refuses or prunes it before any webhook; \
           `wva validate` names the right spelling.",
    check: Check::Variant(|facts, out| {
        let Some(spec) = facts.get(&["spec"]).and_then(|s| s.as_object()) else { return };
        for key in spec.keys().filter(|k| !KNOWN_SPEC.contains(&k.as_str())) {
            let meant = nearest(key, KNOWN_SPEC).map(|k| format!(": {k}?")).unwrap_or_default();
            out.at(inside("spec", key), "", meant);
        }
    }),
    ..WARN
};

fn near(facts: &Facts<'_>, path: &[&str], known: &[&str], out: &mut Findings) {
    let Some(map) = facts.get(path).and_then(|m| m.as_object()) else { return };
    for key in map.keys() {
        if let Some(meant) = nearest(key, known) {
            out.at(format!("{}[{}]", path.join("."), escape(key, false)), "", meant);
        }
    }
}
