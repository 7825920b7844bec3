//! A LeaderWorkerSet as scale target, whose CRD is installed after the variant. The CRD is a stand-in. The test creates
//! the StatefulSets that the LeaderWorkerSet controller would create; the StatefulSet controller creates the pods.

use crate::support::{Cluster, DEADLINE, apply_stand_in, fleet_config, get_object, has_condition, target};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};
use wva_testbed::{Fleet, eventually};

/// LeaderWorkerSet with groups of a leader and a worker, each on 8 GPUs.
fn leader_worker_set(namespace: &str) -> String {
    let pod = "{spec: {containers: [{name: vllm, image: vllm/vllm-openai, args: [--max-num-seqs=64], resources: {limits: {nvidia.com/gpu: 8}}}]}}";
    format!(
        "apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: big, namespace: {namespace}}}
spec: {{replicas: 1, leaderWorkerTemplate: {{size: 2, workerTemplate: {pod}}}}}
"
    )
}

/// StatefulSet of one pod with this owner: apiVersion, kind, name and uid.
fn stateful_set(namespace: &str, name: &str, labels: &str, owner: [&str; 4]) -> String {
    let [version, kind, of, uid] = owner;
    format!(
        "apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {name}
  namespace: {namespace}
  ownerReferences: [{{apiVersion: {version}, kind: {kind}, name: {of}, uid: {uid}, controller: true}}]
spec:
  serviceName: {name}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}, {labels}}}}}
    spec: {{terminationGracePeriodSeconds: 0, containers: [{{name: vllm, image: vllm/vllm-openai}}]}}
"
    )
}

async fn uid(cluster: &Cluster, namespace: &str, what: &str) -> anyhow::Result<String> {
    let object = get_object(&cluster.testbed, &[what, "-n", namespace]).await?;
    object["metadata"]["uid"].as_str().map(str::to_owned).context("no uid")
}

/// Creates the objects and the status that the LeaderWorkerSet controller would create.
async fn play_controller(cluster: &Cluster, ns: &str, model: &str) -> anyhow::Result<()> {
    let of = uid(cluster, ns, "leaderworkerset/big").await?;
    let owner = ["leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "big", &of];
    cluster.testbed.apply(&stateful_set(ns, "big", model, owner)).await?;
    let leader = eventually("the leader", DEADLINE, async || uid(cluster, ns, "pod/big-0").await).await?;
    // A worker exports metrics too, which do not count.
    cluster.testbed.apply(&stateful_set(ns, "big-0", model, ["v1", "Pod", "big-0", &leader])).await?;
    let status = json!({"status": {"replicas": 1, "readyReplicas": 1}}).to_string();
    let patch =
        ["patch", "leaderworkerset/big", "-n", ns, "--subresource=status", "--type=merge", "-p", &status];
    cluster.testbed.kubectl(&patch).await?.success().map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn scales_a_leader_worker_set_whose_crd_comes_late() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("groups").await?;
    let fixture = VariantFixture::new(&ns, "big");
    let scaled =
        "scaleTargetRef: {apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: big}";
    let variant = fixture.variant().replace("scaleTargetRef: {kind: Deployment, name: big}", scaled);
    cluster.testbed.apply(&variant).await?;
    let missing =
        |va: &Value| has_condition(va, "Ready", ("False", "DeploymentNotFound")) && target(va).is_none();
    cluster.wait_for(&ns, "big", "report its missing workload", missing).await?;

    apply_stand_in(&cluster.testbed, "leaderworkersets").await?;
    eventually("the kind to be served", DEADLINE, async || {
        cluster.testbed.apply(&leader_worker_set(&ns)).await
    })
    .await?;
    play_controller(cluster, &ns, &format!("{MODEL_LABEL}: served")).await?;
    let load = Fleet::start(&cluster.testbed, fleet_config(&ns))?;
    load.set_fixed_all(0.10, 0.0);
    load.set_fixed("big-0", 0.78, 0.0);
    load.wait_ready(2, DEADLINE).await?;
    let grows =
        |va: &Value| has_condition(va, "TargetResolved", ("True", "TargetFound")) && target(va) == Some(2);
    cluster.wait_for(&ns, "big", "scale up by the signals of its leader", grows).await?;
    eventually("the snapshot to show one ready group", DEADLINE, async || {
        let seen = cluster.model(&ns).await?["variants"][0].take();
        ensure!(seen["current"] == 1 && seen["ready"] == 1, "{seen}");
        ensure!(seen["gpusPerReplica"] == 16 && seen["engineArgs"][0] == "--max-num-seqs=64", "{seen}");
        ensure!(
            seen["replicas"].as_array().is_some_and(|r| r.len() == 1 && r[0]["pod"] == "big-0"),
            "{seen}"
        );
        Ok(())
    })
    .await?;

    let crd = "crd/leaderworkersets.leaderworkerset.x-k8s.io";
    cluster.testbed.kubectl(&["delete", crd]).await?.success()?;
    cluster.wait_for(&ns, "big", "lose its target with the CRD", missing).await.map(drop)
}
