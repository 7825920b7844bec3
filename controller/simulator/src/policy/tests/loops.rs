//! Each loop on a fleet that is loaded by hand: what it asks for, and when.

use wva_crds::GoDuration;
use wva_crds::entries::ScaleToZeroEntry;
use wva_scaling::snapshot::WorkSample;
use wva_scaling::units::Amount;

use crate::fleet::engine::StepTokens;
use crate::fleet::server::Request;
use crate::fleet::variant::{Gateway, Role, Router, ScrapeFaults, Variant, test_variant};
use crate::fleet::{Events, Fleet};
use crate::policy::autoscaler::{Hpas, PodMetrics};
use crate::policy::hpa::Behavior;
use crate::policy::llm_d_wva::{self, LlmDWva};
use crate::policy::wva::{self, Wva};
use crate::policy::{FleetView, Policy, SYNC};

/// Servers of two places at once and a cache that is never full, which start within 100 s.
pub(super) fn variant(name: &str, cost: f64, initial: u32) -> Variant {
    let mut variant = Variant { name: name.to_owned(), cost, initial, min: 0, ..test_variant() };
    variant.engine.kv_blocks = 100_000_000;
    variant
}

pub(super) struct World {
    fleet: Fleet,
    pub(super) variants: Vec<Variant>,
    now: f64,
}

impl World {
    pub(super) fn new(variants: Vec<Variant>, flow_control: bool) -> Self {
        let limits = crate::fleet::variant::Saturation { queue: 5, kv: 0.8 };
        let gateway = Gateway {
            router: Router::LeastLoaded,
            flow_control: flow_control.then_some(limits),
            queue: 1000,
            client_timeout: 1e6,
            grace: 1e6,
            retries: 0.0,
            uncounted: 0.0,
            scrapes: ScrapeFaults::default(),
        };
        Self { fleet: Fleet::new(variants.clone(), gateway, vec![], 1), variants, now: 0.0 }
    }

    /// Requests that take `tokens` steps of 10 ms each.
    pub(super) fn arrive(&mut self, count: usize, tokens: u32) {
        for _ in 0..count {
            let request = Request { arrived: self.now, input: 10, output: tokens };
            self.fleet.arrive(request, self.now, &mut Events::default());
        }
    }

    /// Scrapes, and asks a policy every 15 s, for so many of these; the replicas after each.
    pub(super) fn run(&mut self, policy: &mut dyn Policy, times: usize) -> Vec<Vec<u32>> {
        let mut events = Events::default();
        let each = (0..times).map(|_| {
            for next in [self.now + SYNC / 2.0, self.now + SYNC] {
                while self.fleet.next_event() <= next {
                    self.fleet.advance(self.fleet.next_event(), &mut events);
                }
                if next < self.now + SYNC {
                    self.fleet.scrape(next);
                }
            }
            self.now += SYNC;
            self.fleet.roll_out(self.now, &mut events);
            for (v, wanted) in policy.decide(&FleetView::new(&self.fleet, self.now)).into_iter().enumerate() {
                self.fleet.scale(v, wanted, self.now, &mut events);
            }
            (0..self.variants.len()).map(|v| self.fleet.current(v)).collect()
        });
        each.collect()
    }
}

/// A behavior that lets everything through at once.
pub(super) fn free() -> Behavior {
    Behavior {
        scale_up: crate::policy::hpa::ScalingRules::default(),
        scale_down: crate::policy::hpa::ScalingRules::default(),
    }
}

pub(super) const FOR_EVER: u32 = 10_000_000;

#[test]
fn llm_d_wva_adds_one_replica_and_waits_until_it_is_ready() {
    let mut world = World::new(vec![variant("expensive", 80.0, 1), variant("cheap", 40.0, 1)], false);
    world.arrive(40, FOR_EVER);
    let settings = llm_d_wva::Settings { behavior: free(), ..llm_d_wva::Settings::default() };
    let mut policy = LlmDWva::new(&settings, &world.variants);
    // A cycle every minute; the replica of the first is ready 100 s later, which the third one sees.
    let replicas = world.run(&mut policy, 11);
    assert_eq!(replicas[2], [1, 1], "before the first cycle");
    assert_eq!(replicas[3], [1, 2], "the cheapest, one more");
    assert_eq!(replicas[10], [1, 2], "nothing moves while it starts");
    world.arrive(40, FOR_EVER);
    assert_eq!(world.run(&mut policy, 1), [[1, 3]], "the new one is saturated, too");
}

#[test]
fn llm_d_wva_removes_the_most_expensive_idle_replica() {
    let mut world = World::new(vec![variant("expensive", 80.0, 2), variant("cheap", 40.0, 2)], false);
    let settings = llm_d_wva::Settings { behavior: free(), ..llm_d_wva::Settings::default() };
    let mut policy = LlmDWva::new(&settings, &world.variants);
    let replicas = world.run(&mut policy, 20);
    assert_eq!(replicas[3], [1, 2]);
    assert_eq!(replicas[7], [1, 1], "the last expensive replica stays");
    assert_eq!(replicas[19], [1, 1], "and of the cheap one, too");
}

#[test]
fn an_hpa_on_pods_takes_the_greatest_of_its_metrics() {
    // 24 requests on two servers of two places: 10 wait at each.
    let asks = |waiting: Option<f64>, kv: Option<f64>| {
        let mut world = World::new(vec![variant("a", 10.0, 2)], false);
        world.arrive(24, FOR_EVER);
        let metrics = PodMetrics {
            waiting: waiting.map(|w| w.try_into().unwrap()),
            kv: kv.map(|k| k.try_into().unwrap()),
            behavior: free(),
        };
        let mut policy = Hpas::new(metrics, &world.variants);
        world.run(&mut policy, 1)[0][0]
    };
    assert_eq!(asks(Some(5.0), None), 4, "twice what is meant for each");
    assert_eq!(asks(Some(9.5), None), 2, "within the tolerance of a tenth");
    assert_eq!(asks(None, Some(0.9)), 1, "the cache is nearly empty, and a bound of 0 is an HPA's 1");
    assert_eq!(asks(Some(5.0), Some(0.9)), 4);
}

#[test]
fn a_pod_without_a_value_keeps_an_hpa_from_going_too_far() {
    let mut world = World::new(vec![variant("a", 10.0, 1)], false);
    world.arrive(12, FOR_EVER);
    let metrics =
        PodMetrics { waiting: Some(4.0.try_into().unwrap()), behavior: free(), ..PodMetrics::default() };
    let mut policy = Hpas::new(metrics, &world.variants);
    // 10 wait, 4 are meant for each: 3. Those that start count as using nothing: 10 / 3 is less than 4, which turns it
    // around, so nothing happens.
    let replicas = world.run(&mut policy, 6);
    assert_eq!(replicas, vec![vec![3]; 6]);
}

fn to_zero() -> wva::Settings {
    let scale_to_zero = ScaleToZeroEntry {
        enable_scale_to_zero: Some(true),
        retention_period: Some(GoDuration::from_secs(300).try_into().unwrap()),
        ..ScaleToZeroEntry::default()
    };
    wva::Settings { scale_to_zero, behavior: free(), ..wva::Settings::default() }
}

#[test]
fn wva_goes_to_zero_after_retention_and_wakes_for_a_request() {
    let mut world = World::new(vec![variant("a", 10.0, 1)], true);
    world.arrive(3, 1000);
    let mut policy = Wva::new(&to_zero(), &world.variants);
    let replicas = world.run(&mut policy, 40);
    // The last of three requests of 10 s each, two at once, is seen to have ended at 22.5 s.
    let zero = replicas.iter().position(|r| r[0] == 0).unwrap();
    assert!((20..=25).contains(&zero), "{zero}: {replicas:?}");
    assert!(replicas[zero..].iter().all(|r| r[0] == 0), "{replicas:?}");

    world.arrive(1, 1000);
    let replicas = world.run(&mut policy, 20);
    assert_eq!(replicas[0], [1], "at the next look");
    assert_eq!(replicas[19], [1], "held while it starts and serves");
}

#[test]
fn ours_stays_without_the_setting_and_while_anything_runs() {
    let mut world = World::new(vec![variant("a", 10.0, 1)], true);
    let mut policy =
        Wva::new(&wva::Settings { behavior: free(), ..wva::Settings::default() }, &world.variants);
    assert!(world.run(&mut policy, 60).iter().all(|r| r[0] == 1));

    let mut world = World::new(vec![variant("a", 10.0, 1)], true);
    world.arrive(1, FOR_EVER);
    let mut policy = Wva::new(&to_zero(), &world.variants);
    assert!(world.run(&mut policy, 60).iter().all(|r| r[0] == 1));
}

#[test]
fn ours_knows_how_long_the_replicas_have_been_what_they_are() {
    let mut world = World::new(vec![variant("a", 10.0, 1)], false);
    let mut policy =
        Wva::new(&wva::Settings { behavior: free(), ..wva::Settings::default() }, &world.variants);
    let current_for = |world: &World, policy: &Wva| {
        policy.snapshot(&FleetView::new(&world.fleet, world.now)).models[0].variants[0].current_for
    };
    world.run(&mut policy, 2);
    assert_eq!(current_for(&world, &policy), None, "it began so");
    world.fleet.scale(0, 2, world.now, &mut Events::default());
    world.run(&mut policy, 3);
    assert_eq!(current_for(&world, &policy), Some(GoDuration::from_secs(30)), "seen 15 s after the change");
}

fn throughput() -> wva::Settings {
    let saturation = serde_json::from_str(r#"{"analyzerName": "throughput", "itlSlo": 100}"#).unwrap();
    wva::Settings { saturation, behavior: free(), ..wva::Settings::default() }
}

/// The step of a decision that says why, as an operator reads it.
fn first_reason(policy: &Wva, world: &World) -> &'static str {
    let decided = wva_scaling::decide(&policy.snapshot(&FleetView::new(&world.fleet, world.now)));
    decided.decisions[0].steps[0].reason.code()
}

#[test]
fn percentage_decides_by_role_if_signals_are_missing() {
    let with = |role: Option<Role>, name| Variant { role, ..variant(name, 10.0, 3) };
    let run = |settings: &wva::Settings| {
        let variants = vec![with(Some(Role::Prefill), "p"), with(Some(Role::Decode), "d")];
        let mut world = World::new(variants, false);
        world.arrive(1, FOR_EVER);
        let mut policy = Wva::new(settings, &world.variants);
        let replicas = world.run(&mut policy, 20);
        (replicas, first_reason(&policy, &world))
    };
    // No request ends, so the length of answers is missing. Replicas may go after a minute of history.
    let mut settings = throughput();
    settings.saturation.hold = Some("1m".parse().unwrap());
    let (replicas, reason) = run(&settings);
    assert_eq!(reason, "SignalsMissing");
    let percentages = run(&wva::Settings { behavior: free(), ..wva::Settings::default() });
    assert_ne!(percentages.1, "SignalsMissing");
    // Both have enough to spare: each gives its own, where of the model as one they take turns.
    assert!(replicas.iter().all(|each| each[0] == each[1]), "{replicas:?}");
    assert_eq!(replicas[19], [1, 1]);
    assert!(percentages.0.iter().any(|each| each[0] != each[1]), "{:?}", percentages.0);
}

#[test]
fn speculation_counts_tokens_and_learns_their_time() {
    // Eight sequences at once and four tokens of each in a step of 10 ms.
    let mut own = variant("a", 10.0, 1);
    own.engine.tokens = StepTokens { min: 4, max: 4 };
    own.engine.max_seqs = 8;
    own.max = 1;
    let mut world = World::new(vec![own], false);
    let mut policy = Wva::new(&throughput(), &world.variants);
    for _ in 0..80 {
        world.arrive(20, 3000);
        world.run(&mut policy, 1);
    }
    assert_ne!(first_reason(&policy, &world), "SignalsMissing");
    let snapshot = policy.snapshot(&FleetView::new(&world.fleet, world.now));
    let own = &snapshot.models[0].variants[0];
    let (old, new) = (own.replicas[0].work.first().unwrap(), own.replicas[0].work.last().unwrap());
    let grown = |of: fn(&WorkSample) -> Amount| of(new).get() - of(old).get();
    let each = grown(|w| w.generated_tokens) / grown(|w| w.gaps);
    assert!((each - 4.0).abs() < 0.05, "{each} tokens for each latency that was observed");
    let times = snapshot.learned[0].speed_estimate(own).unwrap().times;
    let token = times.a.get() / 8.0 + times.b.get();
    assert!((token / (0.01 / 32.0) - 1.0).abs() < 0.2, "{token} s of the engine for a token");
}
