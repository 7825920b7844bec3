//! Commands that wva prints, on an install by Helm: each runs as printed, and an upgrade of the release by Helm 4 after it
//! has no conflict and leaves the fields to Helm.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::site::{MAIN_MAP, MANAGER, MODELS, NO_PROMETHEUS, Site, VARIANT};
use super::table::Table;
use crate::printed_list::{PRINTED, Printed, Treatment};
use crate::support::{apply_stand_in, get_object, repository_path, valid_spec, variant};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::SYSTEM;
use wva_testbed::{CommandOutput, Helm, eventually};

const SOON: Duration = Duration::from_mins(3);
/// Namespace with a variant that no release owns.
const PROD: &str = "prod";
/// Changes the cost: what a person does in the editor.
const EDITOR: &str = "sed -i /variantCost:/s/10/33/";

pub(super) async fn run(site: &Site, table: &mut Table) -> anyhow::Result<()> {
    let helm = Helm::new(&site.testbed, "helm").await?;
    table.step("install by Helm, and a variant that no release owns", Box::pin(prepare(site, &helm))).await;
    table.step("refusals of a change of the release's map", Box::pin(refusals(site, &helm))).await;
    table.step("a change by hand conflicts, so the test would see one", Box::pin(by_hand(site, &helm))).await;
    for row in PRINTED {
        match row.treatment {
            Treatment::Runs(names) => {
                table.step(row.text, Box::pin(followed_by_upgrade(site, &helm, row, names))).await;
            }
            Treatment::Apart(reason) => {
                table.step(row.text, async { Ok(format!("not run: {reason}")) }).await;
            }
        }
    }
    table.step("uninstall", Box::pin(done(site, &helm))).await;
    Ok(())
}

async fn upgrade(site: &Site, helm: &Helm, more: &[&str]) -> anyhow::Result<()> {
    let values = ["--set", NO_PROMETHEUS, "--set", "wva.externalMetrics.enabled=true"];
    site.helm(helm, &[&values[..], more].concat()).await?.success().map(drop)
}

async fn prepare(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    upgrade(site, helm, &[]).await?;
    site.healthy().await?;
    apply_stand_in(&site.testbed, "scaledobjects").await?;
    site.kubectl(&["create", "namespace", PROD]).await?;
    site.kubectl(&["label", "namespace", PROD, "wva.llmd.ai/controller-instance=gone"]).await?;
    site.testbed.apply(&VariantFixture::new(PROD, "a").deployment()).await?;
    let mut object = variant("a", &valid_spec("a"));
    object["metadata"]["namespace"] = json!(PROD);
    object["spec"]["variantCost"] = json!("10");
    site.testbed.apply(&object.to_string()).await?;
    let image = "image: vllm/vllm-openai";
    let set = VariantFixture::new(PROD, "llama").deployment().replace("Deployment", "StatefulSet");
    let set = set.replace(image, &format!("{image}\n        args: [--model, meta/llama]"));
    site.testbed.apply(&set).await?;
    // An HPA with the annotation of llm-d WVA v0.9, for `wva migrate`.
    site.testbed.apply(&VariantFixture::new("default", "b").deployment()).await?;
    let hpa = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "b", "namespace": "default", "annotations": {
            "llm-d.ai/managed": "true", "llm-d.ai/model-id": "meta/b",
        }},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "b"}, "maxReplicas": 3,
            "metrics": [{"type": "External", "external": {"metric": {"name": "wva_desired_replicas"},
                "target": {"type": "AverageValue", "averageValue": "1"}}}]},
    });
    site.testbed.apply(&hpa.to_string()).await?;
    Ok("works".to_owned())
}

/// The webhook and the policy both know that Helm owns the map.
async fn refusals(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let change = r#"{"data":{"PROMETHEUS_BASE_URL":"http://127.0.0.1:19"}}"#;
    let patch = ["-n", SYSTEM, "patch", "configmap", MAIN_MAP, "--type=merge", "-p", change];
    let refused = async || -> anyhow::Result<String> {
        let ran = site.testbed.kubectl(&patch).await?;
        ensure!(!ran.ok && ran.stderr.contains("WVA-CM-001"), "it is not refused: {ran:?}");
        Ok(ran.stderr)
    };
    let names_helm = |message: &str| {
        ensure!(message.contains("change it in the values of"), "it names no values: {message}");
        ensure!(!message.contains("set annotation"), "it leads to a change by hand: {message}");
        anyhow::Ok(())
    };
    names_helm(&refused().await?)?;
    let manager = format!("deployment/{MANAGER}");
    site.kubectl(&["-n", SYSTEM, "scale", &manager, "--replicas=0"]).await?;
    eventually("the policy alone to refuse it", SOON, async || {
        let message = refused().await?;
        ensure!(message.contains("ValidatingAdmissionPolicy"), "{message}");
        names_helm(&message)
    })
    .await?;
    site.kubectl(&["-n", SYSTEM, "scale", &manager, "--replicas=2"]).await?;
    upgrade(site, helm, &["--set", "wva.prometheus.baseURL=http://127.0.0.1:19"]).await?;
    site.healthy().await?;
    Ok("webhook and policy name the release, and its upgrade makes the change".to_owned())
}

/// What the policy printed before it knew the owner.
async fn by_hand(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let change = json!({"metadata": {"annotations": {"wva.llmd.ai/restart-revision": "2"}},
        "data": {"PROMETHEUS_BASE_URL": "http://127.0.0.1:29"}});
    let patch = ["-n", SYSTEM, "patch", "configmap", MAIN_MAP, "--type=merge", "-p", &change.to_string()];
    site.kubectl(&patch).await?;
    let conflict = upgrade(site, helm, &[]).await.err().context("the upgrade has no conflict")?;
    ensure!(conflict.to_string().contains("conflict"), "{conflict:#}");
    upgrade(site, helm, &["--force-conflicts"]).await?;
    site.healthy().await?;
    Ok("the upgrade names kubectl-patch".to_owned())
}

async fn followed_by_upgrade(
    site: &Site,
    helm: &Helm,
    row: &Printed,
    names: &[(&str, &str)],
) -> anyhow::Result<String> {
    if row.text.starts_with("kubectl scale") {
        site.kubectl(&["-n", SYSTEM, "scale", &format!("deployment/{MANAGER}"), "--replicas=0"]).await?;
    }
    let script = row.script(names);
    bash(site, helm, &script).await?.success().with_context(|| script.clone())?;
    upgrade(site, helm, &[]).await.context("the upgrade after it")?;
    site.healthy().await?;
    for object in [["configmap", MAIN_MAP, SYSTEM], ["deployment", MANAGER, SYSTEM], ["va", VARIANT, MODELS]]
    {
        let [kind, name, namespace] = object;
        let show = ["--show-managed-fields", kind, name, "-n", namespace];
        let found = get_object(&site.testbed, &show).await?;
        is_of_helm(&found).with_context(|| format!("{kind} {name}"))?;
    }
    Ok("the upgrade has no conflict".to_owned())
}

/// Fields that Helm renders have no second owner.
fn is_of_helm(object: &Value) -> anyhow::Result<()> {
    let fields = object["metadata"]["managedFields"].as_array().context("no managed fields")?;
    let part = if object["kind"] == "ConfigMap" { "f:data" } else { "f:spec" };
    let owners: Vec<&str> = fields
        .iter()
        .filter(|field| field["subresource"].is_null() && !field["fieldsV1"][part].is_null())
        .filter_map(|field| field["manager"].as_str())
        .collect();
    ensure!(owners.contains(&"helm"), "{part} belongs to {owners:?}");
    Ok(())
}

/// Runs a printed command in a folder with the chart, as a person does who has wva, kubectl and Helm.
async fn bash(site: &Site, helm: &Helm, script: &str) -> anyhow::Result<CommandOutput> {
    let programs = [site.wva(), site.testbed.tools().path("kubectl")?, helm.program()];
    let folders = programs.map(|program| program.parent().map(|folder| folder.display().to_string()));
    let path = folders.into_iter().flatten().chain(std::env::var("PATH")).collect::<Vec<_>>().join(":");
    let mut command = tokio::process::Command::new("bash");
    command.args(["-o", "pipefail", "-c", script]).current_dir(repository_path("."));
    command.env("PATH", path).env("KUBECONFIG", site.testbed.admin_kubeconfig()).env("KUBE_EDITOR", EDITOR);
    wva_testbed::run(script, command, "", SOON).await
}

async fn done(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    for namespace in [PROD, "default"] {
        site.kubectl(&["-n", namespace, "delete", "va,hpa,scaledobject", "--all"]).await?;
    }
    site.kubectl(&["-n", "default", "delete", "deployment", "b"]).await?;
    site.kubectl(&["-n", SYSTEM, "delete", "secret", "wva-ca"]).await?;
    site.kubectl(&["delete", "namespace", PROD, "--timeout=150s"]).await?;
    site.kubectl(&["delete", "crd", "scaledobjects.keda.sh"]).await?;
    site.remove(helm).await
}
