//! Counts by window, across answers that overlap or are missing.

use super::*;
use crate::control_loop::tests::At;

const FIRST: Latency = Latency::FirstToken;

fn key() -> ModelKey {
    ModelKey::new("ns", "m")
}

fn ttft(seconds: f64) -> Objectives {
    Objectives { ttft: Some(seconds), itl: None }
}

/// Memory of a model with an objective of a second for the first token.
fn memory() -> AttainmentMemory<At> {
    let mut memory = AttainmentMemory::default();
    assert!(memory.set_objectives([(key(), ttft(1.0))], At(0)));
    memory
}

/// Adds what the servers observed in the window that ends in this minute.
fn add(memory: &mut AttainmentMemory<At>, minute: u64, observed: f64, in_time: f64) {
    let at_servers = Some(LatencyCounts { observed, in_time });
    let counts = WindowCounts { at_servers, at_router: None };
    memory.add(FIRST, At(60 * minute), |_, _| Some(counts));
}

/// Shares of the model in five minutes, an hour and a day, and its lateness.
fn shown(memory: &AttainmentMemory<At>, minute: u64) -> ([Option<f64>; 3], Option<Lateness>) {
    let mut models = [Model { namespace: "ns".to_owned(), model_id: "m".to_owned(), ..Model::default() }];
    memory.complete(&mut models, At(60 * minute));
    assert_eq!(models[0].attainment.itl, WindowShares::default());
    let WindowShares { five_minutes, hour, day } = models[0].attainment.ttft;
    ([five_minutes, hour, day].map(|share| share.map(Fraction::get)), models[0].lateness)
}

#[test]
fn partly_covered_windows_show_what_was_counted() {
    let mut memory = memory();
    assert_eq!(shown(&memory, 0), ([None; 3], None));
    add(&mut memory, 0, 200.0, 150.0);
    let (shares, lateness) = shown(&memory, 0);
    assert_eq!(shares, [Some(0.75); 3]);
    assert_eq!(lateness.map(|l| (l.requests.get(), l.late.get())), Some((200.0, 50.0)));
}

#[test]
fn overlapping_answers_count_once() {
    let mut memory = memory();
    for minute in 0..10 {
        // All in time for five minutes, then all late.
        let in_time = if minute < 5 { 100.0 } else { 0.0 };
        add(&mut memory, minute, 100.0, in_time);
    }
    let (shares, lateness) = shown(&memory, 9);
    let both = Some(100.0 / 280.0);
    assert_eq!(shares, [Some(0.0), both, both], "newest answer; two periods and four of its five minutes");
    let requests = lateness.unwrap().requests.get();
    assert!((195.0..200.0).contains(&requests), "{requests}: the first 100 have faded a little");
}

#[test]
fn a_first_period_of_few_requests_does_not_stand_for_minutes() {
    let mut memory = memory();
    add(&mut memory, 0, 2.0, 2.0);
    add(&mut memory, 1, 490.0, 0.0);
    let late = Some(2.0 / 100.0);
    assert_eq!(shown(&memory, 1).0, [Some(0.0), late, late]);
}

#[test]
fn windows_end() {
    let mut memory = memory();
    add(&mut memory, 0, 100.0, 0.0);
    add(&mut memory, 5, 100.0, 100.0);
    let shares = |minute: u64| shown(&memory, minute).0;
    assert_eq!(shares(9), [Some(1.0), Some(0.5), Some(0.5)]);
    assert_eq!(shares(10), [None, Some(0.5), Some(0.5)]);
    assert_eq!(shares(60), [None, Some(1.0), Some(0.5)]);
    assert_eq!(shares(65), [None, None, Some(0.5)]);
    assert_eq!(shares(24 * 60), [None, None, Some(1.0)]);
    assert_eq!(shares(24 * 60 + 5), [None; 3]);
    let lateness = shown(&memory, 6 * 60).1.unwrap().requests.get();
    assert!((100.0..102.0).contains(&lateness), "half after six hours: {lateness}");
}

#[test]
fn memory_of_a_model_is_bounded() {
    let mut memory = memory();
    for period in 0..2 * MAX_PERIODS as u64 {
        add(&mut memory, 5 * period, 100.0, 100.0);
    }
    assert_eq!(memory.0[&key()].ttft.as_ref().unwrap().periods.len(), MAX_PERIODS);
}

#[test]
fn models_without_counts_keep_what_they_have() {
    let mut memory = memory();
    add(&mut memory, 0, 100.0, 50.0);
    let before = shown(&memory, 0);
    memory.add(FIRST, At(360), |_, _| None);
    memory.add(Latency::TokenGap, At(360), |_, _| panic!("it has no such objective"));
    assert_eq!(shown(&memory, 0), before);
}

#[test]
fn without_observations_the_newest_window_is_empty() {
    for silent in [
        WindowCounts::default(),
        WindowCounts { at_servers: Some(LatencyCounts::default()), at_router: None },
    ] {
        let mut memory = memory();
        add(&mut memory, 0, 100.0, 50.0);
        memory.add(FIRST, At(300), |_, _| Some(silent));
        assert_eq!(shown(&memory, 5).0, [None, Some(0.5), Some(0.5)]);
    }
}

#[test]
fn changed_objective_begins_again_and_removed_one_ends() {
    let mut memory = memory();
    add(&mut memory, 0, 100.0, 50.0);
    assert!(!memory.set_objectives([(key(), ttft(1.0))], At(0)), "the same objective");
    assert_eq!(shown(&memory, 0).0, [Some(0.5); 3]);
    let both = Objectives { ttft: Some(2.0), itl: Some(0.05) };
    assert!(memory.set_objectives([(key(), both)], At(0)));
    assert_eq!(shown(&memory, 0), ([None; 3], None));
    let namespaces = |memory: &AttainmentMemory<At>| {
        [FIRST, Latency::TokenGap].map(|latency| memory.namespaces(latency).count())
    };
    assert_eq!(namespaces(&memory), [1, 1]);
    assert!(!memory.set_objectives([(key(), Objectives::default())], At(0)));
    assert_eq!((namespaces(&memory), memory.0.len()), ([0, 0], 0));
}
