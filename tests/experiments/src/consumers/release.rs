//! The chart as a Helm release whose pods a small kubelet runs.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::{RELEASE, SYSTEM, WEBHOOKS};
use wva_testbed::{Helm, Kubelet, NodeGroup, Options, Pods, Testbed, eventually};

use crate::command::SOON;

/// Namespace of the model server, and its workload by the chart's names.
pub(super) const MODELS: &str = "llm-d-autoscaler";
const WORKLOAD: &str = "llama-decode";
const MODEL: &str =
    "llmd.namespace=llm-d-autoscaler,llmd.modelName=llama,llmd.modelID=unsloth/Meta-Llama-3.1-8B";
/// Address without a Prometheus.
const NO_PROMETHEUS: &str = "wva.prometheus.baseURL=http://127.0.0.1:9";

/// The control plane with its kubelet, before the release.
pub(super) struct Site {
    pub(super) testbed: Testbed,
    kubelet: Kubelet,
}

impl Site {
    /// Starts it with both namespaces and a workload.
    pub(super) async fn start(name: &str, wva: &Path) -> anyhow::Result<Self> {
        let testbed = Testbed::start(Options {
            name: name.to_owned(),
            nodes: vec![NodeGroup::new("h100", 2, "NVIDIA-H100-80GB-HBM3")],
            with_prometheus: false,
            kubelet: Some(Pods::Controllers),
            ..Options::default()
        })
        .await?;
        let kubelet = Kubelet::start(&testbed, wva).await?;
        for (namespace, level) in [(MODELS, "privileged"), (SYSTEM, "restricted")] {
            let labels = json!({"pod-security.kubernetes.io/enforce": level});
            let metadata = json!({"name": namespace, "labels": labels});
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            testbed.apply(&object.to_string()).await?;
        }
        testbed.apply(&VariantFixture::new(MODELS, WORKLOAD).deployment()).await?;
        Ok(Self { testbed, kubelet })
    }

    /// Installs the release with additional values, and waits until its webhooks have rules.
    pub(super) async fn install(&self, values: &str) -> anyhow::Result<()> {
        let helm = Helm::new(&self.testbed, "helm").await?;
        let chart = Helm::chart();
        let chart = chart.to_str().context("the chart's path is not UTF-8")?;
        let place = ["upgrade", "--install", RELEASE, chart, "-n", SYSTEM, helm.wait(), "--timeout=3m"];
        let values = ["--set", MODEL, "--set", NO_PROMETHEUS, "--set", values];
        helm.run(&[&place[..], &values].concat()).await?.success().with_context(|| self.evidence())?;
        eventually("the webhooks to have rules", SOON, async || {
            for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
                let rules = "jsonpath={.webhooks[*].rules[*].resources[*]}";
                let rules = self.kubectl(&["get", kind, WEBHOOKS, "-o", rules]).await?;
                ensure!(rules.contains("variantautoscalings"), "{kind} has none");
            }
            Ok(())
        })
        .await
        .with_context(|| self.evidence())
    }

    /// Runs kubectl; a failure is an error.
    pub(super) async fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        self.testbed.kubectl(args).await?.success()
    }

    /// An object or a list, as JSON.
    pub(super) async fn read(&self, what: &[&str]) -> anyhow::Result<Value> {
        let json = self.kubectl(&[&["get"], what, &["-o", "json"]].concat()).await?;
        Ok(serde_json::from_str(&json)?)
    }

    /// Names of the controller's pods.
    pub(super) async fn pods(&self) -> anyhow::Result<Vec<String>> {
        let names = "jsonpath={.items[*].metadata.name}";
        let select = ["get", "pods", "-n", SYSTEM, "-l", "control-plane=controller-manager", "-o", names];
        Ok(self.kubectl(&select).await?.split_whitespace().map(str::to_owned).collect())
    }

    /// All output of a pod.
    pub(super) fn log(&self, pod: &str) -> String {
        self.kubelet.log(pod)
    }

    /// Logs of the pods, and errors of the kubelet.
    pub(super) fn evidence(&self) -> String {
        self.kubelet.evidence()
    }
}
