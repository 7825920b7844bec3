//! A file with a byte that is not UTF-8: `kubectl create configmap --from-file` puts it into `binaryData` without a word.
//! Webhook, `wva validate`, log and doctor name it.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde_json::json;
use wva_crds::names::LOCAL_SATURATION_MAP_NAME;
use wva_testbed::install::SYSTEM;
use wva_testbed::{CommandOutput, Testbed, eventually};

use crate::support::{Cluster, DEADLINE, run_wva};

/// The second line has a comment in Latin-1.
const LATIN_1: &[u8] = b"kvCacheThreshold: 0.7\n# r\xe9gime\n";
/// The map is new, so no valid value stays in force.
const IGNORED: &str = "Invalid ConfigMap entry; ignoring it";
const FOUND: &str = "byte 0xe9 in line 2 is not UTF-8";

fn file(testbed: &Testbed) -> anyhow::Result<PathBuf> {
    let file = testbed.data().join("latin-1.yaml");
    std::fs::write(&file, LATIN_1)?;
    Ok(file)
}

async fn create(testbed: &Testbed, namespace: &str, more: &[&str]) -> anyhow::Result<CommandOutput> {
    let from = format!("--from-file=default={}", file(testbed)?.display());
    let create = ["create", "configmap", LOCAL_SATURATION_MAP_NAME, "-n", namespace, &from];
    testbed.kubectl(&[&create[..], more].concat()).await
}

/// While the webhooks judge.
pub(crate) async fn binary_file_is_refused(cluster: &Cluster) -> anyhow::Result<()> {
    let namespace = cluster.testbed.namespace("binary").await?;
    let refused = create(&cluster.testbed, &namespace, &[]).await?;
    ensure!(!refused.ok, "the webhook admits it: {refused:?}");
    for part in ["binaryData.default", "WVA-CM-008", FOUND, "save the file as UTF-8"] {
        ensure!(refused.stderr.contains(part), "the refusal has no {part:?}: {}", refused.stderr);
    }
    let map = create(&cluster.testbed, &namespace, &["--dry-run=client", "-o", "yaml"]).await?.success()?;
    ensure!(map.contains("binaryData:"), "kubectl wrote no binaryData: {map}");
    let judged = run_wva(&cluster.testbed, &["validate", "-"], &map).await?;
    ensure!(judged.code == 1 && judged.stdout.contains(FOUND), "{judged:?}");
    Ok(())
}

/// After the webhooks are gone. `namespace` has a variant, and no map.
pub(crate) async fn binary_file_is_reported(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    create(&cluster.testbed, namespace, &[]).await?.success()?;
    eventually("a line that names binaryData", DEADLINE, async || {
        let lines = cluster.lines(IGNORED);
        let is_it = |line: &&serde_json::Value| line["problem"].to_string().contains("binaryData");
        let line = lines.iter().rfind(is_it).context("no line")?;
        ensure!(line["entry"] == "default", "{line}");
        Ok(())
    })
    .await?;
    // The doctor finds controllers by their Deployments; here the program is a process.
    let labels = json!({"app.kubernetes.io/name": "workload-variant-autoscaler"});
    let env = json!([{"name": "CONFIG_MAP_NAME", "value": "wva-variantautoscaling-config"}]);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "manager", "namespace": SYSTEM, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "manager", "image": "wva", "env": env}]}}},
    });
    cluster.testbed.apply(&deployment.to_string()).await?;
    let report = run_wva(&cluster.testbed, &["doctor", "-n", namespace], "").await?;
    ensure!(report.stdout.contains("WVA-CM-008") && report.stdout.contains(FOUND), "{report:?}");
    cluster.testbed.kubectl(&["delete", "deployment", "manager", "-n", SYSTEM]).await?.success()?;
    cluster.delete(namespace, LOCAL_SATURATION_MAP_NAME).await
}
