//! A model in every state that the dashboards show: under load with a shadow analyzer and objectives, then with all
//! variants at their maxima, then idle again. A third variant has no workload.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use serde_json::json;
use wva_testbed::fixtures::{VariantFixture, saturation_map};
use wva_testbed::install::{Install, InstallOptions, SYSTEM};
use wva_testbed::{Fleet, Options, Testbed, eventually};

use super::{HONORED, RENAMED};
use crate::support::{DEADLINE, get_object, target};

/// Requests per second: a quarter of what two replicas complete, and nine tenths of what three do.
const QUIET: f64 = 5.0;
const BUSY: f64 = 27.0;

/// The throughput analyzer gives load and forecast.
const ENTRY: &str = "{analyzerName: percentage, shadowAnalyzer: throughput, ttftSlo: 90, itlSlo: 17.5}";

pub(super) struct Scenario {
    // Dropped in this order: each ends before the one that it depends on.
    fleet: Fleet,
    install: Install,
    pub(super) testbed: Testbed,
}

impl Scenario {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let testbed = Testbed::start(Options { name: "dashboards".to_owned(), ..Options::default() }).await?;
        // wva reads the GPUs of nodes only in limited mode.
        let options = InstallOptions::quick(env!("CARGO_BIN_EXE_wva")).with(&[("WVA_LIMITED_MODE", "true")]);
        let install = Install::start(&testbed, &options).await?;
        scrape_in_both_layouts(&testbed, &install)?;
        testbed.apply("{apiVersion: v1, kind: Namespace, metadata: {name: chat}}").await?;
        let cheap =
            VariantFixture { max: 2, ..VariantFixture::new("chat", "llama-a100").on_a100().cost("40.0") };
        let expensive = VariantFixture { max: 1, ..VariantFixture::new("chat", "llama-h100").cost("80.0") };
        let lost = VariantFixture::new("chat", "llama-lost");
        testbed.apply(&saturation_map("chat", ENTRY)).await?;
        testbed.apply(&[cheap.all(), expensive.all(), lost.variant()].join("---\n")).await?;
        let fleet = Fleet::start(&testbed, cheap.fleet())?;
        fleet.set_rate(QUIET);
        fleet.wait_ready(2, DEADLINE).await?;
        let scenario = Self { fleet, install, testbed };
        // A first target does not count as a change, and a counter must be seen at 0.
        scenario.wait_for_replicas(1).await?;
        scenario.wait_for_counters().await?;
        Ok(scenario)
    }

    async fn wait_for_counters(&self) -> anyhow::Result<()> {
        let counters =
            r#"sum by (job) (wva_replica_scaling_total{variant_name="llama-a100", direction="up"}) == 0"#;
        eventually("both jobs to have scraped a counter of 0", DEADLINE, async || {
            let jobs = self.testbed.prometheus_query(counters).await?;
            ensure!(jobs.len() == 2, "{jobs:?}");
            Ok(())
        })
        .await
    }

    /// Load rises until both variants are at their maxima, and falls until the HPA has scaled the first one down.
    pub(super) async fn scale_up_and_down(&self) -> anyhow::Result<()> {
        self.fleet.set_rate(BUSY);
        self.wait_for_replicas(2).await?;
        eventually("both variants to be limited by their maxima", DEADLINE, async || {
            for variant in ["llama-a100", "llama-h100"] {
                let labels = [("variant_name", variant), ("by", "maximum")];
                let limited = self.install.series("wva_variant_limited", &labels).await?;
                ensure!(limited == Some(1.0), "{variant}: {limited:?}");
            }
            Ok(())
        })
        .await?;
        self.fleet.set_rate(QUIET);
        self.wait_for_replicas(1).await
    }

    /// Waits until target and Deployment of the cheaper variant have this many replicas.
    async fn wait_for_replicas(&self, wanted: u64) -> anyhow::Result<()> {
        eventually(&format!("llama-a100 to have {wanted} replicas"), DEADLINE, async || {
            let va = get_object(&self.testbed, &["va", "llama-a100", "-n", "chat"]).await?;
            let deployment = get_object(&self.testbed, &["deployment", "llama-a100", "-n", "chat"]).await?;
            let replicas = deployment["spec"]["replicas"].as_u64().context("no replicas")?;
            let target = target(&va).context("no target")?;
            ensure!(target == wanted && replicas == wanted, "target {target}, replicas {replicas}");
            Ok(())
        })
        .await
    }

    /// Changes a ConfigMap and an object, which a review judges.
    pub(super) async fn keep_busy(&self) -> anyhow::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let note = format!("note={now}");
        let annotate = ["annotate", "va", "llama-a100", "-n", "chat", "--overwrite", &note];
        self.testbed.kubectl(&annotate).await?.success()?;
        // Another value each time, and no reason to scale at this load.
        let threshold = format!("kvCacheThreshold: 0.7{:02}, ", now % 100);
        let entry = ENTRY.replacen('{', &format!("{{{threshold}"), 1);
        self.testbed.apply(&saturation_map("chat", &entry)).await
    }
}

/// As a ServiceMonitor without and with `honorLabels`. Both targets have the labels of the controller's pod.
fn scrape_in_both_layouts(testbed: &Testbed, install: &Install) -> anyhow::Result<()> {
    let targets = |job: &str| {
        let labels = json!({"job": job, "namespace": SYSTEM, "pod": "wva-0", "__metrics_path__": "/metrics"});
        anyhow::Ok(json!([{"targets": [install.address("metrics")?], "labels": labels}]))
    };
    testbed.scrape_targets(RENAMED, &targets(RENAMED)?)?;
    testbed.scrape_targets_honoring_labels(HONORED, &targets(HONORED)?)
}
