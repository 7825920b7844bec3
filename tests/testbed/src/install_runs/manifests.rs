//! The ways to install without typing Helm commands: the Kustomize base with its component, and `deploy/install.sh`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::site::{CRD, MODELS, Site};
use super::table::Table;
use crate::install::{RELEASE, SYSTEM};
use crate::{Helm, Ran, access, eventually};

/// Longest wait for the external metrics API and for namespaces that go.
const SOON: Duration = Duration::from_mins(1);
/// Longest run of the script: it waits for the release.
const SCRIPT: Duration = Duration::from_mins(4);

pub(super) async fn run(site: &Site, table: &mut Table) -> anyhow::Result<()> {
    let helm = Helm::new(&site.testbed, "helm").await?;
    table.step("install.sh", Box::pin(script(site, &helm))).await;
    table.step("install.sh again, with an instance", Box::pin(script_again(site, &helm))).await;
    table.step("install.sh with a value that is none", Box::pin(script_refuses(site, &helm))).await;
    table.step("install.sh --uninstall", Box::pin(script_uninstalls(site, &helm))).await;
    table.step("kubectl apply -k of an overlay, with external metrics", Box::pin(base(site))).await;
    table.step("kubectl delete -k", Box::pin(base_deleted(site))).await;
    Ok(())
}

/// A folder of the repository.
fn repository(path: &str) -> anyhow::Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    path.canonicalize().with_context(|| format!("there is no {}", path.display()))
}

async fn install_sh(site: &Site, helm: &Helm, env: &[(&str, &str)], args: &[&str]) -> anyhow::Result<Ran> {
    let mut command = tokio::process::Command::new(repository("deploy/install.sh")?);
    command.env("HELM", helm.program()).env("KUBECTL", site.testbed.tools().path("kubectl")?);
    command.env("KUBECONFIG", site.testbed.admin_kubeconfig()).envs(env.iter().copied()).args(args);
    access::run("install.sh", command, "", SCRIPT).await
}

/// The HPA's windows, up and down, and the instance that it selects by.
async fn window(site: &Site) -> anyhow::Result<String> {
    let path = "jsonpath={.spec.behavior.scaleUp.stabilizationWindowSeconds}/{.spec.behavior.scaleDown.stabilizationWindowSeconds}/{.spec.metrics[0].external.metric.selector.matchLabels.controller_instance}";
    site.kubectl(&["-n", MODELS, "get", "hpa", &format!("{RELEASE}-hpa"), "-o", path]).await
}

async fn script(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    install_sh(site, helm, &[("PROMETHEUS_URL", "http://127.0.0.1:9")], &[]).await?.success()?;
    site.healthy().await?;
    let window = window(site).await?;
    ensure!(window == "240/240/", "windows and instance are {window}");
    let label = site.kubectl(&["get", "namespace", SYSTEM, "-o", "jsonpath={.metadata.labels}"]).await?;
    ensure!(label.contains("openshift.io/user-monitoring"), "the namespace's labels are {label}");
    Ok("everything works; the HPA's windows are 240 s".to_owned())
}

async fn script_again(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let env = [
        ("PROMETHEUS_URL", "http://127.0.0.1:9"),
        ("HPA_STABILIZATION_SECONDS", "120"),
        ("CONTROLLER_INSTANCE", "llm-d-autoscaler-pr-123"),
    ];
    install_sh(site, helm, &env, &["--set", "hpa.maxReplicas=20"]).await?.success()?;
    let window = window(site).await?;
    ensure!(window == "120/120/llm-d-autoscaler-pr-123", "windows and instance are {window}");
    eventually("the new pods to lead", SOON, async || {
        let pods = site.pods().await?;
        ensure!(
            pods.iter().any(|pod| site.log(pod).contains("llm-d-autoscaler-pr-123")),
            "no log names the instance"
        );
        Ok(())
    })
    .await?;
    Ok("the HPA's windows are 120 s, and it selects by the instance".to_owned())
}

async fn script_refuses(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let ran = install_sh(site, helm, &[("HPA_STABILIZATION_SECONDS", "soon")], &[]).await?;
    ensure!(!ran.ok && ran.stderr.contains("HPA_STABILIZATION_SECONDS is 'soon'"), "{ran:?}");
    Ok(ran.stderr.trim().to_owned())
}

async fn script_uninstalls(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    install_sh(site, helm, &[], &["--uninstall"]).await?.success()?;
    site.leases_gone().await?;
    site.leftovers().await?;
    site.forget().await?;
    Ok("nothing left but CRD, Lease and CA".to_owned())
}

/// An overlay as `docs/install.md` shows it.
fn overlay(site: &Site) -> anyhow::Result<PathBuf> {
    let folder = site.testbed.data().join("overlay");
    std::fs::create_dir_all(&folder)?;
    // Kustomize wants paths that are relative to the file.
    let up = "../".repeat(folder.canonicalize()?.components().count() - 1);
    let relative = |path: PathBuf| format!("{up}{}", path.to_string_lossy().trim_start_matches('/'));
    let (base, component) =
        (relative(repository("config/base")?), relative(repository("config/external-metrics")?));
    let text = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{base}]
components: [{component}]
patches:
- patch: |
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: wva-variantautoscaling-config, namespace: {SYSTEM}}}
    data: {{PROMETHEUS_BASE_URL: 'http://127.0.0.1:9'}}
"
    );
    std::fs::write(folder.join("kustomization.yaml"), text)?;
    Ok(folder)
}

async fn base(site: &Site) -> anyhow::Result<String> {
    let folder = overlay(site)?;
    site.kubectl(&["apply", "--server-side", "-k", &folder.to_string_lossy()]).await?;
    site.controller_works().await?;
    eventually("the external metrics API to answer", SOON, async || {
        let path = format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{MODELS}/wva_desired_replicas");
        let answer: Value = serde_json::from_str(&site.kubectl(&["get", "--raw", &path]).await?)?;
        ensure!(answer["kind"] == "ExternalMetricValueList", "it says {answer}");
        Ok(())
    })
    .await?;
    Ok("everything works, and the external metrics API answers".to_owned())
}

async fn base_deleted(site: &Site) -> anyhow::Result<String> {
    let folder = overlay(site)?;
    site.kubectl(&["delete", "--timeout=55s", "-k", &folder.to_string_lossy()]).await?;
    let crd = site.testbed.kubectl(&["get", "crd", CRD]).await?;
    ensure!(!crd.ok, "the CRD is still there");
    site.namespaces().await?;
    site.leftovers().await?;
    Ok("nothing left".to_owned())
}
