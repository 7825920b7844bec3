//! Slow replicas, objectives out of reach, and what replicas demonstrably serve, over several cycles.

use super::pods::model_of;
use super::*;
use crate::reason::Reason;

/// A model under constant load with an objective, whose first pod is slower than the others by a factor.
struct SlowFleet {
    learned: Vec<ThroughputMemory>,
    cycle: u32,
    itl_slo: f64,
    /// Times of the healthy pods.
    times: Times,
    engine_args: Vec<String>,
}

impl SlowFleet {
    const RUNNING: f64 = 20.0;
    const TOKENS: f64 = 100.0;

    fn new(times: Times, itl_slo: f64) -> Self {
        Self { learned: Vec::new(), cycle: 0, itl_slo, times, engine_args: Vec::new() }
    }

    /// Requests that a healthy pod completes in a second.
    fn rate(&self) -> f64 {
        let Times { a, b, c } = self.times;
        1.0 / (Self::TOKENS * (a / Self::RUNNING + b + c))
    }

    fn replica(&self, pod: &str, slowness: f64) -> Replica {
        let scrape = |ago: u32| {
            let done = f64::from(15 * (self.cycle + 10 - ago)) * self.rate() / slowness;
            let gap = Self::RUNNING / (Self::TOKENS * self.rate()) * slowness;
            WorkSample {
                age: GoDuration::from_secs(u64::from(15 * ago)),
                completed: amount(done),
                prompt_tokens: amount(Self::TOKENS * done),
                generated_tokens: amount(Self::TOKENS * done),
                gaps: amount(Self::TOKENS * done),
                gap_seconds: amount(Self::TOKENS * done * gap),
                running: amount(Self::RUNNING),
                ..WorkSample::default()
            }
        };
        Replica {
            pod: pod.to_owned(),
            kv: Some(KvUsage::default()),
            queue: Some(crate::units::QueueLength::default()),
            mean_input: Some(amount(Self::TOKENS)),
            mean_output: Some(amount(Self::TOKENS)),
            work: vec![scrape(0), scrape(1)],
            ..Replica::default()
        }
    }

    /// The decision of the next cycle.
    fn next(&mut self, slowness: &[f64]) -> crate::Decision {
        self.cycle += 1;
        let pods = slowness.iter().enumerate().map(|(i, s)| self.replica(&format!("p-{i}"), *s)).collect();
        let mut snapshot = model_of(std::mem::take(&mut self.learned), pods);
        snapshot.models[0].variants[0].engine_args.clone_from(&self.engine_args);
        let itl_slo = wva_crds::entries::Millis::try_from(self.itl_slo).unwrap();
        snapshot.models[0].settings.saturation.itl_slo = Some(itl_slo);
        let mut outcome = crate::decide(&snapshot);
        let passed = std::time::Duration::from_secs(15);
        self.learned = outcome.next.learned.into_iter().map(|l| l.aged_by(passed)).collect();
        outcome.decisions.remove(0)
    }

    fn last_of(&mut self, cycles: u32, slowness: &[f64]) -> crate::Decision {
        (1..cycles).for_each(|_| drop(self.next(slowness)));
        self.next(slowness)
    }
}

fn codes(decision: &crate::Decision) -> Vec<&'static str> {
    decision.steps.iter().map(|step| step.reason.code()).collect()
}

#[test]
fn one_slow_replica_is_named_and_does_not_set_the_plan() {
    for slowness in [&[5.0, 1.0][..], &[5.0, 1.0, 1.0], &[1.0, 5.0, 1.0, 1.0]] {
        // 28 ms at 20 sequences, and 140 ms at the slow one.
        let mut fleet = SlowFleet::new(Times { a: 0.02, b: 0.000_3, c: 0.000_1 }, 40.0);
        let decision = fleet.last_of(80, slowness);
        let flow = decision.steps.iter().find_map(|step| step.reason.flow());
        // It plans with at least what a healthy one completes, and asks for no more than the whole load needs.
        assert!(flow.is_some_and(|f| f.throughput >= 0.9 * fleet.rate()), "{:?}", decision.steps);
        assert!(decision.target() <= u32::try_from(slowness.len()).unwrap() + 1, "{:?}", decision.steps);
        let slow = format!("p-{}", slowness.iter().position(|s| *s > 1.0).unwrap());
        let named = decision
            .steps
            .iter()
            .any(|step| step.reason == Reason::SlowReplicas { pods: vec![slow.clone()] });
        assert!(named, "{:?}", decision.steps);
        // It recovers.
        let decision = fleet.last_of(20, &vec![1.0; slowness.len()]);
        assert!(!codes(&decision).contains(&"SlowReplicas"), "{:?}", decision.steps);
    }
}

#[test]
fn replicas_that_are_all_slow_are_not_outliers() {
    let mut fleet = SlowFleet::new(Times { a: 0.02, b: 0.000_3, c: 0.000_1 }, 400.0);
    fleet.last_of(40, &[1.0; 3]);
    let decision = fleet.last_of(80, &[4.0; 3]);
    assert!(!codes(&decision).contains(&"SlowReplicas"), "{:?}", decision.steps);
    let throughput = decision.steps.iter().find_map(|step| step.reason.flow()).unwrap().throughput;
    assert!(throughput < 2.0 * fleet.rate() / 4.0 * 8.0, "{throughput}");
    let Times { a, .. } = fitted_times(&fleet.learned[0].curves[0]);
    assert!(a > 0.04, "the curve follows the hardware: {a}");
}

#[test]
fn an_objective_out_of_reach_does_not_size_the_model() {
    // A step takes 60 ms alone.
    let times = Times { a: 0.06, b: 0.000_3, c: 0.000_1 };
    let mut fleet = SlowFleet::new(times, 40.0);
    let decision = fleet.last_of(80, &[1.0; 2]);
    assert!(codes(&decision).contains(&"ObjectiveOutOfReach"), "{:?}", decision.steps);
    assert!(decision.target() <= 3, "{:?}", decision.steps);
    let throughput = decision.steps.iter().find_map(|step| step.reason.flow()).unwrap().throughput;
    assert!(throughput >= 0.85 * fleet.rate(), "{throughput}, completed {}", fleet.rate());
    // One that more replicas can meet is planned with.
    let mut fleet = SlowFleet::new(times, 64.0);
    let decision = fleet.last_of(80, &[1.0; 2]);
    assert!(!codes(&decision).contains(&"ObjectiveOutOfReach"), "{:?}", decision.steps);
    assert!(decision.target() > 2, "{:?}", decision.steps);
}

#[test]
fn the_plan_is_no_lower_than_what_replicas_serve() {
    let times = Times { a: 0.02, b: 0.000_3, c: 0.000_1 };
    // The arguments of the Deployment say four sequences, and a file that wva does not see says more.
    let plan = |itl_slo| {
        let mut fleet = SlowFleet::new(times, itl_slo);
        fleet.engine_args = vec!["--max-num-seqs=4".to_owned()];
        let decision = fleet.last_of(80, &[1.0; 2]);
        (decision.steps.iter().find_map(|step| step.reason.flow()).unwrap().throughput, fleet.rate())
    };
    let (planned, served) = plan(40.0);
    assert!(planned >= 0.8 * served, "{planned}, served {served}");
    // With 28 ms between two tokens, what they serve is too much for this objective.
    let (planned, served) = plan(24.0);
    assert!(planned <= 0.5 * served, "{planned}, served {served}");
}
