//! Lifecycle of a release: from the values of llm-d WVA to ours, settings that take effect at once and settings that
//! need a restart, a denied change, a failed one that is rolled back, a manual rollback, and uninstall. With every
//! Helm, and with client-side and server-side apply.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::profiles::profile;
use super::site::{MAIN_MAP, NO_PROMETHEUS};
use super::{Extent, Site, Table};
use crate::support::repository_path;
use wva_testbed::install::{RELEASE, SYSTEM};
use wva_testbed::{CommandOutput, Helm, eventually};

/// Longest wait for a setting to take effect.
const READ: Duration = Duration::from_mins(3);

pub(crate) async fn run(site: &Site, extent: Extent, table: &mut Table) -> anyhow::Result<()> {
    for &name in extent.helms() {
        let helm = Helm::new(&site.testbed, name).await?;
        // Helm 3 has no server-side apply.
        let ways: &[&[&str]] = match name {
            "helm" if extent == Extent::Full => &[&["--server-side=true"], &["--server-side=false"]],
            "helm" => &[&["--server-side=true"]],
            _ => &[&[]],
        };
        for way in ways {
            let release = Release { site, helm: &helm, way };
            Box::pin(release.run_all(table)).await;
        }
    }
    Ok(())
}

/// One release with one way to apply.
struct Release<'a> {
    site: &'a Site,
    helm: &'a Helm,
    way: &'a [&'a str],
}

impl Release<'_> {
    async fn run_all(&self, table: &mut Table) {
        let by = [&[self.helm.name()], self.way].concat().join(" ");
        let name = |what: &str| format!("{by}: {what}");
        table.step(&name("install with the values of llm-d WVA"), Box::pin(self.install())).await;
        table.step(&name("helm test without metrics"), Box::pin(self.test())).await;
        table.step(&name("upgrade to other values"), Box::pin(self.upgrade())).await;
        table
            .step(&name("--reuse-values, a setting that takes effect at once"), Box::pin(self.mutable()))
            .await;
        table.step(&name("kubectl patch of a setting that needs a restart"), Box::pin(self.refused())).await;
        table.step(&name("the same with --reuse-values --set"), Box::pin(self.immutable())).await;
        table.step(&name("an upgrade that fails, with --atomic"), Box::pin(self.fails())).await;
        if self.helm.name() == "helm" {
            table.step(&name("an upgrade applied the other way"), Box::pin(self.other_way())).await;
        }
        table.step(&name("rollback to the first revision"), Box::pin(self.rollback())).await;
        table.step(&name("an immutable map"), Box::pin(self.immutable_map())).await;
        table.step(&name("uninstall"), Box::pin(self.site.remove(self.helm))).await;
    }

    async fn helm(&self, args: &[&str]) -> anyhow::Result<CommandOutput> {
        self.site.helm(self.helm, &[args, self.way].concat()).await
    }

    async fn install(&self) -> anyhow::Result<String> {
        let values = repository_path("tests/fixtures/original/chart-values-saturation.yaml");
        let (profile, values) = (profile("values-llm-d-wva.yaml"), values.to_string_lossy());
        self.helm(&["-f", &profile, "-f", &values, "--set", NO_PROMETHEUS]).await?.success()?;
        self.site.healthy().await?;
        let map = format!("configmap/{RELEASE}-wva-saturation-scaling-config");
        let entry = self.site.kubectl(&["-n", SYSTEM, "get", &map, "-o", "jsonpath={.data.llm-d}"]).await?;
        ensure!(entry.contains("model_id: Qwen/Qwen3-0.6B"), "the override is {entry:?}");
        Ok("the override is in the map".to_owned())
    }

    /// No component serves the metric to the HPA here, which the test must report.
    async fn test(&self) -> anyhow::Result<String> {
        let (ran, log) = self.site.test(self.helm).await?;
        let broken = log.lines().find(|line| line.contains("BROKEN metric"));
        ensure!(!ran.ok, "it succeeded: {log}");
        let broken = broken.with_context(|| format!("the link is not named: {ran:?}\n{log}"))?;
        ensure!(log.contains("ok     variant "), "the variant is not seen: {log}");
        Ok(format!("it fails, with {:?} in its log", broken.trim()))
    }

    async fn upgrade(&self) -> anyhow::Result<String> {
        let pods = self.site.pods().await?;
        let hpa = "hpa.behavior.scaleUp.stabilizationWindowSeconds=0";
        // Defaults of the profile that need a restart, and its cost.
        let ca = "/var/run/secrets/kubernetes.io/serviceaccount/service-ca.crt";
        let profile = format!("wva.legacyMetrics=true,va.variantCost=20,wva.prometheus.tls.caCertPath={ca}");
        self.helm(&["--set", NO_PROMETHEUS, "--set", hpa, "--set", &profile]).await?.success()?;
        self.site.healthy().await?;
        ensure!(self.site.pods().await? == pods, "pods were replaced for values that need no restart");
        Ok("pods stay".to_owned())
    }

    async fn mutable(&self) -> anyhow::Result<String> {
        let pods = self.site.pods().await?;
        self.helm(&["--reuse-values", "--set", "wva.reconcileInterval=17s"]).await?.success()?;
        self.site.healthy().await?;
        ensure!(
            self.site.pods().await? == pods,
            "pods were replaced for a setting that takes effect at once"
        );
        eventually("the interval to be in force", READ, async || {
            let is_logged = |pod: &String| self.site.log(pod).contains("17s");
            ensure!(pods.iter().all(is_logged), "not every replica has logged it");
            Ok(())
        })
        .await?;
        Ok("pods stay, and both log old and new value".to_owned())
    }

    async fn refused(&self) -> anyhow::Result<String> {
        let patch = r#"{"data":{"PROMETHEUS_BASE_URL":"http://127.0.0.1:19"}}"#;
        let args = ["-n", SYSTEM, "patch", "configmap", MAIN_MAP, "--type=merge", "-p", patch];
        let ran = self.site.testbed.kubectl(&args).await?;
        let message = ran.stderr.trim().to_owned();
        ensure!(!ran.ok && message.contains("[WVA-CM-"), "it was not refused by a rule: {ran:?}");
        ensure!(message.contains("PROMETHEUS_BASE_URL"), "the denial does not name the key: {message}");
        Ok(message.chars().take(120).collect::<String>() + " ...")
    }

    async fn immutable(&self) -> anyhow::Result<String> {
        let pods = self.site.pods().await?;
        self.helm(&["--reuse-values", "--set", "wva.prometheus.baseURL=http://127.0.0.1:19"])
            .await?
            .success()?;
        self.site.healthy().await?;
        let now = self.site.pods().await?;
        ensure!(now.is_disjoint(&pods), "pods {pods:?} became {now:?}: not all of them were replaced");
        Ok("admitted, and every pod replaced".to_owned())
    }

    async fn fails(&self) -> anyhow::Result<String> {
        let atomic = if self.helm.name() == "helm" { "--rollback-on-failure" } else { "--atomic" };
        let before = self.map().await?;
        let ran =
            self.helm(&["--reuse-values", atomic, "--set", "wva.settings.WVA_DECISION_HOLD=soon"]).await?;
        ensure!(!ran.ok, "a setting that does not parse was taken");
        ensure!(ran.stderr.contains("[WVA-CM-"), "the rule is not named: {}", ran.stderr);
        self.site.healthy().await?;
        ensure!(self.map().await? == before, "the map is not what it was");
        Ok("refused by its rule, and the release is as before".to_owned())
    }

    async fn other_way(&self) -> anyhow::Result<String> {
        let other =
            if self.way == ["--server-side=true"] { "--server-side=false" } else { "--server-side=true" };
        let args = ["--reuse-values", "--set", "wva.reconcileInterval=19s", other];
        self.site.helm(self.helm, &args).await?.success()?;
        self.site.healthy().await?;
        Ok(other.to_owned())
    }

    async fn rollback(&self) -> anyhow::Result<String> {
        let args = ["rollback", RELEASE, "1", "-n", SYSTEM, self.helm.wait(), "--timeout=4m"];
        self.helm.run(&args).await?.success()?;
        self.site.healthy().await?;
        let map = self.map().await?;
        ensure!(map.contains("127.0.0.1:9\"") && map.contains("\"60s\""), "the map is {map}");
        Ok("settings are those of the first revision".to_owned())
    }

    /// As the README describes: a change is denied until the map is deleted.
    async fn immutable_map(&self) -> anyhow::Result<String> {
        self.helm(&["--set", NO_PROMETHEUS, "--set", "wva.configMap.immutable=true"]).await?.success()?;
        let change = ["--reuse-values", "--set", "wva.reconcileInterval=23s"];
        let ran = self.helm(&change).await?;
        ensure!(!ran.ok && ran.stderr.contains("immutable"), "it was not refused as immutable: {ran:?}");
        self.site.kubectl(&["-n", SYSTEM, "delete", "configmap", MAIN_MAP]).await?;
        self.helm(&change).await?.success()?;
        self.site.healthy().await?;
        Ok("refused, and taken once the map was deleted".to_owned())
    }

    async fn map(&self) -> anyhow::Result<String> {
        self.site.kubectl(&["-n", SYSTEM, "get", "configmap", MAIN_MAP, "-o", "jsonpath={.data}"]).await
    }
}
