//! No replica runs, and the webhooks stay open. Requests that are not judged must work: pods, other config maps,
//! namespaces; and a variant under deletion must be able to lose its finalizer.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::pair;
use crate::support::{Outcome, valid_spec, variant};
use wva_testbed::install::{API_SERVICE, InstallOptions, manifests};
use wva_testbed::replicas::Replicas;
use wva_testbed::{Testbed, eventually};

/// Longest wait for the deletion of a namespace, whose objects go first.
const GONE: Duration = Duration::from_mins(3);
/// kube-apiserver checks an aggregated API every half minute.
const NOTICED: Duration = Duration::from_mins(4);

/// Kills both replicas and sends the requests that must work. Where `release` is `None`, the killed program also served
/// the external metrics API. Kubernetes keeps a deleted namespace until every aggregated API answers or is removed, so
/// it must go once a replica is back.
pub(crate) async fn all_dead(
    testbed: &Testbed,
    wva: &Path,
    release: Option<&str>,
) -> anyhow::Result<Outcome> {
    let options = InstallOptions { release: release.map(str::to_owned), ..InstallOptions::quick(wva) };
    // An APIService of an earlier install without a server would block every namespace deletion.
    testbed.kubectl(&["delete", "apiservice", API_SERVICE, "--ignore-not-found"]).await?.success()?;
    let mut replicas = pair(testbed, options, "dead").await?;
    let namespace = replicas.namespace().to_owned();
    let mut held = variant("held", &valid_spec("held"));
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    let held = held.to_string();
    create(testbed, &namespace, &held).await?;
    replicas.kill_all();
    let refused = create(testbed, &namespace, &held.replace("\"held\"", "\"new\"")).await;
    let refusal = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refusal.contains("failed calling webhook"), "the webhooks are not open: {refusal}");

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
    let result = gone.as_ref().map_or("namespaces do not go", |result| result);
    let figures = format!("{} of 3 other kinds of objects go on; {result}", 3 - faults.len());
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

/// A variant under deletion is gone after its finalizer is removed.
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

/// The same while an aggregated API has no server.
async fn emptied(testbed: &Testbed, replicas: &mut Replicas<'_>) -> anyhow::Result<()> {
    eventually("kube-apiserver to notice that the external metrics API has no server", NOTICED, async || {
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

/// Creates and deletes a namespace.
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
