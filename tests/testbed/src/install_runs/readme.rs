//! The original chart's README, command by command, as far as they concern this program and this machine can run them:
//! `docs/install.md` has the table with the rest.

use std::time::Duration;

use anyhow::ensure;
use serde_json::Value;

use super::site::{MAIN_MAP, MODELS, Site};
use super::table::Table;
use crate::install::{RELEASE, SYSTEM};
use crate::{Helm, eventually};

/// Longest wait for the external metrics API.
const SOON: Duration = Duration::from_mins(1);

pub(super) async fn run(site: &Site, table: &mut Table) -> anyhow::Result<()> {
    let helm = Helm::new(&site.testbed, "helm").await?;
    let readme = Readme { site, helm: &helm };
    table.step("helm ls -A", Box::pin(readme.list())).await;
    table.step("kubectl apply of the Namespace", Box::pin(readme.namespace())).await;
    table
        .step("INSTALL (on OpenShift), with --set-file wva.prometheus.caCert", Box::pin(readme.openshift()))
        .await;
    let values = Helm::chart().join("values.yaml").to_string_lossy().into_owned();
    let dev = Helm::chart().join("values-dev.yaml").to_string_lossy().into_owned();
    let both = |seconds: u32| {
        ["scaleUp", "scaleDown"].map(|way| format!("hpa.behavior.{way}.stabilizationWindowSeconds={seconds}"))
    };
    let (slow, fast) = (both(240), both(30));
    let custom = ["wva.prometheus.tls.insecureSkipVerify=true", "wva.image.tag=v0.0.1-dev"];
    let examples: [(&str, Vec<&str>); 6] = [
        ("Production: Conservative scaling", vec!["--set", &slow[0], "--set", &slow[1]]),
        ("E2E Testing: Fast scaling", vec!["--set", &fast[0], "--set", &fast[1]]),
        ("Production Deployment", vec!["--values", &values]),
        ("Development Deployment", vec!["--values", &dev]),
        ("Custom Configuration", vec!["--values", &values, "--set", custom[0], "--set", custom[1]]),
        ("Immutable ConfigMap", vec!["--values", &values, "--set", "wva.configMap.immutable=true"]),
    ];
    for (name, args) in &examples {
        table.step(name, Box::pin(readme.example(args))).await;
    }
    table.step("an immutable map changed by its three steps", Box::pin(readme.immutable())).await;
    table.step("VALIDATION: the external metric", Box::pin(readme.metric())).await;
    table.step("CLEANUP", Box::pin(readme.cleanup())).await;
    Ok(())
}

struct Readme<'a> {
    site: &'a Site,
    helm: &'a Helm,
}

impl Readme<'_> {
    async fn list(&self) -> anyhow::Result<String> {
        self.helm.run(&["ls", "-A"]).await?.success()?;
        Ok("lists releases".to_owned())
    }

    async fn namespace(&self) -> anyhow::Result<String> {
        let namespace = format!(
            "apiVersion: v1
kind: Namespace
metadata:
  name: {SYSTEM}
  labels:
    app.kubernetes.io/name: workload-variant-autoscaler
    control-plane: controller-manager
    openshift.io/user-monitoring: \"true\"
"
        );
        self.site.testbed.apply(&namespace).await?;
        Ok("applied".to_owned())
    }

    /// Settings that nobody names are the README's own: OpenShift's Thanos, which is not here.
    async fn openshift(&self) -> anyhow::Result<String> {
        let ca = format!("wva.prometheus.caCert={}", self.site.testbed.ca().display());
        let args = [
            "--set-file",
            &ca,
            "--set",
            "va.accelerator=L40S",
            "--set",
            "llmd.modelID=unsloth/Meta-Llama-3.1-8B",
            "--set",
            "vllmService.enabled=true",
            "--set",
            "vllmService.nodePort=30000",
        ];
        self.site.helm(self.helm, &args).await?.success()?;
        self.site.healthy().await?;
        let map = self.site.kubectl(&["-n", SYSTEM, "get", "configmap", MAIN_MAP, "-o", "json"]).await?;
        let map: Value = serde_json::from_str(&map)?;
        let path = &map["data"]["PROMETHEUS_CA_CERT_PATH"];
        ensure!(path == "/etc/wva/prometheus-ca/ca.crt", "the CA's path is {path}");
        Ok("everything works without a Prometheus, and the CA is mounted".to_owned())
    }

    async fn example(&self, args: &[&str]) -> anyhow::Result<String> {
        self.site.helm(self.helm, args).await?.success()?;
        self.site.healthy().await?;
        Ok("everything works".to_owned())
    }

    async fn immutable(&self) -> anyhow::Result<String> {
        let change = ["--reuse-values", "--set", "wva.reconcileInterval=45s"];
        let ran = self.site.helm(self.helm, &change).await?;
        ensure!(!ran.ok && ran.stderr.contains("immutable"), "it was not refused: {ran:?}");
        self.site.kubectl(&["-n", SYSTEM, "delete", "configmap", MAIN_MAP]).await?;
        self.site.helm(self.helm, &change).await?.success()?;
        self.site.healthy().await?;
        Ok("refused, taken after the map was deleted; no restart is needed for this one".to_owned())
    }

    async fn metric(&self) -> anyhow::Result<String> {
        self.site.helm(self.helm, &["--set", "wva.externalMetrics.enabled=true"]).await?.success()?;
        self.site.healthy().await?;
        eventually("the external metrics API to answer", SOON, async || {
            let path =
                format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{MODELS}/wva_desired_replicas");
            let answer: Value = serde_json::from_str(&self.site.kubectl(&["get", "--raw", &path]).await?)?;
            ensure!(answer["kind"] == "ExternalMetricValueList", "it says {answer}");
            Ok(())
        })
        .await?;
        Ok("answered by the controller itself, without an adapter".to_owned())
    }

    async fn cleanup(&self) -> anyhow::Result<String> {
        self.helm.run(&["delete", RELEASE, "-n", SYSTEM, "--wait"]).await?.success()?;
        self.site.kubectl(&["delete", "ns", SYSTEM, "--timeout=55s"]).await?;
        self.site.namespaces().await?;
        self.site.leftovers().await?;
        Ok("nothing left but the CRD".to_owned())
    }
}
