//! The engine `qwen3-32b-h100` against published figures: benchmarks of `Qwen/Qwen3-32B` on H100s in the pull requests
//! of llm-d-autoscaling. Prints the table of docs/development/evidence/simulator.md: `cargo test -p wva-simulator --test
//! calibration -- --nocapture`. The page lists which figures were fitted. A change of the server model that makes any
//! figure worse fails.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test's own input; the table is shown on demand"
)]

use wva_simulator::fleet::server::{FinishedRequests, Request, Server};
use wva_simulator::measure::Tally;
use wva_simulator::policy::fixed::Schedule;
use wva_simulator::run::run;
use wva_simulator::scenario::engines::QWEN3_32B_H100;
use wva_simulator::scenario::{Spec, parse_tree};

/// A fixed number of replicas under a constant load.
fn fixed(replicas: u32, rate: f64, seconds: u32, input: &str, output: &str) -> Tally {
    let text = format!(
        "
name: sweep
objectives: {{ttft: 1s, itl: 100ms}}
traffic: {{segments: [{{for: {seconds}s, rate: {rate}}}], input: {input}, output: {output}}}
front: {{patience: 1h}}
variants: [{{name: a, accelerator: H100, engine: {{}}, initial: {replicas}}}]
policies: [{{name: fixed, fixed: {{a: {replicas}}}}}]"
    );
    let scenario = Spec::read(&parse_tree(&text).unwrap()).unwrap().build(None).unwrap();
    run(&scenario.setting, &mut Schedule::fixed(vec![replicas]), 1, |_| {})
}

/// Output tokens a second of a server that always has requests waiting, and its median time between tokens, ms.
fn saturated(input: u32, output: u32) -> (f64, f64) {
    let mut server = Server::new(QWEN3_32B_H100, f64::INFINITY);
    let mut finished = FinishedRequests::default();
    for _ in 0..1500 {
        server.push(Request { arrived: 0.0, input, output }, 0.0, &mut finished);
    }
    while server.next_event().is_finite() {
        server.advance(server.next_event(), &mut finished);
    }
    // Without the start and the end, where the batch fills and empties.
    let steady = &finished.served[300..1200];
    let time = steady[899].ended - steady[0].ended;
    let mut itl: Vec<f64> =
        steady.iter().map(|s| (s.ended - s.first_token) / f64::from(output - 1)).collect();
    itl.sort_by(f64::total_cmp);
    (899.0 * f64::from(output) / time, 1000.0 * itl[450])
}

/// Prints a row, and checks that its error is within a bound.
#[track_caller]
fn row(what: &str, source: &str, fitted: &str, published: f64, simulated: f64, bound: f64) {
    let error = simulated / published - 1.0;
    println!("| {what} | {source} | {fitted} | {published} | {simulated:.3} | {:+.0} % |", 100.0 * error);
    assert!(error.abs() <= bound, "{what}: {simulated}, published {published}");
}

#[test]
fn published_figures() {
    let thousand = "{mean: 1000, cv: 0.3}";
    println!("| figure | source | fitted | published | simulated | error |\n|---|---|---|---|---|---|");
    let (peak, symmetric) = saturated(1000, 1000);
    row("output tokens/s of a full replica, 1000/1000", "#1249", "yes", 1901.0, peak, 0.1);
    row("ITL of a full replica in ms, 1000/1000", "#1412", "yes", 89.64, symmetric, 0.12);
    row("the same, 4000/1000", "#1171", "yes", 57.4, saturated(4000, 1000).1, 0.12);
    row("the same, 1000/4000", "#1412", "no", 111.68, saturated(1000, 4000).1, 0.25);
    let ttft = |rate| fixed(1, rate, 300, thousand, thousand).ttft.quantile(0.99);
    row("TTFT p99 in s below the knee, at 1 request/s", "#1249", "no", 0.136, ttft(1.0), 0.4);
    // At the knee, a tenth of the rate makes all the difference, so only the knee itself has a bound.
    row("the same at the knee, at 2 requests/s", "#1249", "no", 18.8, ttft(2.0), f64::INFINITY);
    let knee = (10..40_u32).map(|r| f64::from(r) / 10.0).find(|r| ttft(*r) > 1.0).unwrap();
    row("rate of the knee: TTFT p99 above 1 s, in steps of 0.1", "#1249", "no", 2.0, knee, 0.15);
}
