//! Rules about two variants that target one workload: within an instance they would scale it against each other.
//! Caches being caches, two creates at once can both pass; the controller then manages the older one.

use wva_crds::names::{ALLOW_SHARED_TARGET_ANNOTATION, INSTANCE_LABEL};

use crate::facts::{Facts, OtherVariant, Target, precedence};
use crate::rule::{Check, DENY, Rule, Scope, WARN};
use crate::text::quote;

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
    message: "found {found}, which VariantAutoscaling {other} targets already: both would scale it; change or \
              delete one of them, or set annotation wva.llmd.ai/allow-shared-target: \"true\" while one replaces \
              the other",
    docs: "No two variants of one instance in a namespace target the same workload, unless the newer one has the \
           annotation `wva.llmd.ai/allow-shared-target: \"true\"`.",
    check: Check::Variant(|facts, out| {
        if let Some((target, other)) = shared(facts, true)
            && !allowed(facts)
        {
            out.text(name(&target), quote(&other.name));
        }
    }),
    ..DENY
};

pub(crate) const OTHER_INSTANCE: Rule = Rule {
    code: "WVA-VA-052",
    scope: Scope::Cluster,
    field: FIELD,
    message: "also the target of {other}, of another instance",
    docs: "A variant of another instance targets the same workload. Each controller publishes a number of replicas for \
           it, and an HPA that matches both adds them up: keep one of the two.",
    check: Check::Variant(|facts, out| {
        if let Some((_, other)) = shared(facts, false) {
            out.text("", quote(&other.name));
        }
    }),
    ..WARN
};

pub(crate) const ALLOWED: Rule = Rule {
    code: "WVA-VA-053",
    scope: Scope::Cluster,
    field: FIELD,
    message: "also the target of {other}: the older one is managed",
    docs: "Another variant of the instance targets the same workload, and an annotation allows it. Until one of \
           them is gone, the older one is managed.",
    check: Check::Variant(|facts, out| {
        if let Some((_, other)) = shared(facts, true)
            && allowed(facts)
        {
            out.text("", quote(&other.name));
        }
    }),
    ..WARN
};

/// The first other variant, by age and name, with the same target, of the same instance or of another.
fn shared<'a>(facts: &Facts<'a>, same_instance: bool) -> Option<(Target, &'a OtherVariant)> {
    let target = Target::of(facts.object)?;
    // Not the prefix that a name will be made from, which may be another's whole name.
    let own = facts.get(&["metadata", "name"]).and_then(|name| name.as_str()).unwrap_or_default();
    let conflicts = |other: &&OtherVariant| {
        other.name != own
            && other.target.same_object(&target)
            && (other.instance.as_deref() == facts.instance_label()) == same_instance
    };
    let others = facts.others.iter().filter(conflicts);
    let first = others.min_by_key(|other| precedence(other.created, &other.name))?;
    Some((target, first))
}

fn allowed(facts: &Facts<'_>) -> bool {
    facts.annotation(ALLOW_SHARED_TARGET_ANNOTATION).and_then(|v| v.as_str()) == Some("true")
}

fn name(target: &Target) -> String {
    quote(&format!("{} {}", target.kind, target.name))
}
