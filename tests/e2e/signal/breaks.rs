//! Table of breaks, and how the test makes each.

use std::time::Duration;

use anyhow::{bail, ensure};
use serde_json::{Value, json};
use wva_testbed::eventually;
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};

use crate::support::{Cluster, DEADLINE, find_condition, get_object, merge_patch};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Follower {
    Hpa,
    /// Of a stand-in for KEDA.
    ScaledObject,
}

pub(super) struct Break {
    pub(super) name: &'static str,
    pub(super) follower: Follower,
    /// Reason of the condition.
    pub(super) reason: &'static str,
}

const fn hpa(name: &'static str, reason: &'static str) -> Break {
    Break { name, follower: Follower::Hpa, reason }
}

const fn keda(name: &'static str, reason: &'static str) -> Break {
    Break { name, follower: Follower::ScaledObject, reason }
}

pub(super) static BREAKS: &[Break] = &[
    hpa("deleted", "NoAutoscaler"),
    hpa("other-workload", "WrongTarget"),
    hpa("second", "SeveralAutoscalers"),
    hpa("other-metric", "OtherMetric"),
    hpa("other-variant", "OtherVariant"),
    hpa("no-series", "NoMetricValue"),
    hpa("target-value", "WrongMetricTarget"),
    hpa("bounds", "OutsideBounds"),
    hpa("ambiguous", "AutoscalerInactive"),
    hpa("sum", "ValueDiffers"),
    hpa("another-writer", "WorkloadNotScaled"),
    hpa("periodic-writer", "WorkloadNotScaled"),
    hpa("no-step-up", "AutoscalerPaused"),
    keda("paused", "AutoscalerPaused"),
    keda("no-scale-out", "AutoscalerPaused"),
    keda("fallback", "AutoscalerFallback"),
    keda("not-ready", "AutoscalerInactive"),
    keda("other-query", "OtherVariant"),
];

/// A variant with its autoscaler.
pub(super) struct Site<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) namespace: String,
    pub(super) fixture: VariantFixture,
}

impl Site<'_> {
    pub(super) fn scaled_object(&self) -> String {
        let VariantFixture { name, namespace, .. } = &self.fixture;
        let query = format!(
            "max(wva_desired_replicas{{variant_name=\"{name}\",exported_namespace=\"{namespace}\"}})"
        );
        json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"scaleTargetRef": {"name": name}, "minReplicaCount": 1,
                "triggers": [{"type": "prometheus", "metadata": {"query": query, "threshold": "1"}}]}})
        .to_string()
    }

    /// Does what KEDA does.
    pub(super) async fn set_scaled_object_status(&self, ready: &str, fallback: &str) -> anyhow::Result<()> {
        let condition =
            |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "StandIn"});
        let conditions = [condition("Ready", ready), condition("Fallback", fallback)];
        self.patch("scaledobject", json!({"status": {"conditions": conditions}})).await
    }

    async fn patch(&self, kind: &str, change: Value) -> anyhow::Result<()> {
        let object = format!("{kind}/{}", self.fixture.name);
        merge_patch(&self.cluster.testbed, &self.namespace, &object, &change).await?.success().map(drop)
    }

    async fn set_metric(&self, metric: Value, target: Value) -> anyhow::Result<()> {
        let external = json!({"metric": metric, "target": target});
        self.patch("hpa", json!({"spec": {"metrics": [{"type": "External", "external": external}]}})).await
    }

    /// Breaks the signal as the row of this name says.
    pub(super) async fn break_by(&self, name: &str) -> anyhow::Result<()> {
        let (testbed, fixture, namespace) = (&self.cluster.testbed, &self.fixture, &self.namespace);
        let one = json!({"type": "AverageValue", "averageValue": "1"});
        let of = |labels: Value| json!({"name": "wva_desired_replicas", "selector": {"matchLabels": labels}});
        let own = json!({"variant_name": fixture.name, "exported_namespace": namespace});
        let other = VariantFixture { name: "other".to_owned(), ..fixture.clone() };
        match name {
            "deleted" => {
                testbed.kubectl(&["delete", "hpa", &fixture.name, "-n", namespace]).await?.success().map(drop)
            }
            "other-workload" => {
                self.patch("hpa", json!({"spec": {"scaleTargetRef": {"name": "other"}}})).await
            }
            "second" => {
                let mut second: Value = serde_saphyr::from_str(&fixture.autoscaler())?;
                second["metadata"]["name"] = json!("second");
                testbed.apply(&second.to_string()).await
            }
            "other-metric" => self.set_metric(json!({"name": "queue_length"}), one).await,
            "other-variant" => self.set_metric(of(json!({"variant_name": "mistral"})), one).await,
            "no-series" => {
                let mut labels = own;
                labels["team"] = json!("none");
                self.set_metric(of(labels), one).await
            }
            "target-value" => self.set_metric(of(own), json!({"type": "Value", "value": "1"})).await,
            "bounds" => {
                self.patch("va", json!({"spec": {"maxReplicas": 2}})).await?;
                self.patch("hpa", json!({"spec": {"minReplicas": 4}})).await
            }
            "ambiguous" => {
                let mut same_pods: Value = serde_saphyr::from_str(&other.deployment())?;
                same_pods["spec"]["selector"]["matchLabels"] = json!({MODEL_LABEL: "served"});
                // kubectl 1.30 takes a text that begins with JSON for nothing but JSON.
                testbed.apply(&[other.autoscaler(), same_pods.to_string()].join("\n---\n")).await?;
                self.until_inactive().await
            }
            "sum" => {
                let mut variant: Value = serde_saphyr::from_str(&other.variant())?;
                variant["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "fixed=1"});
                testbed.apply(&[other.deployment(), variant.to_string()].join("\n---\n")).await?;
                self.set_metric(of(json!({"exported_namespace": namespace})), one).await
            }
            "another-writer" | "periodic-writer" => Ok(()),
            "no-step-up" => {
                let behavior = json!({"scaleUp": {"selectPolicy": "Disabled"}});
                self.patch("hpa", json!({"spec": {"behavior": behavior}})).await
            }
            _ => self.break_scaled_object(name).await,
        }
    }

    /// Waits until the HPA itself has noticed, which takes some of its syncs.
    async fn until_inactive(&self) -> anyhow::Result<()> {
        eventually("the HPA to be inactive", DEADLINE, async || {
            let hpa = get_object(&self.cluster.testbed, &["hpa", &self.fixture.name, "-n", &self.namespace])
                .await?;
            let active = find_condition(&hpa, "ScalingActive")?;
            ensure!(active["status"] == "False", "{active}");
            Ok(())
        })
        .await
    }

    async fn break_scaled_object(&self, name: &str) -> anyhow::Result<()> {
        match name {
            "paused" => {
                let annotations = json!({"autoscaling.keda.sh/paused": "true"});
                self.patch("scaledobject", json!({"metadata": {"annotations": annotations}})).await
            }
            "no-scale-out" => {
                let annotations = json!({"autoscaling.keda.sh/paused-scale-out": "true"});
                self.patch("scaledobject", json!({"metadata": {"annotations": annotations}})).await
            }
            "fallback" => self.set_scaled_object_status("True", "True").await,
            "not-ready" => self.set_scaled_object_status("False", "False").await,
            "other-query" => {
                let metadata =
                    json!({"query": "max(wva_desired_replicas{variant_name=\"mistral\"})", "threshold": "1"});
                self.patch(
                    "scaledobject",
                    json!({"spec": {"triggers": [{"type": "prometheus", "metadata": metadata}]}}),
                )
                .await
            }
            _ => bail!("no such break: {name}"),
        }
    }

    /// Sets one replica whenever the HPA has set two, or only every 9 seconds, so that most looks find two.
    pub(super) async fn overwrite_replicas(&self, every: Duration) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.cluster.replicas(&self.namespace, &self.fixture.name).await? != 1 {
                self.patch("deployment", json!({"spec": {"replicas": 1}})).await?;
            }
        }
    }
}
