//! Other kinds of releases in one cluster: one for its own namespace, one with an instance, and one with the objects of
//! a model and without a controller.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_crds::names::INSTANCE_LABEL;

use super::site::{MODEL, MODELS, NO_PROMETHEUS, Site, chart};
use super::table::Table;
use crate::support::{find_condition, get_object};
use wva_testbed::{CommandOutput, Helm, eventually};

/// Longest wait for webhooks and for a status.
const SOON: Duration = Duration::from_mins(3);
/// Releases, each in a namespace of its name.
const RELEASES: [&str; 3] = ["scoped", "blue", "model"];

pub(super) async fn run(site: &Site, table: &mut Table) -> anyhow::Result<()> {
    let helm = Helm::new(&site.testbed, "helm").await?;
    table.step("a release for its own namespace", Box::pin(scoped(site, &helm))).await;
    table.step("its helm test, without rights elsewhere", Box::pin(scoped_test(site, &helm))).await;
    table.step("another release with an instance", Box::pin(instance(site, &helm))).await;
    table.step("a release without a controller", Box::pin(model(site, &helm))).await;
    table.step("all of them uninstalled", Box::pin(uninstalled(site, &helm))).await;
    Ok(())
}

async fn install(helm: &Helm, release: &str, values: &str) -> anyhow::Result<CommandOutput> {
    let place = ["upgrade", "--install", release, &chart(), "-n", release, "--create-namespace"];
    let values = ["--set", NO_PROMETHEUS, "--set", MODEL, "--set", values];
    helm.run(&[&place[..], &values, &[helm.wait(), "--timeout=4m"]].concat()).await
}

fn variant(release: &str) -> String {
    format!("{release}-workload-variant-autoscaler-va")
}

/// Waits until reviews are answered in a namespace.
async fn wait_until_judged(site: &Site, namespace: &str, labels: &Value) -> anyhow::Result<()> {
    eventually("reviews to be answered", SOON, async || site.judges(namespace, labels).await)
        .await
        .with_context(|| site.evidence())
}

async fn scoped(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    install(helm, "scoped", "wva.namespaceScoped=true,llmd.namespace=scoped").await?.success()?;
    wait_until_judged(site, "scoped", &json!({})).await?;
    let elsewhere = site.judges(MODELS, &json!({})).await;
    ensure!(elsewhere.is_err(), "it judges namespace {MODELS} too");
    wait_for_status(site, "scoped", &variant("scoped")).await?;
    Ok("its variant has a status, and it judges no other namespace".to_owned())
}

async fn scoped_test(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let pod = "scoped-workload-variant-autoscaler-test";
    let ran = helm.run(&["test", "scoped", "-n", "scoped", "--timeout=4m"]).await?;
    let log = site.log(pod);
    ensure!(!ran.ok && log.contains("BROKEN at workload"), "a model server is not there: {ran:?}\n{log}");
    ensure!(log.contains("no permission to list namespaces"), "missing permissions are not reported: {log}");
    Ok("it names the missing workload, and its missing permissions".to_owned())
}

async fn instance(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    install(helm, "blue", "wva.controllerInstance=blue,wva.reconcileInterval=5s").await?.success()?;
    wait_until_judged(site, MODELS, &json!({INSTANCE_LABEL: "blue"})).await?;
    wait_for_status(site, MODELS, &variant("blue")).await?;
    Ok("its variant has a status, and variants of its label are judged".to_owned())
}

async fn model(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let values = "controller.enabled=false,wva.controllerInstance=blue,llmd.deploymentName=another";
    install(helm, "model", values).await?.success()?;
    wait_for_status(site, MODELS, &variant("model")).await?;
    let pods = site.kubectl(&["-n", "model", "get", "pods", "-o", "name"]).await?;
    ensure!(pods.is_empty(), "it has pods: {pods}");
    Ok("the controller of the instance serves its variant".to_owned())
}

async fn wait_for_status(site: &Site, namespace: &str, variant: &str) -> anyhow::Result<()> {
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
