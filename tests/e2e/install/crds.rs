//! The CRD and its upgrade. The CRD of llm-d WVA is installed, with stored objects, and Helm does not change it. The
//! program reports it, the documented command replaces it, and the stored objects remain.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::manifests::{no_pools, picker_tokens, pools};
use super::site::{CRD, MANAGER, MODELS, NO_MODEL, NO_PROMETHEUS, Site, VARIANT, chart};
use super::table::Table;
use crate::support::{apply_stand_in, get_object, merge_patch, valid_spec, variant};
use wva_testbed::install::{RELEASE, SYSTEM};
use wva_testbed::{Helm, eventually};

/// Field of our CRD that the one of llm-d WVA lacks.
const NEW_FIELD: &str =
    "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.minReplicas.type}";
/// Flags that let Helm 4 adopt a CRD of another owner.
const TAKE_OVER: &[&str] = &["--take-ownership", "--force-conflicts"];
/// Longest wait for a log line.
const REPORTED: Duration = Duration::from_mins(3);

pub(super) async fn run(site: &Site, table: &mut Table) -> anyhow::Result<()> {
    let helm = Helm::new(&site.testbed, "helm").await?;
    table.step("the CRD of llm-d WVA, with a stored object", Box::pin(store_object(site))).await;
    table.step("install on top of it", Box::pin(install(site, &helm))).await;
    table.step("the CRD is replaced by the documented command", Box::pin(replaced(site))).await;
    table.step("wva crd | kubectl apply changes nothing more", Box::pin(printed(site))).await;
    table.step("uninstall keeps the CRD and what is stored", Box::pin(into_result(site, &helm))).await;
    table.step("a CRD of the release takes over that of llm-d WVA", Box::pin(taken_over(site, &helm))).await;
    table.step("the next upgrade upgrades it; uninstall keeps it", Box::pin(upgraded(site, &helm))).await;
    table.step("install with the CRD of the chart; helm test", Box::pin(install_again(site, &helm))).await;
    table.step("an upgrade of llm-d WVA's release", Box::pin(upgrade(site, &helm))).await;
    table.step("endpoint pickers get tokens of the metrics reader alone", Box::pin(pickers(site))).await;
    table.step("uninstall", Box::pin(site.remove(&helm))).await;
    Ok(())
}

async fn store_object(site: &Site) -> anyhow::Result<String> {
    apply_stand_in(&site.testbed, "variantautoscalings-v0.5").await?;
    let mut object = variant("stored", &valid_spec("stored"));
    object["metadata"]["namespace"] = json!(MODELS);
    object["metadata"]["labels"] = json!({"inference.optimization/acceleratorName": "H100"});
    object["spec"]["variantCost"] = json!("40.0");
    object["spec"]["scaleTargetRef"]["kind"] = json!("Deployment");
    eventually("the object to be stored", REPORTED, async || site.testbed.apply(&object.to_string()).await)
        .await?;
    Ok("stored".to_owned())
}

async fn install(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let refused = site.helm(helm, &["--set", NO_PROMETHEUS]).await?;
    ensure!(
        !refused.ok && refused.stderr.contains("failed to install CRD"),
        "Helm 4 replaced the CRD: {refused:?}"
    );
    site.helm(helm, &["--set", NO_PROMETHEUS, "--skip-crds"]).await?.success()?;
    site.healthy().await?;
    let field = site.kubectl(&["get", "crd", CRD, "-o", NEW_FIELD]).await?;
    ensure!(field.is_empty(), "Helm replaced the CRD: it has minReplicas");
    logged(site, "CRD is outdated").await?;
    Ok("Helm 4 refuses to change it; with --skip-crds everything works, and the log reports the old CRD"
        .to_owned())
}

async fn replaced(site: &Site) -> anyhow::Result<String> {
    let crds = format!("{}/crds", chart());
    site.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &crds]).await?;
    eventually("the new field", REPORTED, async || {
        ensure!(site.kubectl(&["get", "crd", CRD, "-o", NEW_FIELD]).await? == "integer", "it is not there");
        Ok(())
    })
    .await?;
    let stored = get_object(&site.testbed, &["va/stored", "-n", MODELS]).await?;
    ensure!(stored["spec"]["variantCost"] == "40.0", "what was stored is {stored}");
    let change = json!({"spec": {"maxReplicas": 5}});
    merge_patch(&site.testbed, MODELS, &format!("va/{VARIANT}"), &change).await?.success()?;
    site.healthy().await?;
    logged(site, "CRD has all fields").await?;
    Ok("the object is as it was, new fields are taken, and the log says that the CRD is complete".to_owned())
}

/// A check may see the schema of a moment ago, so the line can take until the next one.
async fn logged(site: &Site, line: &str) -> anyhow::Result<()> {
    let pods = site.pods().await?;
    eventually("the program to report the CRD", REPORTED, async || {
        ensure!(pods.iter().any(|pod| site.log(pod).contains(line)), "no log has {line:?}");
        Ok(())
    })
    .await
}

async fn printed(site: &Site) -> anyhow::Result<String> {
    let mut command = tokio::process::Command::new(site.wva());
    command.arg("crd");
    let crd = wva_testbed::run("wva crd", command, "", REPORTED).await?.success()?;
    let args = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    let version = "jsonpath={.metadata.generation}";
    let before = site.kubectl(&["get", "crd", CRD, "-o", version]).await?;
    site.testbed.kubectl_with(&args, &crd).await?.success()?;
    let after = site.kubectl(&["get", "crd", CRD, "-o", version]).await?;
    ensure!(before == after, "the generation went from {before} to {after}");
    Ok("the same".to_owned())
}

async fn install_again(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    site.helm(helm, &["--set", NO_PROMETHEUS, "--set", NO_MODEL]).await?.success()?;
    site.controller_works().await?;
    let (ran, log) = site.test(helm).await?;
    ensure!(ran.ok, "helm test failed: {ran:?}\n{log}");
    ensure!(log.contains("ok     controller ") && !log.contains("rights"), "it does not see all: {log}");
    site.remove(helm).await?;
    Ok("no conflict, and the test of a controller without variants succeeds".to_owned())
}

async fn into_result(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    site.uninstall(helm).await?;
    site.kubectl(&["get", "crd", CRD]).await?;
    site.kubectl(&["-n", MODELS, "delete", "va", "stored"]).await?;
    site.leftovers().await?;
    site.forget().await?;
    Ok("both were there, and nothing else but Lease and CA".to_owned())
}

/// `crds.install` on top of the CRD of llm-d WVA: denied without the flags.
async fn taken_over(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    site.kubectl(&["delete", "crd", CRD]).await?;
    store_object(site).await?;
    let install = ["--set", NO_PROMETHEUS, "--set", "crds.install=true", "--skip-crds"];
    let refused = site.helm(helm, &install).await?;
    ensure!(!refused.ok && refused.stderr.contains("invalid ownership metadata"), "{refused:?}");
    site.helm(helm, &[&install[..], TAKE_OVER].concat()).await?.success()?;
    site.healthy().await?;
    let field = site.kubectl(&["get", "crd", CRD, "-o", NEW_FIELD]).await?;
    ensure!(field == "integer", "the CRD does not have the new field: {field:?}");
    site.kubectl(&["-n", MODELS, "get", "va", "stored"]).await?;
    Ok("refused, taken over with the flags of the documentation, and the stored object is there".to_owned())
}

/// Makes an older release of this chart, whose CRD lacks the new field.
async fn older_chart(site: &Site) -> anyhow::Result<String> {
    let folder = site.testbed.data().join("older-release");
    let mut copy = tokio::process::Command::new("cp");
    copy.arg("-r").arg(Helm::chart()).arg(&folder);
    wva_testbed::run("cp -r", copy, "", REPORTED).await?.success()?;
    let crd = folder.join("crds/llmd.ai_variantautoscalings.yaml");
    let text = std::fs::read_to_string(&crd)?.replace("minReplicas", "earlierReplicas");
    std::fs::write(&crd, text)?;
    Ok(folder.to_str().context("the path is not UTF-8")?.to_owned())
}

async fn upgraded(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let values = ["--reset-then-reuse-values", "--set", "crds.install=true"];
    let chart = older_chart(site).await?;
    let older = ["upgrade", RELEASE, &chart, "-n", SYSTEM, helm.wait(), "--timeout=4m"];
    helm.run(&[&older[..], &values].concat()).await?.success()?;
    let field = async || site.kubectl(&["get", "crd", CRD, "-o", NEW_FIELD]).await;
    ensure!(field().await?.is_empty(), "the older release did not bring its CRD");
    site.helm(helm, &values).await?.success()?;
    let new = field().await?;
    ensure!(new == "integer", "the upgrade did not upgrade the CRD: {new:?}");
    into_result(site, helm).await
}

/// Makes a stand-in for the chart of llm-d WVA: its Deployment, which selects pods by fewer labels.
fn other_chart(site: &Site) -> anyhow::Result<String> {
    let folder = site.testbed.data().join("llm-d-wva");
    std::fs::create_dir_all(folder.join("templates"))?;
    let chart = "apiVersion: v2\nname: workload-variant-autoscaler\nversion: 0.5.1\n";
    std::fs::write(folder.join("Chart.yaml"), chart)?;
    let labels = json!({"app.kubernetes.io/name": RELEASE, "control-plane": "controller-manager"});
    let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "llm-d"}]}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": MANAGER, "labels": labels},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod},
    });
    std::fs::write(folder.join("templates/manager.yaml"), deployment.to_string())?;
    Ok(folder.to_str().context("the path is not UTF-8")?.to_owned())
}

/// The upgrade is refused before any change, and works after the command in the message.
async fn upgrade(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    helm.run(&["install", RELEASE, &other_chart(site)?, "-n", SYSTEM]).await?.success()?;
    pools(site).await?;
    let ours = ["--set", NO_PROMETHEUS, "--set", "wva.reconcileInterval=2s,wva.scaleToZero=true"];
    let refused = site.helm(helm, &ours).await?;
    let delete = format!("`kubectl delete deployment {MANAGER} -n {SYSTEM}`");
    let uninstall = format!("`helm uninstall {RELEASE} -n {SYSTEM}`");
    let named = [&delete, &uninstall].iter().all(|command| refused.stderr.contains(command.as_str()));
    ensure!(!refused.ok && named, "it was not refused with both commands: {refused:?}");
    let changed = site.testbed.kubectl(&["-n", SYSTEM, "get", "serviceaccount", MANAGER]).await?;
    ensure!(!changed.ok, "the refused upgrade made objects");
    site.kubectl(&delete.trim_matches('`').split(' ').skip(1).collect::<Vec<_>>()).await?;
    site.helm(helm, &ours).await?.success()?;
    site.healthy().await?;
    Ok("refused, and works after the command of the refusal".to_owned())
}

async fn pickers(site: &Site) -> anyhow::Result<String> {
    let seen = picker_tokens(site).await?;
    no_pools(site).await?;
    Ok(seen)
}
