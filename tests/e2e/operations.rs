//! Certificates, leadership and supervision on a real control plane, a few turns of each experiment; all turns with
//! `FULL=1` (`make test-faults`). `docs/development/evidence/operations-tests.md` has the figures.
//! Why a control plane of its own: the audit log is read, and releases are killed. It has no Prometheus: nothing is
//! decided by load.
#![expect(clippy::print_stdout, reason = "the figures are for the person who runs the tests")]

pub(crate) mod churn;
mod cold;
mod damage;
mod dead;
mod files;
mod leadership;
mod lifetimes;
mod metrics_api;
mod permissions;
mod repair;
mod rolling;
mod tasks;
mod trust;

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OnceCell};
use wva_testbed::audit::Audit;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::replicas::Replicas;
use wva_testbed::reviews::Tally;
use wva_testbed::{Options, Testbed};

use crate::support::{Outcome, is_full_run, program_path};

/// Longest wait for a late event, to report how late it is. Short runs also accept this much on a busy machine.
const PATIENCE: Duration = Duration::from_mins(3);
/// Replicas of most experiments.
const BOTH: [usize; 2] = [0, 1];

static TESTBED: OnceCell<Testbed> = OnceCell::const_new();
/// Held by each experiment on the release of `config/base`, which can run once.
static RELEASE: Mutex<()> = Mutex::const_new(());

async fn testbed() -> anyhow::Result<&'static Testbed> {
    let options = || Options {
        name: "operations".to_owned(),
        nodes: Vec::new(),
        with_prometheus: false,
        audit: Audit::Writes,
        ..Options::default()
    };
    TESTBED
        .get_or_try_init(async || {
            let testbed = Testbed::start(options()).await?;
            // Once, before two tests do so at the same time.
            Install::crd(&testbed).await?;
            anyhow::Ok(testbed)
        })
        .await
}

/// Starts two replicas and waits until they are ready and the webhooks are open.
async fn pair<'a>(testbed: &'a Testbed, options: InstallOptions, name: &str) -> anyhow::Result<Replicas<'a>> {
    let mut replicas = Replicas::install(testbed, options, name).await?;
    replicas.start_all(&BOTH).await?;
    replicas.wait_ready(&BOTH).await?;
    replicas.wait_webhooks().await?;
    Ok(replicas)
}

/// Durations of one kind, and those that broke the contract.
#[derive(Default)]
struct Times {
    all: Vec<Duration>,
    late: Vec<String>,
}

impl Times {
    /// Full runs assert the contract, since they have the machine for themselves. Short runs accept more, so that a
    /// busy machine fails no test.
    fn add(&mut self, what: &str, took: Duration, contract: Duration) {
        let bound = if is_full_run() { contract } else { contract.max(PATIENCE) };
        if took > bound {
            self.late.push(format!("{what}: {took:?}, and the contract is {contract:?}"));
        }
        self.all.push(took);
    }
}

/// Number of turns: a few, or many with `FULL=1`.
fn turns(few: u32, many: u32) -> u32 {
    if is_full_run() { many } else { few }
}

/// Runs an experiment on the release that most experiments share.
async fn alone(
    experiment: impl AsyncFnOnce(&'static Testbed) -> anyhow::Result<Outcome>,
) -> anyhow::Result<()> {
    let testbed = testbed().await?;
    let _alone = RELEASE.lock().await;
    let began = Instant::now();
    let figures = Box::pin(experiment(testbed)).await?.into_result()?;
    println!("{figures} ({} s)", began.elapsed().as_secs());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_install_makes_one_ca() -> anyhow::Result<()> {
    alone(async |testbed| cold::cold_install(testbed, &program_path(), turns(3, 100)).await).await
}

/// It takes as long as a certificate lives, so it runs in parallel, as a release of its own. Its name makes it the
/// first test.
#[tokio::test(flavor = "multi_thread")]
async fn ca_rotations_fail_no_review() -> anyhow::Result<()> {
    let lasts = Duration::from_secs(turns(75, 600).into());
    let outcome =
        Box::pin(lifetimes::lifetimes(testbed().await?, &program_path(), Some("lives-short"), lasts)).await?;
    println!("{}", outcome.into_result()?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn repairs_every_damage_to_the_ca() -> anyhow::Result<()> {
    alone(async |testbed| repair::repair(testbed, &program_path(), turns(1, 10)).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_restart_fails_no_review() -> anyhow::Result<()> {
    alone(async |testbed| rolling::rolling_restart(testbed, &program_path(), turns(2, 50)).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_moves_and_the_old_leader_stops_writing() -> anyhow::Result<()> {
    alone(async |testbed| leadership::leadership(testbed, &program_path(), turns(1, 5), is_full_run()).await)
        .await
}

/// Only a debug build can end a task on request.
#[tokio::test(flavor = "multi_thread")]
async fn killed_tasks_end_the_process() -> anyhow::Result<()> {
    let wva = Path::new(env!("CARGO_BIN_EXE_wva"));
    alone(async |testbed| tasks::killed_tasks(testbed, wva).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn serves_and_reloads_mounted_certificates() -> anyhow::Result<()> {
    alone(async |testbed| files::certificate_files(testbed, &program_path()).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn service_account_has_no_unneeded_permissions() -> anyhow::Result<()> {
    alone(async |testbed| permissions::permissions(testbed, &program_path()).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_api_answers_without_a_leader() -> anyhow::Result<()> {
    alone(async |testbed| metrics_api::metrics_api(testbed, &program_path()).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_works_while_no_replica_runs() -> anyhow::Result<()> {
    alone(async |testbed| {
        let mut outcome = dead::all_dead(testbed, &program_path(), Some("dies-out")).await?;
        if is_full_run() {
            let with = dead::all_dead(testbed, &program_path(), None).await?;
            outcome.figures += "; with the external metrics API: ";
            outcome.figures += &with.figures;
            outcome.faults.extend(with.faults);
        }
        Ok(outcome)
    })
    .await
}

/// Faults of reviews that must all get the right verdict, in full runs on time.
fn faults(tally: &Tally) -> Vec<String> {
    let mut faults = tally.faults();
    if is_full_run() && tally.has_skipped_too_many() {
        faults.push(format!("{} reviews were skipped", tally.skipped));
    }
    faults
}

impl fmt::Display for Times {
    /// Median and maximum.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.all.clone();
        sorted.sort_unstable();
        match (sorted.get(sorted.len() / 2), sorted.last()) {
            (Some(middle), Some(longest)) => {
                write!(f, "{:.1} s (at most {:.1} s)", middle.as_secs_f64(), longest.as_secs_f64())
            }
            _ => f.write_str("never"),
        }
    }
}

#[test]
fn times_show_middle_and_longest() {
    let mut times = Times::default();
    assert_eq!(times.to_string(), "never");
    for seconds in [3, 1, 2] {
        times.add("it", Duration::from_secs(seconds), Duration::from_mins(1));
    }
    assert_eq!(times.to_string(), "2.0 s (at most 3.0 s)");
    times.add("it", Duration::from_secs(181), Duration::from_mins(1));
    assert_eq!(times.late.len(), 1);
}
