//! `wva explain` against a running cluster: it finds the pod of the controller, forwards a port through the API server
//! and prints the data of the leader. kwok plays the kubelet; the port leads to the program itself.

use std::path::Path;

use crate::support::{Cluster, DEADLINE, controller_pod, fleet_config, run_wva, target};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_crds::envelope::{VERSION_HEADER, WVA_VERSION};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::{Fleet, Process, Signal, eventually};

/// Runs `wva`, which must succeed, and returns its standard output.
async fn stdout_of(cluster: &Cluster, args: &[&str]) -> anyhow::Result<String> {
    let run = run_wva(&cluster.testbed, args, "").await?;
    ensure!(run.code == 0, "{args:?}: {run:?}");
    Ok(run.stdout)
}

#[tokio::test(flavor = "multi_thread")]
async fn explains_a_decision_and_replays_it_offline() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("explain").await?;
    let load = Fleet::start(&cluster.testbed, fleet_config(&ns))?;
    load.set_fixed_all(0.78, 0.0);
    let cheap = VariantFixture::new(&ns, "cheap").on_a100().cost("40.0");
    let expensive = VariantFixture::new(&ns, "expensive").cost("80.0");
    for variant in [&cheap, &expensive] {
        cluster.testbed.apply(&variant.all()).await?;
    }
    cluster.wait_for(&ns, "cheap", "grow", |va| target(va) > Some(1)).await?;

    // No pod has the labels of the controller yet.
    let run = run_wva(&cluster.testbed, &["explain"], "").await?;
    ensure!(run.code == 3 && run.stderr.contains("--controller-namespace"), "{run:?}");

    let debug = cluster.install.address("debug")?.rsplit_once(':').context("no port")?.1.parse()?;
    cluster.testbed.forward_pods_to(debug)?;
    cluster.testbed.apply(&controller_pod(&json!({"name": "manager", "image": "wva"})).to_string()).await?;
    // In some cycles a new replica has no signals yet.
    let explained = eventually("an explanation with signals", DEADLINE, async || {
        let explained = stdout_of(cluster, &["explain", "-n", &ns, "cheap"]).await?;
        for part in [&format!("{ns}/cheap (A100"), "analyze", "cost 40.0", "KV 0.78", "s old"] {
            ensure!(explained.contains(part), "{part:?} is not in:\n{explained}");
        }
        Ok(explained)
    })
    .await?;
    ensure!(
        !explained.contains(&format!("{ns}/expensive")),
        "another variant is explained too:\n{explained}"
    );

    // `wva` warns of a controller that is newer by this header.
    let answer =
        reqwest::get(format!("http://{}/explain?namespace={ns}", cluster.install.address("debug")?)).await?;
    let release = answer.headers().get(VERSION_HEADER).map(reqwest::header::HeaderValue::as_bytes);
    ensure!(release == Some(WVA_VERSION.as_bytes()), "{:?}", answer.headers());

    let run = run_wva(&cluster.testbed, &["explain", "-n", &ns, "missing"], "").await?;
    ensure!(run.code == 1 && run.stderr.contains("does not manage that VariantAutoscaling"), "{run:?}");

    cycles_are_recorded_and_replayed(cluster).await?;
    snapshot_leads_to_the_same_decisions(cluster).await
}

/// Records at least two cycles, one a line, and replays them with other settings.
async fn cycles_are_recorded_and_replayed(cluster: &Cluster) -> anyhow::Result<()> {
    let file = cluster.testbed.data().join("cycles.jsonl");
    let path = file.to_str().context("the path is not UTF-8")?;
    let kubeconfig = cluster.testbed.admin_kubeconfig();
    let env = [("KUBECONFIG", kubeconfig.to_str().context("the path is not UTF-8")?)];
    let recording = Process::spawn(
        "recording",
        Path::new(env!("CARGO_BIN_EXE_wva")),
        &["explain", "--record", path],
        &env,
        &cluster.testbed.data().join("recording.log"),
    )?;
    eventually("two recorded cycles", DEADLINE, async || {
        let text = std::fs::read_to_string(&file)?;
        // The last line may be incomplete.
        ensure!(text.matches('\n').count() >= 2, "{} bytes", text.len());
        Ok(())
    })
    .await?;
    recording.signal(Signal::Int)?;
    let ended = recording.wait_exit(DEADLINE).await?;
    ensure!(
        ended.success() && recording.log().contains("cycles recorded to"),
        "{ended}: {}",
        recording.log()
    );

    let config = cluster.testbed.data().join("changed.yaml");
    std::fs::write(&config, "saturation: {default: {kvCacheThreshold: 0.99, kvSpareTrigger: 0.01}}")?;
    let config = config.to_str().context("the path is not UTF-8")?;
    let replayed =
        stdout_of(cluster, &["simulate", "--replay", path, "--config", config, "-o", "json"]).await?;
    let replayed: Value = serde_json::from_str(&replayed)?;
    ensure!(replayed["cycles"].as_u64() >= Some(2), "{replayed}");
    ensure!(replayed["variants"].as_array().is_some_and(|v| v.len() >= 2), "{replayed}");
    Ok(())
}

/// A snapshot leads offline to the same decisions, byte for byte. The replicas keep changing meanwhile.
async fn snapshot_leads_to_the_same_decisions(cluster: &Cluster) -> anyhow::Result<()> {
    let file = cluster.testbed.data().join("cycle.json");
    let path = file.to_str().context("the path is not UTF-8")?;
    let explained = stdout_of(cluster, &["explain", "-A", "-o", "json", "--snapshot", path]).await?;
    let decisions: Value = serde_json::from_str(&explained)?;
    ensure!(decisions["decisions"].as_array().is_some_and(|d| d.len() >= 2), "{explained}");
    let snapshot: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    ensure!(
        (&snapshot["kind"], &decisions["kind"]) == (&"Snapshot".into(), &"Decisions".into()),
        "{snapshot}"
    );
    let decided = stdout_of(cluster, &["decide", "-f", path, "-o", "json"]).await?;
    ensure!(decided == explained, "explained\n{explained}\ndecided again\n{decided}");
    Ok(())
}
