//! Choice by cost: what the token analyzer's optimizers decide for a thousand random models, against the least cost
//! there is. `make bench-decide` prints the tables of docs/performance.md from it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench: its input is its own, its tables are its output"
)]

mod instance;
mod solver;

use std::time::{Duration, Instant};

use wva_scaling::snapshot::Optimizer;
use wva_scaling::{Decision, Reason, Snapshot, decide};

use self::instance::{Way, go_on, instance, supply, under};
use self::solver::{Tokens, add, save};

const INSTANCES: u32 = 1000;

/// What one optimizer made of all instances of a kind.
#[derive(Default)]
struct Tally {
    /// Excess over the least cost of what changes, and over the fleet's least cost, in percent.
    of_change: Vec<f64>,
    of_fleet: Vec<f64>,
    /// The need could be met, and was not.
    missed: u32,
    /// The search ended at its limit.
    cut_short: u32,
    /// Of a whole `decide` of the one model.
    times: Vec<Duration>,
}

fn main() {
    println!(
        "\n| way | optimizer | excess of | mean | median | p99 | worst |\n|---|---|---|---:|---:|---:|---:|"
    );
    let mut times = Vec::new();
    for way in [Way::Up, Way::Down] {
        for (name, optimizer) in [("costAware", Optimizer::CostAware), ("exact", Optimizer::Exact)] {
            let mut tally = Tally::default();
            (0..INSTANCES).for_each(|seed| tally.add(&under(&instance(seed, way), optimizer), way));
            let change = if way == Way::Up { "added cost" } else { "saved cost (less)" };
            print_excess(&format!("{way:?} | {name} | {change}"), tally.of_change.clone());
            print_excess(&format!("{way:?} | {name} | fleet's cost"), tally.of_fleet.clone());
            times.push((format!("{way:?} | {name}"), tally));
        }
    }
    print_ramps();
    let mut hard = Tally::default();
    for seed in 0..INSTANCES {
        hard.run(&under(&instance(seed, Way::Hard), Optimizer::Exact));
    }
    times.push(("Hard | exact".to_owned(), hard));
    println!(
        "\n| way | optimizer | p50 | p99 | max | need missed | cut short |\n|---|---|---:|---:|---:|---:|---:|"
    );
    for (name, mut tally) in times {
        tally.times.sort();
        let at = |share: f64| micros(quantile(&tally.times, share));
        println!(
            "| {name} | {:.1} µs | {:.1} µs | {:.1} µs | {} | {} |",
            at(0.5),
            at(0.99),
            at(1.0),
            tally.missed,
            tally.cut_short
        );
    }
}

/// A load that grows by a twentieth of the first supply each cycle: what is cheapest for each step need not be cheapest
/// for all of them together.
fn print_ramps() {
    let (mut last, mut paid) = (Vec::new(), Vec::new());
    for seed in 0..INSTANCES {
        let (rule_last, rule_paid) = ramp(seed, Optimizer::CostAware);
        let (exact_last, exact_paid) = ramp(seed, Optimizer::Exact);
        last.push(100.0 * (exact_last - rule_last) / rule_last);
        paid.push(100.0 * (exact_paid - rule_paid) / rule_paid);
    }
    print_excess("Ramp | exact over costAware | fleet's cost at the end", last);
    print_excess("Ramp | exact over costAware | fleet's cost, summed over the cycles", paid);
}

/// Cost of the fleet after forty cycles, and the sum over all of them.
fn ramp(seed: u32, optimizer: Optimizer) -> (f64, f64) {
    let mut snapshot = under(&instance(seed, Way::Up), optimizer);
    snapshot.config.inventory = None;
    for variant in &mut snapshot.models[0].variants {
        variant.max = None;
    }
    let first = supply(&snapshot);
    let (mut last, mut paid) = (0.0, 0.0);
    for cycle in 0..40 {
        let decisions = decide(&snapshot).decisions;
        last = cost(&snapshot, &decisions, |d| f64::from(d.target()));
        paid += last;
        go_on(&mut snapshot, &decisions, first * (1.0 + 0.05 * f64::from(cycle)));
    }
    (last, paid)
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
        let approximate = |d: &Decision| {
            d.steps.iter().any(|s| {
                matches!(&s.reason, Reason::DemandAboveSupply { tokens } | Reason::SupplyAboveDemand { tokens } if tokens.approximate)
            })
        };
        self.cut_short += u32::from(outcome.decisions.iter().any(approximate));
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
