//! Warnings about misspelt keys, which the API server stores without an error.

use wva_crds::names::{
    ACCELERATOR_LABEL, ALLOW_INSTANCE_CHANGE_ANNOTATION, ALLOW_SHARED_TARGET_ANNOTATION, INSTANCE_LABEL,
    MODE_ANNOTATION, POD_DELETION_COST_ANNOTATION,
};

use crate::facts::Facts;
use crate::findings::Findings;
use crate::rule::{Check, Rule, WARN};
use crate::text::{escape, join_field, nearest};

const KNOWN_LABELS: &[&str] = &[ACCELERATOR_LABEL, INSTANCE_LABEL];
const KNOWN_ANNOTATIONS: &[&str] = &[
    MODE_ANNOTATION, ALLOW_INSTANCE_CHANGE_ANNOTATION, ALLOW_SHARED_TARGET_ANNOTATION,
    POD_DELETION_COST_ANNOTATION,
];
/// Fields of the spec.
pub const SPEC_FIELDS: &[&str] = &[
    "scaleTargetRef", "modelID", "variantCost", "minReplicas", "maxReplicas", "accelerator", "mode",
    "fixedReplicas",
];

pub(crate) const LABELS: Rule = Rule {
    code: "WVA-VA-056",
    field: "metadata.labels",
    message: "typo of {other}?",
    docs: "A label key differs from a known key in one or two letters. The label has no effect.",
    check: Check::Variant(|facts, out| find_typos(facts, &["metadata", "labels"], KNOWN_LABELS, out)),
    ..WARN
};

pub(crate) const ANNOTATIONS: Rule = Rule {
    code: "WVA-VA-057",
    field: "metadata.annotations",
    message: "typo of {other}?",
    docs: "An annotation key differs from a known key in one or two letters. The annotation has no effect.",
    check: Check::Variant(|facts, out| {
        find_typos(facts, &["metadata", "annotations"], KNOWN_ANNOTATIONS, out);
    }),
    ..WARN
};

pub(crate) const SPEC: Rule = Rule {
    code: "WVA-VA-059",
    field: "spec",
    message: "unknown field, ignored{other}",
    docs: "`spec` has an unknown field. The API server denies or removes it before any webhook runs; `wva validate` \
           suggests the correct name.",
    check: Check::Variant(|facts, out| {
        let Some(spec) = facts.get(&["spec"]).and_then(|s| s.as_object()) else { return };
        for key in spec.keys().filter(|k| !SPEC_FIELDS.contains(&k.as_str())) {
            let suggestion =
                nearest(key, SPEC_FIELDS).map(|k| format!("; did you mean {k}?")).unwrap_or_default();
            out.add_at(join_field("spec", key), "", suggestion);
        }
    }),
    ..WARN
};

fn find_typos(facts: &Facts<'_>, path: &[&str], known: &[&str], out: &mut Findings) {
    let Some(map) = facts.get(path).and_then(|m| m.as_object()) else { return };
    for key in map.keys() {
        if let Some(meant) = nearest(key, known) {
            out.add_at(format!("{}[{}]", path.join("."), escape(key, false)), "", meant);
        }
    }
}
