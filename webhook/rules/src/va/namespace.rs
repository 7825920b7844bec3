//! Warnings about namespaces in which nothing is managed: the object is admitted, and nothing ever happens.

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
    docs: "The namespace has the annotation `wva.llmd.ai/exclude: \"true\"`, so nothing in it is managed \
           until that is removed.",
    check: Check::Variant(|facts, out| unmanaged(facts, NamespaceState::Excluded, out)),
    ..WARN
};

pub(crate) const UNWATCHED: Rule = Rule {
    code: "WVA-VA-061",
    field: FIELD,
    message: "{found} is not the one WATCH_NAMESPACE names: not managed",
    docs: "The controller watches one namespace alone (`WATCH_NAMESPACE`), and the object is in another: \
           nothing happens there.",
    check: Check::Variant(|facts, out| unmanaged(facts, NamespaceState::Unwatched, out)),
    ..WARN
};

fn unmanaged(facts: &Facts<'_>, state: NamespaceState, out: &mut Findings) {
    if facts.namespace == state {
        out.text(quote(facts.namespace_name().unwrap_or_default()), "");
    }
}
