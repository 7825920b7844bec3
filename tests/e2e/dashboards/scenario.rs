//! Models in every state that the dashboards show: one under load with a shadow analyzer and objectives, one at its
//! maximum, and a variant without a workload.

use anyhow::{Context as _, ensure};
use serde_json::json;
use wva_testbed::fixtures::{VariantFixture, saturation_map};
use wva_testbed::install::{Install, InstallOptions, SYSTEM};
use wva_testbed::{Fleet, Options, Testbed, eventually};

use super::{HONORED, RENAMED};
use crate::support::{DEADLINE, get_object, target};

/// Requests per second of a quiet and a busy hour, as in the demo.
const QUIET: f64 = 5.0;
const BUSY: f64 = 17.5;

/// The throughput analyzer gives load and forecast.
const ENTRY: &str = "{analyzerName: percentage, shadowAnalyzer: throughput, ttftSlo: 90, itlSlo: 17.5}";

pub(super) struct Scenario {
    // Dropped in this order: each ends before the one that it depends on.
    chat: Fleet,
    _full: Fleet,
    _install: Install,
    pub(super) testbed: Testbed,
}

impl Scenario {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let testbed = Testbed::start(Options { name: "dashboards".to_owned(), ..Options::default() }).await?;
        // wva reads the GPUs of nodes only in limited mode.
        let options = InstallOptions::quick(env!("CARGO_BIN_EXE_wva")).with(&[("WVA_LIMITED_MODE", "true")]);
        let install = Install::start(&testbed, &options).await?;
        scrape_in_both_layouts(&testbed, &install)?;
        for namespace in ["chat", "full"] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            testbed.apply(&object.to_string()).await?;
        }
        let cheap = VariantFixture::new("chat", "llama-a100").on_a100().cost("40.0");
        let expensive = VariantFixture::new("chat", "llama-h100").cost("80.0");
        let small = VariantFixture { max: 1, ..VariantFixture::new("full", "small") };
        let lost = VariantFixture::new("full", "lost");
        testbed.apply(&saturation_map("chat", ENTRY)).await?;
        let objects = [cheap.all(), expensive.all(), small.all(), lost.variant()];
        testbed.apply(&objects.join("---\n")).await?;
        let (chat, full) = (Fleet::start(&testbed, cheap.fleet())?, Fleet::start(&testbed, small.fleet())?);
        full.set_fixed_all(0.95, 20.0);
        chat.set_rate(QUIET);
        chat.wait_ready(2, DEADLINE).await?;
        Ok(Self { chat, _full: full, _install: install, testbed })
    }

    /// Load rises until the HPA has scaled the cheaper variant, and falls until it is back at one replica.
    pub(super) async fn scale_up_and_down(&self) -> anyhow::Result<()> {
        self.chat.set_rate(BUSY);
        self.wait_for_replicas("a second replica", |target, replicas| target >= 2 && replicas >= 2).await?;
        self.chat.set_rate(QUIET);
        self.wait_for_replicas("one replica again", |target, replicas| target == 1 && replicas == 1).await
    }

    async fn wait_for_replicas(&self, what: &str, holds: fn(u64, u64) -> bool) -> anyhow::Result<()> {
        eventually(&format!("llama-a100 to have {what}"), DEADLINE, async || {
            let va = get_object(&self.testbed, &["va", "llama-a100", "-n", "chat"]).await?;
            let deployment = get_object(&self.testbed, &["deployment", "llama-a100", "-n", "chat"]).await?;
            let replicas = deployment["spec"]["replicas"].as_u64().context("no replicas")?;
            let target = target(&va).context("no target")?;
            ensure!(holds(target, replicas), "target {target}, replicas {replicas}");
            Ok(())
        })
        .await
    }

    /// Changes a ConfigMap and an object, which a review judges.
    pub(super) async fn keep_busy(&self) -> anyhow::Result<()> {
        let now = self.testbed.namespace("changes").await?;
        let note = format!("note={now}");
        self.testbed
            .kubectl(&["annotate", "va", "llama-a100", "-n", "chat", "--overwrite", &note])
            .await?
            .success()?;
        let map = saturation_map("chat", &format!("{ENTRY} # {now}"));
        self.testbed.apply(&map).await
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
