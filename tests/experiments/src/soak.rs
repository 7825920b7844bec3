//! An hour under churn: hundreds of variants with load and HPAs, objects that come and go, certificates that are
//! replaced, leaders that freeze, and a fault every few minutes. Memory, descriptors, threads and series of both
//! replicas must stay flat, by a fitted slope; nothing may scale down or panic.

mod churn;
mod errors;
mod slope;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;
use wva_testbed::Options;
use wva_testbed::install::InstallOptions;

use self::churn::Churn;
use self::errors::Window;
use self::slope::{Fit, Reading, Readings};
use crate::bench::write_json;
use crate::bench::{Fleet, ServingCluster};
use crate::command::{duration, print_line};
use crate::outages::{Kind, Site};
use crate::report::{Report, spread};
use crate::variants::follow;

/// Variants under load, in namespaces of 15.
const FLEET: Fleet = Fleet { namespaces: 20, variants: 300, replicas: 2 };
/// Cycle interval.
const INTERVAL: &str = "10s";
/// CA and certificates are replaced after two thirds of it: every two minutes.
const LIFETIME: &str = "180s";
/// Interval of readings.
const READ: Duration = Duration::from_secs(5);
/// Interval of failovers, and of faults.
const FAILOVER: Duration = Duration::from_mins(5);
const FAULT: Duration = Duration::from_mins(3);
/// Duration of each fault, and the time until nothing of it is left.
const LASTS: Duration = Duration::from_secs(30);
const AFTERWARDS: Duration = Duration::from_secs(45);
/// Readings before a quarter of the time are of caches that fill up.
const WARM_UP: u32 = 4;

/// Faults that leave both processes running, so that their readings go on.
const FAULTS: [Kind; 13] = [
    Kind::Down,
    Kind::WritesFail,
    Kind::ExpiredToken,
    Kind::WatchesCut,
    Kind::Hung,
    Kind::ApiserverStopped,
    Kind::WrongCertificate,
    Kind::Throttled,
    Kind::Empty,
    Kind::EtcdFrozen,
    Kind::Slow,
    Kind::EtcdFull,
    Kind::OtherPods,
];

/// Figures that are read, each of one process but the last.
const RESIDENT: &str = "resident, KiB";
const DESCRIPTORS: &str = "descriptors";
const THREADS: &str = "threads";
const SERIES: &str = "series of the leader";

/// Options of the soak.
#[derive(Args)]
pub(crate) struct Plan {
    /// Duration of the soak
    #[arg(long, default_value = "60m", value_parser = duration)]
    lasts: Duration,
    /// Adds a leak of 1 MiB and one descriptor a minute to the process, which the slopes must show; needs a debug build
    #[arg(long)]
    leak: bool,
    /// Folder for the report
    #[arg(long, default_value = "target/bench")]
    folder: PathBuf,
}

/// Runs the soak, prints the figures, and fails if something grew, scaled down or panicked.
pub(crate) async fn run(wva: &Path, plan: &Plan) -> anyhow::Result<()> {
    ensure!(
        plan.lasts >= Duration::from_mins(8),
        "a soak of {:?} shows no slope: take 8m or more",
        plan.lasts
    );
    print_line(&format!("starting a control plane and {} pods", FLEET.pods()))?;
    let options =
        Options { name: "soak".to_owned(), hpa_sync: Duration::from_secs(15), ..Options::default() };
    let serving = ServingCluster::start(options, FLEET).await?;
    let testbed = &serving.testbed;
    let mut install = InstallOptions::every(wva, INTERVAL)
        .with(&[("WVA_CA_LIFETIME", LIFETIME), ("WVA_CERT_LIFETIME", LIFETIME)]);
    if plan.leak {
        install = install.with(&[("WVA_FAULT", "leak")]);
    }
    let site = Site::start(testbed, install).await?;
    site.wait_published(FLEET.variants, Duration::from_mins(3)).await?;
    print_line(&format!("soaking for {:?}", plan.lasts))?;
    let figures = soak(&site, plan).await?;
    write_json(&plan.folder.join("soak.json"), &figures.json())?;
    figures.report()
}

async fn soak(site: &Site<'_>, plan: &Plan) -> anyhow::Result<Figures> {
    let testbed = site.testbed;
    let lower = Arc::new(AtomicUsize::new(0));
    let _watching = count_scale_downs(testbed.admin()?, lower.clone());
    let churn = Churn::start(testbed)?;
    let (windows, readings, gaps) =
        (Mutex::new(Vec::new()), Mutex::new(Readings::default()), Mutex::new(Vec::new()));
    let began = Instant::now();
    let end = began + plan.lasts;
    // A fault and a frozen leader at the same time leave no replica to look at.
    let one_at_a_time = tokio::sync::Mutex::new(());
    tokio::try_join!(
        faults(site, end, &windows, &one_at_a_time),
        failovers(site, end, &gaps, &windows, &one_at_a_time),
        read(site, began, end, &readings),
    )?;
    let churned = churn.end();
    Ok(Figures {
        lasts: plan.lasts,
        has_leak: plan.leak,
        lower: lower.load(Ordering::Relaxed),
        churned,
        windows: windows.into_inner(),
        readings: readings.into_inner(),
        gaps: gaps.into_inner(),
        reviews: site.reviews(),
        errors: errors::read(&site.logs().await?),
    })
}

/// Counts events in which a Deployment under load has less replicas than it needs.
fn count_scale_downs(client: kube::Client, lower: Arc<AtomicUsize>) -> tokio::task::JoinSet<()> {
    follow(Api::<Deployment>::all(client), move |deployment| {
        let is_fleet = deployment.metadata.name.is_some_and(|name| name.starts_with("variant-"));
        let replicas = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        if is_fleet && usize::try_from(replicas).is_ok_and(|replicas| replicas < FLEET.replicas) {
            lower.fetch_add(1, Ordering::Relaxed);
        }
    })
}

/// Causes the faults in turn.
async fn faults(
    site: &Site<'_>,
    end: Instant,
    windows: &Mutex<Vec<Window>>,
    one_at_a_time: &tokio::sync::Mutex<()>,
) -> anyhow::Result<()> {
    for kind in FAULTS.iter().cycle() {
        let next = Instant::now() + FAULT - LASTS;
        if next + LASTS + AFTERWARDS > end {
            break;
        }
        tokio::time::sleep_until(next).await;
        let _alone = one_at_a_time.lock().await;
        let from = Timestamp::now();
        site.suffer(*kind, LASTS, "").await.with_context(|| format!("{kind:?}"))?;
        tokio::time::sleep(AFTERWARDS).await;
        windows.lock().push(Window { name: kind.name(), from, until: Timestamp::now() });
    }
    tokio::time::sleep_until(end).await;
    Ok(())
}

/// Freezes the leader past its lease, in turn, and measures how long the series of the fleet are absent.
async fn failovers(
    site: &Site<'_>,
    end: Instant,
    gaps: &Mutex<Vec<Duration>>,
    windows: &Mutex<Vec<Window>>,
    one_at_a_time: &tokio::sync::Mutex<()>,
) -> anyhow::Result<()> {
    loop {
        let next = Instant::now() + FAILOVER;
        if next + AFTERWARDS > end {
            break;
        }
        tokio::time::sleep_until(next).await;
        let _alone = one_at_a_time.lock().await;
        let from = Timestamp::now();
        let frozen = site.freeze_leader().await?;
        let began = Instant::now();
        let absent = site.wait_published(FLEET.variants, Duration::from_mins(2)).await;
        site.wake(frozen).await?;
        absent.context("after a failover")?;
        gaps.lock().push(began.elapsed());
        tokio::time::sleep(AFTERWARDS).await;
        windows.lock().push(Window { name: "leader frozen", from, until: Timestamp::now() });
    }
    tokio::time::sleep_until(end).await;
    Ok(())
}

/// Reads both processes until the end.
async fn read(
    site: &Site<'_>,
    began: Instant,
    end: Instant,
    readings: &Mutex<Readings>,
) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(READ);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut reported = 0;
    while Instant::now() < end {
        ticks.tick().await;
        let minute = began.elapsed().as_secs_f64() / 60.0;
        for (pod, vitals) in site.vitals().await? {
            let mut readings = readings.lock();
            readings.add(pod, RESIDENT, Reading { minute, value: vitals.resident });
            readings.add(pod, DESCRIPTORS, Reading { minute, value: vitals.descriptors });
            readings.add(pod, THREADS, Reading { minute, value: vitals.threads });
            if let Some(series) = vitals.series {
                readings.add(0, SERIES, Reading { minute, value: series });
            }
        }
        let tenth = (10.0 * began.elapsed().as_secs_f64() / (end - began).as_secs_f64()).floor();
        if tenth > f64::from(reported) {
            reported += 1;
            print_line(&format!("  {minute:.0} min"))?;
        }
    }
    Ok(())
}

/// Figures of the soak.
struct Figures {
    lasts: Duration,
    has_leak: bool,
    lower: usize,
    churned: churn::Counts,
    windows: Vec<Window>,
    readings: Readings,
    gaps: Vec<Duration>,
    reviews: wva_testbed::reviews::Tally,
    errors: Vec<errors::Line>,
}

impl Figures {
    /// Fitted growth of each figure of each process, by its bound.
    fn fits(&self) -> Vec<(String, Fit, f64)> {
        let from = self.lasts.as_secs_f64() / 60.0 / f64::from(WARM_UP);
        let bound = |what: &str| match what {
            RESIDENT => 256.0,
            SERIES => 1.0,
            _ => 0.25,
        };
        self.readings
            .all()
            .filter_map(|((pod, what), all)| {
                let name = if *what == SERIES { (*what).to_owned() } else { format!("wva-{pod}: {what}") };
                Some((name, slope::fit(all, from)?, bound(what)))
            })
            .collect()
    }

    fn json(&self) -> serde_json::Value {
        let fits: BTreeMap<_, _> = self
            .fits()
            .into_iter()
            .map(|(name, fit, _)| {
                (name, json!({"mean": fit.mean, "aMinute": fit.slope, "standardError": fit.error}))
            })
            .collect();
        json!({
            "minutes": self.lasts.as_secs_f64() / 60.0, "variants": FLEET.variants, "pods": FLEET.pods(),
            "faults": self.windows.iter().map(|window| window.name).collect::<Vec<_>>(),
            "slopes": fits, "readings": self.readings.json(),
            "secondsWithoutSeries": self.gaps.iter().map(Duration::as_secs_f64).collect::<Vec<_>>(),
        })
    }

    fn report(&self) -> anyhow::Result<()> {
        let mut report = Report::default();
        let minutes = self.lasts.as_secs() / 60;
        print_line(&format!("\n{minutes} minutes, {} variants, {} pods", FLEET.variants, FLEET.pods()))?;
        let faults = self.windows.iter().filter(|window| window.name != "leader frozen").count();
        Report::note("faults, leaders frozen", format!("{faults}, {}", self.gaps.len()))?;
        Report::note("objects created, changed, deleted", &self.churned)?;
        Report::note("without series until the next leader", spread(&self.gaps))?;
        let reviews = &self.reviews;
        Report::note("reviews, of these failed", format!("{}, {}", reviews.sent(), reviews.failed))?;
        report.at_most("invalid objects admitted", reviews.let_through, 0, |n| n)?;
        report.at_most("scale-downs of variants under load", self.lower, 0, |n| n)?;
        let panics = self.errors.iter().filter(|line| line.is_panic).count();
        report.at_most("panics", panics, 0, |n| n)?;
        let unexpected = errors::outside(&self.errors, &self.windows);
        report.at_most("errors in the logs without a fault", unexpected.values().sum::<usize>(), 0, |n| n)?;
        for (text, times) in unexpected.iter().take(10) {
            print_line(&format!("    {times} x {text}"))?;
        }
        for (name, fit, bound) in self.fits() {
            let is_flat = fit.is_at_most(bound);
            let figure = format!("{:.1}, {:+.3} ±{:.3} a minute", fit.mean, fit.slope, fit.error);
            let verdict = if is_flat { "flat" } else { "GROWS" };
            Report::note(&name, format!("{figure}  (bound: {bound} a minute)  {verdict}"))?;
            if !self.has_leak {
                report.require(is_flat, || format!("{name} grows: {figure}"));
            } else if name.ends_with(RESIDENT) || name.ends_with(DESCRIPTORS) {
                report.require(!is_flat, || format!("the leak does not show: {name}: {figure}"));
            }
        }
        report.end()
    }
}
