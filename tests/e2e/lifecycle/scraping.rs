//! The ServiceMonitor of the controller's own metrics: of a kind that the cluster gets only later, and told of when it
//! goes.

use super::{DEPLOYMENT, SOON, cluster, run, warn_of};
use crate::support::{Cluster, apply_stand_in};
use anyhow::ensure;
use std::time::Duration;
use wva_testbed::eventually;
use wva_testbed::install::SYSTEM;

/// A kind that is missing is looked for every half minute at the most; the rest is for a busy machine.
const APPEARS: Duration = Duration::from_mins(3);

/// Waits until the program watches a kind that came later.
pub(super) async fn until_watched(cluster: &Cluster, kind: &str) -> anyhow::Result<()> {
    eventually(&format!("{kind} to be watched"), APPEARS, async || {
        let log = cluster.install.process().log();
        let told = |line: &str| line.contains("Watching an optional kind") && line.contains(kind);
        ensure!(log.lines().any(told), "not yet");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_service_monitor_is_reported_on_the_deployment() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    apply_stand_in(&cluster.testbed, "servicemonitors").await?;
    let monitor = |name: &str| {
        format!(
            "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {{name: {name}, namespace: {SYSTEM}}}\nspec: {{endpoints: [{{port: https}}]}}\n"
        )
    };
    let own = format!("{DEPLOYMENT}-metrics-monitor");
    eventually("the kind to be served", SOON, async || {
        cluster.testbed.apply(&[monitor(&own), monitor("another")].join("---\n")).await
    })
    .await?;
    until_watched(cluster, "servicemonitors.monitoring.coreos.com").await?;
    for name in ["another", own.as_str()] {
        run(cluster, &["delete", "servicemonitor", name, "-n", SYSTEM]).await?;
    }
    let told = eventually("the event ServiceMonitorDeleted", SOON, async || {
        let told = cluster.events(SYSTEM, "ServiceMonitorDeleted").await?;
        ensure!(!told.is_empty(), "none yet");
        Ok(told)
    })
    .await?;
    ensure!(told.len() == 1 && warn_of(&told, "Deployment", DEPLOYMENT), "{told:?}");
    ensure!(told[0]["message"].to_string().contains(&own), "{told:?}");
    Ok(())
}
