//! A week of 20 models: what it takes to read and to judge.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use wva_simulator::scenario::{Scenario, Spec, parse_tree};

use super::driver::FleetRun;
use super::prometheus::{Server, aligned_start, span};
use crate::command::print_line;
use crate::report::{Report, mib};

/// Models with the load of their own; each serves under several names.
const LOADS: [f64; 4] = [0.05, 0.1, 0.2, 0.4];
const NAMES: usize = 5;
const DAYS: f64 = 7.0;
/// Scrape interval, seconds.
const INTERVAL: u32 = 30;
/// Aims.
const LONGEST: Duration = Duration::from_mins(10);
const MOST_KIB: u64 = 300 * 1024;

/// Fills the week, and runs the command on it.
pub(crate) async fn run(wva: &Path, folder: &Path) -> anyhow::Result<()> {
    let mut report = Report::default();
    let scenarios: Vec<Scenario> = LOADS.iter().map(|mean| scenario(*mean)).collect::<anyhow::Result<_>>()?;
    let ran: Vec<FleetRun> = scenarios
        .iter()
        .map(|scenario| FleetRun::new(&scenario.setting, &scenario.policies[0], INTERVAL))
        .collect::<anyhow::Result<_>>()?;
    let mut fleets = Vec::new();
    for (i, ran) in ran.iter().enumerate() {
        for name in 0..NAMES {
            fleets.push((ran, format!("team-{name}"), format!("acme/model-{i}")));
        }
    }
    let seconds = DAYS * 86_400.0;
    let server = Server::start(&folder.join("week")).await?;
    let epoch = aligned_start(seconds)?;
    let pods: usize = fleets.iter().map(|(ran, ..)| ran.pods.len()).sum();
    let samples = server.fill(&fleets, epoch, seconds).await?;
    print_line(&format!(
        "{} models, {pods} pods, {samples} samples, scraped each {INTERVAL} s",
        fleets.len()
    ))?;
    let answer = server.backtest(wva, &span(epoch, seconds), &["--start", "103s", "-o", "json"]).await?;
    print_line(&std::fs::read_to_string(folder.join("week/wva.log")).unwrap_or_default())?;
    let models = answer.json["models"].as_array().context("no models")?;
    let judged = models.iter().filter(|model| model["policies"].as_array().is_some_and(|p| !p.is_empty()));
    let requests: f64 = models.iter().filter_map(|model| model["requests"].as_f64()).sum();
    Report::note("models with a verdict", format!("{} of {}", judged.count(), models.len()))?;
    Report::note("requests", requests)?;
    report.at_most("time", answer.took, LONGEST, |took| format!("{:.0} s", took.as_secs_f64()))?;
    report.at_most("peak memory", answer.peak, MOST_KIB, mib)?;
    report.end()
}

fn scenario(mean: f64) -> anyhow::Result<Scenario> {
    let text = format!(
        "
name: week
objectives: {{ttft: 1s, itl: 100ms}}
traffic: {{diurnal: {{mean: {mean}}}, input: {{mean: 1200, cv: 1}}, output: {{mean: 250, cv: 0.8}}}}
variants:
- {{name: h100, accelerator: H100, engine: {{like: qwen3-32b-h100}}, max: 6, start: {{mean: 103s, cv: 0.1}}}}
policies: [{{name: what ran, hpa: {{waiting: 2, kv: 0.7}}}}]
"
    );
    Ok(Spec::read(&parse_tree(&text)?)?.build(None)?)
}
