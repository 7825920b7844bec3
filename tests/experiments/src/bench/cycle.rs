//! Bench of the engine: query rounds against a real Prometheus and cycles over 1,000 models with 4,000 pods, or another fleet, on
//! a real control plane. Prints a table, writes it as JSON, and fails if a bound is exceeded.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;
use wva_testbed::audit::{Audit, Write};
use wva_testbed::install::program::series;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Options, Testbed, eventually};

use super::stored::{Fleet, ServingCluster, VARIANTS, count};
use super::write_json;
use crate::command::print_line;
use crate::report::{Report, mib, ms};
use crate::usage::Usage;

/// Number of rounds and cycles measured.
const ROUNDS: u32 = 12;
/// Interval of rounds and cycles.
const EVERY: Duration = Duration::from_secs(10);
/// Cycles before the measurement: the first decisions, and the condition `SignalFollowed` of the first two minutes, write
/// the statuses of all variants.
const SETTLE: u32 = 15;
/// Cycles with scrapes, and scrapes in each: as of a Prometheus that scrapes every 5 s, and cycles of 30 s.
const SCRAPED: u32 = 6;
const SCRAPES: u32 = 6;

/// Maximum number of queries per round. This bound and the next are of [`VARIANTS`] models; other fleets have none.
const QUERIES_BOUND: f64 = 10.0;
/// Maximum total time of the queries, and of a cycle, seconds.
const TOTAL_BOUND: f64 = 3.0;
/// Maximum processor time of the program per round and cycle, seconds.
const OWN_BOUND: f64 = 0.3;
/// Maximum resident memory, KiB.
const RESIDENT_BOUND: u64 = 64 * 1024;

/// Runs the bench.
pub(crate) async fn run(wva: &Path, folder: &Path, fleet: Fleet) -> anyhow::Result<()> {
    let Fleet { namespaces, variants, .. } = fleet;
    print_line(&format!("starting a control plane and {} pods in {namespaces} namespaces", fleet.pods()))?;
    let options = Options {
        name: "bench-cycle".to_owned(),
        hpa_sync: Duration::from_mins(10),
        audit: Audit::All,
        ..Options::default()
    };
    let serving = ServingCluster::start(options, fleet).await?;
    let started = Instant::now();
    let install =
        Install::start(&serving.testbed, &InstallOptions::every(wva, &format!("{}s", EVERY.as_secs())))
            .await?;
    let figures = measure(&serving.testbed, &install, fleet, started).await?;
    write_json(&folder.join(format!("cycle-{variants}-{namespaces}.json")), &figures.json())?;
    figures.report()
}

/// Counters of the program at one time.
struct Reading {
    /// Queries of each signal.
    queries: BTreeMap<String, Timing>,
    cycles: Timing,
    usage: Usage,
}

impl Reading {
    /// Queries since an earlier reading, of each signal that was asked for.
    fn queries_since(&self, before: &Self) -> BTreeMap<String, Timing> {
        let since = |(name, timing): (&String, &Timing)| {
            (name.clone(), timing.since(before.queries.get(name).copied().unwrap_or_default()))
        };
        self.queries.iter().map(since).filter(|(_, timing)| timing.count > 0.0).collect()
    }
}

/// Sum and count of a histogram, seconds.
#[derive(Clone, Copy, Default)]
struct Timing {
    seconds: f64,
    count: f64,
}

impl Timing {
    /// Difference from an earlier reading.
    fn since(self, before: Self) -> Self {
        Self { seconds: self.seconds - before.seconds, count: self.count - before.count }
    }

    fn mean(self) -> f64 {
        self.seconds / self.count
    }
}

async fn read(install: &Install) -> anyhow::Result<Reading> {
    let usage = Usage::read(install.process().pid())?;
    let page = install.metrics().await?;
    let timing = |name: &str, labels: &[(&str, &str)]| -> anyhow::Result<Timing> {
        let part = |part: &str| {
            series(&page, &format!("{name}_seconds_{part}"), labels).map(Option::unwrap_or_default)
        };
        Ok(Timing { seconds: part("sum")?, count: part("count")? })
    };
    let asked = page.lines().filter_map(|line| {
        line.strip_prefix("wva_prometheus_query_duration_seconds_count{query=\"")?.split('"').next()
    });
    let query = |query: &str| {
        anyhow::Ok((query.to_owned(), timing("wva_prometheus_query_duration", &[("query", query)])?))
    };
    let queries = asked.map(query).collect::<anyhow::Result<_>>()?;
    Ok(Reading { queries, cycles: timing("wva_engine_cycle_duration", &[])?, usage })
}

async fn measure(
    testbed: &Testbed,
    install: &Install,
    fleet: Fleet,
    started: Instant,
) -> anyhow::Result<Figures> {
    eventually("all variants to be decided on", Duration::from_mins(3), async || {
        let ready = install.series("wva_variants", &[("reason", "Ready")]).await?.unwrap_or(0.0);
        ensure!(ready >= count(fleet.variants), "{ready} variants are ready");
        Ok(())
    })
    .await?;
    let start = started.elapsed();
    print_line(&format!("waiting for {SETTLE} cycles"))?;
    let begin = after_cycles(install, SETTLE).await?;
    let settled = Timestamp::now();
    print_line(&format!("measuring {ROUNDS} rounds and cycles"))?;
    let end = after_cycles(install, ROUNDS).await?;
    let (during, earlier): (Vec<_>, Vec<_>) =
        testbed.audit()?.into_iter().partition(|write| write.at >= settled);
    print_line(&format!("measuring {SCRAPED} cycles with {SCRAPES} scrapes each"))?;
    let scrape = measure_scrapes(install).await?;
    let cycles = end.cycles.since(begin.cycles);
    Ok(Figures {
        fleet,
        cycles: cycles.count,
        cycle: cycles.mean(),
        queries: end.queries_since(&begin),
        own: end.usage.cpu.saturating_sub(begin.usage.cpu).as_secs_f64() / cycles.count,
        scrape,
        usage: end.usage,
        start,
        requests: [requests(&earlier), requests(&during)],
    })
}

/// Requests to the API server by verb and resource, except renewals of the Lease.
fn requests(all: &[Write]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for write in all.iter().filter(|write| write.resource != "leases") {
        *counts.entry(format!("{} {}", write.verb, write.resource)).or_default() += 1;
    }
    counts
}

/// Waits for more cycles.
async fn after_cycles(install: &Install, more: u32) -> anyhow::Result<Reading> {
    let until = read(install).await?.cycles.count + f64::from(more);
    // Each reading is a scrape, which takes the program longer than a cycle.
    tokio::time::sleep(EVERY * more).await;
    eventually("cycles to run", Duration::from_mins(5), async || {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let reading = read(install).await?;
        ensure!(reading.cycles.count >= until, "{} of {until}", reading.cycles.count);
        Ok(reading)
    })
    .await
}

/// Scrapes of /metrics.
struct Scrapes {
    /// Processor time of a round, a cycle and [`SCRAPES`] scrapes, seconds.
    in_all: f64,
    /// Plain, and packed as Prometheus gets it.
    bytes: [usize; 2],
}

async fn measure_scrapes(install: &Install) -> anyhow::Result<Scrapes> {
    let plain = install.metrics().await?.len();
    let begin = read(install).await?;
    let mut packed = 0;
    for _ in 0..SCRAPED * SCRAPES {
        packed = install.packed_metrics().await?;
        tokio::time::sleep(EVERY / SCRAPES).await;
    }
    let usage = Usage::read(install.process().pid())?;
    let cycles = read(install).await?.cycles.count - begin.cycles.count;
    ensure!(cycles > 0.0, "no cycle ended while /metrics was scraped");
    let in_all = usage.cpu.saturating_sub(begin.usage.cpu).as_secs_f64() / cycles;
    Ok(Scrapes { in_all, bytes: [plain, packed] })
}

/// Measurements per cycle; times in seconds.
struct Figures {
    fleet: Fleet,
    cycles: f64,
    cycle: f64,
    queries: BTreeMap<String, Timing>,
    own: f64,
    scrape: Scrapes,
    usage: Usage,
    /// From the start of the process until all variants are decided.
    start: Duration,
    /// Requests to the API server from the start until the measurement, and during it.
    requests: [BTreeMap<String, usize>; 2],
}

impl Figures {
    fn a_round(&self) -> f64 {
        self.queries.values().map(|timing| timing.count).sum::<f64>() / self.cycles
    }

    fn total(&self) -> f64 {
        self.queries.values().map(|timing| timing.seconds).sum::<f64>() / self.cycles + self.cycle
    }

    fn json(&self) -> serde_json::Value {
        let of_queries: BTreeMap<_, _> =
            self.queries.iter().map(|(name, timing)| (name, timing.mean())).collect();
        json!({
            "models": self.fleet.variants, "pods": self.fleet.pods(), "cycles": self.cycles,
            "secondsOfQueries": of_queries,
            "queriesARound": self.a_round(), "secondsOfACycle": self.cycle,
            "secondsInAllOneAfterTheOther": self.total(), "processorSecondsOfTheProgram": self.own,
            "processorSecondsWithScrapes": self.scrape.in_all, "bytesOfAScrape": self.scrape.bytes,
            "secondsUntilAllAreDecided": self.start.as_secs_f64(),
            "requestsOfTheStart": self.requests[0], "requestsOfTheMeasurement": self.requests[1],
            "residentKiB": {"now": self.usage.resident, "most": self.usage.peak, "ofThatCode": self.usage.code},
        })
    }

    fn report(&self) -> anyhow::Result<()> {
        let mut report = Report::default();
        let (models, pods) = (self.fleet.variants, self.fleet.pods());
        print_line(&format!("\n{models} models, {pods} pods, {} cycles every {EVERY:?}", self.cycles))?;
        for (name, timing) in &self.queries {
            Report::note(&format!("query {name}"), ms(timing.mean()))?;
        }
        let is_bounded = models == VARIANTS;
        // Tolerates one query more or less at the edges of the span.
        row(
            &mut report,
            "queries a round",
            (self.a_round(), QUERIES_BOUND + 0.5),
            |n| format!("{n:.1}"),
            is_bounded,
        )?;
        Report::note("assemble, decide, publish", ms(self.cycle))?;
        row(&mut report, "all one after the other", (self.total(), TOTAL_BOUND), ms, is_bounded)?;
        row(&mut report, "processor time of wva", (self.own, OWN_BOUND), ms, is_bounded)?;
        let Scrapes { in_all, bytes: [plain, packed] } = self.scrape;
        Report::note(&format!("  with {SCRAPES} scrapes"), ms(in_all))?;
        Report::note("a scrape, plain and packed", format!("{} KB, {} KB", plain / 1000, packed / 1000))?;
        let Usage { resident, code, peak, .. } = self.usage;
        row(&mut report, "resident", (resident, RESIDENT_BOUND), mib, is_bounded)?;
        Report::note("  at most since the start, and of that code", format!("{}, {}", mib(peak), mib(code)))?;
        Report::note("from the start until all are decided", format!("{:.1} s", self.start.as_secs_f64()))?;
        for (requests, when) in self.requests.iter().zip(["until the measurement", "during it"]) {
            let sum: usize = requests.values().sum();
            Report::note(&format!("requests to the API server {when}"), sum)?;
            for (what, times) in requests {
                print_line(&format!("    {times:6} {what}"))?;
            }
        }
        report.end()
    }
}

/// A row of the table, against its bound if it has one.
fn row<T: PartialOrd + Copy, S: Display>(
    report: &mut Report,
    what: &str,
    (figure, bound): (T, T),
    show: impl Fn(T) -> S,
    is_bounded: bool,
) -> anyhow::Result<()> {
    if is_bounded { report.at_most(what, figure, bound, show) } else { Report::note(what, show(figure)) }
}
