//! Throws bad input of every kind at the admission port of the real program on a real control plane, first one kind
//! after another and then all at once, while vegeta sends valid reviews to the same port. What must hold stands in
//! `docs/robustness.md`: no panic, bounded memory, and valid reviews answered in time.

mod abuse;
mod client;
mod load;
mod watch;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use wva_testbed::install::{Install, InstallOptions, SYSTEM, WEBHOOKS};
use wva_testbed::{Options, Testbed, Tools, eventually};

use abuse::Abuse;
use client::Door;
use load::Load;
use watch::Watch;

/// Resident memory that bad input may drive the program to, in KiB.
const BOUND_KIB: u64 = 128 * 1024;
/// 99 of 100 valid reviews are answered within this, over connections that stay.
const P99: Duration = Duration::from_millis(100);
/// How long one kind of abuse is kept up, and all of them together.
const ALONE: Duration = Duration::from_secs(12);
const TOGETHER: Duration = Duration::from_secs(40);
/// Open files this program needs for the clients of all abuses at once.
const FILES: u64 = 18_000;

type Outcomes = BTreeMap<String, usize>;

/// Runs all of it and prints one row for each; fails where something did not hold.
pub(crate) async fn run(wva: &Path, only: Option<&str>) -> anyhow::Result<()> {
    let files = watch::files_limit()?;
    ensure!(
        files >= FILES,
        "this program may open {files} files and needs {FILES}: `ulimit -n {FILES}` before it, or a higher hard limit"
    );
    let vegeta = tokio::task::spawn_blocking(|| Tools::on_request("vegeta")).await??;
    let testbed = Testbed::start(Options { name: "faults".to_owned(), ..Options::default() }).await?;
    let install = Install::start(&testbed, &InstallOptions::quick(wva)).await?;
    let port: u16 = install.address("admission")?.rsplit(':').next().context("no port")?.parse()?;
    let ca = ca(&testbed).await?;
    let door = Door::new(port, &ca)?;
    let answer = client::ask(&door, abuse::VALIDATE, abuse::valid().to_string().as_bytes()).await?;
    ensure!(answer.contains("\"allowed\":true"), "the valid review is not admitted: {answer}");
    let load = Load::new(vegeta, testbed.data(), port, &ca)?;
    let pid = install.process().pid();
    let before = watch::open_files(pid)?;

    let mut failures = Vec::new();
    say("abuse | clients | answered | valid reviews: p99 kept / new, success | RSS at most")?;
    let quiet = phase("nothing", &[], ALONE, &door, &load, pid).await?;
    failures.extend(quiet);
    let abuses: Vec<Abuse> =
        abuse::all(SYSTEM).into_iter().filter(|a| only.is_none_or(|only| a.name.contains(only))).collect();
    for abuse in &abuses {
        failures.extend(phase(abuse.name, std::slice::from_ref(abuse), ALONE, &door, &load, pid).await?);
    }
    failures.extend(phase("all at once", &abuses, TOGETHER, &door, &load, pid).await?);

    let log = std::fs::read_to_string(install.process().log_path()).context("cannot read the log of wva")?;
    let bad: Vec<&str> =
        log.lines().filter(|l| l.contains("panicked") || l.contains("A review failed")).collect();
    say(&format!("panics and failed reviews in the log: {}", bad.len()))?;
    failures.extend(bad.iter().take(5).map(|line| format!("in the log: {line}")));
    if let Some(status) = install.process().exited() {
        bail!("wva ended with {status}: {}", install.process().log_tail(20));
    }
    let peak = watch::peak_kib(pid)?;
    let mut after = 0;
    // What vegeta and the API server keep open may differ by a few.
    let settled = eventually("the open files to go back", Duration::from_secs(30), async || {
        after = watch::open_files(pid)?;
        ensure!(after <= before + 20, "{before} before, {after} now");
        Ok(())
    });
    failures.extend(settled.await.err().map(|e| format!("{e:#}")));
    say(&format!("open files of wva: {before} before, {after} after; at most {} MiB resident", peak / 1024))?;
    if peak > BOUND_KIB {
        failures.push(format!("{peak} KiB resident are more than {BOUND_KIB}"));
    }
    let answer = client::ask(&door, abuse::VALIDATE, abuse::valid().to_string().as_bytes()).await?;
    ensure!(answer.contains("\"allowed\":true"), "the valid review is no longer admitted: {answer}");
    let namespace = testbed.namespace("faults").await?;
    let refused = testbed
        .apply(&wva_testbed::fixtures::VariantFixture::new(&namespace, "bad").cost("-1").variant())
        .await;
    ensure!(refused.is_err(), "the API server no longer asks the webhook");
    ensure!(failures.is_empty(), "{} did not hold:\n  {}", failures.len(), failures.join("\n  "));
    say("all of it held")
}

/// The CA in the webhook configuration.
async fn ca(testbed: &Testbed) -> anyhow::Result<Vec<u8>> {
    let path = "go-template={{(index .webhooks 0).clientConfig.caBundle | base64decode}}";
    let pem =
        testbed.kubectl(&["get", "validatingwebhookconfiguration", WEBHOOKS, "-o", path]).await?.success()?;
    Ok(pem.into_bytes())
}

/// Keeps abuses up for a while, beside the load; prints the row and returns what did not hold.
async fn phase(
    name: &str,
    abuses: &[Abuse],
    time: Duration,
    door: &Door,
    load: &Load,
    pid: u32,
) -> anyhow::Result<Vec<String>> {
    let running = load.start(time)?;
    // The load has its connections before the abuse begins.
    client::pause().await;
    let watch = Watch::start(pid);
    let end = Instant::now() + time.saturating_sub(Duration::from_secs(2));
    let told: Arc<Mutex<Outcomes>> = Arc::default();
    let mut crowd = JoinSet::new();
    for abuse in abuses {
        crowd.spawn(abused(abuse.clone(), door.clone(), end, told.clone()));
    }
    let bound = end + Duration::from_mins(1);
    tokio::select! {
        () = async { while crowd.join_next().await.is_some() {} } => {}
        () = sleep_until(bound) => bail!("{name}: the clients did not end"),
    }
    let (kept, new) = running.end().await?;
    let peak = watch.end().await;
    let outcomes = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let answered: Vec<String> = outcomes.iter().map(|(what, n)| format!("{n} x {what}")).collect();
    let clients: usize = abuses.iter().map(|a| a.clients).sum();
    say(&format!(
        "{name} | {clients} | {} | {:.1} / {:.1} ms, {:.2} / {:.2} % of {} / {} | {} MiB",
        answered.join(", "),
        kept.p99_ms,
        new.p99_ms,
        kept.success * 100.0,
        new.success * 100.0,
        kept.requests,
        new.requests,
        peak / 1024
    ))?;
    let mut failures = Vec::new();
    for (which, report) in [("kept", &kept), ("new", &new)] {
        if report.success < 1.0 {
            failures.push(format!(
                "{name}: reviews over {which} connections failed: {:?} {:?}",
                report.codes, report.errors
            ));
        }
    }
    if kept.p99_ms > P99.as_secs_f64() * 1000.0 {
        failures.push(format!("{name}: p99 is {:.1} ms", kept.p99_ms));
    }
    if peak > BOUND_KIB {
        failures.push(format!("{name}: {peak} KiB resident"));
    }
    Ok(failures)
}

/// All clients of one abuse. None that has not begun by the end begins.
async fn abused(abuse: Abuse, door: Door, end: Instant, told: Arc<Mutex<Outcomes>>) {
    let turns = Arc::new(Semaphore::new(abuse.at_once));
    let mut clients = JoinSet::new();
    for _ in 0..abuse.clients {
        // Never closed.
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { break };
        if Instant::now() >= end {
            break;
        }
        let (act, door, told) = (abuse.act.clone(), door.clone(), told.clone());
        clients.spawn(async move {
            let tell = |what| {
                *told.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
            };
            client::run(&door, &act, end, || drop(turn), tell).await;
        });
        while clients.try_join_next().is_some() {}
    }
    while clients.join_next().await.is_some() {}
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}
