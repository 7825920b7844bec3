//! Targets stay within bounds, steps chain, and a model with replicas keeps one.

use proptest::prelude::*;

use super::variant_of;
use crate::decide;
use crate::snapshot::{Mode, Role};
use crate::tests::generate::any_case;

proptest! {
    #[test]
    fn targets_stay_within_their_bounds(case in any_case()) {
        for decision in decide(&case).decisions {
            let (target, bounds) = (decision.target(), decision.report.bounds);
            let mode = variant_of(&case, &decision).mode;
            // Paused targets stay, a minimum does not wake a model, and missing GPUs prevent a minimum.
            let is_at_zero = decision.report.model.is_at_zero && target == 0;
            let is_limited = decision.limited_by().is_some() && target >= decision.current && target < bounds.min;
            if mode != Mode::Paused && !is_at_zero && !is_limited {
                prop_assert_eq!(bounds.clamp(target), target, "{:?}", decision);
            }
        }
    }

    #[test]
    fn steps_chain_from_the_base_through_every_stage(case in any_case()) {
        for decision in decide(&case).decisions {
            let mut before = decision.base;
            for step in &decision.steps {
                prop_assert_eq!(step.before, before);
                before = step.after;
            }
            prop_assert_eq!(before, decision.target());
            let mut stages: Vec<_> = decision.steps.iter().map(|s| s.stage).collect();
            prop_assert!(stages.is_sorted());
            stages.dedup();
            prop_assert_eq!(stages.len(), 5);
        }
    }

    #[test]
    fn a_model_with_replicas_keeps_one_where_zero_is_not_allowed(case in any_case()) {
        let mut case = case.0;
        case.config.scale_to_zero_default = false;
        let decisions = decide(&case).decisions;
        // If pods serve a part of each request, each part keeps one.
        let parts = [None, Some(Role::Prefill), Some(Role::Decode)];
        for (model, role) in case.models.iter().flat_map(|model| parts.map(|role| (model, role))) {
            let part = || model.variants.iter().filter(|v| v.role == role);
            let is_auto = part().all(|v| v.mode == Mode::Auto);
            let has_replicas = part().any(|v| v.current > 0);
            let allowed = part().any(|v| v.max != Some(0));
            let of_model = decisions.iter().filter(|d| (&d.key.namespace, &d.model_id) == (&model.namespace, &model.model_id));
            let of_part = of_model.filter(|d| part().any(|v| v.name == d.key.name));
            // The kept replica may need a GPU on another variant.
            let limited = of_part.clone().any(|d| d.limited_by().is_some());
            if is_auto && has_replicas && allowed && !limited {
                prop_assert!(of_part.map(|d| u64::from(d.target())).sum::<u64>() > 0, "{:?}", decisions);
            }
        }
    }
}
