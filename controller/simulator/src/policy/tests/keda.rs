//! KEDA's triggers and blueprints, against numbers worked by hand.

use wva_crds::entries::Amount;

use super::loops::{FOR_EVER, World, free, variant};
use crate::fleet::variant::Variant;
use crate::measure::Objectives;
use crate::policy::autoscaler::Hpas;
use crate::policy::keda::{Blueprint, Keda, PrefillBacklog, ScaledObject, replicas_for_latency};

const OBJECTIVES: Objectives = Objectives { ttft: 1.0, itl: 0.1, attainment: 0.99 };

fn keda(object: &ScaledObject, variants: &[Variant]) -> Hpas<Keda> {
    Hpas::new(Keda::new(object, OBJECTIVES), variants)
}

/// The replicas at the first sync of two servers of two places, at each of which two requests run and ten wait.
#[track_caller]
fn asks(object: &ScaledObject, want: u32) {
    let mut world = World::new(vec![variant("a", 10.0, 2)], false);
    world.arrive(24, FOR_EVER);
    let object = ScaledObject { behavior: Some(free()), ..object.clone() };
    let mut policy = keda(&object, &world.variants);
    assert_eq!(world.run(&mut policy, 1), [[want]], "{object:?}");
}

const fn target(value: f64) -> Amount {
    Amount::constant(value)
}

#[test]
fn takes_the_greatest_proposal_of_its_triggers() {
    // 20 wait: 20 / 5. 24 were sent: 24 / 10, rounded up.
    asks(&ScaledObject { waiting: Some(target(5.0)), ..ScaledObject::default() }, 4);
    asks(&ScaledObject { running: Some(target(10.0)), ..ScaledObject::default() }, 3);
    asks(
        &ScaledObject { waiting: Some(target(5.0)), running: Some(target(10.0)), ..ScaledObject::default() },
        4,
    );
    asks(
        &ScaledObject { waiting: Some(target(20.0)), running: Some(target(10.0)), ..ScaledObject::default() },
        3,
    );
    // 24 / (2 * 11) is within the tolerance of a tenth.
    asks(&ScaledObject { running: Some(target(11.0)), ..ScaledObject::default() }, 2);
}

#[test]
fn counts_prompts_to_be_computed_in_seconds() {
    // 20 prompts of 10 tokens, 40 tokens a second: 5 s.
    let prefill = |seconds| PrefillBacklog {
        seconds: Amount::constant(seconds),
        tokens_per_second: Amount::constant(40.0),
    };
    asks(&ScaledObject { prefill: Some(prefill(1.3)), ..ScaledObject::default() }, 4);
    asks(&ScaledObject { prefill: Some(prefill(5.0)), ..ScaledObject::default() }, 1);
}

#[test]
fn sums_the_cache_over_the_pods() {
    let mut small = variant("a", 10.0, 2);
    small.engine.kv_blocks = 100;
    let mut world = World::new(vec![small], false);
    // Pairs of 5 s: when scraped at 7.5 s each pod's second pair holds twice 10 + 8 + 250 of 1,600 tokens. 0.67 of both.
    world.arrive(24, 500);
    let object = ScaledObject { kv: Some(target(0.12)), behavior: Some(free()), ..ScaledObject::default() };
    let mut policy = keda(&object, &world.variants);
    assert_eq!(world.run(&mut policy, 1), [[6]]);
}

#[test]
fn counts_what_waits_in_front_of_the_fleet() {
    // Flow control lets five wait at the pod; two run, and 33 wait in front.
    let mut world = World::new(vec![Variant { max: 100, ..variant("a", 10.0, 1) }], true);
    world.arrive(40, FOR_EVER);
    let object =
        ScaledObject { waiting: Some(target(2.0)), behavior: Some(free()), ..ScaledObject::default() };
    let mut policy = keda(&object, &world.variants);
    assert_eq!(world.run(&mut policy, 1), [[19]]);
}

#[test]
fn leaves_a_variant_at_zero() {
    let mut world = World::new(vec![variant("a", 10.0, 2), variant("b", 10.0, 0)], false);
    world.arrive(24, FOR_EVER);
    let object =
        ScaledObject { waiting: Some(target(5.0)), behavior: Some(free()), ..ScaledObject::default() };
    let mut policy = keda(&object, &world.variants);
    assert_eq!(world.run(&mut policy, 1), [[4, 0]]);
}

#[test]
fn the_law_on_latency_gives_the_numbers_of_its_formula() {
    let law = |saturation, replicas, ready, want: f64| {
        let got = replicas_for_latency(saturation, replicas, ready);
        assert!((got - want).abs() < 1e-9, "{saturation} {replicas} {ready}: {got}, not {want}");
    };
    law(1.1, 4.0, 4.0, 8.0);
    law(0.6, 4.0, 4.0, 5.0);
    // 8 + 8 * (1.2 / 0.55 - 1), and half of the 1.2 where half of the replicas are ready.
    law(1.2, 8.0, 8.0, 18.0);
    law(1.2, 8.0, 4.0, 9.0);
    law(1.2, 8.0, 0.0, 18.0);
    law(0.5, 4.0, 4.0, 4.0);
    law(0.2, 4.0, 4.0, 2.0);
    law(0.2, 4.0, 1.0, 2.0);
    law(0.39, 4.0, 4.0, 4.0);
    law(0.0, 1.0, 1.0, 0.0);
}

#[test]
fn latency_is_capped_averaged_and_credited() {
    let mut world = World::new(vec![Variant { min: 1, ..variant("a", 10.0, 1) }], false);
    // Two at a time, each for a second: the wait is over the objective from the second pair on.
    world.arrive(200, 100);
    let object = ScaledObject { latency: Some(true), behavior: Some(free()), ..ScaledObject::default() };
    let mut policy = keda(&object, &world.variants);
    // Saturations of 0, 2, 2, 2 and 2, as means over three: 0, 1, 4/3, 2 and 2. Of n replicas one is ready:
    // 1 + 1 * (1 / 0.55 - 1), 2 + 2 * (4/3 / 2 / 0.55 - 1), 3 + 3 * (2 / 3 / 0.55 - 1), 4 + 4 * (2 / 4 / 0.55 - 1).
    assert_eq!(world.run(&mut policy, 5), [[1], [2], [3], [4], [4]]);
}

#[test]
fn the_blueprint_of_the_queue_acts_after_its_window_and_doubles() {
    let mut world = World::new(vec![Variant { min: 1, ..variant("a", 10.0, 1) }], false);
    world.arrive(40, FOR_EVER);
    let object = ScaledObject { like: Some(Blueprint::Queue), ..ScaledObject::default() };
    let mut policy = keda(&object, &world.variants);
    let replicas = world.run(&mut policy, 24);
    assert!(replicas[..20].iter().all(|r| *r == [1]), "{replicas:?}");
    assert_eq!(replicas[20..], [[2], [4], [8], [10]]);
}

#[test]
fn the_blueprint_of_tokens_adds_one_replica_in_three_minutes() {
    let mut world = World::new(vec![Variant { min: 1, ..variant("a", 10.0, 1) }], false);
    // 12,000 prompts of 10 tokens are 7.5 s of 15,928 tokens a second: five replicas within the tolerance.
    world.arrive(12_000, FOR_EVER);
    let object = ScaledObject { like: Some(Blueprint::TokenAware), ..ScaledObject::default() };
    let mut policy = keda(&object, &world.variants);
    let replicas: Vec<u32> = world.run(&mut policy, 60).into_iter().map(|r| r[0]).collect();
    let reached = |n| replicas.iter().position(|r| *r == n);
    assert_eq!([2, 3, 4, 5].map(reached), [Some(0), Some(12), Some(24), Some(36)], "{replicas:?}");
    assert_eq!(replicas.last(), Some(&5));
}

#[test]
fn what_a_policy_gives_overrides_its_blueprint() {
    let object =
        ScaledObject { like: Some(Blueprint::Queue), waiting: Some(target(7.0)), ..ScaledObject::default() };
    let resolved = object.resolve().unwrap();
    assert_eq!(
        (resolved.waiting, resolved.running, resolved.like),
        (Some(target(7.0)), Some(target(16.0)), None)
    );
    assert_eq!(resolved.behavior.unwrap().scale_up.stabilization_window_seconds, 300);
    assert_eq!(ScaledObject { latency: Some(false), ..ScaledObject::default() }.resolve(), None);
}
