//! The ServiceMonitor of the controller's own metrics, whose CRD is installed later: its deletion is reported.

use super::{DEPLOYMENT, SOON, are_warnings_about, cluster, run};
use crate::support::{Cluster, apply_stand_in};
use anyhow::ensure;
use std::time::Duration;
use wva_testbed::eventually;
use wva_testbed::install::SYSTEM;

/// The program checks for missing kinds every half minute at most; the rest is for a loaded machine.
const APPEARS: Duration = Duration::from_mins(3);

/// Waits until the program watches a kind whose CRD came later.
pub(super) async fn until_watched(cluster: &Cluster, kind: &str) -> anyhow::Result<()> {
    cluster.install.process().wait_logged(APPEARS, &["Watching an optional kind", kind]).await
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
    let events = eventually("the event ServiceMonitorDeleted", SOON, async || {
        let events = cluster.events(SYSTEM, "ServiceMonitorDeleted").await?;
        ensure!(!events.is_empty(), "none yet");
        Ok(events)
    })
    .await?;
    ensure!(events.len() == 1 && are_warnings_about(&events, "Deployment", DEPLOYMENT), "{events:?}");
    ensure!(events[0]["message"].to_string().contains(&own), "{events:?}");
    ensure!(events[0]["related"]["name"] == own.as_str(), "{events:?}");
    Ok(())
}
