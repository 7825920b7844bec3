//! Replicas and signals that others disturb under constant load: rollouts with surge pods that an HPA adopts within its
//! tolerance, another writer of `spec.replicas`, lost signals, counters that restart, and a sibling that does not grow.
//! The target stays where it is without them.

use proptest::collection::vec;
use proptest::prelude::*;
use wva_crds::GoDuration;

use crate::snapshot::{
    AnalyzerName, HpaTolerance, Model, ModelSettings, Replica, SaturationEntry, ScaleObstacles, Snapshot,
    ThroughputMemory, Variant, WorkSample,
};
use crate::tests::generate::figure;
use crate::{Outcome, VariantState, decide};

/// Seconds between two cycles.
const CYCLE: u32 = 15;
/// Requests per second, and KV caches that they fill.
const ARRIVALS: f64 = 20.0;
const LOAD: f64 = 11.0;

#[derive(Clone, Copy, Debug)]
enum Disturbance {
    None,
    /// Pods beyond `spec.replicas`.
    Surge(u32),
    /// Another writer sets `spec.replicas`.
    Reset(u32),
    /// A replica loses its KV gauge, and one its queue.
    LostSignals,
    /// A replica is not scraped.
    LostScrape,
    /// Counters of a replica fall, as of the other server in its pod.
    FallenCounter(u32),
    /// The sibling cannot grow in this cycle.
    BlockedSibling,
}

fn disturbance() -> impl Strategy<Value = Disturbance> {
    prop_oneof![
        3 => Just(Disturbance::None),
        4 => (1_u32..6).prop_map(Disturbance::Surge),
        2 => (1_u32..40).prop_map(Disturbance::Reset),
        1 => Just(Disturbance::LostSignals),
        1 => Just(Disturbance::LostScrape),
        1 => (0_u32..100_000).prop_map(Disturbance::FallenCounter),
        1 => Just(Disturbance::BlockedSibling),
    ]
}

/// A model with a variant whose HPA ignores a tenth, and an expensive sibling with one replica.
struct World {
    analyzer: AnalyzerName,
    spec: u32,
    seconds: u32,
    state: Option<VariantState>,
    learned: Vec<ThroughputMemory>,
    target: u32,
}

impl World {
    fn new(analyzer: AnalyzerName) -> Self {
        Self { analyzer, spec: 16, seconds: 100_000, state: None, learned: Vec::new(), target: 16 }
    }

    /// Takes a cycle, and lets the HPA act.
    fn cycle(&mut self, disturbance: Disturbance) -> Outcome {
        self.seconds += CYCLE;
        if let Disturbance::Reset(replicas) = disturbance {
            self.spec = replicas;
        }
        let surge = if let Disturbance::Surge(surge) = disturbance { surge } else { 0 };
        let created = self.spec + surge;
        let outcome = decide(&self.snapshot(created, disturbance));
        let state = outcome.next.variants.values().next().copied().unwrap();
        self.state = Some(state);
        self.target = state.desired;
        let passed = std::time::Duration::from_secs(CYCLE.into());
        self.learned = outcome.next.learned.iter().map(|memory| memory.clone().aged_by(passed)).collect();
        // The HPA compares with the pods that exist, and adopts their number within its tolerance.
        let ratio = f64::from(self.target) / f64::from(created);
        self.spec = if (ratio - 1.0).abs() <= 0.1 { created } else { self.target };
        outcome
    }

    fn snapshot(&self, created: u32, disturbance: Disturbance) -> Snapshot {
        let elapsed = std::time::Duration::from_secs(CYCLE.into());
        let (state, current) = (self.state, self.spec);
        let variant = Variant {
            name: "a".to_owned(),
            accelerator: Some("H100".to_owned()),
            cost: figure(10.0),
            current,
            desired: state.map(|state| state.desired),
            desired_before: state.and_then(|state| state.before),
            desired_age: state.map(|state| state.desired_age_after(elapsed, current)),
            max: Some(60),
            hpa_tolerance: Some(HpaTolerance::default()),
            replicas: (0..created).map(|i| self.replica(i, created, disturbance)).collect(),
            ..Variant::default()
        };
        let is_blocked = matches!(disturbance, Disturbance::BlockedSibling);
        let sibling = Variant {
            name: "b".to_owned(),
            accelerator: Some("A100".to_owned()),
            cost: figure(1000.0),
            max: Some(9),
            obstacles: ScaleObstacles { up: is_blocked.then(|| "HPA b".to_owned()), down: None },
            ..Variant::default()
        };
        let saturation = SaturationEntry { analyzer_name: Some(self.analyzer), ..SaturationEntry::default() };
        let model = Model {
            model_id: "m".to_owned(),
            namespace: "ns".to_owned(),
            settings: ModelSettings { saturation, ..ModelSettings::default() },
            variants: vec![variant, sibling],
            ..Model::default()
        };
        Snapshot { models: vec![model], learned: self.learned.clone(), ..Snapshot::default() }
    }

    /// One of `created` replicas that share the load.
    fn replica(&self, i: u32, created: u32, disturbance: Disturbance) -> Replica {
        let share = LOAD / f64::from(created);
        let is_last = i + 1 == created;
        let has_lost = is_last && matches!(disturbance, Disturbance::LostSignals);
        let is_silent = is_last && matches!(disturbance, Disturbance::LostScrape);
        let fallen = match disturbance {
            Disturbance::FallenCounter(to) if i == 0 => Some(f64::from(to)),
            _ => None,
        };
        Replica {
            pod: format!("p{i:03}"),
            kv: (!has_lost && !is_silent).then(|| figure(share.min(1.0))),
            queue: (!is_silent).then(|| figure(0.0)),
            running: Some(figure(4.0)),
            num_gpu_blocks: Some(figure(1000.0)),
            block_size: Some(figure(16.0)),
            mean_input: Some(figure(500.0)),
            mean_output: Some(figure(100.0)),
            age: GoDuration::from_secs(5),
            work: if is_silent { Vec::new() } else { self.work(i, created, fallen) },
            ..Replica::default()
        }
    }

    /// Every pod has served its share of a fleet of 16 since the beginning; only the last cycle depends on the fleet.
    fn work(&self, i: u32, created: u32, fallen: Option<f64>) -> Vec<WorkSample> {
        let before = f64::from(self.seconds - CYCLE) * ARRIVALS / 16.0 + f64::from(i);
        let now = before + f64::from(CYCLE) * ARRIVALS / f64::from(created);
        let sample = |age: u64, done: f64| WorkSample {
            age: GoDuration::from_secs(age),
            completed: figure(done),
            first_tokens: figure(done + 4.0),
            prompt_tokens: figure(done * 500.0),
            generated_tokens: figure(done * 100.0),
            prefills: figure(done),
            prefill_seconds: figure(done * 0.125),
            gaps: figure(done * 99.0),
            gap_seconds: figure(done * 2.0),
            running: figure(4.0),
            waiting: figure(0.0),
            ..WorkSample::default()
        };
        vec![sample(5, fallen.unwrap_or(now)), sample(20, before)]
    }
}

fn targets(analyzer: AnalyzerName, disturbances: &[Disturbance]) -> Vec<u32> {
    let mut world = World::new(analyzer);
    // Ten minutes, so that the fleet has found its size.
    for _ in 0..40 {
        world.cycle(Disturbance::None);
    }
    disturbances
        .iter()
        .map(|disturbance| {
            world.cycle(*disturbance);
            world.target
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn targets_stay_where_they_are_without_disturbances(
        disturbances in vec(disturbance(), 1..60),
        analyzer in prop::sample::select(&[AnalyzerName::Percentage, AnalyzerName::Token][..]),
    ) {
        let calm = targets(analyzer, &vec![Disturbance::None; disturbances.len()]);
        let (least, most) = (calm.iter().min().unwrap(), calm.iter().max().unwrap());
        let disturbed = targets(analyzer, &disturbances);
        prop_assert!(
            disturbed.iter().all(|target| (least..=most).contains(&target)),
            "{analyzer:?}: {least}..{most} without disturbances, {disturbed:?}"
        );
    }
}
