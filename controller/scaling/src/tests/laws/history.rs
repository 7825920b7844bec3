//! Guards of the throughput analyzer, over histories of several cycles: whatever counters show and whatever is believed,
//! nothing that is no finite number gets out, memory stays small, and no belief holds a saturated fleet down for long.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use wva_crds::GoDuration;

use super::extremes::{finite, number};
use super::text;
use crate::decide;
use crate::snapshot::{
    AnalyzerName, Config, Known, Learned, Model, QueueFigures, Replica, SaturationEntry, SchedulerQueue,
    Snapshot, StepTimes, Variant, WarmSpare, WorkSample,
};
use crate::tests::generate::{Case, figure};
use crate::units::Amount;

/// What a pod shows in a cycle: figures of one sample, and how many samples of it there are.
type Shown = ([f64; 9], u32, u64);

/// One cycle: seconds since the last, replicas, what each pod shows, and the scheduler's queue.
type Cycle = (u64, u32, Vec<Option<Shown>>, Option<f64>);

fn usual() -> impl Strategy<Value = f64> {
    prop::sample::select(&[0.0, 1.0, 3.0, 40.0, 500.0, 20_000.0][..])
}

fn shown() -> impl Strategy<Value = Shown> {
    let nine = |one: BoxedStrategy<f64>| vec(one, 9).prop_map(|v| <[f64; 9]>::try_from(v).unwrap());
    let figures = prop_oneof![3 => nine(usual().boxed()), 1 => nine(number().boxed())];
    (figures, 0_u32..5, prop::sample::select(&[0_u64, 1, 15, 40, 90, 400, 9_223_372_036][..]))
}

fn cycle() -> impl Strategy<Value = Cycle> {
    let elapsed = prop::sample::select(&[0_u64, 1, 15, 60, 60, 60, 61, 3600, 9_223_372_036][..]);
    (
        elapsed,
        prop_oneof![8 => 0_u32..6, 1 => Just(u32::MAX)],
        vec(weighted(0.9, shown()), 1..5),
        of(number()),
    )
}

fn known() -> impl Strategy<Value = Option<Known>> {
    weighted(0.3, (number(), number(), number(), number())).prop_map(|known| {
        known.map(|(a, b, c, samples)| Known {
            times: StepTimes { a: figure(a), b: figure(b), c: figure(c) },
            samples: figure(samples),
        })
    })
}

fn entry() -> impl Strategy<Value = SaturationEntry> {
    (of(prop::sample::select(&[1e-300, 1.0, 50.0, 1e300][..])), any::<bool>()).prop_map(|(itl, spare)| {
        SaturationEntry {
            analyzer_name: Some(AnalyzerName::Throughput),
            itl_slo: itl.map(figure),
            ttft_slo: itl.map(figure),
            warm_spare: Some(if spare { WarmSpare::On } else { WarmSpare::Auto }),
            ..SaturationEntry::default()
        }
    })
}

fn sample((figures, ..): &Shown, age: u64, done: f64) -> WorkSample {
    let [completed, prompt, generated, prefills, prefill_seconds, gaps, gap_seconds, running, waiting] =
        figures.map(figure::<Amount>);
    let grown = |value: Amount| figure((value.get() * done).min(f64::MAX));
    WorkSample {
        age: GoDuration::from_secs(age),
        completed: grown(completed),
        prompt_tokens: grown(prompt),
        generated_tokens: grown(generated),
        prefills: grown(prefills),
        prefill_seconds: grown(prefill_seconds),
        gaps: grown(gaps),
        gap_seconds: grown(gap_seconds),
        running,
        waiting,
    }
}

fn replica(i: usize, shown: &Shown, clock: f64) -> Replica {
    let (_, samples, age) = shown;
    let ages = (0..u64::from(*samples)).map(|s| age.saturating_add(15 * s).min(9_223_372_036));
    let busy = shown.0[8] > 2.0;
    Replica {
        pod: format!("p{i}"),
        kv: Some(figure(if busy { 0.95 } else { 0.3 })),
        queue: Some(figure(shown.0[8])),
        num_gpu_blocks: Some(figure(1000.0)),
        block_size: Some(figure(16.0)),
        mean_input: Some(figure(shown.0[1])),
        mean_output: Some(figure(shown.0[2])),
        age: GoDuration::from_secs(10),
        work: ages
            .map(|age| {
                sample(shown, age, (clock - f64::from(u32::try_from(age).unwrap_or(u32::MAX))).max(0.0))
            })
            .collect(),
        ranks: [None, Some(2), Some(0), Some(u32::MAX)][i % 4],
        ..Replica::default()
    }
}

fn snapshot(
    (_, current, pods, queue): &Cycle,
    entry: &SaturationEntry,
    known: Option<Known>,
    clock: f64,
) -> Snapshot {
    let replicas = pods.iter().enumerate().filter_map(|(i, shown)| Some(replica(i, shown.as_ref()?, clock)));
    let variant = Variant {
        name: "a".to_owned(),
        accelerator: Some("H100".to_owned()),
        current: *current,
        max: Some(9),
        known,
        replicas: replicas.collect(),
        ..Variant::default()
    };
    let queue = queue.map(|size| QueueFigures { size: figure(size), ..QueueFigures::default() });
    let model = Model {
        model_id: "m".to_owned(),
        namespace: "ns".to_owned(),
        scheduler_queue: queue.map_or(SchedulerQueue::Absent, SchedulerQueue::Known),
        variants: vec![variant],
        ..Model::default()
    };
    let config = Config { saturation: [("default".to_owned(), entry.clone())].into(), ..Config::default() };
    Snapshot { config, models: vec![model], ..Snapshot::default() }
}

/// Bytes that a memory takes in a snapshot file.
fn size(learned: &[Learned]) -> usize {
    serde_json::to_string(learned).unwrap().len()
}

proptest! {
    #[test]
    fn nothing_infinite_gets_out_of_any_history_and_memory_stays_small(
        cycles in vec(cycle(), 1..8), entry in entry(), known in known(),
    ) {
        let (mut learned, mut clock): (Vec<Learned>, f64) = (Vec::new(), 100_000.0);
        for cycle in &cycles {
            let elapsed = Duration::from_secs(cycle.0);
            clock += elapsed.as_secs_f64();
            let mut snapshot = snapshot(cycle, &entry, known, clock);
            snapshot.learned = learned.into_iter().map(|l| l.after(elapsed)).collect();
            let outcome = decide(&snapshot);
            prop_assert!(finite(&outcome), "{}\n{:?}", text(&outcome), Case(snapshot));
            prop_assert!(outcome.decisions[0].target() <= 9);
            learned = outcome.next.learned;
            prop_assert_eq!(learned.len(), 1);
            prop_assert!(size(&learned) <= 6144 + 2048 * cycle.2.len(), "{}", serde_json::to_string(&learned).unwrap());
            let file = serde_json::to_string(&Snapshot { learned: learned.clone(), ..Snapshot::default() }).unwrap();
            prop_assert!(Snapshot::parse(&file).is_ok(), "{}", file);
        }
    }

    /// Whatever is believed of a replica, and however little seems to arrive.
    #[test]
    fn a_belief_holds_a_saturated_fleet_down_for_two_cycles_at_most(
        past in vec(cycle(), 0..4), shown in shown(), entry in entry(), known in known(), replicas in 1_u32..8,
    ) {
        let (mut learned, mut clock): (Vec<Learned>, f64) = (Vec::new(), 100_000.0);
        let full = {
            let (mut figures, ..) = shown;
            (figures[2], figures[8]) = (figures[2].max(1.0), 30.0);
            Some((figures, 5, 5))
        };
        let saturated: Cycle = (60, replicas, vec![full; replicas as usize], None);
        let mut grew = false;
        for cycle in past.iter().chain([&saturated, &saturated, &saturated]) {
            let elapsed = Duration::from_secs(cycle.0);
            clock += elapsed.as_secs_f64();
            let mut snapshot = snapshot(cycle, &entry, known, clock);
            snapshot.learned = learned.into_iter().map(|l| l.after(elapsed)).collect();
            let outcome = decide(&snapshot);
            let decision = &outcome.decisions[0];
            grew = decision.target() > decision.current;
            learned = outcome.next.learned;
        }
        prop_assert!(grew, "{}", serde_json::to_string(&learned).unwrap());
    }
}
