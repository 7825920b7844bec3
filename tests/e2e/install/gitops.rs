//! The rendered chart with GitOps tools: it is deterministic, valid by its schemas, and can be applied repeatedly by
//! two managers while the program rotates its certificates, without conflict or drift.

use std::time::Duration;

use anyhow::{bail, ensure};
use serde_json::Value;

use super::site::{MODEL, NO_PROMETHEUS, chart};
use super::{Extent, Site, Table};
use wva_testbed::install::{RELEASE, SYSTEM, WEBHOOKS};
use wva_testbed::{Helm, eventually};

/// Shortest lifetimes, so that rotations happen between applies.
const SHORT_LIVES: &str = "wva.settings.WVA_CA_LIFETIME=1m,wva.settings.WVA_CERT_LIFETIME=1m";
/// Longest wait for a rotation: it comes at two thirds of the lifetime, checked every minute.
const ROTATED: Duration = Duration::from_mins(6);
/// Longest wait for the schema of a new CRD.
const PUBLISHED: Duration = Duration::from_mins(3);
/// Field managers.
const MANAGERS: [&str; 2] = ["argocd-controller", "kustomize-controller"];

pub(super) async fn run(site: &Site, extent: Extent, table: &mut Table) -> anyhow::Result<()> {
    let helm = Helm::new(&site.testbed, "helm").await?;
    table.step("helm lint --strict", Box::pin(lint(site, extent))).await;
    table.step("two renders compared", Box::pin(two_renders(site, extent))).await;
    table.step("kubectl create --dry-run=server --validate=strict", Box::pin(conforms(site, &helm))).await;
    table.step("server-side apply of the render", Box::pin(applied(site, &helm))).await;
    if extent == Extent::Full {
        table.step("a rotated CA in the webhook configurations", Box::pin(rotated(site))).await;
    }
    let times = extent.times(100, 6);
    table
        .step(&format!("{times} applies by two managers"), Box::pin(applied_often(site, &helm, times)))
        .await;
    table.step("kubectl diff", Box::pin(no_drift(site, &helm))).await;
    table.step("deleted again", Box::pin(deleted(site, &helm))).await;
    Ok(())
}

/// Renders the chart with `helm template` for the version of the cluster, which `helm template` does not read.
pub(super) async fn render(helm: &Helm, args: &[&str]) -> anyhow::Result<String> {
    let template = ["template", RELEASE, &chart(), "-n", SYSTEM, "--no-hooks"];
    let values = ["--set", NO_PROMETHEUS, "--set", MODEL, "--kube-version", helm.kubernetes()];
    helm.run(&[&template[..], &values, args].concat()).await?.success()
}

/// Documents of a render.
pub(super) fn documents(yaml: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(yaml).map_err(|e| anyhow::anyhow!("the render is not YAML: {e}"))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

async fn lint(site: &Site, extent: Extent) -> anyhow::Result<String> {
    for &name in extent.helms() {
        let lint = ["lint", &chart(), "--strict", "--set", NO_PROMETHEUS];
        Helm::new(&site.testbed, name).await?.run(&lint).await?.success()?;
    }
    Ok(format!("nothing, by {}", extent.helms().join(" and ")))
}

async fn two_renders(site: &Site, extent: Extent) -> anyhow::Result<String> {
    let args = ["--include-crds", "--set", "wva.externalMetrics.enabled=true"];
    let mut seen = Vec::new();
    for &name in extent.helms() {
        let helm = Helm::new(&site.testbed, name).await?;
        let (first, second) = (render(&helm, &args).await?, render(&helm, &args).await?);
        ensure!(first == second, "those of {name} differ");
        seen.push(format!("the same {} bytes by {name}", first.len()));
    }
    Ok(seen.join(", "))
}

/// Validates the render on the API server. Unknown fields are errors.
async fn conforms(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    site.kubectl(&["apply", "--server-side", "-f", &format!("{}/crds", chart())]).await?;
    let parts = "wva.externalMetrics.enabled=true,networkPolicy.enabled=true,wva.prometheus.monitoringNamespace=monitoring";
    let rendered = render(helm, &["--set", parts]).await?;
    let create = ["create", "--dry-run=server", "--validate=strict", "-f", "-"];
    // The schema of a new CRD is published some time after it.
    let created = eventually("the API server to take the render", PUBLISHED, async || {
        site.testbed.kubectl_with(&create, &rendered).await?.success()
    });
    Ok(format!("{} objects are valid", created.await?.lines().count()))
}

async fn applied(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    apply(site, &render(helm, &["--include-crds", "--set", SHORT_LIVES]).await?, MANAGERS[0]).await?;
    site.healthy().await?;
    Ok("everything works".to_owned())
}

async fn apply(site: &Site, render: &str, manager: &str) -> anyhow::Result<()> {
    let manager = format!("--field-manager={manager}");
    let args = ["apply", "--server-side", &manager, "-f", "-"];
    let mut ran = site.testbed.kubectl_with(&args, render).await?;
    if !ran.ok && ran.stderr.contains("no matches for kind") {
        // The render contains the CRD, and kubectl has read the kinds before.
        ran = site.testbed.kubectl_with(&args, render).await?;
    }
    ran.success().map(drop)
}

async fn rotated(site: &Site) -> anyhow::Result<String> {
    let bundle = async || {
        let path = "jsonpath={.webhooks[0].clientConfig.caBundle}";
        site.kubectl(&["get", "validatingwebhookconfiguration", WEBHOOKS, "-o", path]).await
    };
    let before = bundle().await?;
    eventually("another caBundle", ROTATED, async || {
        ensure!(bundle().await? != before, "it has not changed");
        Ok(())
    })
    .await?;
    Ok("it has changed".to_owned())
}

async fn applied_often(site: &Site, helm: &Helm, times: usize) -> anyhow::Result<String> {
    let render = render(helm, &["--include-crds", "--set", SHORT_LIVES]).await?;
    let pods = site.pods().await?;
    let mut conflicts = Vec::new();
    for turn in 0..times {
        if let Err(error) = apply(site, &render, MANAGERS[turn % MANAGERS.len()]).await {
            conflicts.push(format!("{error:#}"));
        }
    }
    if let Some(first) = conflicts.first() {
        bail!("{} conflicts, such as: {first}", conflicts.len());
    }
    site.healthy().await?;
    ensure!(site.pods().await? == pods, "pods were replaced");
    Ok("0 conflicts".to_owned())
}

async fn no_drift(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let render = render(helm, &["--include-crds", "--set", SHORT_LIVES]).await?;
    let manager = format!("--field-manager={}", MANAGERS[0]);
    for args in [&["diff", "-f", "-"][..], &["diff", "--server-side", &manager, "-f", "-"]] {
        let ran = site.testbed.kubectl_with(args, &render).await?;
        ensure!(ran.ok, "{args:?} found:\n{}{}", ran.stdout, ran.stderr);
    }
    Ok("exit 0, client-side and server-side".to_owned())
}

async fn deleted(site: &Site, helm: &Helm) -> anyhow::Result<String> {
    let render = render(helm, &["--set", SHORT_LIVES]).await?;
    // The token Secret is deleted with its service account.
    let args = ["delete", "--ignore-not-found", "--timeout=150s", "-f", "-"];
    site.testbed.kubectl_with(&args, &render).await?.success()?;
    site.leftovers().await?;
    site.forget().await?;
    Ok("nothing left but CRD, Lease and CA".to_owned())
}
