//! Ways in which the signal dies between wva and the workload, on a real API server with the real HPA. Each is found and
//! named within two minutes; a healthy variant next to them is never reported.
//! Why a control plane of its own: cycles and the sync of HPAs have the usual periods of 15 s, and the last breaks take
//! the external metrics API from every variant. KEDA is a stand-in: the test writes the status of its ScaledObjects.

#![expect(clippy::print_stdout, reason = "the table is for the person who runs the tests")]

mod blueprint;
mod breaks;

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::API_SERVICE;
use wva_testbed::{NodeGroup, Options, eventually};

use self::breaks::{BREAKS, Break, Follower, Site};
use crate::support::{
    Cluster, DEADLINE, apply_stand_in, find_condition, has_condition, install_options, run_wva,
};

/// From the break to the condition.
const NAMED_WITHIN: Duration = Duration::from_mins(2);
/// Younger objects are not judged.
const SETTLED_AFTER: Duration = Duration::from_mins(2);
const VARIANT: &str = "llama";

/// Waits for the condition `SignalFollowed`, and returns its message.
async fn until_followed(
    cluster: &Cluster,
    namespace: &str,
    wanted: (&str, &str),
    deadline: Duration,
) -> anyhow::Result<String> {
    eventually(&format!("{namespace}: SignalFollowed {wanted:?}"), deadline, async || {
        let va = cluster.variant(namespace, VARIANT).await?;
        ensure!(has_condition(&va, "SignalFollowed", wanted), "{}", find_condition(&va, "SignalFollowed")?);
        Ok(find_condition(&va, "SignalFollowed")?["message"].as_str().unwrap_or_default().to_owned())
    })
    .await
}

/// A variant that asks for two replicas, and its autoscaler, in a namespace of its own.
async fn deploy<'a>(cluster: &'a Cluster, row: &Break) -> anyhow::Result<Site<'a>> {
    let namespace = cluster.testbed.namespace(&format!("signal-{}", row.name)).await?;
    let fixture = VariantFixture::new(&namespace, VARIANT).replicas(2);
    let mut variant: Value = serde_saphyr::from_str(&fixture.variant())?;
    variant["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "fixed=2"});
    let site = Site { cluster, namespace, fixture };
    // In one apply, as from a front door.
    let autoscaler = match row.follower {
        Follower::Hpa => site.fixture.autoscaler(),
        Follower::ScaledObject => site.scaled_object(),
    };
    let all = [site.fixture.deployment(), variant.to_string(), autoscaler].join("\n---\n");
    cluster.testbed.apply(&all).await?;
    if row.follower == Follower::ScaledObject {
        site.set_scaled_object_status("True", "False").await?;
    }
    until_followed(cluster, &site.namespace, ("True", "Followed"), DEADLINE).await?;
    Ok(site)
}

/// Breaks the signal, and returns the row of the table.
async fn measure(site: &Site<'_>, row: &Break) -> anyhow::Result<String> {
    let (cluster, namespace) = (site.cluster, &site.namespace);
    let period = match row.name {
        "another-writer" => Some(Duration::from_millis(100)),
        "periodic-writer" => Some(Duration::from_secs(9)),
        _ => None,
    };
    let has_ended = period.is_some();
    let writer = period.map(|every| site.overwrite_replicas(every));
    site.break_by(row.name).await.with_context(|| format!("cannot break {}", row.name))?;
    let began = Instant::now();
    let named = until_followed(cluster, namespace, ("False", row.reason), NAMED_WITHIN);
    let message = match writer {
        Some(writer) => {
            tokio::select! { named = named => named?, done = writer => { done?; bail!("the writer ended") } }
        }
        None => named.await?,
    };
    let seconds = began.elapsed().as_secs();
    eventually("the event", DEADLINE, async || {
        let events = cluster.events(namespace, "SignalNotFollowed").await?;
        ensure!(events.len() == 1 && events[0]["message"] == message.as_str(), "{message}: {events:?}");
        Ok(())
    })
    .await?;
    let doctor = run_wva(&cluster.testbed, &["doctor", "-n", namespace], "").await?.stdout;
    let is_named = |line: &str| line.contains("BROKEN") && line.contains(&format!("[{}]", row.reason));
    // A writer ends with the wait for the condition.
    ensure!(has_ended || doctor.lines().any(is_named), "wva doctor does not name it: {doctor}");
    Ok(format!("{} | {} | {seconds} | {message}", row.name, row.reason))
}

#[tokio::test(flavor = "multi_thread")]
async fn names_each_break_within_two_minutes() -> anyhow::Result<()> {
    let options = Options {
        name: "signal".to_owned(),
        hpa_sync: Duration::from_secs(15),
        nodes: vec![NodeGroup::new("h100", 64, "NVIDIA-H100-80GB-HBM3")],
        ..Options::default()
    };
    let install = install_options().with(&[("GLOBAL_OPT_INTERVAL", "15s")]);
    let cluster = Cluster::start(options, &install).await?;
    apply_stand_in(&cluster.testbed, "scaledobjects").await?;
    let healthy = Break { name: "healthy", follower: Follower::Hpa, reason: "" };
    let control = deploy(&cluster, &healthy).await?;
    blueprint::blueprints_are_replaced(&cluster).await?;
    let sites = join_all(BREAKS.iter().map(|row| deploy(&cluster, row))).await;
    let sites: Vec<Site<'_>> = sites.into_iter().collect::<anyhow::Result<_>>()?;
    let deployed = Instant::now();
    eventually("the objects to settle", DEADLINE, async || {
        ensure!(deployed.elapsed() > SETTLED_AFTER, "{:?}", deployed.elapsed());
        Ok(())
    })
    .await?;
    let rows = join_all(BREAKS.iter().zip(&sites).map(|(row, site)| measure(site, row))).await;
    let mut failed = Vec::new();
    for (row, measured) in BREAKS.iter().zip(rows) {
        match measured {
            Ok(line) => println!("{line}"),
            Err(error) => failed.push(format!("{}: {error:#}", row.name)),
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    let no_autoscaler = &sites[0].namespace;
    let status = run_wva(&cluster.testbed, &["status", "-n", no_autoscaler], "").await?;
    ensure!(status.stdout.contains("not followed: NoAutoscaler"), "{}", status.stdout);
    let explain = ["explain", "--address", cluster.install.address("debug")?, "-n", no_autoscaler];
    let explain = run_wva(&cluster.testbed, &explain, "").await?;
    ensure!(explain.stdout.contains("autoscaler: NoAutoscaler: "), "{}", explain.stdout);
    take_the_metrics_api(&control).await
}

/// The API loses its server, and then its registration.
async fn take_the_metrics_api(control: &Site<'_>) -> anyhow::Result<()> {
    let testbed = &control.cluster.testbed;
    let events = control.cluster.events(&control.namespace, "SignalNotFollowed").await?;
    ensure!(events.is_empty(), "the healthy variant was reported: {events:?}");
    let closed = json!({"spec": {"service": {"port": 1}}}).to_string();
    testbed.kubectl(&["patch", "apiservice", API_SERVICE, "--type=merge", "-p", &closed]).await?.success()?;
    for (name, reason) in [("api-unavailable", "MetricsAPIUnavailable"), ("api-missing", "MetricsAPIMissing")]
    {
        if name == "api-missing" {
            testbed.kubectl(&["delete", "apiservice", API_SERVICE]).await?.success()?;
        }
        let began = Instant::now();
        let named = until_followed(control.cluster, &control.namespace, ("False", reason), NAMED_WITHIN);
        let message = named.await?;
        println!("{name} | {reason} | {} | {message}", began.elapsed().as_secs());
    }
    Ok(())
}
