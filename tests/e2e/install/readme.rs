//! The README of the chart of llm-d WVA, command by command, as far as they concern this program and can run here:
//! `docs/getting-started/install.md` lists the rest.

use anyhow::ensure;

use super::profiles::profile;
use super::site::{MAIN_MAP, MODELS, Site, VARIANT};
use super::table::Table;
use crate::support::get_object;
use wva_testbed::Helm;
use wva_testbed::install::{RELEASE, SYSTEM};

/// Defaults of the chart of llm-d WVA, which its documents call `values.yaml`. Passed first to each command.
const COMPATIBLE: &str = "values-llm-d-wva.yaml";

pub(super) async fn run(site: &Site, table: &mut Table) -> anyhow::Result<()> {
    let helm = Helm::new(&site.testbed, "helm").await?;
    let readme = Readme { site, helm: &helm };
    table.step("helm ls -A", Box::pin(readme.list())).await;
    table.step("kubectl apply of the Namespace", Box::pin(readme.namespace())).await;
    table
        .step("INSTALL (on OpenShift), with --set-file wva.prometheus.caCert", Box::pin(readme.openshift()))
        .await;
    for example in &Example::all() {
        table.step(example.name, Box::pin(readme.example(example))).await;
    }
    table.step("an immutable map changed by its three steps", Box::pin(readme.immutable())).await;
    table.step("VALIDATION: the external metric", Box::pin(readme.metric())).await;
    table.step("CLEANUP", Box::pin(readme.cleanup())).await;
    Ok(())
}

/// An example of the README, and its expected result.
struct Example {
    name: &'static str,
    args: Vec<String>,
    /// Namespace and name for kubectl.
    object: [&'static str; 3],
    path: &'static str,
    holds: String,
}

impl Example {
    /// Sets both stabilization windows of the HPA.
    fn windows(name: &'static str, seconds: u32) -> Self {
        let set =
            |way| ["--set".to_owned(), format!("hpa.behavior.{way}.stabilizationWindowSeconds={seconds}")];
        Self {
            name,
            args: ["scaleUp", "scaleDown"].map(set).concat(),
            object: ["-n", MODELS, "hpa/workload-variant-autoscaler-hpa"],
            path: "{.spec.behavior.scaleUp.stabilizationWindowSeconds}/{.spec.behavior.scaleDown.stabilizationWindowSeconds}",
            holds: format!("{seconds}/{seconds}"),
        }
    }

    /// A values file and further values, with their result in the main config map.
    fn values(name: &'static str, file: &str, further: &[&str], path: &'static str, holds: &str) -> Self {
        let file = profile(file);
        let further = further.iter().flat_map(|value| ["--set".to_owned(), (*value).to_owned()]);
        Self {
            name,
            args: ["--values".to_owned(), file].into_iter().chain(further).collect(),
            object: ["-n", SYSTEM, "configmap/workload-variant-autoscaler-variantautoscaling-config"],
            path,
            holds: holds.to_owned(),
        }
    }

    fn all() -> [Self; 6] {
        let log = "{.data.PROMETHEUS_TLS_INSECURE_SKIP_VERIFY}/{.data.LOG_LEVEL}";
        let custom = ["wva.prometheus.tls.insecureSkipVerify=true", "wva.image.tag=v0.0.1-dev"];
        let immutable = ["wva.configMap.immutable=true"];
        let image = "{.spec.template.spec.containers[0].image}";
        let tagged = "localhost/wva:v0.0.1-dev";
        [
            Self::windows("Production: Conservative scaling", 240),
            Self::windows("E2E Testing: Fast scaling", 30),
            Self::values("Production Deployment", COMPATIBLE, &[], log, "false/info"),
            Self::values("Development Deployment", "values-dev.yaml", &[], log, "true/debug"),
            Self {
                object: ["-n", SYSTEM, "deployment/workload-variant-autoscaler-controller-manager"],
                ..Self::values("Custom Configuration", COMPATIBLE, &custom, image, tagged)
            },
            Self::values("Immutable ConfigMap", COMPATIBLE, &immutable, "{.immutable}", "true"),
        ]
    }
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

    /// Other settings are those of the README: Thanos of OpenShift, which is not available here.
    async fn openshift(&self) -> anyhow::Result<String> {
        let ca = format!("wva.prometheus.caCert={}", self.site.testbed.ca().display());
        let values = "va.accelerator=L40S,llmd.modelID=unsloth/Meta-Llama-3.1-8B";
        let service = "vllmService.enabled=true,vllmService.nodePort=30000";
        let args = ["-f", &profile(COMPATIBLE), "--set-file", &ca, "--set", values, "--set", service];
        self.site.helm(self.helm, &args).await?.success()?;
        self.site.healthy().await?;
        let map = get_object(&self.site.testbed, &["configmap", MAIN_MAP, "-n", SYSTEM]).await?;
        let path = &map["data"]["PROMETHEUS_CA_CERT_PATH"];
        ensure!(path == "/etc/wva/prometheus-ca/ca.crt", "the CA's path is {path}");
        let path = "jsonpath={.metadata.labels.inference\\.optimization/acceleratorName} {.spec.modelID}";
        let variant = self.site.kubectl(&["-n", MODELS, "get", "va", VARIANT, "-o", path]).await?;
        ensure!(variant == "L40S unsloth/Meta-Llama-3.1-8B", "the variant has {variant}");
        Ok(format!("everything works without a Prometheus; the CA is mounted; the variant has {variant}"))
    }

    async fn example(&self, example: &Example) -> anyhow::Result<String> {
        let compatible = profile(COMPATIBLE);
        let args = ["-f", &compatible].into_iter().chain(example.args.iter().map(String::as_str));
        self.site.helm(self.helm, &args.collect::<Vec<_>>()).await?.success()?;
        self.site.healthy().await?;
        let Example { object, path, holds, .. } = example;
        let path = format!("jsonpath={path}");
        let found = self.site.kubectl(&[&["get"][..], object, &["-o", &path]].concat()).await?;
        ensure!(found == *holds, "{} has {found}, not {holds}", object[2]);
        Ok(format!("everything works; {} has {holds}", object[2]))
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
        let args = ["--reuse-values", "--set", "wva.externalMetrics.enabled=true"];
        self.site.helm(self.helm, &args).await?.success()?;
        self.site.healthy().await?;
        self.site.external_metrics_are_served().await?;
        Ok("answered by the controller itself, without an adapter".to_owned())
    }

    async fn cleanup(&self) -> anyhow::Result<String> {
        self.helm.run(&["delete", RELEASE, "-n", SYSTEM, "--wait"]).await?.success()?;
        self.site.kubectl(&["delete", "ns", SYSTEM, "--timeout=150s"]).await?;
        self.site.namespaces().await?;
        self.site.leftovers().await?;
        Ok("nothing left but the CRD".to_owned())
    }
}
