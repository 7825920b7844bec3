//! Prints tables of docs/development/evidence/traffic.md: the throughput analyzer of the chart with other settings.
//! `settings windows SEEDS SCENARIO...` prints means over the scenarios by cycle, hold and scale-down window;
//! `settings curves SEEDS SCENARIO...` prints each scenario by utilization. `make bench-windows` and `make bench-curves`
//! run it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints a table")]

use std::error::Error;
use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};
use wva_simulator::scenario::{self, Scenario, Spec};
use wva_simulator::study::run_study;

/// Settings of a policy.
struct Settings {
    interval: &'static str,
    fetch: &'static str,
    hold: &'static str,
    /// Scale-down window of the HPA, seconds.
    window: u32,
    /// Share of a replica's capacity to plan with.
    utilization: Option<f64>,
}

const CHART: Settings = Settings { interval: "15s", fetch: "15s", hold: "5m", window: 60, utilization: None };
const SLOW: Settings = Settings { interval: "60s", fetch: "30s", ..CHART };
const WINDOWS: [Settings; 7] = [
    Settings { window: 240, ..SLOW },
    SLOW,
    Settings { window: 240, hold: "2m", ..SLOW },
    Settings { window: 240, ..CHART },
    CHART,
    Settings { window: 0, ..CHART },
    Settings { hold: "2m", ..CHART },
];
const UTILIZATIONS: [f64; 6] = [0.5, 0.6, 0.7, 0.8, 0.85, 0.95];

const USAGE: &str = "usage: settings windows|curves SEEDS SCENARIO...";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let table = arguments.next().ok_or(USAGE)?;
    let seeds: u64 = arguments.next().ok_or(USAGE)?.parse()?;
    let scenarios: Vec<String> = arguments.collect();
    match table.as_str() {
        "windows" => print_windows(seeds, &scenarios),
        "curves" => print_curves(seeds, &scenarios),
        _ => Err(USAGE.into()),
    }
}

fn print_windows(seeds: u64, scenarios: &[String]) -> Result<(), Box<dyn Error>> {
    let mut sums = [(0.0, 0.0); WINDOWS.len()];
    let mut number = 0.0;
    for path in scenarios {
        let (_, results) = run(path, seeds, &WINDOWS)?;
        for (sum, (attainment, cost)) in sums.iter_mut().zip(results) {
            *sum = (sum.0 + attainment, sum.1 + cost);
        }
        number += 1.0;
    }
    println!(
        "| cycle | `hold` | scale-down window | in SLO % | cost by the oracle's |\n|---|---|---|---|---|"
    );
    for (Settings { interval, hold, window, .. }, (attainment, cost)) in WINDOWS.iter().zip(sums) {
        println!("| {interval} | {hold} | {window}s | {:.1} | {:.2} |", attainment / number, cost / number);
    }
    Ok(())
}

fn print_curves(seeds: u64, scenarios: &[String]) -> Result<(), Box<dyn Error>> {
    let rows = UTILIZATIONS.map(|utilization| Settings { utilization: Some(utilization), ..CHART });
    let heads = UTILIZATIONS.map(|utilization| format!(" {utilization} |"));
    println!("| scenario |{}\n|---|{}", heads.concat(), "---|".repeat(UTILIZATIONS.len()));
    for path in scenarios {
        let (name, results) = run(path, seeds, &rows)?;
        let cells = results.iter().map(|(attainment, cost)| format!(" {attainment:.1} ({cost:.2}) |"));
        println!("| {name} |{}", cells.collect::<String>());
    }
    Ok(())
}

/// Attainment in percent, and cost by the oracle's.
type Figures = (f64, f64);

/// Name of the scenario, and the figures of each row.
fn run(path: &str, seeds: u64, rows: &[Settings]) -> Result<(String, Vec<Figures>), Box<dyn Error>> {
    eprintln!("{path}");
    let scenario = read(Path::new(path), rows)?;
    let studies = run_study(&scenario, seeds, |_| {});
    let figures = studies.iter().take(rows.len()).map(|study| {
        let cost = study.ratio().map_or(f64::NAN, |ratio| ratio.mean);
        (study.mean(0).mean, cost)
    });
    Ok((scenario.name.clone(), figures.collect()))
}

/// The scenario with these policies and the oracle.
fn read(path: &Path, rows: &[Settings]) -> Result<Scenario, Box<dyn Error>> {
    let mut tree: Value = scenario::parse_tree(&std::fs::read_to_string(path)?)?;
    let mut policies: Vec<Value> = rows.iter().enumerate().map(|(i, row)| row.policy(i)).collect();
    policies.push(json!({"name": "oracle", "oracle": {}}));
    tree["policies"] = policies.into();
    let spec = Spec::read(&tree)?;
    Ok(spec.build(spec.read_trace(path, File::open)?)?)
}

impl Settings {
    fn policy(&self, row: usize) -> Value {
        let limits = json!([{"type": "Pods", "value": 10, "periodSeconds": 150}]);
        let mut saturation = json!({"analyzerName": "throughput", "hold": self.hold});
        if let Some(utilization) = self.utilization {
            saturation["utilization"] = utilization.into();
        }
        json!({"name": format!("row {row}"), "wva": {
            "saturation": saturation,
            "interval": self.interval,
            "fetchInterval": self.fetch,
            "behavior": {
                "scaleUp": {"policies": limits},
                "scaleDown": {"stabilizationWindowSeconds": self.window, "policies": limits},
            },
        }})
    }
}
