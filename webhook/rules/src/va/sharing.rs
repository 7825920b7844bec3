//! Two variants with the same target. Caches lag, so two simultaneous creations can both be admitted; then the
//! controller manages the older one.

use wva_crds::names::{ALLOW_SHARED_TARGET_ANNOTATION, INSTANCE_LABEL};

use crate::facts::{Facts, OtherVariant, precedence};
use crate::rule::{Check, DENY, Rule, Scope, WARN};
use crate::text::quote;
use wva_objects::Target;

const FIELD: &str = "spec.scaleTargetRef";
const READS: &[&[&str]] = &[
    &["spec", "scaleTargetRef"],
    &["metadata", "labels", INSTANCE_LABEL],
    &["metadata", "annotations", ALLOW_SHARED_TARGET_ANNOTATION],
];

pub(crate) const SAME_INSTANCE: Rule = Rule {
    code: "WVA-VA-015",
    scope: Scope::Cluster,
    field: FIELD,
    reads: READS,
    message: "{found} is already the target of VariantAutoscaling {other}; change or delete one of them, or set annotation \
              wva.llmd.ai/allow-shared-target: \"true\" while one replaces the other",
    docs: "Two variants of one instance in a namespace must not have the same target, unless the newer one has the \
           annotation `wva.llmd.ai/allow-shared-target: \"true\"`.",
    check: Check::Variant(|facts, out| {
        if let Some((target, other)) = find_sharing(facts, true)
            && !is_allowed(facts)
        {
            out.add(describe(&target), quote(&other.name));
        }
    }),
    ..DENY
};

pub(crate) const OTHER_INSTANCE: Rule = Rule {
    code: "WVA-VA-052",
    scope: Scope::Cluster,
    field: FIELD,
    message: "also the target of variant {other} of another instance",
    docs: "A variant of another instance has the same target. Both controllers publish replicas for it, and an HPA that \
           matches both adds them up. Keep only one of the variants.",
    check: Check::Variant(|facts, out| {
        if let Some((_, other)) = find_sharing(facts, false) {
            out.add("", quote(&other.name));
        }
    }),
    ..WARN
};

pub(crate) const ALLOWED: Rule = Rule {
    code: "WVA-VA-053",
    scope: Scope::Cluster,
    field: FIELD,
    message: "also the target of variant {other}; only the older one is managed",
    docs: "Another variant of the instance has the same target, and an annotation allows it. Until one of them is \
           deleted, the controller manages only the older one.",
    check: Check::Variant(|facts, out| {
        if let Some((_, other)) = find_sharing(facts, true)
            && is_allowed(facts)
        {
            out.add("", quote(&other.name));
        }
    }),
    ..WARN
};

/// The oldest other variant with the same target, of the same instance or of another one.
fn find_sharing<'a>(facts: &Facts<'a>, same_instance: bool) -> Option<(Target, &'a OtherVariant)> {
    let target = Target::from_object(facts.object)?;
    // Not `generateName`, which may be the name of another variant.
    let own = facts.get(&["metadata", "name"]).and_then(|name| name.as_str()).unwrap_or_default();
    let conflicts = |other: &&OtherVariant| {
        other.name != own
            && other.target.is_same_object(&target)
            && (other.instance.as_deref() == facts.instance_label()) == same_instance
    };
    let others = facts.other_variants.iter().filter(conflicts);
    let first = others.min_by_key(|other| precedence(other.created, &other.name))?;
    Some((target, first))
}

fn is_allowed(facts: &Facts<'_>) -> bool {
    facts.annotation(ALLOW_SHARED_TARGET_ANNOTATION).and_then(|v| v.as_str()) == Some("true")
}

fn describe(target: &Target) -> String {
    quote(&format!("{} {}", target.kind, target.name))
}
