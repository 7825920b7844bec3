//! An idle program with 1,000 variants under a constant load, with default intervals: time from start until all are
//! published, API requests while nothing changes, and growth of memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;
use wva_testbed::audit::{Audit, Write};
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Options, Testbed, eventually};

use super::stored::{Fleet, NAMESPACES, ServingCluster, VARIANTS, count};
use crate::command::print_line;
use crate::report::{Report, mib};
use crate::usage::Usage;

/// Maximum time from synced caches to the series of all variants.
const START_BOUND: Duration = Duration::from_secs(10);
/// Maximum requests per second, except watches and the Lease.
const REQUESTS_BOUND: f64 = 1.0;
/// Maximum growth of memory from the first to the last minute, percent.
const GROWTH_BOUND: u64 = 5;
/// Maximum resident memory, KiB.
const RESIDENT_BOUND: u64 = 64 * 1024;
/// Sampling interval of the memory.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_mins(1);

/// Runs the bench; fails if a bound is exceeded.
pub(crate) async fn run(wva: &Path, lasts: Duration) -> anyhow::Result<()> {
    ensure!(lasts > 2 * MINUTE, "an idle time of {lasts:?} has no first and last minute: take 3m or more");
    print_line(&format!("starting a control plane and {VARIANTS} pods"))?;
    let options = Options {
        name: "bench-idle".to_owned(),
        // Frequent HPA syncs would read the same value.
        hpa_sync: Duration::from_hours(1),
        audit: Audit::All,
        ..Options::default()
    };
    let fleet = Fleet { namespaces: NAMESPACES, variants: VARIANTS, replicas: 1 };
    let serving = ServingCluster::start(options, fleet).await?;
    let testbed = &serving.testbed;
    let install = Install::start(testbed, &InstallOptions::new(wva)).await?;
    let start = start(testbed, &install).await?;
    print_line(&format!("idling for {lasts:?}"))?;
    let idle = idle(testbed, &install, lasts).await?;
    report(&start, &idle)
}

/// Duration of the start, from synced caches.
struct StartTimes {
    published: Duration,
    /// Until the API server had the last status.
    written: Duration,
}

async fn start(testbed: &Testbed, install: &Install) -> anyhow::Result<StartTimes> {
    let shown = eventually("all variants to have a series", 3 * MINUTE, async || {
        let page = install.metrics().await?;
        let at = Timestamp::now();
        let series = page.lines().filter(|line| line.starts_with("wva_desired_replicas{")).count();
        ensure!(series == VARIANTS, "{series} have");
        Ok(at)
    })
    .await?;
    let written = eventually("all statuses to be written", 3 * MINUTE, async || {
        let statuses: BTreeMap<_, _> = testbed.audit()?.into_iter().filter(is_status).map(once).collect();
        ensure!(statuses.len() == VARIANTS, "{} are", statuses.len());
        statuses.into_values().max().context("no status was written")
    })
    .await?;
    let synced = synced(&install.process().log())?;
    let since = |at: Timestamp| Duration::try_from(at.duration_since(synced)).unwrap_or_default();
    Ok(StartTimes { published: since(shown), written: since(written) })
}

/// Object and time of each status write; many namespaces have the same variant names.
fn once(write: Write) -> ((String, String), Timestamp) {
    ((write.namespace, write.name), write.at)
}

fn is_status(write: &Write) -> bool {
    write.resource == "variantautoscalings/status" && write.stored()
}

/// Time at which the program logged that its caches had synced.
fn synced(log: &str) -> anyhow::Result<Timestamp> {
    let line = log.lines().find(|line| line.contains("All watch caches are complete"));
    let line: serde_json::Value =
        serde_json::from_str(line.context("the log has no line about synced caches")?)?;
    line["ts"].as_str().context("a line without a time")?.parse().context("no time")
}

/// Measurements while nothing changes.
struct IdleUsage {
    seconds: f64,
    /// Status writes after the first minute.
    statuses: usize,
    /// Other requests after the first minute, by verb and resource, except watches and the Lease.
    requests: BTreeMap<String, usize>,
    /// Resident memory in KiB.
    resident: ResidentMemory,
    cores: f64,
}

/// Resident memory in KiB.
struct ResidentMemory {
    /// Mean of the first minute.
    first: u64,
    /// Mean of the last minute.
    last: u64,
    /// Maximum since the start.
    most: u64,
}

async fn idle(testbed: &Testbed, install: &Install, lasts: Duration) -> anyhow::Result<IdleUsage> {
    let (began, wall) = (Instant::now(), Timestamp::now());
    let pid = install.process().pid();
    let first_usage = Usage::read(pid)?;
    let mut looks = Vec::new();
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    while began.elapsed() < lasts {
        ticks.tick().await;
        looks.push((began.elapsed(), Usage::read(pid)?));
    }
    let (_, last_usage) = looks.last().context("no memory sample")?;
    let mean = |within: &dyn Fn(Duration) -> bool| {
        let all: Vec<u64> = looks.iter().filter(|(at, _)| within(*at)).map(|(_, u)| u.resident).collect();
        all.iter().sum::<u64>() / u64::try_from(all.len()).unwrap_or(1).max(1)
    };
    let resident = ResidentMemory {
        first: mean(&|at| at < MINUTE),
        last: mean(&|at| at + MINUTE >= lasts),
        most: last_usage.peak,
    };
    let from = wall + k8s_openapi::jiff::SignedDuration::from_mins(1);
    let asked: Vec<Write> = testbed.audit()?.into_iter().filter(|w| w.at >= from).collect();
    let mut requests = BTreeMap::new();
    for one in asked.iter().filter(|w| w.verb != "watch" && w.resource != "leases" && !is_status(w)) {
        *requests.entry(format!("{} {}", one.verb, one.resource)).or_default() += 1;
    }
    Ok(IdleUsage {
        seconds: lasts.saturating_sub(MINUTE).as_secs_f64(),
        statuses: asked.iter().filter(|w| is_status(w)).count(),
        requests,
        resident,
        cores: last_usage.cores_since(&first_usage, lasts),
    })
}

/// Prints the figures; fails if a bound is exceeded.
fn report(start: &StartTimes, idle: &IdleUsage) -> anyhow::Result<()> {
    let mut report = Report::default();
    let ResidentMemory { first, last, most } = idle.resident;
    let requests = count(idle.requests.values().sum::<usize>() + idle.statuses) / idle.seconds;
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    print_line(&format!("{VARIANTS} variants, a pod each"))?;
    report.at_most("from complete caches to all series", start.published, START_BOUND, seconds)?;
    Report::note("from complete caches to all statuses", seconds(start.written))?;
    report.at_most("status writes after the first minute", idle.statuses, 0, |n| n)?;
    report.at_most("requests per second, except watches", requests, REQUESTS_BOUND, |n| format!("{n:.2}"))?;
    Report::note("resident, mean of the first minute", mib(first))?;
    let most_at_last = first * (100 + GROWTH_BOUND) / 100;
    report.at_most("resident, mean of the last minute", last, most_at_last, mib)?;
    report.at_most("resident, at most since the start", most, RESIDENT_BOUND, mib)?;
    Report::note("cores in use", format!("{:.3}", idle.cores))?;
    for (what, times) in &idle.requests {
        print_line(&format!("    {times:5} {what}"))?;
    }
    report.end()
}
