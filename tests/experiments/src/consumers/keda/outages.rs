//! KEDA without a target, because no controller leads or Prometheus is down. Its fallback keeps the replicas, and its
//! condition reports the fallback.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use wva_testbed::run;

use super::model::NAMESPACE;
use super::{BOTH, LOW, Stage};
use crate::command::{SOON, print_line};
use crate::consumers::programs::seconds;
use crate::report::Report;

/// Time for which nothing may change once KEDA falls back.
const HOLDS: Duration = Duration::from_secs(45);

/// Both replicas of wva are down, with the sample's settings.
pub(super) async fn without_leader(stage: &mut Stage<'_>, report: &mut Report) -> anyhow::Result<()> {
    stage.model.condition_is("Fallback", "False", SOON).await?;
    let began = Instant::now();
    stage.replicas.kill_all();
    let after = stage.model.condition_is("Fallback", "True", SOON).await?;
    tokio::time::sleep(HOLDS).await;
    let path = stage.model.path_since(began);
    let gone = began.elapsed();
    stage.restart(&BOTH).await?;
    let back = stage.model.condition_is("Fallback", "False", SOON).await?;
    let figures = format!(
        "{} changes; Fallback=True after {}, False {} after wva is back",
        path.len(),
        seconds(after),
        seconds(back)
    );
    let what = format!("no wva for {} s", gone.as_secs());
    report.row(&what, figures, "0 changes of replicas, and condition Fallback is True", path.is_empty())
}

/// The same with KEDA's default, which treats a missing target as 0: proves that the row above can fail.
pub(super) async fn without_leader_by_default(
    stage: &mut Stage<'_>,
    report: &mut Report,
) -> anyhow::Result<()> {
    stage.model.ignores_null_values(true).await?;
    let began = Instant::now();
    stage.replicas.kill_all();
    // One replica can serve the load at the end.
    stage.model.fleet.set_rate(LOW);
    let replicas = stage.model.becomes(1).await;
    let after = stage.model.fewer_since(began, 3).map(|at| at.duration_since(began));
    stage.model.ignores_null_values(false).await?;
    stage.restart(&BOTH).await?;
    let figures =
        after.map_or("3 replicas stay".to_owned(), |after| format!("3 -> 1 after {}", seconds(after)));
    let what = "the same with ignoreNullValues: \"true\", KEDA's default";
    report.row(what, figures, "fewer replicas: the row above can fail", replicas.is_ok())?;
    stage.at_three().await
}

/// Prometheus does not run.
pub(super) async fn without_prometheus(stage: &mut Stage<'_>, report: &mut Report) -> anyhow::Result<()> {
    stage.model.condition_is("Fallback", "False", SOON).await?;
    let began = Instant::now();
    stage.testbed.prometheus_stop().await?;
    let after = stage.model.condition_is("Fallback", "True", SOON).await?;
    tokio::time::sleep(HOLDS).await;
    for (kind, condition) in [
        ("scaledobject", "Ready"),
        ("scaledobject", "Active"),
        ("scaledobject", "Fallback"),
        ("va", "MetricsAvailable"),
        ("va", "OptimizationReady"),
    ] {
        stage.print_condition(kind, condition).await?;
    }
    let doctor = doctor(stage).await?;
    let path = stage.model.path_since(began);
    let gone = began.elapsed();
    stage.testbed.prometheus_start().await?;
    let back = stage.model.condition_is("Fallback", "False", SOON).await?;
    let figures = format!(
        "{} changes; Fallback=True after {}, False {} after it is back",
        path.len(),
        seconds(after),
        seconds(back)
    );
    let what = format!("no Prometheus for {} s", gone.as_secs());
    report.row(&what, figures, "0 changes of replicas, and condition Fallback is True", path.is_empty())?;
    let named = doctor.lines().any(|line| line.contains("ScaledObject") && line.contains("fallback"));
    report.row("wva doctor names the fallback", named, "a line about the ScaledObject", named)
}

/// Output of `wva doctor` on the metric that KEDA reads.
async fn doctor(stage: &Stage<'_>) -> anyhow::Result<String> {
    let mut command = tokio::process::Command::new(stage.wva);
    command.env("KUBECONFIG", stage.testbed.admin_kubeconfig()).args(["doctor", "-n", NAMESPACE]);
    let ran = run("wva doctor", command, "", SOON).await.context("wva doctor did not end")?;
    for line in ran.stdout.lines().filter(|line| line.contains("ScaledObject") || line.contains("metrics")) {
        print_line(&format!("  wva doctor: {}", line.trim()))?;
    }
    Ok(ran.stdout)
}
