//! Granted GPUs never exceed the free GPUs of the inventory, and earlier decisions come first.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{has_reason, is_taken, remove_budgets, variant_of};
use crate::decide;
use crate::snapshot::Mode;
use crate::tests::generate::any_case;
use wva_objects::hardware::accelerator_key;

proptest! {
    #[test]
    fn grants_no_more_gpus_than_are_free(case in any_case()) {
        let mut case = case.0;
        let Some(inventory) = case.config.inventory.clone() else { return Ok(()) };
        case.config.limited_mode = true;
        let mut left: BTreeMap<String, u64> = BTreeMap::new();
        for (name, stock) in &inventory {
            *left.entry(accelerator_key(name)).or_default() += stock.limit.saturating_sub(stock.used);
        }
        let outcome = decide(&case);
        let (mut held, mut granted) = (BTreeMap::<_, u64>::new(), BTreeMap::<_, u64>::new());
        for decision in &outcome.decisions {
            let variant = variant_of(&case, decision);
            // A recommendation takes no GPUs, and fixed and paused targets get what loads leave.
            let Some(accelerator) = variant.accelerator.as_ref().filter(|_| variant.mode == Mode::Auto) else { continue };
            // The base, the safety net and wake-ups were limited in an earlier cycle.
            let is_committed = has_reason(decision, &["SafetyNet", "WakeHold"]);
            let from = if is_committed { decision.target() } else { decision.base.max(decision.current) };
            let of_replica = u64::from(variant.gpus_per_replica.0);
            let new = u64::from(decision.target().saturating_sub(from));
            let is_taken = u64::from(is_taken(&case, decision));
            let old = is_taken * u64::from(decision.target().min(from).saturating_sub(decision.current));
            *granted.entry(accelerator_key(accelerator)).or_default() += new * of_replica;
            *held.entry(accelerator_key(accelerator)).or_default() += old * of_replica;
        }
        for (accelerator, left) in left {
            let (held, granted) = (held.get(&accelerator).copied().unwrap_or(0), granted.get(&accelerator).copied().unwrap_or(0));
            prop_assert!(
                granted <= left.saturating_sub(held),
                "{}: {} left, {} held, {} granted\n{}", accelerator, left, held, granted, crate::trace::render(&outcome)
            );
        }
    }

    #[test]
    fn an_inventory_limits_only_growth(case in any_case()) {
        let mut free = case.0.clone();
        remove_budgets(&mut free);
        let (limited, free) = (decide(&case), decide(&free));
        for (limited, free) in limited.decisions.iter().zip(&free.decisions) {
            // Scale-downs do not depend on the inventory.
            if free.target() < free.base {
                prop_assert_eq!(limited.target(), free.target());
            }
            let gives_back = has_reason(limited, &["YieldsTo"]);
            prop_assert!(limited.limited_by().is_none() || limited.target() >= limited.base || limited.report.mode != Mode::Auto || gives_back);
        }
    }
}
