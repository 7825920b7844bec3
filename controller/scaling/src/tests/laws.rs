//! Laws that hold for every snapshot, over random ones: order does not matter, steps chain, targets stay within their
//! bounds, more load never means fewer replicas, and what holds is kept.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use wva_crds::GoDuration;

use crate::snapshot::{
    AnalyzerName, GpuCount, HpaTolerance, Inventory, Mode, Model, Pending, PendingState, QueueFigures,
    Replica, SaturationEntry, SchedulerQueue, Snapshot, Variant,
};
use crate::units::{Amount, Cost, KvUsage, QueueLength};
use crate::{Decision, decide};

fn age() -> impl Strategy<Value = GoDuration> {
    prop_oneof![Just(0), Just(30), Just(90), Just(200), Just(400), Just(700)].prop_map(GoDuration::from_secs)
}

fn amount(max: u32) -> impl Strategy<Value = Amount> {
    (0..=max).prop_map(|n| Amount::try_from(f64::from(n)).unwrap())
}

prop_compose! {
    fn replica()(kv in of(0.0..=1.0), queue in of(0_u32..8), age in age(), blocks in of(amount(2000)), output in of(amount(800)))
        -> Replica {
        Replica {
            kv: kv.map(|v| KvUsage::try_from(v).unwrap()),
            queue: queue.map(|v| QueueLength::try_from(f64::from(v)).unwrap()),
            num_gpu_blocks: blocks,
            block_size: blocks.map(|_| Amount::constant(16.0)),
            mean_input: output,
            mean_output: output,
            age,
            ..Replica::default()
        }
    }
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![5 => Just(Mode::Auto), 1 => Just(Mode::Recommend), 1 => Just(Mode::Paused), 1 => (0_u32..9).prop_map(Mode::Fixed)]
}

fn pending() -> impl Strategy<Value = Pending> {
    let state = prop_oneof![
        Just(PendingState::Starting),
        Just(PendingState::Unschedulable),
        Just(PendingState::CrashLooping)
    ];
    (age(), state).prop_map(|(age, state)| Pending { age, state })
}

prop_compose! {
    fn bounds()(min in of(0_u32..4), extra in of(0_u32..8), forbids: bool) -> (Option<u32>, Option<u32>, bool) {
        (min, extra.map(|e| min.unwrap_or(0) + e), forbids)
    }
}

prop_compose! {
    fn variant()(
        current in 0_u32..6, ready in of(0_u32..6), desired in of(0_u32..8), desired_age in of(age()), bounds in bounds(),
        cost in 1_u32..4, mode in mode(), tolerance in of(0.0..0.6), woken_ago in of(age()), pending in of(vec(pending(), 0..4)),
        (running, accelerator) in (of(amount(1)), of("(H100|L4|B200)")), gpus in 0_u32..3, mut replicas in vec(replica(), 0..5),
    ) -> Variant {
        for (i, replica) in replicas.iter_mut().enumerate() {
            replica.pod = format!("p{i}");
        }
        let tolerance = tolerance.map(|t| Amount::try_from(t).unwrap());
        Variant {
            accelerator, cost: Cost::try_from(f64::from(cost)).unwrap(), mode, current, ready, desired, desired_age,
            min: bounds.0, max: bounds.1, min_forbids_zero: bounds.2,
            hpa_tolerance: tolerance.map(|t| HpaTolerance { up: t, down: t }),
            woken_ago, pending, running, gpus_per_replica: GpuCount(gpus), replicas, ..Variant::default()
        }
    }
}

prop_compose! {
    fn model()(
        mut variants in vec(variant(), 1..4), requests in of(amount(1)), queue in of(of(amount(2))),
        tracked_for in of(age()), since_activity in of(age()), since_pod_start in of(age()),
    ) -> Model {
        for (i, variant) in variants.iter_mut().enumerate() {
            variant.name = format!("v{i}");
        }
        Model {
            variants, requests_in_retention: requests, tracked_for, since_activity, since_pod_start,
            scheduler_queue: match queue {
                None => SchedulerQueue::Absent,
                Some(None) => SchedulerQueue::Unknown,
                Some(Some(size)) => SchedulerQueue::Known(QueueFigures { size, bytes: size }),
            },
            ..Model::default()
        }
    }
}

fn analyzer() -> impl Strategy<Value = AnalyzerName> {
    prop_oneof![4 => Just(AnalyzerName::Percentage), 2 => Just(AnalyzerName::Tokens), 1 => Just(AnalyzerName::Throughput)]
}

prop_compose! {
    fn any_snapshot()(
        mut models in vec(model(), 1..4), to_zero: bool, limited: bool, left in of((0_u64..6, 0_u64..6)), analyzer in analyzer(),
    ) -> Snapshot {
        for (i, model) in models.iter_mut().enumerate() {
            model.namespace = "ns".into();
            model.model_id = format!("m{i}");
            for variant in &mut model.variants {
                variant.name = format!("m{i}-{}", variant.name);
            }
        }
        let mut snapshot = Snapshot { models, ..Snapshot::default() };
        snapshot.config.scale_to_zero_default = to_zero;
        snapshot.config.limited_mode = limited;
        snapshot.config.inventory = left.map(|(h100, l4)| {
            [("H100", h100), ("NVIDIA-L4", l4)].map(|(n, limit)| (n.into(), Inventory { limit, used: 0 })).into()
        });
        let entry = SaturationEntry { analyzer_name: Some(analyzer), ..SaturationEntry::default() };
        snapshot.config.saturation.insert("default".into(), entry);
        snapshot
    }
}

fn reversed(snapshot: &Snapshot) -> Snapshot {
    let mut other = snapshot.clone();
    other.models.reverse();
    for model in &mut other.models {
        model.variants.reverse();
        for variant in &mut model.variants {
            variant.replicas.reverse();
            variant.pending.iter_mut().for_each(|p| p.reverse());
        }
    }
    other
}

/// The variant a decision is about.
fn subject<'a>(snapshot: &'a Snapshot, decision: &Decision) -> &'a Variant {
    snapshot.models.iter().flat_map(|m| &m.variants).find(|v| v.name == decision.variant).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn order_does_not_matter(snapshot in any_snapshot()) {
        let (one, other) = (decide(&snapshot), decide(&reversed(&snapshot)));
        prop_assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&other).unwrap());
        prop_assert_eq!(one, other);
    }

    #[test]
    fn a_snapshot_written_and_read_decides_the_same(snapshot in any_snapshot()) {
        let json = serde_json::to_string(&snapshot).unwrap();
        let read = Snapshot::parse(&json).unwrap();
        prop_assert_eq!(decide(&read), decide(&snapshot));
    }

    #[test]
    fn steps_chain_from_current_through_every_stage(snapshot in any_snapshot()) {
        for decision in decide(&snapshot).decisions {
            let mut before = decision.current;
            for step in &decision.steps {
                prop_assert_eq!(step.before, before);
                before = step.after;
            }
            prop_assert_eq!(before, decision.target());
            let mut stages: Vec<_> = decision.steps.iter().map(|s| s.stage).collect();
            prop_assert!(stages.is_sorted());
            stages.dedup();
            prop_assert_eq!(stages.len(), 5);
            // A sentence and figures for each, whatever they are.
            prop_assert!(!crate::trace::Trace(&decision).to_string().is_empty());
        }
    }

    #[test]
    fn targets_stay_within_their_bounds(snapshot in any_snapshot()) {
        for decision in decide(&snapshot).decisions {
            let (target, bounds) = (decision.target(), decision.bounds);
            let asleep = decision.model_at_zero && target == 0;
            let held_back = decision.limited_by.is_some() && target >= decision.current;
            if subject(&snapshot, &decision).mode != Mode::Paused && !asleep && !held_back {
                prop_assert_eq!(bounds.clamp(target), target, "{:?}", decision);
            }
            prop_assert!(target <= bounds.max.unwrap_or(u32::MAX).max(decision.current).max(target * u32::from(decision.mode == Mode::Paused)));
        }
    }

    #[test]
    fn a_model_with_replicas_is_not_zeroed_unless_it_may_be(snapshot in any_snapshot()) {
        let outcome = decide(&snapshot);
        for model in &snapshot.models {
            let all_auto = model.variants.iter().all(|v| v.mode == Mode::Auto && v.max != Some(0));
            let awake = model.variants.iter().any(|v| v.current > 0);
            let total: u32 = outcome.decisions.iter().filter(|d| d.model_id == model.model_id).map(Decision::target).sum();
            if all_auto && awake && !snapshot.config.scale_to_zero_default {
                prop_assert!(total > 0, "{}", crate::trace::render(&outcome));
            }
        }
    }

    #[test]
    fn more_load_never_means_fewer_replicas_below_the_thresholds(
        mut snapshot in any_snapshot(), loads in vec((0.0..0.79_f64, 0.0..0.79_f64, 0_u32..5, 0_u32..5), 60)
    ) {
        snapshot.config.saturation.clear();
        // A step that falls to a variant whose mode holds it back is lost to the model.
        // Of variants of equal cost the load chooses, and their HPAs may act on steps of different size.
        for (i, variant) in snapshot.models.iter_mut().flat_map(|m| &mut m.variants).enumerate() {
            variant.mode = Mode::Auto;
            variant.cost = Cost::try_from(variant.cost.get() + f64::from(u8::try_from(i).unwrap()) / 100.0).unwrap();
        }
        let (mut calm, mut busy) = (snapshot.clone(), snapshot);
        let mut loads = loads.into_iter();
        let pairs = calm.models.iter_mut().zip(&mut busy.models).flat_map(|(c, b)| c.variants.iter_mut().zip(&mut b.variants));
        for (calm, busy) in pairs.flat_map(|(c, b)| c.replicas.iter_mut().zip(&mut b.replicas)) {
            let (kv, other_kv, queue, other_queue) = loads.next().unwrap();
            calm.kv = Some(KvUsage::try_from(kv.min(other_kv)).unwrap());
            busy.kv = Some(KvUsage::try_from(kv.max(other_kv)).unwrap());
            calm.queue = Some(QueueLength::try_from(f64::from(queue.min(other_queue))).unwrap());
            busy.queue = Some(QueueLength::try_from(f64::from(queue.max(other_queue))).unwrap());
        }
        // One model's gain may be another's loss where GPUs are scarce.
        (calm.config.inventory, busy.config.inventory) = (None, None);
        let total = |snapshot: &Snapshot, model: &Model| -> u32 {
            decide(snapshot).decisions.iter().filter(|d| d.model_id == model.model_id).map(Decision::target).sum()
        };
        for model in &calm.models {
            prop_assert!(total(&calm, model) <= total(&busy, model), "calm\n{}busy\n{}", crate::trace::render(&decide(&calm)), crate::trace::render(&decide(&busy)));
        }
    }

    #[test]
    fn a_decision_that_holds_is_kept(current in 1_u32..9, desired in 1_u32..9, kv in 0.30..0.69_f64, age in 0_u64..600) {
        let replicas = (0..current)
            .map(|i| Replica { pod: i.to_string(), kv: Some(KvUsage::try_from(kv).unwrap()), ..Replica::default() })
            .collect();
        let variant = Variant {
            name: "a".into(), current, desired: Some(desired), desired_age: Some(GoDuration::from_secs(age)), replicas,
            ..Variant::default()
        };
        let model = Model { model_id: "m".into(), namespace: "n".into(), variants: vec![variant], ..Model::default() };
        let decision = decide(&Snapshot { models: vec![model], ..Snapshot::default() }).decisions.remove(0);
        if desired != current {
            prop_assert_eq!((decision.target(), decision.reason().code()), (desired, "KeptDecision"));
        }
    }

    #[test]
    fn nothing_is_given_that_the_inventory_lacks(mut snapshot in any_snapshot()) {
        snapshot.config.limited_mode = true;
        let Some(stock) = snapshot.config.inventory.clone() else { return Ok(()) };
        for model in &mut snapshot.models {
            for variant in &mut model.variants {
                // What earlier cycles asked for is booked, not limited again.
                (variant.desired, variant.woken_ago, variant.mode) = (None, None, Mode::Auto);
            }
        }
        let outcome = decide(&snapshot);
        for (name, stock) in stock {
            let asked: u64 = outcome.decisions.iter()
                .filter(|d| name.ends_with(&d.accelerator))
                .map(|d| u64::from(d.target().saturating_sub(d.current)) * u64::from(subject(&snapshot, d).gpus_per_replica.0))
                .sum();
            prop_assert!(asked <= stock.limit, "{}: {}", name, crate::trace::render(&outcome));
        }
    }
}
