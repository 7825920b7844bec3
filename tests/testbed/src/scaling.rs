//! Runs the experiments of [`wva_testbed::scaling_runs`], one after the other, and prints the timeline of each.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::time::Instant;
use wva_testbed::scaling_runs::Experiment;

/// Longest time for one experiment: none takes half of it.
const LONGEST: Duration = Duration::from_mins(15);

/// Runs those whose names hold `only`, or all; fails where a contract was not kept.
pub(crate) async fn run(wva: &Path, only: Option<&str>) -> anyhow::Result<()> {
    ensure!(wva.exists(), "there is no {}: build it first", wva.display());
    let wanted = |one: &Experiment| only.is_none_or(|only| one.name().contains(only));
    let all: Vec<Experiment> = Experiment::ALL.into_iter().filter(wanted).collect();
    if all.is_empty() {
        let names = Experiment::ALL.map(Experiment::name).join(", ");
        bail!("no experiment has {:?} in its name: there are {names}", only.unwrap_or_default());
    }
    let mut failed = 0;
    for one in all {
        say(&format!("\n== {}: {}", one.name(), one.contract()))?;
        let began = Instant::now();
        let result = tokio::time::timeout(LONGEST, one.run(wva, told))
            .await
            .with_context(|| format!("{} was not done in {LONGEST:?}", one.name()))
            .and_then(|outcome| outcome)
            .and_then(wva_testbed::operations::Outcome::kept);
        let took = began.elapsed().as_secs();
        match result {
            Ok(figures) => say(&format!("kept: {figures} ({took} s)"))?,
            Err(fault) => {
                failed += 1;
                say(&format!("NOT KEPT: {fault:#} ({took} s)"))?;
            }
        }
    }
    ensure!(failed == 0, "{failed} experiments did not keep their contract");
    Ok(())
}

/// A line of a timeline. Nobody is left to tell when standard output is closed.
fn told(line: &str) {
    let _ = say(line);
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}
