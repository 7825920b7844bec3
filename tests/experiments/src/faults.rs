//! Sends invalid input of every kind to the admission port of the real program on a real control plane, first one
//! kind at a time and then all at once, while vegeta sends valid reviews. `docs/development/evidence/robustness.md`
//! lists what must hold: no panic, bounded memory, and timely answers to valid reviews.

mod abuse;
mod client;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, InstallOptions, SYSTEM};
use wva_testbed::{Options, Testbed, eventually};

use self::abuse::Abuse;
use self::client::WebhookAddress;
use crate::command::print_line;
use crate::report::{Report, mib};
use crate::usage::{Usage, files_limit, open_files, peak_during};
use crate::vegeta::{Attack, AttackResult, Vegeta};

/// Maximum resident memory of the program, KiB.
const BOUND_KIB: u64 = 128 * 1024;
/// Maximum 99th percentile of valid reviews over keep-alive connections.
const P99: Duration = Duration::from_millis(100);
/// Duration of each kind of abuse, and of all of them together.
const ALONE: Duration = Duration::from_secs(12);
const TOGETHER: Duration = Duration::from_secs(40);
/// File descriptors that this program needs for the clients of all abuses at once.
const FILES: u64 = 18_000;

/// Valid reviews per second over keep-alive connections, and over new ones.
const KEPT_RATE: u32 = 200;
const NEW_RATE: u32 = 20;

type Outcomes = BTreeMap<String, usize>;

/// Runs all abuses and prints one row for each; fails if a bound is exceeded.
pub(crate) async fn run(wva: &Path, only: Option<&str>) -> anyhow::Result<()> {
    let files = files_limit()?;
    ensure!(
        files >= FILES,
        "this program may open {files} files and needs {FILES}: `ulimit -n {FILES}` before it, or a higher hard limit"
    );
    let testbed = Testbed::start(Options { name: "faults".to_owned(), ..Options::default() }).await?;
    let install = Install::start(&testbed, &InstallOptions::quick(wva)).await?;
    let vegeta = Vegeta::new(&testbed, &install, testbed.data()).await?;
    let webhook = WebhookAddress::new(vegeta.port, &vegeta.ca)?;
    let valid = abuse::valid();
    client::is_admitted(&webhook, abuse::VALIDATE, &valid).await?;
    let pid = install.process().pid();
    let before = open_files(pid)?;

    let site = Site { webhook, vegeta, valid, pid };
    let mut report = Report::default();
    print_line("abuse | clients | answered | valid reviews: p99 kept / new, success | RSS at most")?;
    site.phase(&mut report, "nothing", &[], ALONE).await?;
    let wanted = |abuse: &Abuse| only.is_none_or(|only| abuse.name.contains(only));
    let abuses: Vec<Abuse> = abuse::all(SYSTEM).into_iter().filter(wanted).collect();
    for abuse in &abuses {
        site.phase(&mut report, abuse.name, std::slice::from_ref(abuse), ALONE).await?;
    }
    site.phase(&mut report, "all at once", &abuses, TOGETHER).await?;

    check_process(&mut report, &install, before).await?;
    client::is_admitted(&site.webhook, abuse::VALIDATE, &site.valid).await?;
    let namespace = testbed.namespace("faults").await?;
    let refused = testbed.apply(&VariantFixture::new(&namespace, "bad").cost("-1").variant()).await;
    ensure!(refused.is_err(), "the API server no longer calls the webhook");
    report.end()?;
    print_line("all checks passed")
}

/// Checks that the process still runs, without panics, and has released memory and files. `before`: open files at the
/// start.
async fn check_process(report: &mut Report, install: &Install, before: usize) -> anyhow::Result<()> {
    let pid = install.process().pid();
    let log = std::fs::read_to_string(install.process().log_path()).context("cannot read the log of wva")?;
    let bad: Vec<&str> =
        log.lines().filter(|l| l.contains("panicked") || l.contains("A review failed")).collect();
    bad.iter().take(5).try_for_each(|line| print_line(line))?;
    report.at_most("panics and failed reviews in the log", bad.len(), 0, |n| n)?;
    if let Some(status) = install.process().exited() {
        bail!("wva ended with {status}: {}", install.process().log_tail(20));
    }
    let peak = Usage::read(pid)?.peak;
    let mut after = 0;
    // Connections of vegeta and of the API server may differ by a few.
    let settled = eventually("the open files to go back", Duration::from_secs(30), async || {
        after = open_files(pid)?;
        ensure!(after <= before + 20, "{before} before, {after} now");
        Ok(())
    });
    let settled = settled.await.is_ok();
    report.row("open files of wva", after, &format!("{before} before, and 20"), settled)?;
    report.at_most("resident, at most since the start", peak, BOUND_KIB, mib)
}

/// Results of the valid reviews.
struct Load {
    /// Over keep-alive connections.
    kept: AttackResult,
    /// Over new connections.
    new: AttackResult,
}

/// The program under test and its load.
struct Site {
    webhook: WebhookAddress,
    vegeta: Vegeta,
    valid: Value,
    pid: u32,
}

impl Site {
    /// Sends valid reviews over keep-alive connections, and over new ones.
    async fn load(&self, lasts: Duration) -> anyhow::Result<Load> {
        let attack = async |name: &'static str, rate: u32, keepalive: &'static str| {
            let flags = [keepalive, "-http2=false", "-max-workers=200", "-max-connections=16"];
            let (paths, bodies, flags) = (&[abuse::VALIDATE], std::slice::from_ref(&self.valid), &flags);
            self.vegeta.attack(&Attack { name, paths, bodies, rate, lasts, flags }).await
        };
        let (kept, new) = tokio::try_join!(
            attack("kept", KEPT_RATE, "-keepalive=true"),
            attack("new", NEW_RATE, "-keepalive=false")
        )?;
        Ok(Load { kept, new })
    }

    /// Runs abuses for a while, in addition to the load; prints the row.
    async fn phase(
        &self,
        report: &mut Report,
        name: &str,
        abuses: &[Abuse],
        time: Duration,
    ) -> anyhow::Result<()> {
        let outcomes: Arc<Mutex<Outcomes>> = Arc::default();
        let crowding = async {
            // The load opens its connections before the abuse begins.
            client::pause().await;
            let end = Instant::now() + time.saturating_sub(Duration::from_secs(2));
            let mut crowd = JoinSet::new();
            for abuse in abuses {
                crowd.spawn(run_abuse(abuse.clone(), self.webhook.clone(), end, outcomes.clone()));
            }
            let bound = end + Duration::from_mins(1);
            tokio::select! {
                _ = crowd.join_all() => Ok(()),
                () = sleep_until(bound) => bail!("{name}: the clients did not end"),
            }
        };
        let (done, peak) = peak_during(self.pid, async { tokio::try_join!(self.load(time), crowding) }).await;
        let (Load { kept, new }, ()) = done?;
        let outcomes = outcomes.lock().clone();
        let answered: Vec<String> = outcomes.iter().map(|(what, n)| format!("{n} x {what}")).collect();
        let clients: usize = abuses.iter().map(|a| a.clients).sum();
        let shown = |of: &AttackResult| {
            format!("{:.1} ms, {:.2} % of {}", of.latencies.p99, of.success * 100.0, of.requests)
        };
        let (kept_shown, new_shown) = (shown(&kept), shown(&new));
        let answered = answered.join(", ");
        print_line(&format!("{name} | {clients} | {answered} | {kept_shown} / {new_shown} | {}", mib(peak)))?;
        for (which, measured) in [("kept", &kept), ("new", &new)] {
            let AttackResult { success, status_codes, errors, .. } = measured;
            report.require(*success >= 1.0, || {
                format!("{name}: reviews over {which} connections failed: {status_codes} {errors}")
            });
        }
        let p99 = kept.latencies.p99;
        report.require(p99 <= P99.as_secs_f64() * 1000.0, || format!("{name}: p99 is {p99:.1} ms"));
        report.require(peak <= BOUND_KIB, || format!("{name}: {} resident", mib(peak)));
        Ok(())
    }
}

/// Runs all clients of one abuse. No client starts after the end.
async fn run_abuse(abuse: Abuse, webhook: WebhookAddress, end: Instant, outcomes: Arc<Mutex<Outcomes>>) {
    let turns = Arc::new(Semaphore::new(abuse.at_once));
    let mut clients = JoinSet::new();
    for _ in 0..abuse.clients {
        // The semaphore is never closed.
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { break };
        if Instant::now() >= end {
            break;
        }
        let (action, webhook, outcomes) = (abuse.action.clone(), webhook.clone(), outcomes.clone());
        clients.spawn(async move {
            let record = |what| {
                *outcomes.lock().entry(what).or_default() += 1;
            };
            client::run(&webhook, &action, end, || drop(turn), record).await;
        });
        while clients.try_join_next().is_some() {}
    }
    while clients.join_next().await.is_some() {}
}
