//! A LeaderWorkerSet as the target of a variant, in a cluster that gets the kind only later. The CRD is a stand-in, and
//! the StatefulSets that its controller would make are made here; the pods in them are those of the real controller.

use std::path::Path;

use crate::support::{Cluster, DEADLINE, condition, target};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};
use wva_testbed::install::get;
use wva_testbed::{Fleet, FleetConfig, eventually};

/// Groups of a leader and one worker, each on 8 GPUs.
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

/// A StatefulSet of one pod, made by `owner`: apiVersion, kind, name and uid.
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
    let args = ["get", what, "-n", namespace, "-o", "jsonpath={.metadata.uid}"];
    cluster.testbed.kubectl(&args).await?.success()
}

/// What its controller would make of the LeaderWorkerSet, and say of it.
async fn play_its_controller(cluster: &Cluster, ns: &str, model: &str) -> anyhow::Result<()> {
    let of = uid(cluster, ns, "leaderworkerset/big").await?;
    let owner = ["leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "big", &of];
    cluster.testbed.apply(&stateful_set(ns, "big", model, owner)).await?;
    let leader = eventually("the leader", DEADLINE, async || uid(cluster, ns, "pod/big-0").await).await?;
    // A worker that has metrics of its own, which are nobody's.
    cluster.testbed.apply(&stateful_set(ns, "big-0", model, ["v1", "Pod", "big-0", &leader])).await?;
    let status = "{\"status\": {\"replicas\": 1, \"readyReplicas\": 1}}";
    let patch =
        ["patch", "leaderworkerset/big", "-n", ns, "--subresource=status", "--type=merge", "-p", status];
    cluster.testbed.kubectl(&patch).await?.success().map(|_| ())
}

async fn snapshot(cluster: &Cluster, namespace: &str) -> anyhow::Result<Value> {
    let (status, text) = get(&format!("http://{}/snapshot", cluster.install.address("debug")?)).await?;
    ensure!(status == 200, "/snapshot answered {status}: {text}");
    let snapshot: Value = serde_json::from_str(&text)?;
    let models = snapshot["models"].as_array().context("no models")?;
    let model = models.iter().find(|m| m["namespace"] == namespace).context("the model is not in it")?;
    Ok(model["variants"][0].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_worker_set_is_scaled_though_its_kind_came_later() -> anyhow::Result<()> {
    let cluster = crate::support::cluster().await?;
    let ns = cluster.testbed.namespace("groups").await?;
    let fixture = VariantFixture { name: "big".to_owned(), ..VariantFixture::new(&ns, "big") };
    let scaled =
        "scaleTargetRef: {apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: big}";
    let variant = fixture.variant().replace("scaleTargetRef: {kind: Deployment, name: big}", scaled);
    cluster.testbed.apply(&variant).await?;
    eventually("the variant to say that its workload is missing", DEADLINE, async || {
        let va = cluster.variant(&ns, "big").await?;
        ensure!(condition(&va, "Ready")? == ("False", "DeploymentNotFound"), "{}", va["status"]);
        let missing = "Target leaderworkerset 'big' does not exist yet";
        ensure!(va["status"].to_string().contains(missing), "{}", va["status"]);
        Ok(())
    })
    .await?;

    let crd = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/stand-ins/leaderworkersets.yaml");
    cluster.testbed.apply(&std::fs::read_to_string(crd)?).await?;
    let crd = "crd/leaderworkersets.leaderworkerset.x-k8s.io";
    cluster
        .testbed
        .kubectl(&["wait", "--for=condition=Established", crd, "--timeout=30s"])
        .await?
        .success()?;
    eventually("the kind to be served", DEADLINE, async || {
        cluster.testbed.apply(&leader_worker_set(&ns)).await
    })
    .await?;
    let labels = format!("{MODEL_LABEL}: served");
    play_its_controller(cluster, &ns, &labels).await?;
    let config = FleetConfig::new(&ns, &format!("{MODEL_LABEL}=served"), &fixture.model);
    let load = Fleet::start(&cluster.testbed, config)?;
    load.set_fixed_all(0.10, 0.0);
    load.set_fixed("big-0", 0.78, 0.0);
    load.wait_ready(2, DEADLINE).await?;
    eventually("its leader to be measured, and its target to rise", DEADLINE, async || {
        let va = cluster.variant(&ns, "big").await?;
        ensure!(condition(&va, "TargetResolved")? == ("True", "TargetFound"), "{}", va["status"]);
        ensure!(va["status"].to_string().contains("1 replica(s) report"), "{}", va["status"]);
        ensure!(target(&va) == Some(2), "{}", va["status"]);
        Ok(())
    })
    .await?;
    let seen = snapshot(cluster, &ns).await?;
    ensure!(seen["current"] == 1 && seen["ready"] == 1, "{seen}");
    ensure!(seen["gpusPerReplica"] == 16 && seen["engineArgs"][0] == "--max-num-seqs=64", "{seen}");
    ensure!(seen["replicas"].as_array().is_some_and(|r| r.len() == 1 && r[0]["pod"] == "big-0"), "{seen}");

    cluster.testbed.kubectl(&["delete", crd]).await?.success()?;
    eventually("the target to be withdrawn with its kind", DEADLINE, async || {
        let va = cluster.variant(&ns, "big").await?;
        ensure!(condition(&va, "Ready")? == ("False", "DeploymentNotFound"), "{}", va["status"]);
        ensure!(target(&va).is_none(), "{}", va["status"]);
        Ok(())
    })
    .await
}
