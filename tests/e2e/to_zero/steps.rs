//! Steps that the program writes itself, with `WVA_ACTUATION=scale`.

use anyhow::{Context as _, ensure};
use wva_testbed::eventually;
use wva_testbed::fixtures::VariantFixture;

use super::model::OtherScaler;
use crate::support::{Cluster, DEADLINE, get_object};

/// A person fixes a number of replicas, and the program applies it.
pub(super) async fn every_step(cluster: &Cluster) -> anyhow::Result<()> {
    let ns = cluster.testbed.namespace("steps").await?;
    // HPAs first: in a cycle between variant and HPA the program would scale the variant.
    let all = manifests(&ns);
    let (hpas, others): (Vec<_>, Vec<_>) =
        all.split("---\n").partition(|manifest| manifest.contains("kind: HorizontalPodAutoscaler"));
    cluster.testbed.apply(&[hpas, others].concat().join("---\n")).await?;
    for (workload, replicas, by_wva) in [
        ("deployment/free", 3, true),
        ("statefulset/stateful", 2, true),
        ("leaderworkerset/group", 4, true),
        ("deployment/left", 2, false),
        ("deployment/paused", 1, false),
        ("deployment/advised", 1, false),
    ] {
        eventually(&format!("{replicas} replicas of {workload}"), DEADLINE, async || {
            let object =
                get_object(&cluster.testbed, &[workload, "-n", &ns, "--show-managed-fields"]).await?;
            ensure!(object["spec"]["replicas"] == replicas, "{}", object["spec"]["replicas"]);
            let managers = object["metadata"]["managedFields"].as_array().context("no managed fields")?;
            ensure!(managers.iter().any(|m| m["manager"] == "wva") == by_wva, "{managers:?}");
            Ok(())
        })
        .await?;
    }
    // To zero as well, and at once, because a person asked for it.
    let annotate = ["annotate", "va/free", "-n", &ns, "--overwrite", "wva.llmd.ai/mode=fixed=0"];
    cluster.testbed.kubectl(&annotate).await?.success()?;
    cluster.wait_for_replicas(&ns, "free", 0).await
}

/// Workloads and variants with modes, as YAML documents.
fn manifests(ns: &str) -> String {
    let mut all = Vec::new();
    for (name, mode, scaler) in [
        ("free", "fixed=3", OtherScaler::Nothing),
        ("stateful", "fixed=2", OtherScaler::StatefulSet),
        ("left", "fixed=2", OtherScaler::Hpa),
        ("paused", "paused", OtherScaler::Nothing),
        ("advised", "recommend", OtherScaler::Nothing),
    ] {
        let fixture = VariantFixture { model: name.to_owned(), ..VariantFixture::new(ns, name) };
        all.push(with_mode(&scaler.manifests(&fixture), mode));
    }
    let group = VariantFixture { model: "group".to_owned(), ..VariantFixture::new(ns, "group") };
    let target =
        "scaleTargetRef: {apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: group}";
    let variant = group.variant().replace("scaleTargetRef: {kind: Deployment, name: group}", target);
    all.push(with_mode(&variant, "fixed=4"));
    all.push(format!(
        "apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: group, namespace: {ns}}}
spec: {{replicas: 1, leaderWorkerTemplate: {{size: 1, workerTemplate: {{spec: {{containers: []}}}}}}}}
"
    ));
    all.join("---\n")
}

/// A variant's manifests with its mode.
fn with_mode(manifests: &str, mode: &str) -> String {
    let labels = "  labels: {inference.optimization/acceleratorName";
    manifests.replace(labels, &format!("  annotations: {{wva.llmd.ai/mode: \"{mode}\"}}\n{labels}"))
}
