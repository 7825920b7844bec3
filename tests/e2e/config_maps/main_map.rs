//! The main ConfigMap at run time: mutable settings change at once, invalid values and immutable settings keep the old
//! value and are reported, and every value can be printed with its source.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_crds::names::MAIN_MAP_NAME;
use wva_testbed::fixtures::config_map;
use wva_testbed::install::SYSTEM;
use wva_testbed::{Testbed, eventually};

use crate::support::{Cluster, DEADLINE, merge_patch};

const CHANGED: &str = "Updated configuration";
const IMMUTABLE: &str = "Attempted to change immutable parameters";
const IGNORED: &str = "ImmutableConfigChangeRejected";
const INVALID: &str = "Invalid setting ignored; keeping the previous value";

/// Creates the map that the program starts with: it decides every ten minutes.
pub(crate) async fn create_initial_main_map(testbed: &Testbed) -> anyhow::Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}});
    testbed.apply(&namespace.to_string()).await?;
    store(testbed, &json!({"GLOBAL_OPT_INTERVAL": "10m"})).await
}

async fn store(testbed: &Testbed, data: &Value) -> anyhow::Result<()> {
    testbed.apply(&config_map(SYSTEM, MAIN_MAP_NAME, data)).await
}

/// Only the main map needs a cluster; the other sources are tested with the settings.
pub(crate) fn settings_in_force_can_be_printed(cluster: &Cluster) -> anyhow::Result<()> {
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_wva"))
        .args(["run", "--print-config"])
        .env("KUBECONFIG", cluster.testbed.admin_kubeconfig())
        .env("POD_NAMESPACE", SYSTEM)
        .env("PROMETHEUS_BASE_URL", "http://127.0.0.1:9")
        .env_remove("GLOBAL_OPT_INTERVAL")
        .output()?;
    ensure!(out.status.success(), "{out:?}");
    let printed = String::from_utf8(out.stdout)?;
    ensure!(printed.starts_with(&format!("# main ConfigMap {SYSTEM}/{MAIN_MAP_NAME}: read\n")), "{printed}");
    let is_interval = |line: &str| {
        line.starts_with("GLOBAL_OPT_INTERVAL=10m") && line.ends_with("# ConfigMap key GLOBAL_OPT_INTERVAL")
    };
    ensure!(printed.lines().any(is_interval), "{printed}");
    // The running program logged the same at its start.
    let line = cluster.lines("Settings in force").pop().context("no line at the start")?;
    ensure!(
        line["given"].to_string().contains("GLOBAL_OPT_INTERVAL=10m (ConfigMap key GLOBAL_OPT_INTERVAL)"),
        "{line}"
    );
    Ok(())
}

/// No webhook judges the map here.
pub(crate) async fn main_map_changes_settings_at_run_time(cluster: &Cluster) -> anyhow::Result<()> {
    let ten = "10m";
    let took =
        wait_for_hold(cluster, &json!({"GLOBAL_OPT_INTERVAL": ten, "WVA_DECISION_HOLD": "7m"}), "7m0s")
            .await?;
    // Takes a quarter of a second; the rest is for a loaded machine.
    ensure!(took < Duration::from_secs(10), "a change of the main map took {took:?} to take effect");
    last_line(cluster, CHANGED, |line| {
        line["key"] == "WVA_DECISION_HOLD" && line["old"] == "10m" && line["new"] == "7m"
    })
    .await?;

    // An invalid setting keeps its value, the others change.
    let [ok, none] = cluster.reloads("main").await?;
    ensure!((ok, none) == (Some(1.0), Some(0.0)), "{ok:?} {none:?}");
    let wrong = json!({"GLOBAL_OPT_INTERVAL": "soon", "WVA_DECISION_HOLD": "8m"});
    wait_for_hold(cluster, &wrong, "8m0s").await?;
    last_line(cluster, INVALID, |line| {
        line["key"] == "GLOBAL_OPT_INTERVAL" && line["problem"].to_string().contains("soon")
    })
    .await?;
    ensure!(cluster.reloads("main").await? == [Some(1.0), Some(1.0)], "one setting was invalid");
    ensure!(cluster.lines("Updated optimization interval").is_empty(), "the interval changed");

    immutable_settings_stay(cluster, ten).await?;
    let missing = missing_targets(cluster).await?;
    ensure!(missing > 0, "no workload is missing");
    next_leader_reports_a_change_without_leader(cluster, ten).await?;

    store(&cluster.testbed, &json!({"GLOBAL_OPT_INTERVAL": "1s", "LOG_LEVEL": "debug"})).await?;
    interval_changed(cluster, ten, "1s").await?;
    cluster.wait_for_cycles(4).await?;
    cluster.install.process().wait_logged(DEADLINE, &["\"level\":\"debug\""]).await?;
    let now = missing_targets(cluster).await?;
    ensure!(now == missing, "the new leader repeats events: {now}, {missing} before it");

    cluster.delete(SYSTEM, MAIN_MAP_NAME).await?;
    interval_changed(cluster, "1s", "60s").await
}

/// Stores the map and waits until a cycle has this decision hold. Returns how long that took.
async fn wait_for_hold(cluster: &Cluster, data: &Value, hold: &str) -> anyhow::Result<Duration> {
    store(&cluster.testbed, data).await?;
    let stored = Instant::now();
    eventually(&format!("the decision hold to be {hold}"), DEADLINE, async || {
        let config = cluster.config().await?;
        ensure!(config["decisionHold"] == hold, "it is {}", config["decisionHold"]);
        Ok(())
    })
    .await?;
    Ok(stored.elapsed())
}

/// Waits for the last line with this message: the program logs a change after it takes effect.
async fn last_line(
    cluster: &Cluster,
    message: &str,
    is_right: impl Fn(&Value) -> bool,
) -> anyhow::Result<()> {
    eventually(&format!("the line {message:?}"), DEADLINE, async || {
        let line = cluster.lines(message).pop().context("there is no such line")?;
        ensure!(is_right(&line), "{line}");
        Ok(())
    })
    .await
}

async fn interval_changed(cluster: &Cluster, old: &str, new: &str) -> anyhow::Result<()> {
    last_line(cluster, "Updated optimization interval", |line| line["old"] == old && line["new"] == new).await
}

async fn immutable_settings_stay(cluster: &Cluster, interval: &str) -> anyhow::Result<()> {
    let changed =
        json!({"GLOBAL_OPT_INTERVAL": interval, "WVA_LIMITED_MODE": "true", "WVA_DECISION_HOLD": "9m"});
    wait_for_hold(cluster, &changed, "9m0s").await?;
    ensure!(cluster.config().await?["limitedMode"] == json!(false), "the running value changed");
    // A change of another setting is not another attempt.
    let again =
        json!({"GLOBAL_OPT_INTERVAL": interval, "WVA_LIMITED_MODE": "true", "WVA_DECISION_HOLD": "6m"});
    wait_for_hold(cluster, &again, "6m0s").await?;
    eventually("one line about the change", DEADLINE, async || {
        let lines = cluster.lines(IMMUTABLE);
        ensure!(lines.len() == 1 && lines[0]["keys"] == "WVA_LIMITED_MODE", "{lines:?}");
        ensure!(lines[0]["changes"] == "WVA_LIMITED_MODE: \"false\" -> \"true\"", "{lines:?}");
        Ok(())
    })
    .await?;
    wait_for_events(cluster, &["WVA_LIMITED_MODE"]).await
}

/// Counts the events about missing workloads.
async fn missing_targets(cluster: &Cluster) -> anyhow::Result<usize> {
    let events = ["get", "events", "-A", "--field-selector", "reason=TargetNotFound", "-o", "name"];
    Ok(cluster.testbed.kubectl(&events).await?.success()?.lines().count())
}

/// Waits for exactly one event on the map for each of these settings.
async fn wait_for_events(cluster: &Cluster, keys: &[&str]) -> anyhow::Result<()> {
    eventually(&format!("one event each of {keys:?}"), DEADLINE, async || {
        let events = cluster.events(SYSTEM, IGNORED).await?;
        ensure!(events.len() == keys.len(), "{events:?}");
        for event in &events {
            let of_map = event["involvedObject"]["name"] == MAIN_MAP_NAME;
            ensure!(event["type"] == "Warning" && of_map, "{event}");
        }
        let of = |key: &&str| events.iter().filter(|e| e["message"].to_string().contains(*key)).count();
        ensure!(keys.iter().all(|key| of(key) == 1), "{events:?}");
        Ok(())
    })
    .await
}

/// Takes the Lease away while the map changes.
async fn next_leader_reports_a_change_without_leader(
    cluster: &Cluster,
    interval: &str,
) -> anyhow::Result<()> {
    let lease = async |holder: &str, seconds: u32| {
        let held = json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds}});
        merge_patch(&cluster.testbed, SYSTEM, "lease/72dd1cf1.llm-d.ai", &held).await?.success()
    };
    lease("another", 600).await?;
    let leads = async || cluster.install.series("wva_leader", &[]).await;
    eventually("the program to stop leading", DEADLINE, async || {
        let leads = leads().await?;
        ensure!(leads == Some(0.0), "wva_leader is {leads:?}");
        Ok(())
    })
    .await?;
    let changed =
        json!({"GLOBAL_OPT_INTERVAL": interval, "WVA_LIMITED_MODE": "true", "ENABLE_HTTP2": "true"});
    store(&cluster.testbed, &changed).await?;
    eventually("the change to be seen", DEADLINE, async || {
        let lines = cluster.lines(IMMUTABLE);
        ensure!(lines.len() == 2 && lines[1]["keys"] == "ENABLE_HTTP2", "{lines:?}");
        Ok(())
    })
    .await?;
    let events_before = cluster.events(SYSTEM, IGNORED).await?.len();
    ensure!(leads().await? == Some(0.0) && events_before == 1, "it led when the map changed");
    lease("", 1).await?;
    wait_for_events(cluster, &["WVA_LIMITED_MODE", "ENABLE_HTTP2"]).await?;
    eventually("wva_leader to be 1", DEADLINE, async || {
        let leads = leads().await?;
        ensure!(leads == Some(1.0), "it is {leads:?}");
        Ok(())
    })
    .await
}
