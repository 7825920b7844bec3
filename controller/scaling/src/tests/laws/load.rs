//! More load never means fewer replicas, and the exceptions of the rules.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::decide;
use crate::snapshot::{AnalyzerName, Mode, QueueFigures, SchedulerQueue, Snapshot};
use crate::tests::fixture::snapshot;
use crate::tests::generate::{Case, case_of, figure};

/// Two shares of KV, two shares of the queue, and the side of the thresholds.
type Loads = Vec<(f64, f64, f64, f64, bool)>;

fn loads() -> impl Strategy<Value = Loads> {
    vec((0.0..1.0_f64, 0.0..1.0_f64, 0.0..1.0_f64, 0.0..1.0_f64, prop::bool::weighted(0.2)), 12)
}

/// The first model with some of its variants, under less and under more load.
fn pair(
    case: Case,
    variants: usize,
    loads: &Loads,
    apply: impl Fn(&mut Snapshot, &Loads, bool),
) -> (Snapshot, Snapshot) {
    let mut calm = case.0;
    calm.models.truncate(1);
    calm.models[0].variants.truncate(variants);
    for variant in &mut calm.models[0].variants {
        variant.mode = Mode::Auto;
    }
    let mut busy = calm.clone();
    apply(&mut calm, loads, false);
    apply(&mut busy, loads, true);
    (calm, busy)
}

fn total(snapshot: &Snapshot) -> u64 {
    decide(snapshot).decisions.iter().map(|decision| u64::from(decision.target())).sum()
}

/// The smaller of two shares, or the greater one.
fn share(one: f64, other: f64, more: bool) -> f64 {
    if more { one.max(other) } else { one.min(other) }
}

/// Changes the load without moving a replica across the thresholds of .8 and 5.
fn within_thresholds(snapshot: &mut Snapshot, loads: &Loads, more: bool) {
    let replicas = snapshot.models.iter_mut().flat_map(|m| &mut m.variants).flat_map(|v| &mut v.replicas);
    for (replica, (kv, other_kv, queue, other_queue, saturated)) in replicas.zip(loads.iter().cycle()) {
        let (kv, queue) = (share(*kv, *other_kv, more), share(*queue, *other_queue, more));
        let kv = if *saturated { 0.8 + 0.2 * kv } else { 0.799 * kv };
        replica.kv = Some(figure(kv));
        replica.queue = Some(figure(4.99 * queue));
    }
}

/// Changes queues and KV below the queue threshold, only the queue of replicas with a full queue, and the scheduler queue.
fn within_the_queue(snapshot: &mut Snapshot, loads: &Loads, more: bool) {
    within_thresholds(snapshot, loads, more);
    let replicas = snapshot.models.iter_mut().flat_map(|m| &mut m.variants).flat_map(|v| &mut v.replicas);
    for (replica, (kv, _, queue, other_queue, full)) in replicas.zip(loads.iter().cycle()) {
        if *full {
            replica.kv = Some(figure(*kv));
            replica.queue = Some(figure(5.0 + 9.0 * share(*queue, *other_queue, more)));
        }
    }
    for (model, (size, other_size, bytes, other_bytes, _)) in snapshot.models.iter_mut().zip(loads) {
        if matches!(model.scheduler_queue, SchedulerQueue::Known(_)) {
            let size = figure((9.0 * share(*size, *other_size, more)).floor());
            let bytes = figure((90_000.0 * share(*bytes, *other_bytes, more)).floor());
            model.scheduler_queue =
                SchedulerQueue::Known(QueueFigures { size, bytes, ..QueueFigures::default() });
        }
    }
}

proptest! {
    /// Without crossing a threshold, because that takes a replica out of the means.
    #[test]
    fn percentage_targets_do_not_fall_with_load(case in case_of(AnalyzerName::Percentage), loads in loads()) {
        let (calm, busy) = pair(case, 1, &loads, within_thresholds);
        prop_assert!(total(&calm) <= total(&busy), "calm {:?}busy {:?}", Case(calm), Case(busy));
    }

    /// The sum over the variants, with costs that fix the choice of the variant: their HPAs may act on steps of different
    /// size.
    #[test]
    fn the_sum_of_percentage_targets_does_not_fall_with_load(case in case_of(AnalyzerName::Percentage), loads in loads()) {
        let (mut calm, mut busy) = pair(case, 3, &loads, within_thresholds);
        for snapshot in [&mut calm, &mut busy] {
            super::remove_budgets(snapshot);
            for (variant, cost) in snapshot.models[0].variants.iter_mut().zip([7.0, 5.0, 6.0]) {
                variant.cost = figure(cost);
            }
        }
        prop_assert!(total(&calm) <= total(&busy), "calm {:?}busy {:?}", Case(calm), Case(busy));
    }

    /// Without filling the queue of a replica, and without changing the KV use at a full queue: that use counts as the
    /// capacity, which may be more than assumed before.
    #[test]
    fn token_targets_do_not_fall_with_load(case in case_of(AnalyzerName::Token), loads in loads()) {
        let (calm, busy) = pair(case, 1, &loads, within_the_queue);
        prop_assert!(total(&calm) <= total(&busy), "calm {:?}busy {:?}", Case(calm), Case(busy));
    }
}

#[test]
fn targets_may_fall_when_a_replica_crosses_a_threshold() {
    let target = |state: &str| decide(&snapshot(state)).decisions[0].target();
    let tokens = "tokens; each blocks=1000 in=512 out=128;";
    // Percentage: the replica that crosses the threshold leaves the mean.
    assert_eq!((target("a: 2 kv=.65,.79"), target("a: 2 kv=.65,.80")), (3, 2));
    // Token: the fifth waiting request shows a capacity of 12,000 tokens instead of 5,760.
    let waiting = |queue: u32| target(&format!("{tokens} a: 1 kv=.75 queue={queue} args=--max-num-seqs=10"));
    assert_eq!((waiting(4), waiting(5)), (3, 2));
    // Token: at a full queue, twice the use is twice the capacity for the same waiting requests.
    assert_eq!(
        (target(&format!("{tokens} a: 4 kv=.25 queue=5")), target(&format!("{tokens} a: 4 kv=.5 queue=5"))),
        (8, 7)
    );
}
