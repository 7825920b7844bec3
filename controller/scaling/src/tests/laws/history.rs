//! Properties of the throughput analyzer over several cycles, for all counters and curves: figures are finite, memory stays
//! small, and a wrong curve does not keep a saturated fleet from growing for long.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use wva_crds::GoDuration;

use super::extremes::{is_finite, number};
use super::text;
use crate::decide;
use crate::snapshot::{
    AnalyzerName, Model, ModelSettings, QueueFigures, Replica, SaturationEntry, SchedulerQueue, Snapshot,
    SpeedEstimate, StepTimes, ThroughputMemory, Variant, WarmSpare, WorkSample,
};
use crate::tests::generate::{Case, figure};
use crate::units::Amount;

/// Scrapes of a pod in a cycle: the figures of one sample, the number of samples, and the age of the newest.
type PodScrapes = ([f64; 9], u32, u64);

/// One cycle: seconds since the last one, replicas, scrapes of each pod, and scheduler queue.
type Cycle = (u64, u32, Vec<Option<PodScrapes>>, Option<f64>);

fn usual() -> impl Strategy<Value = f64> {
    prop::sample::select(&[0.0, 1.0, 3.0, 40.0, 500.0, 20_000.0][..])
}

fn scrapes() -> impl Strategy<Value = PodScrapes> {
    let nine = |one: BoxedStrategy<f64>| vec(one, 9).prop_map(|v| <[f64; 9]>::try_from(v).unwrap());
    let figures = prop_oneof![3 => nine(usual().boxed()), 1 => nine(number().boxed())];
    (figures, 0_u32..5, prop::sample::select(&[0_u64, 1, 15, 40, 90, 400, 9_223_372_036][..]))
}

fn cycle() -> impl Strategy<Value = Cycle> {
    let elapsed = prop::sample::select(&[0_u64, 1, 15, 60, 60, 60, 61, 3600, 9_223_372_036][..]);
    (
        elapsed,
        prop_oneof![8 => 0_u32..6, 1 => Just(u32::MAX)],
        vec(weighted(0.9, scrapes()), 1..5),
        of(number()),
    )
}

fn estimate() -> impl Strategy<Value = Option<SpeedEstimate>> {
    weighted(0.3, (number(), number(), number(), number())).prop_map(|estimate| {
        estimate.map(|(a, b, c, samples)| SpeedEstimate {
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
            slo_target: itl.map(|_| figure(99.0)),
            warm_spare: Some(if spare { WarmSpare::On } else { WarmSpare::Auto }),
            ..SaturationEntry::default()
        }
    })
}

fn sample((figures, ..): &PodScrapes, age: u64, done: f64) -> WorkSample {
    let [completed, prompt, generated, prefills, prefill_seconds, gaps, gap_seconds, running, waiting] =
        figures.map(figure::<Amount>);
    let grown = |value: Amount| figure((value.get() * done).min(f64::MAX));
    WorkSample {
        age: GoDuration::from_secs(age),
        completed: grown(completed),
        first_tokens: grown(prefills),
        refused: grown(waiting),
        prompt_tokens: grown(prompt),
        cached_tokens: grown(gaps),
        generated_tokens: grown(generated),
        prefills: grown(prefills),
        prefill_seconds: grown(prefill_seconds),
        gaps: grown(gaps),
        gap_seconds: grown(gap_seconds),
        running,
        waiting,
    }
}

fn replica(i: usize, scrapes: &PodScrapes, clock: f64) -> Replica {
    let (_, samples, age) = scrapes;
    let ages = (0..u64::from(*samples)).map(|s| age.saturating_add(15 * s).min(9_223_372_036));
    let is_busy = scrapes.0[8] > 2.0;
    Replica {
        pod: format!("p{i}"),
        kv: Some(figure(if is_busy { 0.95 } else { 0.3 })),
        queue: Some(figure(scrapes.0[8])),
        num_gpu_blocks: Some(figure(1000.0)),
        block_size: Some(figure(16.0)),
        mean_input: Some(figure(scrapes.0[1])),
        mean_output: Some(figure(scrapes.0[2])),
        age: GoDuration::from_secs(10),
        work: ages
            .map(|age| {
                sample(scrapes, age, (clock - f64::from(u32::try_from(age).unwrap_or(u32::MAX))).max(0.0))
            })
            .collect(),
        ranks: [None, Some(2), Some(0), Some(u32::MAX)][i % 4],
        ..Replica::default()
    }
}

fn snapshot(
    (_, current, pods, queue): &Cycle,
    entry: &SaturationEntry,
    estimate: Option<SpeedEstimate>,
    clock: f64,
) -> Snapshot {
    let replicas = pods.iter().enumerate().filter_map(|(i, pod)| Some(replica(i, pod.as_ref()?, clock)));
    let variant = Variant {
        name: "a".to_owned(),
        accelerator: Some("H100".to_owned()),
        current: *current,
        max: Some(9),
        speed_estimate: estimate,
        replicas: replicas.collect(),
        ..Variant::default()
    };
    let queue = queue.map(|size| QueueFigures { size: figure(size), ..QueueFigures::default() });
    let model = Model {
        model_id: "m".to_owned(),
        namespace: "ns".to_owned(),
        settings: ModelSettings { saturation: entry.clone(), ..ModelSettings::default() },
        scheduler_queue: queue.map_or(SchedulerQueue::Absent, SchedulerQueue::Known),
        variants: vec![variant],
        ..Model::default()
    };
    Snapshot { models: vec![model], ..Snapshot::default() }
}

/// Bytes of a memory in a snapshot file.
fn size(learned: &[ThroughputMemory]) -> usize {
    serde_json::to_string(learned).unwrap().len()
}

proptest! {
    #[test]
    fn figures_are_finite_and_memory_stays_small(
        cycles in vec(cycle(), 1..8), entry in entry(), estimate in estimate(),
    ) {
        let (mut learned, mut clock): (Vec<ThroughputMemory>, f64) = (Vec::new(), 100_000.0);
        for cycle in &cycles {
            let elapsed = Duration::from_secs(cycle.0);
            clock += elapsed.as_secs_f64();
            let mut snapshot = snapshot(cycle, &entry, estimate, clock);
            snapshot.learned = learned.into_iter().map(|l| l.aged_by(elapsed)).collect();
            let outcome = decide(&snapshot);
            prop_assert!(is_finite(&outcome), "{}\n{:?}", text(&outcome), Case(snapshot));
            prop_assert!(outcome.decisions[0].target() <= 9);
            learned = outcome.next.learned;
            prop_assert_eq!(learned.len(), 1);
            prop_assert!(size(&learned) <= 6144 + 2048 * cycle.2.len(), "{}", serde_json::to_string(&learned).unwrap());
            let file = serde_json::to_string(&Snapshot { learned: learned.clone(), ..Snapshot::default() }).unwrap();
            prop_assert!(Snapshot::parse(&file).is_ok(), "{}", file);
        }
    }

    /// For every curve and every arrival rate.
    #[test]
    fn a_saturated_fleet_grows_within_three_cycles(
        past in vec(cycle(), 0..4), scrapes in scrapes(), entry in entry(), estimate in estimate(), replicas in 1_u32..8,
    ) {
        let (mut learned, mut clock): (Vec<ThroughputMemory>, f64) = (Vec::new(), 100_000.0);
        let full = {
            let (mut figures, ..) = scrapes;
            (figures[2], figures[8]) = (figures[2].max(1.0), 30.0);
            Some((figures, 5, 5))
        };
        let saturated: Cycle = (60, replicas, vec![full; replicas as usize], None);
        let mut grew = false;
        for cycle in past.iter().chain([&saturated, &saturated, &saturated]) {
            let elapsed = Duration::from_secs(cycle.0);
            clock += elapsed.as_secs_f64();
            let mut snapshot = snapshot(cycle, &entry, estimate, clock);
            snapshot.learned = learned.into_iter().map(|l| l.aged_by(elapsed)).collect();
            let outcome = decide(&snapshot);
            let decision = &outcome.decisions[0];
            grew = decision.target() > decision.current;
            learned = outcome.next.learned;
        }
        prop_assert!(grew, "{}", serde_json::to_string(&learned).unwrap());
    }
}
