//! Mean waits against the formulas of queueing theory, within 2 %. A server with so many places, steps of a fixed time
//! and requests of random length is a queue with so many servers and one line before them.

use super::*;
use crate::random::{RandomQuantity, Stream, random_stream};

/// Requests of a run: so many that the mean differs by less than 1 % from one seed to the next.
const REQUESTS: usize = 1_500_000;

/// Poisson arrivals at a rate a second, of lengths in steps.
fn poisson(rate: f64, length: RandomQuantity) -> impl Iterator<Item = Request> {
    let mut arrivals = random_stream(3, Stream::Arrivals);
    let mut lengths = random_stream(3, Stream::Lengths);
    let between = RandomQuantity::gamma(1.0 / rate, 1.0);
    let mut arrived = 0.0;
    (0..REQUESTS).map(move |_| {
        arrived += between.draw(&mut arrivals);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some 1000 steps")]
        let output = length.draw(&mut lengths).round().max(1.0) as u32;
        Request { arrived, input: 1, output }
    })
}

/// Mean time from arrival to the step that makes the first token, in seconds.
fn mean_wait(engine: Engine, requests: impl Iterator<Item = Request>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    serve(engine, f64::INFINITY, requests, |s| {
        sum += s.first_token - s.request.arrived - engine.step;
        count += 1.0;
    });
    sum / count
}

#[track_caller]
fn agrees(what: &str, got: f64, theory: f64) {
    let error = got / theory - 1.0;
    println!("{what}: simulated {got:.5}, theory {theory:.5}, error {:.2} %", 100.0 * error);
    assert!(error.abs() < 0.02, "{what}: {got}, by theory {theory}");
}

/// Erlang's C: the probability to wait before `c` servers offered `load` erlangs.
fn erlang_c(c: u32, load: f64) -> f64 {
    let mut term = 1.0;
    let mut sum = 0.0;
    for k in 0..c {
        sum += term;
        term *= load / f64::from(k + 1);
    }
    let waiting = term / (1.0 - load / f64::from(c));
    waiting / (sum + waiting)
}

#[test]
fn mm1() {
    for load in [0.5, 0.7] {
        let wait = mean_wait(PLAIN, poisson(load, RandomQuantity::gamma(1000.0, 1.0)));
        agrees(&format!("M/M/1 at {load}"), wait, load / (1.0 - load));
    }
}

#[test]
fn md1() {
    for load in [0.5, 0.8] {
        let wait = mean_wait(PLAIN, poisson(load, RandomQuantity::gamma(1000.0, 0.0)));
        agrees(&format!("M/D/1 at {load}"), wait, load / (2.0 * (1.0 - load)));
    }
}

#[test]
fn mmc() {
    for (c, load) in [(4, 0.8), (16, 0.9)] {
        let engine = Engine { max_seqs: c as usize, ..PLAIN };
        let offered = load * f64::from(c);
        let wait = mean_wait(engine, poisson(offered, RandomQuantity::gamma(1000.0, 1.0)));
        agrees(&format!("M/M/{c} at {load}"), wait, erlang_c(c, offered) / (f64::from(c) * (1.0 - load)));
    }
}

/// A queue that slows down as its batch fills, against the figures of a log that llm-d WVA's guide to the HPA shows:
/// 20 requests a minute of 178 tokens on a server with batches of 4 and `ITL = 20.58 ms + 0.41 ms * batch` wait 69.7666
/// ms and take 21.49347 ms a token. They are the solution of the queue's birth-death process, which knows no steps: here
/// a token is made in twenty, so that waiting for the end of a step does not count.
#[test]
fn a_server_that_slows_down_with_its_batch() {
    let engine = Engine { step: 0.001_029, per_sequence: 0.000_020_5, max_seqs: 4, ..PLAIN };
    let requests = || poisson(20.0 / 60.0, RandomQuantity::gamma(20.0 * 178.0, 1.0));
    agrees("logged wait", mean_wait(engine, requests()), 0.069_766_6);
    let (mut time, mut steps) = (0.0, 0.0);
    serve(engine, f64::INFINITY, requests(), |s| {
        time += s.ended - s.first_token;
        steps += f64::from(s.request.output - 1);
    });
    agrees("logged ITL", 20.0 * time / steps, 0.021_493_47);
}
