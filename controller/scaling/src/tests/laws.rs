//! Properties of every snapshot, each checked on `PROPTEST_CASES` random ones. A failing snapshot is shrunk and printed as
//! a file.

mod bounds;
mod budgets;
mod coverage;
mod disturbances;
mod extremes;
mod history;
mod inventory;
mod isolation;
mod load;
mod missing_signals;
mod order;
mod replay;
mod shadow;
mod stability;
mod target;
mod texts;

use proptest::prelude::*;

use crate::snapshot::{Mode, Snapshot, Variant};
use crate::{Decision, Outcome};

/// Variant of a decision.
fn variant_of<'a>(snapshot: &'a Snapshot, decision: &Decision) -> &'a Variant {
    let in_its_namespace = snapshot.models.iter().filter(|m| m.namespace == decision.key.namespace);
    in_its_namespace.flat_map(|m| &m.variants).find(|v| v.name == decision.key.name).unwrap()
}

/// Nothing limits growth.
fn remove_budgets(snapshot: &mut Snapshot) {
    snapshot.config.inventory = None;
    snapshot.config.quotas.clear();
}

/// An autoscaler that does not act takes nothing of what it is asked for.
fn is_taken(snapshot: &Snapshot, decision: &Decision) -> bool {
    let variant = variant_of(snapshot, decision);
    // The safety net does not note it.
    let is_late = variant.desired_age.unwrap_or_default() >= snapshot.config.decision_hold;
    let is_stalled = is_late || has_reason(decision, &["NotCarriedOut"]);
    let is_blocked = variant.obstacles.up.is_some() || (is_stalled && decision.base > decision.current);
    decision.report.mode != Mode::Auto || !is_blocked
}

/// True if a step has one of these reason codes.
fn has_reason(decision: &Decision, codes: &[&str]) -> bool {
    decision.steps.iter().any(|step| codes.contains(&step.reason.code()))
}

/// Checks that two outcomes are equal byte by byte.
fn assert_same(one: &Outcome, other: &Outcome) -> Result<(), TestCaseError> {
    let render = crate::trace::render;
    prop_assert!(text(one) == text(other), "one\n{}\nother\n{}", render(one), render(other));
    Ok(())
}

/// The complete outcome as text.
fn text(outcome: &Outcome) -> String {
    let json = serde_json::to_string(outcome).unwrap();
    format!("{json}\n{:?}\n{:?}\n{}", outcome.next, outcome.warnings, crate::trace::render(outcome))
}
