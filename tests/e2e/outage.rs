//! Outages of Prometheus, which stops, freezes and restarts, and a restart of the program meanwhile: no target changes.
//! Why a control plane of its own: its Prometheus stops.

use std::time::Duration;

use crate::support::{
    Cluster, DEADLINE, SHORT_AGES, condition, events, fleet_config, has_condition, install_options,
    saturation_map, target,
};
use anyhow::ensure;
use serde_json::Value;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{Install, get};
use wva_testbed::{Component, Fleet, Options, Signal, Testbed, eventually};

/// Change of target, replicas, series or external metric, if any. An error means that a value could not be read.
async fn changed_value(cluster: &Cluster, ns: &str) -> anyhow::Result<Option<String>> {
    let target = target(&cluster.variant(ns, "held").await?);
    if target != Some(2) {
        return Ok(Some(format!("the target became {target:?}")));
    }
    let replicas = cluster.replicas(ns, "held").await?;
    if replicas != 2 {
        return Ok(Some(format!("the Deployment was scaled to {replicas}")));
    }
    let series = cluster.install.series("wva_desired_replicas", &[("namespace", ns)]).await?;
    if series.is_some_and(|v| (v - 2.0).abs() >= 1e-9) {
        return Ok(Some(format!("wva_desired_replicas is {series:?}")));
    }
    let metric = cluster.external_metric(ns, "held").await?;
    Ok((metric != ["2"]).then(|| format!("the external metric is {metric:?}")))
}

/// Waits for a condition, and fails as soon as a value changes.
async fn wait_without_change(
    cluster: &Cluster,
    ns: &str,
    when: &str,
    reason: (&str, &str),
) -> anyhow::Result<()> {
    let change = eventually(&format!("OptimizationReady to be {reason:?} {when}"), DEADLINE, async || {
        let change = changed_value(cluster, ns).await?;
        if change.is_some() {
            return Ok(change);
        }
        let va = cluster.variant(ns, "held").await?;
        ensure!(condition(&va, "OptimizationReady")? == reason, "{}", va["status"]["conditions"]);
        Ok(None)
    })
    .await?;
    change.map_or(Ok(()), |change| Err(anyhow::anyhow!("{when}: {change}")))
}

/// Whether a variant has this target by its load.
fn is_decided(va: &Value, wanted: u64) -> bool {
    target(va) == Some(wanted) && has_condition(va, "OptimizationReady", ("True", "SaturationOnlyMode"))
}

async fn wait_for_series(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    eventually("the series to be back", DEADLINE, async || {
        let series = cluster.install.series("wva_desired_replicas", &[("namespace", ns)]).await?;
        ensure!(series == Some(2.0), "it is {series:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_outage_changes_a_target() -> anyhow::Result<()> {
    let options = install_options().with(&SHORT_AGES);
    let plane = Options { name: "outage".to_owned(), ..Options::default() };
    let mut cluster = Cluster::start(plane, &options).await?;
    let ns = cluster.testbed.namespace("outage").await?;
    // The throughput analyzer does not scale down while no request completes.
    cluster.testbed.apply(&saturation_map(&ns, "analyzerName: percentage")).await?;

    // Medium load: one step up has been taken and applied, the maximum blocks the next.
    let variant = VariantFixture { max: 2, ..VariantFixture::new(&ns, "held") };
    let load = Fleet::start(&cluster.testbed, fleet_config(&ns))?;
    load.set_fixed_all(0.78, 0.0);
    cluster.testbed.apply(&variant.all()).await?;
    cluster.wait_for_replicas(&ns, "held", 2).await?;
    cluster.wait_for(&ns, "held", "have a target of 2 by its load", |va| is_decided(va, 2)).await?;
    load.wait_ready(2, DEADLINE).await?;
    // The external metrics API reads the status by a watch.
    eventually("everything to show 2", DEADLINE, async || {
        let change = changed_value(&cluster, &ns).await?;
        ensure!(change.is_none(), "{change:?}");
        Ok(())
    })
    .await?;

    // Stopped: the load falls meanwhile, unseen.
    cluster.testbed.prometheus_stop().await?;
    load.set_fixed_all(0.01, 0.0);
    safety_net_holds_target(&cluster, &ns).await?;

    // Restarted without Prometheus: the program takes the last target from the status, and publishes no other before
    // it.
    let Cluster { testbed, install } = cluster;
    install.stop().await?;
    let before = events(&testbed, &ns, "SafetyNetActivated").await?.len();
    let install = Install::start(&testbed, &options).await?;
    cluster = Cluster { testbed, install };
    wait_without_change(&cluster, &ns, "after a restart without Prometheus", ("False", "SafetyNet")).await?;
    wait_for_series(&cluster, &ns).await?;

    // Back: the low load is seen, and the program may scale down.
    cluster.testbed.prometheus_start().await?;
    cluster.wait_for(&ns, "held", "follow its load again", |va| is_decided(va, 1)).await?;
    let now = cluster.events(&ns, "SafetyNetActivated").await?.len();
    ensure!(now == before, "{now} events of the safety net, {before} of them before the restart");

    frozen_prometheus_blocks_nothing(&cluster, &ns).await?;
    stopped_cycles_end_series_and_fail_health(&cluster.testbed, &ns).await
}

/// Prometheus is stopped: conditions, the log and one event report that the last target is held.
async fn safety_net_holds_target(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    wait_without_change(cluster, ns, "while Prometheus is stopped", ("False", "SafetyNet")).await?;
    let is_held = |va: &Value| {
        has_condition(va, "MetricsAvailable", ("False", "PrometheusError"))
            && has_condition(va, "Ready", ("False", "SafetyNet"))
    };
    cluster.wait_for(ns, "held", "report that its target is held", is_held).await?;
    let log = cluster.install.process().log();
    for line in [
        "Safety net activated: emitted fallback metrics",
        "Emitted optimization signals for external autoscaler consumption",
        "Reconciliation completed",
    ] {
        ensure!(log.contains(line), "no line {line:?} in the log");
    }
    eventually("the event of the safety net", DEADLINE, async || {
        ensure!(!cluster.events(ns, "SafetyNetActivated").await?.is_empty(), "none yet");
        Ok(())
    })
    .await
}

/// Every query times out; admission still answers, and the program obeys SIGTERM.
async fn frozen_prometheus_blocks_nothing(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    cluster.testbed.pause(Component::Prometheus)?;
    let began = std::time::Instant::now();
    cluster.testbed.apply(&VariantFixture::new(ns, "other").variant()).await?;
    ensure!(began.elapsed() < Duration::from_secs(10), "admission waited for Prometheus");
    let process = cluster.install.process();
    process.signal(Signal::Term)?;
    let status = process.wait_exit(Duration::from_secs(30)).await?;
    ensure!(status.success(), "it ended with {status}: {}", process.log_tail(5));
    cluster.testbed.resume(Component::Prometheus)
}

/// The engine hangs while its replica keeps leading.
async fn stopped_cycles_end_series_and_fail_health(testbed: &Testbed, ns: &str) -> anyhow::Result<()> {
    let freeze = testbed.logs().join("freeze");
    let fault = format!("freeze:engine:{}", freeze.display());
    let options = install_options().with(&[("GLOBAL_OPT_INTERVAL", "1s"), ("WVA_FAULT", &fault)]);
    let install = Install::start(testbed, &options).await?;
    let series = async || install.series("wva_desired_replicas", &[("namespace", ns)]).await;
    let health = format!("http://{}/healthz", install.address("health")?);
    eventually("the series to be there", DEADLINE, async || {
        ensure!(series().await?.is_some(), "not yet");
        ensure!(get(&health).await?.0 == 200, "/healthz fails while cycles run");
        Ok(())
    })
    .await?;
    std::fs::write(&freeze, "")?;
    eventually("the series to end and /healthz to fail", DEADLINE, async || {
        ensure!(series().await?.is_none(), "the series stands");
        let (status, body) = get(&health).await?;
        ensure!(status == 503, "/healthz: {status} {body}");
        Ok(())
    })
    .await?;
    ensure!(install.series("wva_leader", &[]).await? == Some(1.0), "it does not lead");
    Ok(())
}
