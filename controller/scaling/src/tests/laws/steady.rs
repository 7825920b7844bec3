//! The same situation once more, with its own result as the last target, changes no decision.

use proptest::prelude::*;

use super::says;
use crate::snapshot::{AnalyzerName, Mode, Snapshot};
use crate::tests::generate::any_case;
use crate::{Decision, Outcome, VariantKey, decide};

const UP: [&str; 2] = ["SpareBelowTarget", "AllSaturated"];
const DOWN: [&str; 1] = ["ScaleDownSafe"];

/// The snapshot of a cycle right after, in which nothing has happened yet.
///
/// What the token analyzer observed is left out: it bounds the replicas of later cycles that are not full themselves,
/// so by rule a second cycle may count on less than the first did.
fn once_more(snapshot: &Snapshot, outcome: &Outcome) -> Snapshot {
    let mut next = snapshot.clone();
    for model in &mut next.models {
        for variant in &mut model.variants {
            let key = VariantKey { namespace: model.namespace.clone(), name: variant.name.clone() };
            let state = outcome.next.variants[&key];
            variant.desired = Some(state.desired);
            variant.desired_age = Some(state.age_after(std::time::Duration::ZERO, variant.current));
            variant.remembered_capacity = state.capacity.map(crate::tests::generate::figure);
        }
    }
    let mut before = snapshot.remembered.clone();
    before.sort_by(|a, b| {
        (&a.model_id, &a.accelerator, a.output).cmp(&(&b.model_id, &b.accelerator, b.output))
    });
    if outcome.next.remembered == before {
        next.remembered.clone_from(&outcome.next.remembered);
    }
    next
}

proptest! {
    /// Where a person holds a variant back, what it would get is not booked, and may be gone the next time.
    #[test]
    fn a_model_of_one_variant_stays_with_its_target(case in any_case()) {
        let mut case = case.0;
        case.models.iter_mut().for_each(|model| model.variants.truncate(1));
        let first = decide(&case);
        let second = decide(&once_more(&case, &first));
        for (one, other) in first.decisions.iter().zip(&second.decisions).filter(|(d, _)| d.mode == Mode::Auto) {
            prop_assert_eq!(one.target(), other.target(), "{}{}", crate::trace::render(&first), crate::trace::render(&second));
        }
    }

    /// By rule, a variant whose decision is kept takes no part, so that with percentages the next variant may take the
    /// next step; but what was decided stays, and whoever joins goes the same way.
    #[test]
    fn what_was_decided_stays_while_other_variants_join(case in any_case()) {
        let mut case = case.0;
        // What joins may take GPUs that another model's token analyzer counted on.
        case.config.inventory = None;
        let first = decide(&case);
        let second = decide(&once_more(&case, &first));
        for (one, other) in first.decisions.iter().zip(&second.decisions).filter(|(d, _)| d.mode == Mode::Auto) {
            let traces = || format!("{}{}", crate::trace::render(&first), crate::trace::render(&second));
            let by_percentages = one.analyzer == AnalyzerName::Percentage || says(one, &["SignalsMissing"]);
            if one.target() != one.current || !by_percentages {
                prop_assert_eq!(one.target(), other.target(), "{}", traces());
            }
            let of_model = |d: &&Decision| (&d.namespace, &d.model_id) == (&one.namespace, &one.model_id);
            let went = |codes: &[&str]| first.decisions.iter().filter(of_model).any(|d| says(d, codes));
            if other.target() > one.target() {
                prop_assert!(says(other, &UP) && !went(&DOWN), "{}", traces());
            } else if other.target() < one.target() {
                prop_assert!(says(other, &DOWN) && !went(&UP), "{}", traces());
            }
        }
    }
}
