//! More load never means fewer replicas, and where by rule that ends.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::decide;
use crate::snapshot::{AnalyzerName, Mode, QueueFigures, SchedulerQueue, Snapshot};
use crate::tests::fixture::snapshot;
use crate::tests::generate::{Case, case_of, figure};

/// Two shares each of KV and of queue, and on which side of the thresholds.
type Loads = Vec<(f64, f64, f64, f64, bool)>;

fn loads() -> impl Strategy<Value = Loads> {
    vec((0.0..1.0_f64, 0.0..1.0_f64, 0.0..1.0_f64, 0.0..1.0_f64, prop::bool::weighted(0.2)), 12)
}

/// The first model alone with some of its variants, under less and under more load.
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

/// The lesser of two shares, or the greater.
fn share(one: f64, other: f64, more: bool) -> f64 {
    if more { one.max(other) } else { one.min(other) }
}

/// Every replica stays on its side of the thresholds of .8 and 5.
fn within_the_sides(snapshot: &mut Snapshot, loads: &Loads, more: bool) {
    let replicas = snapshot.models.iter_mut().flat_map(|m| &mut m.variants).flat_map(|v| &mut v.replicas);
    for (replica, (kv, other_kv, queue, other_queue, saturated)) in replicas.zip(loads.iter().cycle()) {
        let (kv, queue) = (share(*kv, *other_kv, more), share(*queue, *other_queue, more));
        let kv = if *saturated { 0.8 + 0.2 * kv } else { 0.799 * kv };
        replica.kv = Some(figure(kv));
        replica.queue = Some(figure(4.99 * queue));
    }
}

/// Queues and KV rise below the queue's threshold; at a queue that is full KV stays, and the queue rises; and more
/// waits in the scheduler.
fn within_the_queue(snapshot: &mut Snapshot, loads: &Loads, more: bool) {
    within_the_sides(snapshot, loads, more);
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
            model.scheduler_queue = SchedulerQueue::Known(QueueFigures { size, bytes });
        }
    }
}

proptest! {
    /// While no replica crosses a threshold: crossing takes it out of the averages.
    #[test]
    fn percentages_give_no_fewer_for_more(case in case_of(AnalyzerName::Percentage), loads in loads()) {
        let (calm, busy) = pair(case, 1, &loads, within_the_sides);
        prop_assert!(total(&calm) <= total(&busy), "calm {:?}busy {:?}", Case(calm), Case(busy));
    }

    /// The same of all variants of a model together, where the load does not choose among them: their HPAs may act on
    /// steps of different size.
    #[test]
    fn percentages_give_no_fewer_to_all_for_more(case in case_of(AnalyzerName::Percentage), loads in loads()) {
        let (mut calm, mut busy) = pair(case, 3, &loads, within_the_sides);
        for snapshot in [&mut calm, &mut busy] {
            snapshot.config.inventory = None;
            for (variant, cost) in snapshot.models[0].variants.iter_mut().zip([7.0, 5.0, 6.0]) {
                variant.cost = figure(cost);
            }
        }
        prop_assert!(total(&calm) <= total(&busy), "calm {:?}busy {:?}", Case(calm), Case(busy));
    }

    /// While no queue of a replica becomes full, and where it is full its KV use stays: what a full replica has in use
    /// is taken for all it can hold, and that may be more than was counted on before.
    #[test]
    fn tokens_give_no_fewer_for_more(case in case_of(AnalyzerName::Token), loads in loads()) {
        let (calm, busy) = pair(case, 1, &loads, within_the_queue);
        prop_assert!(total(&calm) <= total(&busy), "calm {:?}busy {:?}", Case(calm), Case(busy));
    }
}

#[test]
fn where_the_law_ends() {
    let target = |state: &str| decide(&snapshot(state)).decisions[0].target();
    let tokens = "tokens; each blocks=1000 in=512 out=128;";
    // Percentages: the replica that crosses the line leaves the mean.
    assert_eq!((target("a: 2 kv=.65,.79"), target("a: 2 kv=.65,.80")), (3, 2));
    // Tokens: the fifth request that waits shows that the replica holds 12,000 tokens, not 5,760.
    let waiting = |queue: u32| target(&format!("{tokens} a: 1 kv=.75 queue={queue} args=--max-num-seqs=10"));
    assert_eq!((waiting(4), waiting(5)), (3, 2));
    // Tokens: at a full queue, twice in use is twice the capacity for the same requests that wait.
    assert_eq!(
        (target(&format!("{tokens} a: 4 kv=.25 queue=5")), target(&format!("{tokens} a: 4 kv=.5 queue=5"))),
        (8, 7)
    );
}
