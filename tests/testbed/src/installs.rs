//! Runs the experiments of [`wva_testbed::install_runs`] and prints a row for each step.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use wva_testbed::install_runs::{self, Experiment, Extent};

/// Runs those whose names hold `only`, or all; fails where a step did not end as it must.
pub(crate) async fn run(wva: &Path, only: Option<&str>, short: bool) -> anyhow::Result<()> {
    ensure!(wva.exists(), "there is no {}: build it first", wva.display());
    let wanted = |one: &Experiment| only.is_none_or(|only| one.name().contains(only));
    let all: Vec<Experiment> = Experiment::ALL.into_iter().filter(wanted).collect();
    if all.is_empty() {
        let names = Experiment::ALL.map(Experiment::name).join(", ");
        bail!("no experiment has {:?} in its name: there are {names}", only.unwrap_or_default());
    }
    let extent = if short { Extent::Short } else { Extent::Full };
    let outcome = Box::pin(install_runs::run(wva, &all, extent, told)).await?;
    say(&format!("{}\n", outcome.figures))?;
    outcome.kept().map(drop)
}

/// A row of the table. Nobody is left to tell when standard output is closed.
fn told(line: &str) {
    let _ = say(line);
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}
