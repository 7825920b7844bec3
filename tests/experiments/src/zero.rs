//! Idle models scale to zero and back, hundreds of times, with requests at random moments that run for up to twice
//! the retention period. Prometheus and endpoint pickers fail around idle periods, and leaders are killed between a
//! signal and its step. Prints the timeline of one turn, and figures of all turns.

mod figures;
mod killed;
mod lane;
mod outages;
mod steady;
mod timeline;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::future::try_join_all;
use k8s_openapi::jiff::Timestamp;
use wva_testbed::audit::{Audit, Write};
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::picker::CRDS;
use wva_testbed::{Options, Testbed};

use self::figures::Figures;
use self::lane::Lane;
use crate::command::{duration, print_line};
use crate::report::Report;

/// Retention period: idle time before scale to zero.
const RETENTION: Duration = Duration::from_secs(6);
/// Scrape interval of Prometheus.
const SCRAPE: Duration = Duration::from_secs(1);
/// Number of models in parallel, each with its own HPA.
const LANES: usize = 10;

/// Options of the experiment.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Number of turns to zero and back, over all models.
    #[arg(long, default_value_t = 200)]
    turns: usize,
    /// Duration of the outage of Prometheus, and then of the endpoint pickers.
    #[arg(long, default_value = "5m", value_parser = duration)]
    outage: Duration,
    /// Leaders killed between a signal and its step, in each direction, and total changes of leaders.
    #[arg(long, default_value_t = 50)]
    killed: usize,
    /// Seed of the random moments.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the parts whose names contain this: `turns`, `prometheus`, `pickers`, `killed`.
    #[arg(long)]
    only: Option<String>,
}

/// Runs the experiment; fails if a bound is exceeded.
pub(crate) async fn run(wva: &Path, plan: &Plan) -> anyhow::Result<()> {
    let wants = |name: &str| plan.only.as_ref().is_none_or(|only| name.contains(only));
    let mut report = Report::default();
    if ["turns", "prometheus", "pickers"].into_iter().any(wants) {
        let testbed = testbed("zero").await?;
        let install = Install::start(&testbed, &InstallOptions::quick(wva)).await?;
        if wants("turns") {
            Box::pin(turns(plan, &testbed, &install, &mut report)).await?;
        }
        if wants("prometheus") {
            Box::pin(outages::of_prometheus(&testbed, plan, &mut report)).await?;
        }
        if wants("pickers") {
            Box::pin(outages::of_pickers(&testbed, plan, &mut report)).await?;
        }
    }
    if wants("killed") {
        let testbed = testbed("killed").await?;
        Box::pin(killed::run(&testbed, wva, plan, &mut report)).await?;
    }
    report.end()
}

async fn testbed(name: &str) -> anyhow::Result<Testbed> {
    let name = name.to_owned();
    let options = Options {
        name,
        scrape_interval: SCRAPE,
        hpa_to_zero: true,
        audit: Audit::Writes,
        ..Options::default()
    };
    let testbed = Testbed::start(options).await?;
    testbed.apply(CRDS).await?;
    let args = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"];
    testbed.kubectl(&args).await?.success()?;
    Ok(testbed)
}

/// Runs the turns to zero and back.
async fn turns(plan: &Plan, testbed: &Testbed, install: &Install, report: &mut Report) -> anyhow::Result<()> {
    print_line("\n== one turn down and up, of a model with an HPA of minReplicas 1")?;
    timeline::one_turn(testbed).await?;
    print_line(&format!("\n== {} turns of {LANES} models at once, seed {}", plan.turns, plan.seed))?;
    let clock = Clock::now();
    let lanes = (0..LANES).map(|i| Lane::start(testbed, i, plan.seed));
    let mut lanes = try_join_all(lanes).await?;
    let turns = plan.turns.div_ceil(LANES);
    try_join_all(lanes.iter_mut().map(|lane| lane.turns(turns))).await?;
    let writes = testbed.audit()?;
    let figures: Figures =
        lanes.iter().map(|lane| lane.figures(&clock.steps(&writes, lane.namespace()))).sum();
    figures.judge(report)?;
    let log = std::fs::read_to_string(install.process().log_path()).context("the program has no log")?;
    let held = log.matches("Scale to zero cancelled: a model server has a request").count();
    let blind = log.matches("Final check before scale to zero: some model servers cannot be queried").count();
    Report::note("scale-to-zero steps cancelled by the final check", held)?;
    Report::note("final checks that could not query every server", blind)?;
    print_line(&format!("({} s)", clock.instant.elapsed().as_secs()))
}

/// The same moment on this program's clock and on the API server's.
struct Clock {
    instant: Instant,
    wall: Timestamp,
}

impl Clock {
    fn now() -> Self {
        Self { instant: Instant::now(), wall: Timestamp::now() }
    }

    /// Times at which the API server received effective `/scale` writes in a namespace, in order.
    fn steps(&self, writes: &[Write], namespace: &str) -> Vec<Instant> {
        let of_it = |w: &&Write| w.namespace == namespace && w.resource.ends_with("/scale") && w.stored();
        let at =
            |w: &Write| self.instant.checked_add(Duration::try_from(w.at.duration_since(self.wall)).ok()?);
        writes.iter().filter(of_it).filter_map(at).collect()
    }
}
