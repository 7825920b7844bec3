//! Namespaces that the controller does not manage: the object has no effect.

use crate::facts::{Facts, NamespaceState};
use crate::findings::Findings;
use crate::rule::{Check, Rule, Scope, WARN};
use crate::text::quote;

const FIELD: &str = "metadata.namespace";

pub(crate) const EXCLUDED: Rule = Rule {
    code: "WVA-VA-060",
    scope: Scope::Cluster,
    field: FIELD,
    message: "{found} is excluded by annotation wva.llmd.ai/exclude",
    docs: "The namespace has the annotation `wva.llmd.ai/exclude: \"true\"`. The controller manages nothing in it until the \
           annotation is removed.",
    check: Check::Variant(|facts, out| check_namespace(facts, NamespaceState::Excluded, out)),
    ..WARN
};

pub(crate) const UNWATCHED: Rule = Rule {
    code: "WVA-VA-061",
    field: FIELD,
    message: "{found} is not managed; WATCH_NAMESPACE is another namespace",
    docs: "The controller watches only one namespace (`WATCH_NAMESPACE`), and the object is in another one. The controller \
           does not manage it.",
    check: Check::Variant(|facts, out| check_namespace(facts, NamespaceState::Unwatched, out)),
    ..WARN
};

fn check_namespace(facts: &Facts<'_>, state: NamespaceState, out: &mut Findings) {
    if facts.namespace == state {
        out.add(quote(facts.namespace_name().unwrap_or_default()), "");
    }
}
