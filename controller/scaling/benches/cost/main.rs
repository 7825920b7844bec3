//! Cost of the choice of variants: decisions of the token analyzer for 1,000 random models, compared with the least
//! possible cost. `make bench-decide` prints the tables of docs/development/evidence/performance.md.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench with its own input, whose output is its tables"
)]

mod instance;
mod solver;

use std::time::{Duration, Instant};

use wva_scaling::{Decision, Reason, Snapshot, decide};

use self::instance::{Direction, instance};
use self::solver::{TokenCounts, least_added_cost, most_saved_cost};

const INSTANCES: u32 = 1000;

/// Results of all instances of a direction.
#[derive(Default)]
struct Tally {
    /// Excess over the least cost of the change, percent.
    excess_of_change: Vec<f64>,
    /// Excess over the least cost of the fleet, percent.
    excess_of_fleet: Vec<f64>,
    /// Instances whose need could be met, but was not.
    missed: u32,
    /// Instances with another cost than before.
    changed: u32,
    /// Times of `decide` of one model.
    times: Vec<Duration>,
}

fn main() {
    println!("\n| direction | excess of | mean | median | p99 | worst |\n|---|---|---:|---:|---:|---:|");
    let mut times = Vec::new();
    for (direction, change) in [(Direction::Up, "added cost"), (Direction::Down, "saved cost (less)")] {
        let mut tally = Tally::default();
        (0..INSTANCES).for_each(|seed| tally.add(&instance(seed, direction), direction));
        let changed = tally.changed;
        assert!(4 * changed >= INSTANCES, "{direction:?}: only {changed} of {INSTANCES} models are scaled");
        print_excess(&format!("{direction:?} | {change}"), tally.excess_of_change.clone());
        print_excess(&format!("{direction:?} | fleet's cost"), tally.excess_of_fleet.clone());
        times.push((direction, tally));
    }
    println!("\n| direction | p50 | p99 | max | need missed |\n|---|---:|---:|---:|---:|");
    for (direction, mut tally) in times {
        tally.times.sort();
        let at = |share: f64| micros(quantile(&tally.times, share));
        println!(
            "| {direction:?} | {:.1} µs | {:.1} µs | {:.1} µs | {} |",
            at(0.5),
            at(0.99),
            at(1.0),
            tally.missed
        );
    }
}

impl Tally {
    fn run(&mut self, snapshot: &Snapshot) -> Vec<Decision> {
        // The shortest of three runs has the fewest interruptions.
        let timed = || {
            let start = Instant::now();
            let outcome = decide(snapshot);
            (start.elapsed(), outcome)
        };
        let (time, outcome) = (0..3).map(|_| timed()).min_by_key(|(time, _)| *time).unwrap();
        self.times.push(time);
        outcome.decisions
    }

    fn add(&mut self, snapshot: &Snapshot, direction: Direction) {
        let decisions = self.run(snapshot);
        let tokens = token_counts(&decisions);
        let fleet = cost(snapshot, &decisions, |d| f64::from(d.current));
        let after = cost(snapshot, &decisions, |d| f64::from(d.target()));
        self.changed += u32::from((after - fleet).abs() > 1e-6);
        if direction == Direction::Down {
            let (saved, most) = (fleet - after, most_saved_cost(snapshot, tokens));
            if most > 0.0 {
                self.excess_of_change.push(100.0 * (most - saved) / most);
                self.excess_of_fleet.push(100.0 * (most - saved) / (fleet - most));
            }
        } else if let Some(least) = least_added_cost(snapshot, tokens) {
            if added_tokens(snapshot, &decisions) < tokens.required * (1.0 - 1e-9) {
                self.missed += 1;
                return;
            }
            let added = after - fleet;
            self.excess_of_change.push(100.0 * (added - least) / least);
            self.excess_of_fleet.push(100.0 * (added - least) / (fleet + least));
        }
    }
}

/// Token counts from the figures of the decisions.
fn token_counts(decisions: &[Decision]) -> TokenCounts {
    match &decisions[0].steps[0].reason {
        Reason::NoChange { tokens: Some(tokens), .. } => {
            TokenCounts { required: tokens.required, spare: tokens.spare }
        }
        other => panic!("a decision without token figures: {other}"),
    }
}

fn cost(snapshot: &Snapshot, decisions: &[Decision], replicas: fn(&Decision) -> f64) -> f64 {
    // Both are sorted by name.
    let variants = &snapshot.models[0].variants;
    variants.iter().zip(decisions).map(|(v, d)| replicas(d) * v.cost.get()).sum()
}

/// Capacity of the added replicas, tokens.
fn added_tokens(snapshot: &Snapshot, decisions: &[Decision]) -> f64 {
    let variants = &snapshot.models[0].variants;
    let added = |d: &Decision| f64::from(d.target().saturating_sub(d.current));
    variants.iter().zip(decisions).map(|(v, d)| added(d) * v.remembered_capacity.unwrap().get()).sum()
}

fn print_excess(name: &str, mut excess: Vec<f64>) {
    excess.sort_by(f64::total_cmp);
    // A rounding error of equal sums is not an excess.
    excess.iter_mut().filter(|e| e.abs() < 1e-6).for_each(|e| *e = 0.0);
    let mean = excess.iter().sum::<f64>() / f64::from(u32::try_from(excess.len()).unwrap());
    let at = |share| *quantile(&excess, share);
    println!("| {name} | {mean:.2} % | {:.2} % | {:.2} % | {:.2} % |", at(0.5), at(0.99), at(1.0));
}

/// Quantile of sorted values.
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
