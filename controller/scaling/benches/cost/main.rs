//! Choice by cost: what the token analyzer decides for a thousand random models, against the least cost
//! there is. `make bench-decide` prints the tables of docs/performance.md from it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench: its input is its own, its tables are its output"
)]

mod instance;
mod solver;

use std::time::{Duration, Instant};

use wva_scaling::{Decision, Reason, Snapshot, decide};

use self::instance::{Way, instance};
use self::solver::{Tokens, add, save};

const INSTANCES: u32 = 1000;

/// What became of all instances of a kind.
#[derive(Default)]
struct Tally {
    /// Excess over the least cost of what changes, and over the fleet's least cost, in percent.
    of_change: Vec<f64>,
    of_fleet: Vec<f64>,
    /// The need could be met, and was not.
    missed: u32,
    /// Of a whole `decide` of the one model.
    times: Vec<Duration>,
}

fn main() {
    println!("\n| way | excess of | mean | median | p99 | worst |\n|---|---|---:|---:|---:|---:|");
    let mut times = Vec::new();
    for (way, change) in [(Way::Up, "added cost"), (Way::Down, "saved cost (less)")] {
        let mut tally = Tally::default();
        (0..INSTANCES).for_each(|seed| tally.add(&instance(seed, way), way));
        print_excess(&format!("{way:?} | {change}"), tally.of_change.clone());
        print_excess(&format!("{way:?} | fleet's cost"), tally.of_fleet.clone());
        times.push((way, tally));
    }
    println!("\n| way | p50 | p99 | max | need missed |\n|---|---:|---:|---:|---:|");
    for (way, mut tally) in times {
        tally.times.sort();
        let at = |share: f64| micros(quantile(&tally.times, share));
        println!(
            "| {way:?} | {:.1} µs | {:.1} µs | {:.1} µs | {} |",
            at(0.5),
            at(0.99),
            at(1.0),
            tally.missed
        );
    }
}

impl Tally {
    fn run(&mut self, snapshot: &Snapshot) -> Vec<Decision> {
        // The least of three runs is the one that nothing interrupted.
        let timed = || {
            let start = Instant::now();
            let outcome = decide(snapshot);
            (start.elapsed(), outcome)
        };
        let (time, outcome) = (0..3).map(|_| timed()).min_by_key(|(time, _)| *time).unwrap();
        self.times.push(time);
        outcome.decisions
    }

    fn add(&mut self, snapshot: &Snapshot, way: Way) {
        let decisions = self.run(snapshot);
        let tokens = counted(&decisions);
        let fleet = cost(snapshot, &decisions, |d| f64::from(d.current));
        let after = cost(snapshot, &decisions, |d| f64::from(d.target()));
        if way == Way::Down {
            let (saved, most) = (fleet - after, save(snapshot, tokens));
            if most > 0.0 {
                self.of_change.push(100.0 * (most - saved) / most);
                self.of_fleet.push(100.0 * (most - saved) / (fleet - most));
            }
        } else if let Some(least) = add(snapshot, tokens) {
            if held(snapshot, &decisions) < tokens.required * (1.0 - 1e-9) {
                self.missed += 1;
                return;
            }
            let added = after - fleet;
            self.of_change.push(100.0 * (added - least) / least);
            self.of_fleet.push(100.0 * (added - least) / (fleet + least));
        }
    }
}

/// What the analyzer counted, from the decisions' own figures.
fn counted(decisions: &[Decision]) -> Tokens {
    match &decisions[0].steps[0].reason {
        Reason::NoChange { tokens: Some(tokens), .. } => {
            Tokens { required: tokens.required, spare: tokens.spare }
        }
        other => panic!("no tokens were counted: {other}"),
    }
}

fn cost(snapshot: &Snapshot, decisions: &[Decision], replicas: fn(&Decision) -> f64) -> f64 {
    // Both are in order of name.
    let variants = &snapshot.models[0].variants;
    variants.iter().zip(decisions).map(|(v, d)| replicas(d) * v.cost.get()).sum()
}

/// Tokens that the added replicas hold.
fn held(snapshot: &Snapshot, decisions: &[Decision]) -> f64 {
    let variants = &snapshot.models[0].variants;
    let added = |d: &Decision| f64::from(d.target().saturating_sub(d.current));
    variants.iter().zip(decisions).map(|(v, d)| added(d) * v.remembered_capacity.unwrap().get()).sum()
}

fn print_excess(name: &str, mut excess: Vec<f64>) {
    excess.sort_by(f64::total_cmp);
    // What is left of a difference of equal sums is no excess, and has no sign.
    excess.iter_mut().filter(|e| e.abs() < 1e-6).for_each(|e| *e = 0.0);
    let mean = excess.iter().sum::<f64>() / f64::from(u32::try_from(excess.len()).unwrap());
    let at = |share| *quantile(&excess, share);
    println!("| {name} | {mean:.2} % | {:.2} % | {:.2} % | {:.2} % |", at(0.5), at(0.99), at(1.0));
}

/// Of sorted values.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an index of a short list"
)]
fn quantile<T>(sorted: &[T], share: f64) -> &T {
    &sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn micros(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
