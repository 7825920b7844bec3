//! Laws of `optimizer: exact` through the whole pipeline, against the greedy rule.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::fixture::snapshot;
use crate::snapshot::{
    GpuCount, HpaTolerance, Mode, Optimizer, Pending, PendingState, Replica, Snapshot, Variant,
};
use crate::units::{Amount, Cost, KvUsage};
use crate::{Decision, Outcome, decide};

prop_compose! {
    fn variant()(
        current in 0_u32..6, min in 0_u32..3, extra in of(0_u32..6), cost in 1_u32..90, parts in prop_oneof![Just(1.0), Just(7.0)],
        blocks in 100_u32..4000, kv in 0.0..0.9_f64, tolerance in of(0.0..0.6), stuck in 0_u32..8, gpus in 0_u32..3,
        accelerator in of("(H100|L4|B200)"), desired in of(0_u32..4),
        mode in prop_oneof![6 => Just(Mode::Auto), 1 => Just(Mode::Recommend), 1 => Just(Mode::Paused), 2 => (0_u32..3).prop_map(Mode::Fixed)],
    ) -> Variant {
        let blocks = Amount::try_from(f64::from(blocks)).unwrap();
        let replica = |i| Replica {
            pod: format!("p{i}"), kv: Some(KvUsage::try_from(kv).unwrap()), num_gpu_blocks: Some(blocks),
            block_size: Some(Amount::constant(16.0)), ..Replica::default()
        };
        let tolerance = tolerance.map(|t| Amount::try_from(t).unwrap());
        let failing = Pending { age: wva_crds::GoDuration::from_secs(700), state: PendingState::Starting };
        let ready = if stuck == 0 { current.saturating_sub(1) } else { current };
        Variant {
            current, ready: Some(ready), pending: Some(vec![failing; (current - ready) as usize]), accelerator,
            cost: Cost::try_from(f64::from(cost) / parts).unwrap(), min: Some(min.min(current)),
            max: extra.map(|e| current + e), hpa_tolerance: tolerance.map(|t| HpaTolerance { up: t, down: t }),
            remembered_capacity: Some(Amount::try_from(blocks.get() * 16.0 * 0.8).unwrap()),
            desired: desired.filter(|_| mode == Mode::Paused), mode, gpus_per_replica: GpuCount(gpus), replicas: (0..ready).map(replica).collect(), ..Variant::default()
        }
    }
}

prop_compose! {
    fn model()(mut variants in vec(variant(), 1..6), waits in 0_u32..1_000_000, limited: bool, left in (0_u64..9, 0_u64..9)) -> Snapshot {
        for (i, variant) in variants.iter_mut().enumerate() {
            variant.name = format!("v{i}");
        }
        // Half of the models have nothing that waits, so that they may shrink.
        let mut snapshot = snapshot(&format!(
            "tokens optimizer: exact; waiting 0 {}; config limitedMode: {limited}, inventory: {{H100: {{limit: {}}}, L4: {{limit: {}}}}}",
            waits.saturating_sub(500_000), left.0, left.1,
        ));
        snapshot.models[0].variants = variants;
        snapshot
    }
}

fn subject<'a>(snapshot: &'a Snapshot, decision: &Decision) -> &'a Variant {
    snapshot.models[0].variants.iter().find(|v| v.name == decision.variant).unwrap()
}

/// Tokens that a replica holds.
fn size(variant: &Variant) -> f64 {
    variant.remembered_capacity.unwrap().get()
}

/// Decisions that are carried out, each with its variant.
fn acts<'a>(
    snapshot: &'a Snapshot,
    outcome: &'a Outcome,
) -> impl Iterator<Item = (&'a Decision, &'a Variant)> {
    outcome.decisions.iter().map(|d| (d, subject(snapshot, d))).filter(|(d, _)| d.mode == Mode::Auto)
}

/// What the targets cost.
fn cost(snapshot: &Snapshot, outcome: &Outcome) -> f64 {
    acts(snapshot, outcome).map(|(d, v)| f64::from(d.target()) * v.cost.get()).sum()
}

/// Tokens that the targets hold beyond the replicas that are there.
fn gained(snapshot: &Snapshot, outcome: &Outcome) -> f64 {
    acts(snapshot, outcome).map(|(d, v)| (f64::from(d.target()) - f64::from(d.current)) * size(v)).sum()
}

/// A replica that is ready stays.
fn serves(snapshot: &Snapshot, outcome: &Outcome) -> bool {
    let after = |d: &Decision| if d.mode == Mode::Recommend { d.current } else { d.target() };
    outcome.decisions.iter().any(|d| after(d).min(subject(snapshot, d).ready.unwrap()) > 0)
}

proptest! {
    #[test]
    fn exact_meets_what_the_rule_meets_and_never_costs_more(exact in model()) {
        let mut rule = exact.clone();
        rule.config.saturation.get_mut("default").unwrap().optimizer = Some(Optimizer::CostAware);
        let (by_rule, by_search) = (decide(&rule), decide(&exact));
        let tokens = match &by_rule.decisions[0].steps[0].reason {
            crate::Reason::NoChange { tokens: Some(tokens), .. } => **tokens,
            _ => return Ok(()),
        };
        let met = |outcome: &Outcome| gained(&exact, outcome) >= tokens.required - 1e-6 * tokens.required;
        if met(&by_rule) {
            prop_assert!(met(&by_search), "{}", crate::trace::render(&by_search));
            let (rule, search) = (cost(&rule, &by_rule), cost(&exact, &by_search));
            prop_assert!(search <= rule + 1e-6, "{} by the rule, {} by the search\n{}", rule, search, crate::trace::render(&by_search));
        }
        if tokens.required <= 0.0 {
            prop_assert!(-gained(&exact, &by_search) <= tokens.spare * (1.0 + 1e-6), "{}", crate::trace::render(&by_search));
        }
        prop_assert!(!serves(&exact, &by_rule) || serves(&exact, &by_search), "{}", crate::trace::render(&by_search));
    }

    #[test]
    fn the_order_of_variants_does_not_matter_to_the_search(snapshot in model()) {
        let mut reversed = snapshot.clone();
        reversed.models[0].variants.reverse();
        prop_assert_eq!(decide(&reversed), decide(&snapshot));
    }
}
