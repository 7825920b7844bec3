//! The chart's alerts about variants on a real Prometheus that scrapes the running program: each fires and clears. They
//! wait for seconds here; tests/alerts.sh tests the waiting times.

use std::collections::BTreeMap;

use crate::support::{Cluster, DEADLINE, fleet_config, merge_patch};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::install::SYSTEM;
use wva_testbed::{Fleet, Helm, eventually};

/// Label `job` of the program's series: the Service of the chart's release.
const JOB: &str = "workload-variant-autoscaler-controller-manager-metrics-service";

/// Has Prometheus scrape the program as the chart's ServiceMonitor does, and load the chart's alerts.
async fn load_alerts(cluster: &Cluster) -> anyhow::Result<()> {
    let testbed = &cluster.testbed;
    let labels = BTreeMap::from([("namespace".to_owned(), SYSTEM.to_owned())]);
    testbed.scrape(JOB, cluster.install.address("metrics")?, "/metrics", &labels)?;
    let helm = Helm::new(testbed, "helm").await?;
    let chart = Helm::chart();
    let chart = chart.to_str().context("a path that is not UTF-8")?;
    let values = helm.run(&["show", "values", chart]).await?.success()?;
    let values: Value = serde_saphyr::from_str(&values)?;
    let alerts = values["wva"]["metrics"]["prometheusRule"]["alerts"].as_object().context("no alerts")?;
    let soon: Vec<String> = alerts
        .keys()
        .map(|name| format!("wva.metrics.prometheusRule.alerts.{name}"))
        .map(|alert| format!("{alert}.for=2s,{alert}.keepFiringFor=0s"))
        .collect();
    let set = format!(
        "wva.metrics.prometheusRule.enabled=true,wva.prometheus.baseURL=http://p:9090,{}",
        soon.join(",")
    );
    let rule = ["template", "workload-variant-autoscaler", chart, "-n", SYSTEM, "--set", &set];
    let only = ["--show-only", "templates/alerts.yaml"];
    let rule = helm.run(&[&rule[..], &only].concat()).await?.success()?;
    let rule: Value = serde_saphyr::from_str(&rule)?;
    testbed.prometheus_rules("wva", &rule["spec"]).await
}

/// Waits until these alerts fire, or none does, each with the variant that it is about.
async fn wait_for_alerts(cluster: &Cluster, alerts: &[(&str, &str, &str)], fire: bool) -> anyhow::Result<()> {
    let what = format!("{alerts:?} to {}", if fire { "fire" } else { "clear" });
    eventually(&what, DEADLINE, async || {
        for (namespace, variant, alert) in alerts {
            let labels = format!(
                r#"alertname="{alert}",alertstate="firing",namespace="{namespace}",variant_name="{variant}""#
            );
            let firing = cluster.testbed.prometheus_query(&format!("ALERTS{{{labels}}}")).await?;
            let now = cluster.variant(namespace, variant).await?["status"].clone();
            ensure!(firing.is_empty() != fire, "{alert} of {variant}: {firing:?}, {now}");
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_about_variants_fire_and_clear() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let testbed = &cluster.testbed;
    load_alerts(cluster).await?;
    let busy = testbed.namespace("alerts-busy").await?;
    let load = Fleet::start(testbed, fleet_config(&busy))?;
    load.set_fixed_all(0.9, 0.0);
    let bounded = VariantFixture { max: 1, ..VariantFixture::new(&busy, "bounded").cost("5.0") };
    let nowhere = "NVIDIA-of-no-node".to_owned();
    let stuck = VariantFixture { gpu_product: nowhere, ..VariantFixture::new(&busy, "stuck") };
    let silent = testbed.namespace("alerts-silent").await?;
    let unmeasured = VariantFixture::new(&silent, "unmeasured");
    let unfollowed =
        VariantFixture { model: "unfollowed".to_owned(), ..VariantFixture::new(&silent, "unfollowed") };
    let missing = VariantFixture { model: "missing".to_owned(), ..VariantFixture::new(&silent, "missing") };
    let objects = [
        bounded.all(),
        stuck.all(),
        unmeasured.all(),
        unfollowed.deployment(),
        unfollowed.variant(),
        missing.variant(),
    ];
    testbed.apply(&objects.join("---\n")).await?;
    let fixed = json!({"spec": {"mode": "Fixed", "fixedReplicas": 3}});
    merge_patch(testbed, &silent, "va/unfollowed", &fixed).await?.success()?;
    let alerts = [
        (&*busy, "bounded", "WVAVariantAtMaximum"),
        (&silent, "unmeasured", "WVAVariantWithoutMetrics"),
        (&silent, "unmeasured", "WVAVariantSafetyNet"),
        (&silent, "missing", "WVAVariantTargetMissing"),
        (&silent, "unfollowed", "WVATargetNotFollowed"),
        (&busy, "stuck", "WVAVariantStuck"),
    ];
    wait_for_alerts(cluster, &alerts, true).await?;

    load.set_fixed_all(0.3, 0.0);
    let somewhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"nvidia.com/gpu.product": bounded.gpu_product}}}}});
    merge_patch(testbed, &busy, "deployment/stuck", &somewhere).await?.success()?;
    let _measured = Fleet::start(testbed, fleet_config(&silent))?;
    testbed.apply(&missing.deployment()).await?;
    merge_patch(testbed, &silent, "deployment/unfollowed", &json!({"spec": {"replicas": 3}}))
        .await?
        .success()?;
    wait_for_alerts(cluster, &alerts, false).await
}
