//! A fleet under hand-made load.

use super::engine::StepTokens;
use super::variant::{Router, Saturation};
use super::*;

fn variant(name: &str, initial: u32) -> Variant {
    Variant { name: name.to_owned(), initial, ..variant::test_variant() }
}

fn gateway() -> Gateway {
    Gateway {
        router: Router::LeastLoaded,
        flow_control: None,
        queue: 5,
        client_timeout: 60.0,
        grace: 30.0,
        retries: 0.0,
        uncounted: 0.0,
        scrapes: ScrapeFaults::default(),
    }
}

fn fleet(variants: Vec<Variant>, gateway: Gateway, gpu_supply: Vec<GpuSupply>) -> Fleet {
    Fleet::new(variants, gateway, gpu_supply, 1)
}

const fn request(arrived: f64, output: u32) -> Request {
    Request { arrived, input: 10, output }
}

/// Lets time pass.
fn run(fleet: &mut Fleet, until: f64) -> Events {
    let mut events = Events::default();
    while fleet.next_event() <= until {
        fleet.advance(fleet.next_event(), &mut events);
    }
    events
}

fn arrive(fleet: &mut Fleet, now: f64, count: usize, output: u32) -> Events {
    let mut events = Events::default();
    for _ in 0..count {
        fleet.arrive(request(now, output), now, &mut events);
    }
    events
}

fn loads(fleet: &Fleet) -> Vec<usize> {
    fleet.replicas().iter().map(Replica::load).collect()
}

#[test]
fn requests_go_to_the_least_loaded_replica() {
    let mut fleet = fleet(vec![variant("a", 3)], gateway(), vec![]);
    arrive(&mut fleet, 0.0, 7, 100);
    assert_eq!(loads(&fleet), [3, 2, 2]);
    assert_eq!(run(&mut fleet, 10.0).finished.served.len(), 7);
}

#[test]
fn a_started_replica_serves_the_queue_in_front() {
    let mut fleet = fleet(vec![variant("a", 0)], gateway(), vec![]);
    let events = arrive(&mut fleet, 50.0, 6, 100);
    assert_eq!(events.lost, [(request(50.0, 100), LossReason::Refused)], "the queue in front holds five");
    fleet.scale(0, 1, 0.0, &mut Events::default());
    assert_eq!((fleet.current(0), fleet.ready_replicas(0)), (1, 0));
    let events = run(&mut fleet, 110.0);
    assert_eq!(events.finished.served.len(), 5);
    assert!((events.finished.served[0].first_token - 100.01).abs() < 1e-9);
    assert!((fleet.replica_seconds(0, 110.0) - 110.0).abs() < 1e-9, "it costs from when it has its GPUs");
}

#[test]
fn what_waits_in_front_for_too_long_is_lost() {
    let mut fleet = fleet(vec![variant("a", 0)], gateway(), vec![]);
    arrive(&mut fleet, 0.0, 2, 100);
    fleet.scale(0, 1, 0.0, &mut Events::default());
    let events = run(&mut fleet, 200.0);
    assert_eq!(events.lost.len(), 2);
    assert!(events.lost.iter().all(|(_, why)| *why == LossReason::TimedOut));
}

#[test]
fn flow_control_queues_until_a_replica_has_room() {
    let gateway = Gateway { flow_control: Some(Saturation { queue: 1, kv: 1.0 }), ..gateway() };
    let mut fleet = fleet(vec![variant("a", 1)], gateway, vec![]);
    arrive(&mut fleet, 0.0, 6, 100);
    // Two are computed, one waits there; the rest waits in front.
    assert_eq!((loads(&fleet)[0], fleet.queue().len()), (2, 4), "the first begins at once and alone");
    assert_eq!(run(&mut fleet, 10.0).finished.served.len(), 6);
}

#[test]
fn a_removed_replica_finishes_within_its_grace_period() {
    let mut fleet = fleet(vec![variant("a", 2)], gateway(), vec![]);
    arrive(&mut fleet, 0.0, 1, 5000);
    arrive(&mut fleet, 0.0, 1, 1000);
    fleet.scale(0, 0, 1.0, &mut Events::default());
    assert_eq!((fleet.current(0), fleet.ready_replicas(0), fleet.replicas().len()), (0, 0, 2));
    let events = run(&mut fleet, 60.0);
    assert_eq!(events.finished.served.len(), 1);
    assert_eq!(events.lost, [(request(0.0, 5000), LossReason::Killed)]);
    assert!(
        (fleet.replica_seconds(0, 60.0) - (31.0 + 10.0)).abs() < 0.1,
        "{}",
        fleet.replica_seconds(0, 60.0)
    );
}

#[test]
fn replicas_that_are_not_ready_go_first() {
    let mut fleet = fleet(vec![variant("a", 1)], gateway(), vec![]);
    fleet.scale(0, 3, 10.0, &mut Events::default());
    fleet.scale(0, 1, 20.0, &mut Events::default());
    assert_eq!((fleet.current(0), fleet.ready_replicas(0)), (1, 1));
}

#[test]
fn without_gpus_a_replica_waits_until_some_are_given_back() {
    let supply = GpuSupply { accelerator: "H100".to_owned(), levels: vec![(0.0, 4), (500.0, 6)] };
    let mut fleet = fleet(vec![variant("a", 1), variant("b", 1)], gateway(), vec![supply]);
    fleet.scale(1, 2, 0.0, &mut Events::default());
    run(&mut fleet, 300.0);
    assert_eq!((fleet.current(1), fleet.ready_replicas(1)), (2, 1), "four GPUs hold two replicas");
    fleet.scale(0, 0, 300.0, &mut Events::default());
    run(&mut fleet, 401.0);
    assert_eq!(fleet.ready_replicas(1), 2);
    fleet.scale(0, 1, 450.0, &mut Events::default());
    fleet.schedule(500.0);
    run(&mut fleet, 601.0);
    assert_eq!(fleet.ready_replicas(0), 1, "two more came at 500 s");
}

#[test]
fn a_failure_loses_what_the_replica_had_and_costs_a_start() {
    let failing = Variant { time_to_failure: 50.0, ..variant("a", 1) };
    let mut fleet = fleet(vec![failing], gateway(), vec![]);
    arrive(&mut fleet, 0.0, 1, 10_000);
    let mut events = Events::default();
    while fleet.ready_replicas(0) == 1 {
        fleet.advance(fleet.next_event(), &mut events);
    }
    assert_eq!(events.finished.served.len() + events.lost.len(), 1);
    assert_eq!(fleet.current(0), 1, "the pod stays");
    fleet.advance(fleet.next_event(), &mut events);
    assert_eq!(fleet.ready_replicas(0), 1, "and is ready again");
}

#[test]
fn lost_and_late_scrapes_are_not_visible_before() {
    let mut fleet = fleet(
        vec![variant("a", 1)],
        Gateway { scrapes: ScrapeFaults { lost: 0.5, late: 40.0 }, ..gateway() },
        vec![],
    );
    for i in 1..=20_u32 {
        fleet.scrape(15.0 * f64::from(i));
    }
    let samples = &fleet.replicas()[0].samples;
    assert!((5..=15).contains(&samples.len()), "{} of 20 scrapes came", samples.len());
    assert!(samples.iter().all(|s| (s.at..s.at + 40.0).contains(&s.shown)));
    assert!(samples.iter().any(|s| s.shown > s.at + 10.0));
}

#[test]
fn replicas_differ_in_speed_and_keep_it() {
    let uneven = Variant { slowness: crate::random::RandomQuantity::log_normal(1.0, 0.3), ..variant("a", 6) };
    let fleet = fleet(vec![uneven], gateway(), vec![]);
    let steps: Vec<f64> = fleet.replicas().iter().map(|r| r.engine.step).collect();
    assert!(steps.iter().all(|s| (0.003..0.03).contains(s)), "{steps:?}");
    assert!(steps.windows(2).all(|w| (w[0] - w[1]).abs() > 1e-6), "{steps:?}");
}

/// One replica for prompts and so many for the rest, of ten sequences at once.
fn roles(decode: u32) -> Fleet {
    let of = |name, role, initial| {
        let mut own = Variant { role: Some(role), ..variant(name, initial) };
        own.engine.max_seqs = 10;
        own
    };
    let variants = vec![of("p", Role::Prefill, 1), of("d", Role::Decode, decode)];
    fleet(variants, gateway(), vec![])
}

#[test]
fn a_request_goes_from_prefill_to_decode_and_is_served_once() {
    let mut fleet = roles(1);
    arrive(&mut fleet, 0.0, 1, 100);
    assert_eq!(loads(&fleet), [1, 0]);
    let events = run(&mut fleet, 0.01);
    assert_eq!(
        (loads(&fleet), events.finished.served.len()),
        (vec![0, 1], 0),
        "handed over, and not served yet"
    );
    let served = run(&mut fleet, 10.0).finished.served;
    assert_eq!(served.len(), 1);
    // A step of 10 ms for its prompt, one for the first token there, and one for each of the others.
    assert!(
        (served[0].first_token - 0.02).abs() < 1e-9 && (served[0].ended - 1.01).abs() < 1e-9,
        "{served:?}"
    );
    let counted: u64 = fleet.replicas().iter().map(|r| r.server.counters(10.0).requests).sum();
    assert_eq!(counted, 2, "both pods count it");
}

#[test]
fn prompts_wait_for_decode_until_the_client_gives_up() {
    let mut fleet = roles(0);
    arrive(&mut fleet, 0.0, 2, 100);
    assert_eq!((run(&mut fleet, 20.0).lost.len(), fleet.waiting().count()), (0, 2));
    assert!(!fleet.is_empty());
    fleet.scale(1, 1, 20.0, &mut Events::default());
    let events = run(&mut fleet, 200.0);
    let lost = [(request(0.0, 100), LossReason::TimedOut); 2];
    assert_eq!(events.lost, lost, "it starts for 100 s, and they wait for 60");
    arrive(&mut fleet, 200.0, 2, 100);
    assert_eq!(run(&mut fleet, 300.0).finished.served.len(), 2);
    assert!(fleet.is_empty());
}

#[test]
fn what_no_pod_of_one_role_can_hold_is_too_long() {
    let mut own = roles(1).variants().to_vec();
    own[1].engine.kv_blocks = 5;
    let mut fleet = fleet(own, gateway(), vec![]);
    assert_eq!(arrive(&mut fleet, 0.0, 1, 100).lost, [(request(0.0, 100), LossReason::TooLong)]);
}

#[test]
fn drafts_are_guessed_better_and_worse_when_they_should() {
    let tokens = |min, max| StepTokens { min, max };
    let speculation = vec![(0.0, tokens(3, 3)), (60.0, tokens(1, 1))];
    let mut fleet = fleet(vec![Variant { speculation, ..variant("a", 1) }], gateway(), vec![]);
    for (now, took) in [(0.0, 0.1), (60.0, 0.3)] {
        fleet.update_engines(now);
        arrive(&mut fleet, now, 1, 31);
        let served = run(&mut fleet, now + 10.0).finished.served[0];
        assert!((served.ended - served.first_token - took).abs() < 1e-9, "at {now}: {served:?}");
    }
}

#[test]
fn prefix_caches_shift_when_they_should() {
    let shifting = Variant { prefix_hits: vec![(0.0, 0.0), (60.0, 0.9)], ..variant("a", 1) };
    let mut fleet = fleet(vec![shifting], gateway(), vec![]);
    for (now, want) in [(0.0, 0.0), (59.0, 0.0), (60.0, 0.9), (100.0, 0.9)] {
        fleet.update_engines(now);
        assert!((fleet.replicas()[0].engine.prefix_hit_rate - want).abs() < 1e-12, "at {now}");
    }
}
