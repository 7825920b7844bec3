//! One control plane with the program installed for each test binary, and what tests ask of it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::sync::OnceCell;
use wva_testbed::install::{Install, InstallOptions};
use wva_testbed::{Options, Testbed};

/// Longest wait for what has to happen: seconds usually, with room for a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// A control plane and the program on it.
pub(crate) struct Cluster {
    pub(crate) testbed: Testbed,
    pub(crate) install: Install,
}

static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();

/// The one control plane of this test binary.
pub(crate) async fn cluster() -> anyhow::Result<&'static Cluster> {
    CLUSTER
        .get_or_try_init(async || {
            let testbed =
                Testbed::start(Options { name: env!("CARGO_CRATE_NAME").to_owned(), ..Options::default() })
                    .await?;
            let install = Install::start(&testbed, &options()).await?;
            anyhow::Ok(Cluster { testbed, install })
        })
        .await
}

/// The program under test, deciding every two seconds.
pub(crate) fn options() -> InstallOptions {
    InstallOptions::quick(env!("CARGO_BIN_EXE_wva"))
}

impl Cluster {
    /// A `VariantAutoscaling` as the API server has it.
    pub(crate) async fn variant(&self, namespace: &str, name: &str) -> anyhow::Result<Value> {
        let json =
            self.testbed.kubectl(&["get", "va", name, "-n", namespace, "-o", "json"]).await?.success()?;
        Ok(serde_json::from_str(&json)?)
    }

    /// `spec.replicas` of a Deployment.
    pub(crate) async fn replicas(&self, namespace: &str, name: &str) -> anyhow::Result<u64> {
        let path = "jsonpath={.spec.replicas}";
        let text = self
            .testbed
            .kubectl(&["get", "deployment", name, "-n", namespace, "-o", path])
            .await?
            .success()?;
        text.parse().with_context(|| format!("{text:?} is no number"))
    }

    /// The values of `wva_desired_replicas` for a variant, through the API server's aggregator.
    pub(crate) async fn external_metric(
        &self,
        namespace: &str,
        variant: &str,
    ) -> anyhow::Result<Vec<String>> {
        let path = format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/wva_desired_replicas?labelSelector=variant_name%3D{variant}"
        );
        let json = self.testbed.kubectl(&["get", "--raw", &path]).await?.success()?;
        let list: Value = serde_json::from_str(&json)?;
        let items = list["items"].as_array().context("no items")?;
        Ok(items.iter().filter_map(|i| i["value"].as_str().map(str::to_owned)).collect())
    }
}

/// The decided replicas in a status.
pub(crate) fn target(va: &Value) -> Option<u64> {
    va.pointer("/status/desiredOptimizedAlloc/numReplicas").and_then(Value::as_u64)
}

/// Status and reason of a condition.
pub(crate) fn condition<'a>(va: &'a Value, kind: &str) -> anyhow::Result<(&'a str, &'a str)> {
    let all = va.pointer("/status/conditions").and_then(Value::as_array).context("no conditions")?;
    let found = all.iter().find(|c| c["type"] == kind).with_context(|| format!("no condition {kind}"))?;
    ensure!(
        found["observedGeneration"] == va["metadata"]["generation"],
        "condition {kind} is about another generation"
    );
    Ok((found["status"].as_str().unwrap_or_default(), found["reason"].as_str().unwrap_or_default()))
}
