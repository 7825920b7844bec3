//! The ServiceMonitor of the controller's own metrics: of a kind that the cluster gets only later, and told of when it
//! goes.

use super::{DEPLOYMENT, SOON, cluster, events, run};
use anyhow::ensure;
use std::path::Path;
use std::time::Duration;
use wva_testbed::eventually;
use wva_testbed::install::SYSTEM;

/// A kind that is missing is looked for every half minute at the most; the rest is for a busy machine.
pub(crate) const APPEARS: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_service_monitor_that_goes_is_told_of_on_the_deployment() -> anyhow::Result<()> {
    let cluster = cluster().await?;
    let crd = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/stand-ins/servicemonitors.yaml");
    cluster.testbed.apply(&std::fs::read_to_string(crd)?).await?;
    let established = "crd/servicemonitors.monitoring.coreos.com";
    run(cluster, &["wait", "--for=condition=Established", established, "--timeout=90s"]).await?;
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
    eventually("the kind to be watched", APPEARS, async || {
        let log = cluster.install.process().log();
        let told = |line: &str| {
            line.contains("An optional kind is watched")
                && line.contains("servicemonitors.monitoring.coreos.com")
        };
        ensure!(log.lines().any(told), "not yet");
        Ok(())
    })
    .await?;
    for name in ["another", own.as_str()] {
        run(cluster, &["delete", "servicemonitor", name, "-n", SYSTEM]).await?;
    }
    let told = eventually("the event ServiceMonitorDeleted", SOON, async || {
        let told = events(cluster, SYSTEM, "ServiceMonitorDeleted").await?;
        ensure!(!told.is_empty(), "none yet");
        Ok(told)
    })
    .await?;
    let wanted = format!("Deployment/{DEPLOYMENT} Warning: ServiceMonitor {own} is gone");
    ensure!(told.len() == 1 && told[0].starts_with(&wanted), "{told:?}");
    Ok(())
}
