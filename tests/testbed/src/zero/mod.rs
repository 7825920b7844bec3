//! Idle models go to zero and come back, hundreds of times, with requests that come at random moments and run for up to
//! twice the retention period; and an outage of Prometheus around an idle period. Prints the timeline of one turn, and
//! figures of all.

mod figures;
mod lane;
mod timeline;

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use tokio::time::Instant;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Options, Testbed};

use self::figures::Figures;
use self::lane::Lane;

/// How long nothing may have been asked of a model.
const RETENTION: Duration = Duration::from_secs(6);
/// How often Prometheus scrapes.
const SCRAPE: Duration = Duration::from_secs(1);
/// Models under way at the same time, each with an HPA of its own.
const LANES: usize = 10;
/// A request that runs for longer has been scraped, and is known to whoever asked Prometheus since: one interval of
/// scrapes, and what a scrape, a round of queries and a write take on two busy cores.
const SEEN: Duration = Duration::from_secs(2);

/// What to run.
pub(crate) struct Plan<'a> {
    /// The program to test.
    pub(crate) wva: &'a Path,
    /// Turns from idle to zero and back, over all models.
    pub(crate) turns: usize,
    /// How long Prometheus is down.
    pub(crate) outage: Duration,
    /// Where the random moments begin.
    pub(crate) seed: u64,
}

/// Runs it all; fails where a bound is missed.
pub(crate) async fn run(plan: &Plan<'_>) -> anyhow::Result<()> {
    ensure!(plan.wva.exists(), "there is no {}: build it first", plan.wva.display());
    let testbed = Testbed::start(Options {
        name: "zero".to_owned(),
        scrape_interval: SCRAPE,
        hpa_to_zero: true,
        ..Options::default()
    })
    .await?;
    let install = Install::start(&testbed, &InstallOptions::quick(plan.wva)).await?;
    say("\n== one turn down and up, of a model with an HPA of minReplicas 1")?;
    timeline::one_turn(&testbed).await?;

    say(&format!("\n== {} turns of {LANES} models at once, seed {}", plan.turns, plan.seed))?;
    let began = Instant::now();
    let lanes = (0..LANES).map(|i| Lane::start(&testbed, i, plan.seed));
    let mut lanes = try_join_all(lanes).await?;
    let turns = plan.turns.div_ceil(LANES);
    try_join_all(lanes.iter_mut().map(|lane| lane.turns(turns))).await?;
    let figures: Figures = lanes.iter().map(Lane::figures).sum();
    say(&figures.table())?;
    say(&format!("({} s)", began.elapsed().as_secs()))?;

    say(&format!("\n== Prometheus down for {:?} around an idle period", plan.outage))?;
    let kept = outage(&testbed, &mut lanes, plan.outage).await?;
    say(&kept.line)?;
    drop((lanes, install));
    figures.judge()?;
    kept.judge()
}

/// What became of the models in an outage.
struct Kept {
    line: String,
    zeroed: usize,
    too_soon: usize,
}

impl Kept {
    fn judge(self) -> anyhow::Result<()> {
        ensure!(self.zeroed == 0, "{} models went to zero while nobody could see them", self.zeroed);
        ensure!(self.too_soon == 0, "{} models went to zero before a whole period was seen", self.too_soon);
        Ok(())
    }
}

/// Every model has a request that ends just when Prometheus goes; then nothing is asked of it.
async fn outage(testbed: &Testbed, lanes: &mut [Lane<'_>], lasts: Duration) -> anyhow::Result<Kept> {
    try_join_all(lanes.iter_mut().map(Lane::is_up)).await?;
    for lane in &*lanes {
        lane.send(Duration::from_secs(2));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    testbed.prometheus_stop().await?;
    let down = std::time::Instant::now();
    tokio::time::sleep(lasts).await;
    let zeroed = lanes.iter().filter(|lane| lane.went_to_zero_since(down).is_some()).count();
    testbed.prometheus_start().await?;
    let up = std::time::Instant::now();
    let after = try_join_all(lanes.iter().map(|lane| lane.to_zero_after(up))).await?;
    let too_soon = after.iter().filter(|after| **after < RETENTION).count();
    let seconds = |d: Option<&Duration>| d.map_or(0.0, Duration::as_secs_f64);
    let line = format!(
        "{zeroed} of {} models went to zero meanwhile; all did {:.1} to {:.1} s after it was back (retention {} s)",
        lanes.len(),
        seconds(after.iter().min()),
        seconds(after.iter().max()),
        RETENTION.as_secs()
    );
    Ok(Kept { line, zeroed, too_soon })
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}
