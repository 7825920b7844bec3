//! A second cycle with unchanged signals, and the first result as its last target, changes no decision.

use proptest::prelude::*;
use wva_crds::GoDuration;

use super::has_reason;
use crate::base::is_ignored;
use crate::reason::Reason;
use crate::snapshot::{AnalyzerName, Mode, ReturnedReplicas, Snapshot};
use crate::tests::generate::any_case;
use crate::{Decision, Outcome, VariantKey, decide};

const UP: [&str; 2] = ["SpareBelowTarget", "AllSaturated"];
const DOWN: [&str; 1] = ["ScaleDownSafe"];

/// What a variant gave back, as the controller remembers it.
fn returned(decision: &Decision) -> Option<ReturnedReplicas> {
    decision.steps.iter().find_map(|step| {
        let Reason::YieldsTo { yielded } = &step.reason else { return None };
        let replicas = decision.current.saturating_sub(step.after);
        let (namespace, model_id) = (yielded.namespace.clone(), yielded.model_id.clone());
        let ago = GoDuration::default();
        (replicas > 0).then_some(ReturnedReplicas { namespace, model_id, replicas, ago })
    })
}

/// Snapshot of the next cycle without any change of the signals.
///
/// New observations of the token analyzer are left out: they bound the capacity of other replicas, so a second cycle may
/// count on less capacity.
fn next_cycle(snapshot: &Snapshot, outcome: &Outcome) -> Snapshot {
    let mut next = snapshot.clone();
    for model in &mut next.models {
        for variant in &mut model.variants {
            let key = VariantKey { namespace: model.namespace.clone(), name: variant.name.clone() };
            let state = outcome.next.variants[&key];
            variant.desired = Some(state.desired);
            variant.desired_before = state.before;
            let decision = outcome.decisions.iter().find(|decision| decision.key == key);
            variant.returned = decision.and_then(returned).or(variant.returned.take());
            variant.desired_age = Some(state.desired_age_after(std::time::Duration::ZERO, variant.current));
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

/// No target is carried out. Targets of another load settle in more than one cycle.
fn start_at_rest(snapshot: &mut Snapshot) {
    for variant in snapshot.models.iter_mut().flat_map(|model| &mut model.variants) {
        (variant.desired, variant.desired_before, variant.returned) = (None, None, None);
    }
}

/// A scale-down takes replicas that do not become ready first. Those that stay then serve, so the next cycle may spare more.
fn takes_blocked(decision: &Decision) -> bool {
    (decision.report.replicas.stuck || decision.report.replicas.waiting_for_quota.is_some())
        && decision.target() < decision.base
}

/// A model takes the GPUs that are free. What it still lacks, others give back in the next cycle.
fn grows_less_than_needed(outcome: &Outcome) -> bool {
    outcome.decisions.iter().any(|d| d.target() > d.base && has_reason(d, &["LimitedBy"]))
}

proptest! {
    /// In mode `auto` only: other modes book no GPUs, so these may be gone in the second cycle.
    #[test]
    fn a_single_variant_keeps_its_target(case in any_case()) {
        let mut case = case.0;
        case.models.iter_mut().for_each(|model| model.variants.truncate(1));
        start_at_rest(&mut case);
        let first = decide(&case);
        let second = decide(&next_cycle(&case, &first));
        let is_served_first = grows_less_than_needed(&first);
        for (one, other) in first.decisions.iter().zip(&second.decisions).filter(|(d, _)| d.report.mode == Mode::Auto && !takes_blocked(d)) {
            if is_served_first && has_reason(other, &["YieldsTo"]) {
                continue;
            }
            prop_assert_eq!(one.target(), other.target(), "{}{}", crate::trace::render(&first), crate::trace::render(&second));
        }
    }

    /// A variant with a held decision takes no step, so with the percentage analyzer the next variant may take one. Earlier
    /// decisions stay, and the next variant moves in the same direction.
    #[test]
    fn decisions_stay_while_other_variants_join(case in any_case()) {
        let mut case = case.0;
        // A joining variant may take GPUs that the token analyzer of another model counts on.
        super::remove_budgets(&mut case);
        start_at_rest(&mut case);
        let first = decide(&case);
        let second = decide(&next_cycle(&case, &first));
        for (one, other) in first.decisions.iter().zip(&second.decisions).filter(|(d, _)| d.report.mode == Mode::Auto) {
            let traces = || format!("{}{}", crate::trace::render(&first), crate::trace::render(&second));
            let of_model = |d: &&Decision| (&d.key.namespace, &d.model_id) == (&one.key.namespace, &one.model_id);
            // What a mode or the kept minimum has just set is capacity from the next cycle on.
            let is_just_fixed = |d: &Decision| {
                (d.report.mode != Mode::Auto && d.target() != d.base) || has_reason(d, &["MinimumKept"])
            };
            if first.decisions.iter().filter(of_model).any(|d| is_just_fixed(d) || takes_blocked(d)) {
                continue;
            }
            // A workload at 0 starts from 0 in each cycle, and by then others have the need. A target that the HPA ignores
            // counts as reached.
            if one.current == 0 || is_ignored(super::variant_of(&case, one), one.target()) {
                continue;
            }
            let is_percentage = one.report.analyzer == AnalyzerName::Percentage || has_reason(one, &["SignalsMissing"]);
            if (one.target() != one.base && one.target() != one.current) || !is_percentage {
                prop_assert_eq!(one.target(), other.target(), "{}", traces());
            }
            let moved = |codes: &[&str]| first.decisions.iter().filter(of_model).any(|d| has_reason(d, codes));
            if other.target() > one.target() {
                prop_assert!(has_reason(other, &UP) && !moved(&DOWN), "{}", traces());
            } else if other.target() < one.target() {
                prop_assert!(has_reason(other, &DOWN) && !moved(&UP), "{}", traces());
            }
        }
    }
}
