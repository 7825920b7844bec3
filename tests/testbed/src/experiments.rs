//! Runs the experiments of [`wva_testbed::operations`], lanes side by side, and prints a row for each.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures::future::try_join_all;
use tokio::time::Instant;
use wva_testbed::audit::Audit;
use wva_testbed::operations::{Experiment, Outcome, Plan};
use wva_testbed::{Options, Testbed};

/// Longest time for one experiment: none takes half of it.
const LONGEST: Duration = Duration::from_mins(30);

/// Runs those whose names hold `only`, or all; fails where a contract was not kept.
pub(crate) async fn run(plan: &Plan, only: Option<&str>) -> anyhow::Result<()> {
    for program in [&plan.wva, &plan.wva_debug] {
        ensure!(program.exists(), "there is no {}: build it first", program.display());
    }
    let wanted = |one: &Experiment| only.is_none_or(|only| one.name().contains(only));
    let lanes: Vec<Vec<Experiment>> =
        Experiment::LANES.map(|lane| lane.iter().copied().filter(wanted).collect()).into();
    let lanes: Vec<_> = lanes.into_iter().filter(|lane| !lane.is_empty()).enumerate().collect();
    if lanes.is_empty() {
        bail!("no experiment has {:?} in its name", only.unwrap_or_default());
    }
    say("experiment | what must hold | figures | time | kept")?;
    let failed: usize =
        try_join_all(lanes.iter().map(|(number, lane)| follow(*number, lane, plan))).await?.into_iter().sum();
    ensure!(failed == 0, "{failed} experiments did not keep their contract");
    Ok(())
}

/// One lane on a control plane of its own; how many of its experiments failed.
async fn follow(number: usize, lane: &[Experiment], plan: &Plan) -> anyhow::Result<usize> {
    let options = Options {
        name: format!("operations-{number}"),
        nodes: Vec::new(),
        with_prometheus: false,
        audit: Audit::Writes,
        ..Options::default()
    };
    let testbed = Testbed::start(options).await?;
    let mut failed = 0;
    for one in lane {
        let began = Instant::now();
        let outcome = match tokio::time::timeout(LONGEST, one.run(&testbed, plan)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Outcome { figures: "none".to_owned(), faults: vec![format!("{error:#}")] },
            Err(_) => {
                Outcome { figures: "none".to_owned(), faults: vec![format!("not done in {LONGEST:?}")] }
            }
        };
        failed += usize::from(!outcome.faults.is_empty());
        row(*one, &outcome, began.elapsed())?;
    }
    Ok(failed)
}

fn row(one: Experiment, outcome: &Outcome, took: Duration) -> anyhow::Result<()> {
    let kept = if outcome.faults.is_empty() { "yes" } else { "NO" };
    let figures = &outcome.figures;
    say(&format!("{} | {} | {figures} | {} s | {kept}", one.name(), one.contract(), took.as_secs()))?;
    for fault in outcome.faults.iter().take(10) {
        say(&format!("    {fault}"))?;
    }
    if outcome.faults.len() > 10 {
        say(&format!("    and {} more", outcome.faults.len() - 10))?;
    }
    Ok(())
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}
