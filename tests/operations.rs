//! Certificates, leadership and supervision on a real control plane, a few turns of each experiment. In full they run
//! by `make test-faults`; both are the same functions of the testbed, and `docs/operations-tests.md` has the figures.

#![expect(clippy::print_stdout, reason = "the figures are what a person reads who runs the tests")]

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OnceCell};
use wva_testbed::audit::Audit;
use wva_testbed::install::Install;
use wva_testbed::operations::{
    Outcome, all_dead, cold_install, killed_tasks, leadership, lifetimes, metrics_api, repair,
    rolling_restart,
};
use wva_testbed::{Options, Testbed};

static TESTBED: OnceCell<Testbed> = OnceCell::const_new();
/// Held by each experiment on the release of `config/base`, of which there is one.
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

fn wva() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_wva"))
}

/// Runs an experiment on the release that all but one share.
async fn alone<F>(experiment: impl FnOnce(&'static Testbed) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<Outcome>>,
{
    let testbed = testbed().await?;
    let _alone = RELEASE.lock().await;
    let began = Instant::now();
    let figures = Box::pin(experiment(testbed)).await?.kept()?;
    println!("{figures} ({} s)", began.elapsed().as_secs());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_start_together_make_one_ca() -> anyhow::Result<()> {
    alone(|testbed| cold_install(testbed, wva(), 3)).await
}

/// It takes as long as a certificate lives, so it runs beside the others, as a release of its own. Its name makes it the
/// first to be started.
#[tokio::test(flavor = "multi_thread")]
async fn a_ca_is_replaced_and_no_review_fails() -> anyhow::Result<()> {
    let lasts = Duration::from_secs(75);
    let outcome = Box::pin(lifetimes(testbed().await?, wva(), Some("lives-short"), lasts)).await?;
    println!("{}", outcome.kept()?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_cas_are_repaired() -> anyhow::Result<()> {
    alone(|testbed| repair(testbed, wva(), 1)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_review_fails_in_a_rolling_restart() -> anyhow::Result<()> {
    alone(|testbed| rolling_restart(testbed, wva(), 2)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_lead_writes_no_more_and_another_takes_over() -> anyhow::Result<()> {
    alone(|testbed| leadership(testbed, wva(), 1, false)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_ends_with_any_of_its_tasks() -> anyhow::Result<()> {
    alone(|testbed| killed_tasks(testbed, wva())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_api_answers_the_same_on_any_replica_and_without_a_leader() -> anyhow::Result<()> {
    alone(|testbed| metrics_api(testbed, wva())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_replica_the_rest_of_the_cluster_goes_on() -> anyhow::Result<()> {
    alone(|testbed| all_dead(testbed, wva(), Some("dies-out"))).await
}
