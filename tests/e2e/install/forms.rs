//! The other forms of a release, side by side in one cluster: one for its own namespace alone, one with an instance, and
//! one that brings a model's objects and no controller.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_crds::names::INSTANCE_LABEL;

use super::site::{MODEL, MODELS, NO_PROMETHEUS, Site, chart};
use super::table::Table;
use crate::support::{find_condition, get_object};
use wva_testbed::{Helm, Ran, eventually};

/// Longest wait for webhooks to open and for a status to be written.
const SOON: Duration = Duration::from_mins(3);
/// Each release has a namespace of its name.
const RELEASES: [&str; 3] = ["scoped", "blue", "model"];

pub(super) async fn run(site: &Site, table: &mut Table) -> anyhow::Result<()> {
    let helm = Helm::new(&site.testbed, "helm").await?;
    table.step("a release for its own namespace", Box::pin(scoped(site, &helm))).await;
    table.step("its helm test, without rights elsewhere", Box::pin(scoped_test(site, &helm))).await;
    table.step("a release with an instance beside it", Box::pin(instance(site, &helm))).await;
    table.step("a release without a controller", Box::pin(model(site, &helm))).await;
    table.step("all of them uninstalled", Box::pin(uninstalled(site, &helm))).await;
    Ok(())
}

async fn install(helm: &Helm, release: &str, values: &str) -> anyhow::Result<Ran> {
    let place = ["upgrade", "--install", release, &chart(), "-n", release, "--create-namespace"];
    let values = ["--set", NO_PROMETHEUS, "--set", MODEL, "--set", values];
    helm.run(&[&place[..], &values, &[helm.wait(), "--timeout=4m"]].concat()).await
}

fn variant(release: &str) -> String {
    format!("{release}-workload-variant-autoscaler-va")
}

/// Waits until reviews are answered there.
async fn judges(site: &Site, namespace: &str, labels: &Value) -> anyhow::Result<()> {
    eventually("reviews to be answered", SOON, async || site.judges(namespace, labels).await)
        .await
        .with_context(|| site.evidence())
}

async fn scoped(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    install(helm, "scoped", "wva.namespaceScoped=true,llmd.namespace=scoped").await?.success()?;
    judges(site, "scoped", &json!({})).await?;
    let elsewhere = site.judges(MODELS, &json!({})).await;
    ensure!(elsewhere.is_err(), "it judges namespace {MODELS} too");
    has_status(site, "scoped", &variant("scoped")).await?;
    Ok("its variant has a status, and it judges no other namespace".to_owned())
}

async fn scoped_test(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let pod = "scoped-workload-variant-autoscaler-test";
    let ran = helm.run(&["test", "scoped", "-n", "scoped", "--timeout=4m"]).await?;
    let log = site.log(pod);
    ensure!(!ran.ok && log.contains("BROKEN at workload"), "a model server is not there: {ran:?}\n{log}");
    ensure!(log.contains("no permission to list namespaces"), "what it cannot see is not said: {log}");
    Ok("it names the missing workload, and what it may not see".to_owned())
}

async fn instance(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    install(helm, "blue", "wva.controllerInstance=blue,wva.reconcileInterval=5s").await?.success()?;
    judges(site, MODELS, &json!({INSTANCE_LABEL: "blue"})).await?;
    has_status(site, MODELS, &variant("blue")).await?;
    Ok("its variant has a status, and variants of its label are judged".to_owned())
}

async fn model(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let values = "controller.enabled=false,wva.controllerInstance=blue,llmd.deploymentName=another";
    install(helm, "model", values).await?.success()?;
    has_status(site, MODELS, &variant("model")).await?;
    let pods = site.kubectl(&["-n", "model", "get", "pods", "-o", "name"]).await?;
    ensure!(pods.is_empty(), "it has pods: {pods}");
    Ok("the controller of the instance serves its variant".to_owned())
}

async fn has_status(site: &Site, namespace: &str, variant: &str) -> anyhow::Result<()> {
    eventually("a status", SOON, async || {
        let va = get_object(&site.testbed, &["va", variant, "-n", namespace]).await?;
        find_condition(&va, "Ready").map(drop)
    })
    .await
    .with_context(|| site.evidence())
}

async fn uninstalled(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    for release in RELEASES {
        let ran = helm.run(&["uninstall", release, "-n", release, "--wait", "--timeout=4m"]).await?;
        ran.success()?;
    }
    site.kubectl(&[&["delete", "namespace", "--timeout=150s"][..], &RELEASES].concat()).await?;
    site.leftovers().await?;
    Ok("nothing left but the CRD".to_owned())
}
