//! `wva migrate` reads ScaledObjects of llm-d's blueprints from a cluster, the API server accepts what it prints, and wva
//! decides by it.

use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_testbed::fixtures::VariantFixture;

use crate::support::{Cluster, get_object, has_condition, repository_path, run_wva, target};

/// Without the slo-aware one: this API server has no kind for recording rules.
const BLUEPRINTS: [&str; 3] = ["queue", "saturation", "token-aware"];

pub(super) async fn blueprints_are_replaced(cluster: &Cluster) -> anyhow::Result<()> {
    for name in BLUEPRINTS {
        let ns = cluster.testbed.namespace(&format!("signal-{name}")).await?;
        let workload = VariantFixture::new(&ns, "decode").replicas(2).deployment();
        let served = "args: [--served-model-name=qwen]\n        ports:";
        cluster.testbed.apply(&workload.replacen("ports:", served, 1)).await?;
        let path = repository_path(&format!("tests/fixtures/migrate/blueprints/{name}.yaml"));
        let blueprint = std::fs::read_to_string(path)?.replace("NAMESPACE", &ns).replace("MODEL", "qwen");
        cluster.testbed.kubectl_with(&["apply", "-f", "-"], &blueprint).await?.success()?;
        let get = ["get", "scaledobject", "-n", &ns, "-o", "yaml"];
        let saved = cluster.testbed.kubectl(&get).await?.success()?;
        let run = run_wva(&cluster.testbed, &["migrate", "-n", &ns], "").await?;
        ensure!(run.code == 0 && run.stderr.contains("3 to apply"), "{name}: {run:?}");
        cluster.testbed.kubectl_with(&["apply", "-f", "-"], &run.stdout).await?.success()?;
        let decided = |va: &Value| {
            has_condition(va, "TargetResolved", ("True", "TargetFound")) && target(va) == Some(2)
        };
        cluster.wait_for(&ns, "decode", "keep the replicas", decided).await?;
        ensure!(triggers(cluster, &ns).await? == 1, "{name}: it has other triggers");
        let again = run_wva(&cluster.testbed, &["migrate", "-n", &ns], "").await?;
        ensure!(again.code == 0 && again.stdout.is_empty(), "{name}: {again:?}");
        // The way back that the output describes.
        let saved: Vec<&str> = saved.lines().filter(|line| !line.contains("resourceVersion:")).collect();
        cluster.testbed.kubectl_with(&["replace", "-f", "-"], &saved.join("\n")).await?.success()?;
        ensure!(triggers(cluster, &ns).await? == 2, "{name}: it has other triggers");
        let delete = ["delete", "va,scaledobject,deployment", "--all", "-n", &ns, "--wait=false"];
        cluster.testbed.kubectl(&delete).await?.success()?;
    }
    Ok(())
}

async fn triggers(cluster: &Cluster, namespace: &str) -> anyhow::Result<usize> {
    let list = get_object(&cluster.testbed, &["scaledobject", "-n", namespace]).await?;
    list["items"][0]["spec"]["triggers"].as_array().map(Vec::len).context("no triggers")
}
