//! Counts from answers that fail, lack a model, or have rows of servers and routers.

use std::time::Duration;

use serde_json::{Value, json};
use wva_scaling::snapshot::{Lateness, Model, WindowShares};
use wva_scaling::units::Fraction;

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

/// A memory of model `m` with an objective of a second for the first token.
fn memory(now: Instant) -> AttainmentMemory<Instant> {
    let mut memory = AttainmentMemory::default();
    assert!(memory.set_objectives([(key("m"), ttft(1.0))], now));
    memory
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
fn shown(memory: &AttainmentMemory<Instant>, now: Instant) -> ([Option<f64>; 3], Option<Lateness>) {
    let mut models = [Model { namespace: "ns".to_owned(), model_id: "m".to_owned(), ..Model::default() }];
    memory.complete(&mut models, now);
    assert_eq!(models[0].attainment.itl, WindowShares::default());
    let WindowShares { five_minutes, hour, day } = models[0].attainment.ttft;
    ([five_minutes, hour, day].map(|share| share.map(Fraction::get)), models[0].lateness)
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
        let mut memory = AttainmentMemory::default();
        memory.set_objectives([(key("m"), objectives)], now);
        add_answer(&mut memory, now, answer(Query::InterTokenLatency, rows));
        let mut models = [Model { namespace: "ns".to_owned(), model_id: "m".to_owned(), ..Model::default() }];
        memory.complete(&mut models, now);
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
        let mut memory = memory(now);
        let all: Vec<_> = series("m", 200.0, 200.0).into_iter().chain(router).collect();
        add_answer(&mut memory, now, answer(FIRST, &all));
        let mut models = [Model { namespace: "ns".to_owned(), model_id: "m".to_owned(), ..Model::default() }];
        memory.complete(&mut models, now);
        let attainment = models[0].attainment;
        (attainment.ttft.five_minutes.map(Fraction::get), attainment.is_at_router)
    };
    assert_eq!(shown_with(at_router(50.0, 10.0)), (Some(0.2), true));
    assert_eq!(shown_with(at_router(49.0, 0.0)), (Some(1.0), false), "few answers were streamed");
    assert_eq!(shown_with(at_router(0.0, 0.0)), (Some(1.0), false), "no answer was streamed");
}

#[test]
fn failed_and_foreign_answers_change_nothing() {
    let now = Instant::now();
    let mut memory = memory(now);
    add_answer(&mut memory, now, answer(FIRST, &series("m", 100.0, 50.0)));
    let before = shown(&memory, now);
    add_answer(&mut memory, now + minutes(1), failed(FIRST));
    add_answer(&mut memory, now + minutes(6), partial(answer(FIRST, &series("m", 100.0, 0.0))));
    let other_latency = answer(Query::InterTokenLatency, &series("m", 100.0, 0.0));
    add_answer(&mut memory, now + minutes(1), other_latency);
    let elsewhere = Answer { scope: Scope::one("elsewhere"), ..no_series(FIRST) };
    add_answer(&mut memory, now + minutes(1), elsewhere);
    assert_eq!(shown(&memory, now), before);
}

#[test]
fn an_answer_without_the_model_is_a_window_without_observations() {
    let now = Instant::now();
    for silent in [no_series(FIRST), answer(FIRST, &series("x", 9.0, 9.0))] {
        let mut memory = memory(now);
        add_answer(&mut memory, now, answer(FIRST, &series("m", 100.0, 50.0)));
        add_answer(&mut memory, now + minutes(1), silent);
        assert_eq!(shown(&memory, now + minutes(1)).0[0], None);
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
    let mut memory = memory(now);
    add_answer(&mut memory, now, answer(FIRST, &all));
    assert_eq!(shown(&memory, now).0, [Some(0.5); 3]);
}
