//! No replica is left, and the doors stand open onto nothing. What is not the program's business must go on: pods,
//! config maps of others, namespaces; and a variant under deletion must be able to lose its finalizer.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::pair;
use crate::support::Outcome;
use wva_testbed::install::{API_SERVICE, InstallOptions, manifests};
use wva_testbed::replicas::Replicas;
use wva_testbed::{Testbed, eventually};

/// Longest wait for a namespace to go: its objects go first.
const GONE: Duration = Duration::from_mins(3);
/// kube-apiserver asks an aggregated API every half minute whether it is there.
const NOTICED: Duration = Duration::from_mins(4);

/// Kills both replicas and does what must go on. Where `release` is `None` the dead program served the external metrics
/// API too: Kubernetes keeps a namespace under deletion, empty, until every aggregated API answers or is deleted, so it
/// must go once a replica is back.
pub(crate) async fn all_dead(
    testbed: &Testbed,
    wva: &Path,
    release: Option<&str>,
) -> anyhow::Result<Outcome> {
    let options = InstallOptions { release: release.map(str::to_owned), ..InstallOptions::quick(wva) };
    // One that an earlier install left, served by nobody, would hold up every namespace.
    testbed.kubectl(&["delete", "apiservice", API_SERVICE, "--ignore-not-found"]).await?.success()?;
    let mut replicas = pair(testbed, options, "dead").await?;
    let namespace = replicas.namespace().to_owned();
    let held = json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {"name": "held", "finalizers": ["example.com/held"]},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "held"}, "modelID": "m"},
    })
    .to_string();
    create(testbed, &namespace, &held).await?;
    replicas.kill_all();
    let refused = create(testbed, &namespace, &held.replace("\"held\"", "\"new\"")).await;
    let refusal = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refusal.contains("failed calling webhook"), "the doors are not open onto nothing: {refusal}");

    let mut faults = Vec::new();
    let mut note = |what: &str, done: anyhow::Result<()>| {
        faults.extend(done.err().map(|error| format!("{what}: {error:#}")));
    };
    note("config maps of others", config_map(testbed, &namespace).await);
    note("pods", pod(testbed, &namespace).await);
    note("a finalizer", finalizer(testbed, &namespace).await);
    let gone = match release {
        Some(_) => namespaces(testbed).await.map(|()| "namespaces go"),
        None => emptied(testbed, &mut replicas)
            .await
            .map(|()| "namespaces are emptied, and go once a replica serves the external metrics API again"),
    };
    let told = gone.as_ref().map_or("namespaces do not go", |told| told);
    let figures = format!("{} of 3 other kinds of objects go on; {told}", 3 - faults.len());
    faults.extend(gone.err().map(|error| format!("namespaces: {error:#}")));
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
        .kubectl(&["delete", "pod", "others", "-n", namespace, "--timeout=150s"])
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
    let name = deleted_namespace(testbed).await?;
    gone(testbed, &name, GONE).await
}

/// The same where an aggregated API is served by nobody.
async fn emptied(testbed: &Testbed, replicas: &mut Replicas<'_>) -> anyhow::Result<()> {
    eventually("kube-apiserver to notice that nobody serves the external metrics API", NOTICED, async || {
        let available = manifests::metrics_api_available(testbed).await?;
        ensure!(available == "False", "it says {available:?}");
        Ok(())
    })
    .await?;
    let name = deleted_namespace(testbed).await?;
    eventually(&format!("namespace {name} to be empty"), GONE, async || {
        let path = "jsonpath={.status.conditions[?(@.type==\"NamespaceContentRemaining\")].status}";
        let remaining = testbed.kubectl(&["get", "namespace", &name, "-o", path]).await?.success()?;
        ensure!(remaining == "False", "NamespaceContentRemaining is {remaining:?}");
        Ok(())
    })
    .await?;
    replicas.start(0).await?;
    gone(testbed, &name, NOTICED).await
}

/// A new namespace that was told to go.
async fn deleted_namespace(testbed: &Testbed) -> anyhow::Result<String> {
    let name = testbed.namespace("dead-and-gone").await?;
    testbed.kubectl(&["delete", "namespace", &name, "--wait=false"]).await?.success()?;
    Ok(name)
}

async fn gone(testbed: &Testbed, name: &str, deadline: Duration) -> anyhow::Result<()> {
    eventually(&format!("namespace {name} to go"), deadline, async || {
        let path = "jsonpath={.metadata.name}: {.status.conditions[*].message}";
        let args = ["get", "namespace", name, "--ignore-not-found", "-o", path];
        let there = testbed.kubectl(&args).await?.success()?;
        ensure!(there.is_empty(), "{there}");
        Ok(())
    })
    .await
}
