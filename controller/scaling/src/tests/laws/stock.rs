//! GPUs that are given never exceed what the inventory has left, and what earlier cycles gave comes first.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{says, subject};
use crate::decide;
use crate::limit::key;
use crate::snapshot::Mode;
use crate::tests::generate::any_case;

proptest! {
    #[test]
    fn nothing_is_given_that_the_inventory_lacks(case in any_case()) {
        let mut case = case.0;
        let Some(inventory) = case.config.inventory.clone() else { return Ok(()) };
        case.config.limited_mode = true;
        let mut left: BTreeMap<String, u64> = BTreeMap::new();
        for (name, stock) in &inventory {
            *left.entry(key(name)).or_default() += stock.limit.saturating_sub(stock.used);
        }
        let outcome = decide(&case);
        let (mut held, mut given) = (BTreeMap::<_, u64>::new(), BTreeMap::<_, u64>::new());
        for decision in &outcome.decisions {
            let variant = subject(&case, decision);
            // A recommendation asks for nothing.
            let Some(accelerator) = variant.accelerator.as_ref().filter(|_| variant.mode != Mode::Recommend) else { continue };
            let gpus = u64::from(decision.target().saturating_sub(decision.current)) * u64::from(variant.gpus_per_replica.0);
            // A decision that is kept, held by the safety net or by a wake-up was limited when it was made; what a person
            // has set is not limited.
            let earlier = says(decision, &["KeptDecision", "SafetyNet", "WakeHold", "Paused", "Fixed"]);
            *if earlier { &mut held } else { &mut given }.entry(key(accelerator)).or_default() += gpus;
        }
        for (accelerator, left) in left {
            let (held, given) = (held.get(&accelerator).copied().unwrap_or(0), given.get(&accelerator).copied().unwrap_or(0));
            prop_assert!(
                given <= left.saturating_sub(held),
                "{}: {} left, {} held, {} given\n{}", accelerator, left, held, given, crate::trace::render(&outcome)
            );
        }
    }

    #[test]
    fn an_inventory_takes_from_growth_alone(case in any_case()) {
        let mut free = case.0.clone();
        free.config.inventory = None;
        let (limited, free) = (decide(&case), decide(&free));
        for (limited, free) in limited.decisions.iter().zip(&free.decisions) {
            // A model that shrinks does so whatever is left.
            if free.target() < free.current {
                prop_assert_eq!(limited.target(), free.target());
            }
            prop_assert!(limited.limited_by.is_none() || limited.target() >= limited.current || limited.mode != Mode::Auto);
        }
    }
}
