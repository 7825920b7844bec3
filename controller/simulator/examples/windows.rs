//! Prints the table of docs/development/evidence/traffic.md on cycles and windows: means over scenarios of the throughput
//! analyzer with other intervals, holds and scale-down windows. `windows SEEDS SCENARIO...`; `make bench-windows` runs it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints a table")]

use std::error::Error;
use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};
use wva_simulator::scenario::{self, Scenario, Spec};
use wva_simulator::study::run_study;

/// Interval of cycles and of queries, `hold`, scale-down window in seconds.
const ROWS: [(&str, &str, &str, u32); 7] = [
    ("60s", "30s", "5m", 240),
    ("60s", "30s", "5m", 60),
    ("60s", "30s", "2m", 240),
    ("15s", "15s", "5m", 240),
    ("15s", "15s", "5m", 60),
    ("15s", "15s", "5m", 0),
    ("15s", "15s", "2m", 60),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seeds: u64 = arguments.next().ok_or("usage: windows SEEDS SCENARIO...")?.parse()?;
    let mut sums = [(0.0, 0.0); ROWS.len()];
    let mut scenarios = 0.0;
    for path in arguments {
        eprintln!("{path}");
        let studies = run_study(&read(Path::new(&path))?, seeds, |_| {});
        for (sum, study) in sums.iter_mut().zip(&studies) {
            sum.0 += study.mean(0).mean;
            sum.1 += study.ratio().map_or(f64::NAN, |ratio| ratio.mean);
        }
        scenarios += 1.0;
    }
    println!(
        "| cycle | `hold` | scale-down window | in SLO % | cost by the oracle's |\n|---|---|---|---|---|"
    );
    for ((interval, _, hold, window), (attainment, cost)) in ROWS.iter().zip(sums) {
        println!(
            "| {interval} | {hold} | {window}s | {:.1} | {:.2} |",
            attainment / scenarios,
            cost / scenarios
        );
    }
    Ok(())
}

/// A scenario with the policies of [`ROWS`] and the oracle.
fn read(path: &Path) -> Result<Scenario, Box<dyn Error>> {
    let mut tree: Value = scenario::parse_tree(&std::fs::read_to_string(path)?)?;
    let limits = json!([{"type": "Pods", "value": 10, "periodSeconds": 150}]);
    let policy = |(interval, fetch, hold, window): &(&str, &str, &str, u32)| {
        json!({"name": format!("{interval} {hold} {window}"), "wva": {
            "saturation": {"analyzerName": "throughput", "hold": hold},
            "interval": interval,
            "fetchInterval": fetch,
            "behavior": {
                "scaleUp": {"policies": limits},
                "scaleDown": {"stabilizationWindowSeconds": window, "policies": limits},
            },
        }})
    };
    let mut policies: Vec<Value> = ROWS.iter().map(policy).collect();
    policies.push(json!({"name": "oracle", "oracle": {}}));
    tree["policies"] = policies.into();
    let spec = Spec::read(&tree)?;
    Ok(spec.build(spec.read_trace(path, File::open)?)?)
}
