//! No replica is left, and the doors stand open onto nothing. What is not the program's business must go on: pods,
//! config maps of others, namespaces; and a variant under deletion must be able to lose its finalizer.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::Outcome;
use crate::install::InstallOptions;
use crate::replicas::Replicas;
use crate::{Testbed, eventually};

const BOTH: [usize; 2] = [0, 1];
/// Longest wait for a namespace to go: its objects go first.
const GONE: Duration = Duration::from_secs(30);

/// Kills both replicas and does what must go on, with and without the external metrics API in the cluster.
///
/// # Errors
/// When it could not be carried out.
pub async fn all_dead(testbed: &Testbed, wva: &Path) -> anyhow::Result<Outcome> {
    let namespace = testbed.namespace("dead").await?;
    let mut replicas = Replicas::install(testbed, InstallOptions::quick(wva)).await?;
    replicas.start_all(&BOTH).await?;
    replicas.wait_ready(&BOTH).await?;
    replicas.wait_open().await?;
    let held = json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {"name": "held", "finalizers": ["example.com/held"]},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "held"}, "modelID": "m"},
    });
    create(testbed, &namespace, &held.to_string()).await?;
    replicas.kill_all();
    let refused = create(testbed, &namespace, &held.to_string().replace("\"held\"", "\"new\"")).await;
    let refusal = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refusal.contains("failed calling webhook"), "the doors are not open onto nothing: {refusal}");

    let mut faults = Vec::new();
    let mut note = |what: &str, done: anyhow::Result<()>| {
        faults.extend(done.err().map(|error| format!("{what}: {error:#}")));
    };
    note("config maps of others", config_map(testbed, &namespace).await);
    note("pods", pod(testbed, &namespace).await);
    note("a finalizer", finalizer(testbed, &namespace).await);
    note("namespaces", namespaces(testbed).await);
    let figures = format!("{} of 4 kinds of objects go on", 4 - faults.len());
    Ok(Outcome { figures, faults })
}

async fn create(testbed: &Testbed, namespace: &str, object: &str) -> anyhow::Result<()> {
    testbed.kubectl_with(&["create", "-n", namespace, "-f", "-"], object).await?.success().map(|_| ())
}

async fn config_map(testbed: &Testbed, namespace: &str) -> anyhow::Result<()> {
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "others"}, "data": {"a": "b"}});
    create(testbed, namespace, &map.to_string()).await?;
    let change = ["patch", "configmap", "others", "-n", namespace, "-p", r#"{"data": {"a": "c"}}"#];
    testbed.kubectl(&change).await?.success()?;
    testbed.kubectl(&["delete", "configmap", "others", "-n", namespace]).await?.success().map(|_| ())
}

async fn pod(testbed: &Testbed, namespace: &str) -> anyhow::Result<()> {
    let containers = json!([{"name": "main", "image": "main"}]);
    let spec = json!({"containers": containers, "terminationGracePeriodSeconds": 0});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "others"}, "spec": spec});
    create(testbed, namespace, &pod.to_string()).await?;
    testbed
        .kubectl(&["delete", "pod", "others", "-n", namespace, "--timeout=30s"])
        .await?
        .success()
        .map(|_| ())
}

/// A variant under deletion whose finalizer is taken away is gone.
async fn finalizer(testbed: &Testbed, namespace: &str) -> anyhow::Result<()> {
    testbed.kubectl(&["delete", "va", "held", "-n", namespace, "--wait=false"]).await?.success()?;
    let without = r#"{"metadata": {"finalizers": null}}"#;
    testbed
        .kubectl(&["patch", "va", "held", "-n", namespace, "--type=merge", "-p", without])
        .await?
        .success()?;
    let left = testbed.kubectl(&["get", "va", "-n", namespace, "-o", "name"]).await?.success()?;
    ensure!(left.is_empty(), "it is still there: {left}");
    Ok(())
}

async fn namespaces(testbed: &Testbed) -> anyhow::Result<()> {
    let name = testbed.namespace("dead-and-gone").await?;
    testbed.kubectl(&["delete", "namespace", &name, "--wait=false"]).await?.success()?;
    eventually(&format!("namespace {name} to go"), GONE, async || {
        let args = [
            "get",
            "namespace",
            &name,
            "--ignore-not-found",
            "-o",
            "jsonpath={.status.conditions[*].message}",
        ];
        let said = testbed.kubectl(&args).await?.success()?;
        let there = testbed.kubectl(&["get", "namespace", &name, "--ignore-not-found", "-o", "name"]).await?;
        ensure!(there.success().context("namespaces cannot be read")?.is_empty(), "it says: {said}");
        Ok(())
    })
    .await
}
