//! Counts by window, across answers that overlap, fail or lack a model.

use serde_json::{Value, json};
use wva_scaling::snapshot::Lateness;

use super::*;
use crate::collect::sample::tests::{answer, failed, no_series, partial};
use crate::collect::scope::Scope;

const FIRST: Query = Query::TimeToFirstToken;

fn key(model: &str) -> ModelKey {
    ModelKey::new("ns", model)
}

fn ttft(seconds: f64) -> Objectives {
    Objectives { ttft: Some(seconds), itl: None }
}

/// A tracker of model `m` with an objective of a second for the first token.
fn tracker(now: Instant) -> AttainmentTracker {
    let mut tracker = AttainmentTracker::default();
    assert!(tracker.set_objectives([(key("m"), ttft(1.0))], now));
    tracker
}

/// Series of a model with this many observations, and with those up to a second.
fn series(model: &str, observed: f64, in_time: f64) -> [(Value, f64); 2] {
    [("1.0", in_time), ("+Inf", observed)]
        .map(|(le, count)| (json!({"namespace": "ns", "model_name": model, "le": le}), count))
}

fn minutes(n: u64) -> Duration {
    Duration::from_mins(n)
}

/// Shares of `m` in five minutes, an hour and a day, and its lateness.
fn shown(tracker: &AttainmentTracker, now: Instant) -> ([Option<f64>; 3], Option<Lateness>) {
    let mut models = [Model { namespace: "ns".to_owned(), model_id: "m".to_owned(), ..Model::default() }];
    tracker.complete(&mut models, now);
    assert_eq!(models[0].attainment.itl, WindowShares::default());
    let WindowShares { five_minutes, hour, day } = models[0].attainment.ttft;
    ([five_minutes, hour, day].map(|share| share.map(Fraction::get)), models[0].lateness)
}

#[test]
fn partly_covered_windows_show_what_was_counted() {
    let now = Instant::now();
    let mut tracker = tracker(now);
    assert_eq!(shown(&tracker, now), ([None; 3], None));
    tracker.add(now, answer(FIRST, &series("m", 200.0, 150.0)));
    let (shares, lateness) = shown(&tracker, now);
    assert_eq!(shares, [Some(0.75); 3]);
    assert_eq!(lateness.map(|l| (l.requests.get(), l.late.get())), Some((200.0, 50.0)));
}

fn at_router(observed: f64, in_time: f64) -> [(Value, f64); 2] {
    series("m", observed, in_time).map(|(mut labels, count)| {
        labels["signal"] = "router".into();
        labels["target_model_name"] = labels["model_name"].clone();
        labels.as_object_mut().unwrap().remove("model_name");
        (labels, count)
    })
}

/// It observes each request once, and the servers each token.
#[test]
fn gaps_at_the_router_stand_in_for_those_of_servers() {
    let now = Instant::now();
    let objectives = Objectives { ttft: None, itl: Some(1.0) };
    let shown_with = |rows: &[(Value, f64)]| {
        let mut tracker = AttainmentTracker::default();
        tracker.set_objectives([(key("m"), objectives)], now);
        tracker.add(now, answer(Query::InterTokenLatency, rows));
        let mut models = [Model { namespace: "ns".to_owned(), model_id: "m".to_owned(), ..Model::default() }];
        tracker.complete(&mut models, now);
        models[0].attainment.itl.five_minutes.map(Fraction::get)
    };
    let router = at_router(10.0, 4.0);
    let both: Vec<_> = series("m", 900.0, 450.0).into_iter().chain(router.clone()).collect();
    assert_eq!(shown_with(&both), Some(0.5), "the servers observe more");
    assert_eq!(shown_with(&router), Some(0.4), "the servers observe nothing");
}

#[test]
fn the_router_counts_if_it_observed_streamed_answers() {
    let now = Instant::now();
    let shown_with = |router: [(Value, f64); 2]| {
        let mut tracker = tracker(now);
        let all: Vec<_> = series("m", 200.0, 200.0).into_iter().chain(router).collect();
        tracker.add(now, answer(FIRST, &all));
        let mut models = [Model { namespace: "ns".to_owned(), model_id: "m".to_owned(), ..Model::default() }];
        tracker.complete(&mut models, now);
        let attainment = models[0].attainment;
        (attainment.ttft.five_minutes.map(Fraction::get), attainment.is_at_router)
    };
    assert_eq!(shown_with(at_router(50.0, 10.0)), (Some(0.2), true));
    assert_eq!(shown_with(at_router(49.0, 0.0)), (Some(1.0), false), "few answers were streamed");
    assert_eq!(shown_with(at_router(0.0, 0.0)), (Some(1.0), false), "no answer was streamed");
}

#[test]
fn overlapping_answers_count_once() {
    let now = Instant::now();
    let mut tracker = tracker(now);
    for minute in 0..10 {
        // All in time for five minutes, then all late.
        let in_time = if minute < 5 { 100.0 } else { 0.0 };
        tracker.add(now + minutes(minute), answer(FIRST, &series("m", 100.0, in_time)));
    }
    let (shares, lateness) = shown(&tracker, now + minutes(9));
    let both = Some(100.0 / 280.0);
    assert_eq!(shares, [Some(0.0), both, both], "newest answer; two periods and four of its five minutes");
    let requests = lateness.unwrap().requests.get();
    assert!((195.0..200.0).contains(&requests), "{requests}: the first 100 have faded a little");
}

#[test]
fn a_first_period_of_few_requests_does_not_stand_for_minutes() {
    let now = Instant::now();
    let mut tracker = tracker(now);
    tracker.add(now, answer(FIRST, &series("m", 2.0, 2.0)));
    tracker.add(now + minutes(1), answer(FIRST, &series("m", 490.0, 0.0)));
    let late = Some(2.0 / 100.0);
    assert_eq!(shown(&tracker, now + minutes(1)).0, [Some(0.0), late, late]);
}

#[test]
fn windows_end() {
    let now = Instant::now();
    let mut tracker = tracker(now);
    tracker.add(now, answer(FIRST, &series("m", 100.0, 0.0)));
    tracker.add(now + minutes(5), answer(FIRST, &series("m", 100.0, 100.0)));
    let shares = |minute: u64| shown(&tracker, now + minutes(minute)).0;
    assert_eq!(shares(9), [Some(1.0), Some(0.5), Some(0.5)]);
    assert_eq!(shares(10), [None, Some(0.5), Some(0.5)]);
    assert_eq!(shares(60), [None, Some(1.0), Some(0.5)]);
    assert_eq!(shares(65), [None, None, Some(0.5)]);
    assert_eq!(shares(24 * 60), [None, None, Some(1.0)]);
    assert_eq!(shares(24 * 60 + 5), [None; 3]);
    let lateness = shown(&tracker, now + minutes(6 * 60)).1.unwrap().requests.get();
    assert!((100.0..102.0).contains(&lateness), "half after six hours: {lateness}");
}

#[test]
fn memory_of_a_model_is_bounded() {
    let now = Instant::now();
    let mut tracker = tracker(now);
    for period in 0..2 * MAX_PERIODS as u64 {
        tracker.add(now + minutes(5 * period), answer(FIRST, &series("m", 100.0, 100.0)));
    }
    assert_eq!(tracker.0[&key("m")].ttft.as_ref().unwrap().periods.len(), MAX_PERIODS);
}

#[test]
fn failed_and_foreign_answers_change_nothing() {
    let now = Instant::now();
    let mut tracker = tracker(now);
    tracker.add(now, answer(FIRST, &series("m", 100.0, 50.0)));
    let before = shown(&tracker, now);
    tracker.add(now + minutes(1), failed(FIRST));
    tracker.add(now + minutes(6), partial(answer(FIRST, &series("m", 100.0, 0.0))));
    let other_latency = answer(Query::InterTokenLatency, &series("m", 100.0, 0.0));
    tracker.add(now + minutes(1), other_latency);
    let elsewhere = Answer { scope: Scope::one("elsewhere"), ..no_series(FIRST) };
    tracker.add(now + minutes(1), elsewhere);
    assert_eq!(shown(&tracker, now), before);
}

#[test]
fn without_observations_the_newest_window_is_empty() {
    let now = Instant::now();
    for silent in
        [no_series(FIRST), answer(FIRST, &series("m", 0.0, 0.0)), answer(FIRST, &series("x", 9.0, 9.0))]
    {
        let mut tracker = tracker(now);
        tracker.add(now, answer(FIRST, &series("m", 100.0, 50.0)));
        tracker.add(now + minutes(5), silent);
        assert_eq!(shown(&tracker, now + minutes(5)).0, [None, Some(0.5), Some(0.5)]);
    }
}

#[test]
fn invalid_rows_are_skipped() {
    let labels = |le: &str| json!({"namespace": "ns", "model_name": "m", "le": le});
    let invalid = [("NaN", "7"), ("", "7"), ("many", "7"), ("0.5", "NaN"), ("-1", "9"), ("0.9", "+Inf")];
    let valid = [("1", "20"), ("1.0", "30"), ("+Inf", "100")];
    let mut all: Vec<_> = invalid.into_iter().chain(valid).map(|(le, n)| (labels(le), n)).collect();
    all.push((json!({"namespace": "ns", "le": "1"}), "100"));
    all.push((json!({"model_name": "m", "le": "1"}), "100"));
    let now = Instant::now();
    let mut tracker = tracker(now);
    tracker.add(now, answer(FIRST, &all));
    assert_eq!(shown(&tracker, now).0, [Some(0.5); 3]);
}

#[test]
fn changed_objective_begins_again_and_removed_one_ends() {
    let now = Instant::now();
    let mut tracker = tracker(now);
    tracker.add(now, answer(FIRST, &series("m", 100.0, 50.0)));
    assert!(!tracker.set_objectives([(key("m"), ttft(1.0))], now), "the same objective");
    assert_eq!(shown(&tracker, now).0, [Some(0.5); 3]);
    let both = Objectives { ttft: Some(2.0), itl: Some(0.05) };
    assert!(tracker.set_objectives([(key("m"), both)], now));
    assert_eq!(shown(&tracker, now), ([None; 3], None));
    let namespaces = |tracker: &AttainmentTracker| Query::LATENCY.map(|q| tracker.namespaces(q).count());
    assert_eq!(namespaces(&tracker), [1, 1]);
    assert!(!tracker.set_objectives([(key("m"), Objectives::default())], now));
    assert_eq!((namespaces(&tracker), tracker.0.len()), ([0, 0], 0));
}
