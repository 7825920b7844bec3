//! Laws that hold for every snapshot, each over as many random ones as `PROPTEST_CASES` asks for. A failing snapshot is
//! shrunk and printed as a file.

mod apart;
mod bounds;
mod caution;
mod coverage;
mod extremes;
mod history;
mod load;
mod order;
mod replay;
mod shadow;
mod steady;
mod stock;

use proptest::prelude::*;

use crate::snapshot::{Snapshot, Variant};
use crate::{Decision, Outcome};

/// The variant a decision is about.
fn subject<'a>(snapshot: &'a Snapshot, decision: &Decision) -> &'a Variant {
    let in_its_namespace = snapshot.models.iter().filter(|m| m.namespace == decision.namespace);
    in_its_namespace.flat_map(|m| &m.variants).find(|v| v.name == decision.variant).unwrap()
}

/// Some step has one of these reasons.
fn says(decision: &Decision, codes: &[&str]) -> bool {
    decision.steps.iter().any(|step| codes.contains(&step.reason.code()))
}

/// Two cycles gave the same, byte for byte.
fn same(one: &Outcome, other: &Outcome) -> Result<(), TestCaseError> {
    let render = crate::trace::render;
    prop_assert!(text(one) == text(other), "one\n{}\nother\n{}", render(one), render(other));
    Ok(())
}

/// All that a cycle gives, as text.
fn text(outcome: &Outcome) -> String {
    let json = serde_json::to_string(outcome).unwrap();
    format!("{json}\n{:?}\n{:?}\n{}", outcome.next, outcome.warnings, crate::trace::render(outcome))
}
