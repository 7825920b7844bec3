//! A LeaderWorkerSet as scale target, whose CRD is installed after the variant. First every pod of a group serves, then
//! the leader. The CRD is a stand-in. The test creates the StatefulSets that the LeaderWorkerSet controller would create;
//! the StatefulSet controller creates the pods.

use crate::support::{
    Cluster, DEADLINE, apply_stand_in, fleet_config, get_object, has_condition, run_wva, target,
};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use wva_testbed::fixtures::{MODEL_LABEL, VariantFixture};
use wva_testbed::{Fleet, eventually};

/// Flag with which every pod of a group serves.
const WIDE: &str = "--data-parallel-hybrid-lb";

/// LeaderWorkerSet with groups of a leader and a worker, each on 8 GPUs, whose servers have this flag.
fn leader_worker_set(namespace: &str, flag: &str) -> String {
    let pod = format!(
        "{{spec: {{containers: [{{name: vllm, image: vllm/vllm-openai, args: [--max-num-seqs=64, {flag}], resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]}}}}"
    );
    format!(
        "apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: big, namespace: {namespace}}}
spec: {{replicas: 1, leaderWorkerTemplate: {{size: 2, workerTemplate: {pod}}}}}
"
    )
}

/// StatefulSet of one pod with this owner: apiVersion, kind, name and uid. `index`: of its pod in the group.
fn stateful_set(namespace: &str, name: &str, index: u32, owner: [&str; 4]) -> String {
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
    metadata:
      labels:
        app: {name}
        {MODEL_LABEL}: served
        leaderworkerset.sigs.k8s.io/name: big
        leaderworkerset.sigs.k8s.io/worker-index: \"{index}\"
    spec: {{terminationGracePeriodSeconds: 0, containers: [{{name: vllm, image: vllm/vllm-openai}}]}}
"
    )
}

async fn uid(cluster: &Cluster, namespace: &str, what: &str) -> anyhow::Result<String> {
    let object = get_object(&cluster.testbed, &[what, "-n", namespace]).await?;
    object["metadata"]["uid"].as_str().map(str::to_owned).context("no uid")
}

/// Creates the objects and the status that the LeaderWorkerSet controller would create.
async fn play_controller(cluster: &Cluster, ns: &str) -> anyhow::Result<()> {
    let of = uid(cluster, ns, "leaderworkerset/big").await?;
    let owner = ["leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "big", &of];
    cluster.testbed.apply(&stateful_set(ns, "big", 0, owner)).await?;
    let leader = eventually("the leader", DEADLINE, async || uid(cluster, ns, "pod/big-0").await).await?;
    cluster.testbed.apply(&stateful_set(ns, "big-0", 1, ["v1", "Pod", "big-0", &leader])).await?;
    let status = json!({"status": {"replicas": 1, "readyReplicas": 1}}).to_string();
    let patch =
        ["patch", "leaderworkerset/big", "-n", ns, "--subresource=status", "--type=merge", "-p", &status];
    cluster.testbed.kubectl(&patch).await?.success().map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn scales_groups_whose_crd_comes_late() -> anyhow::Result<()> {
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
        cluster.testbed.apply(&leader_worker_set(&ns, WIDE)).await
    })
    .await?;
    play_controller(cluster, &ns).await?;
    let load = Fleet::start(&cluster.testbed, fleet_config(&ns))?;
    load.set_fixed_all(0.10, 0.0);
    load.wait_ready(2, DEADLINE).await?;
    every_pod_of_a_wide_group_counts(cluster, &ns, &load).await?;
    only_the_leader_of_other_groups_counts(cluster, &ns, &load).await?;

    let crd = "crd/leaderworkersets.leaderworkerset.x-k8s.io";
    cluster.testbed.kubectl(&["delete", crd]).await?.success()?;
    cluster.wait_for(&ns, "big", "lose its target with the CRD", missing).await.map(drop)
}

/// Load at the worker alone scales up; the group is one replica with the GPUs of both pods.
async fn every_pod_of_a_wide_group_counts(cluster: &Cluster, ns: &str, load: &Fleet) -> anyhow::Result<()> {
    let pods = cluster.testbed.kubectl(&["get", "pods", "-n", ns, "-o", "name"]).await?.success()?;
    let worker =
        pods.lines().filter_map(|pod| pod.strip_prefix("pod/")).find(|pod| pod.starts_with("big-0-"));
    load.set_fixed(worker.context("no worker")?, 0.10, 12.0);
    let grows =
        |va: &Value| has_condition(va, "TargetResolved", ("True", "TargetFound")) && target(va) == Some(2);
    cluster.wait_for(ns, "big", "scale up by the load of its worker", grows).await?;
    wait_for_group(cluster, ns, "every", (0.10, 12.0)).await?;
    let address = cluster.install.address("debug")?;
    let group = "a replica is a group of 2 pods, all serve, 16 GPUs";
    for (command, part) in [
        (&["explain"][..], group),
        (&["doctor", "-o", "wide"], group),
        (&["doctor", "-o", "wide"], "1 group reporting"),
        (&["status", "-o", "wide"], "2, all serve"),
    ] {
        let args = [command, &["-n", ns, "big", "--address", address]].concat();
        eventually(&format!("{part:?} in wva {}", args.join(" ")), DEADLINE, async || {
            let run = run_wva(&cluster.testbed, &args, "").await?;
            ensure!(run.stdout.contains(part), "{run:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// The metrics of a worker do not count.
async fn only_the_leader_of_other_groups_counts(
    cluster: &Cluster,
    ns: &str,
    load: &Fleet,
) -> anyhow::Result<()> {
    load.set_fixed("big-0", 0.78, 0.0);
    cluster.testbed.apply(&leader_worker_set(ns, "--tensor-parallel-size=16")).await?;
    wait_for_group(cluster, ns, "leader", (0.78, 0.0)).await
}

/// Waits until the snapshot has one ready group with this load.
async fn wait_for_group(
    cluster: &Cluster,
    ns: &str,
    serving: &str,
    (kv, queue): (f64, f64),
) -> anyhow::Result<()> {
    eventually("the snapshot to show one ready group", DEADLINE, async || {
        let seen = cluster.model(ns).await?["variants"][0].take();
        ensure!(seen["current"] == 1 && seen["ready"] == 1, "{seen}");
        ensure!(seen["gpusPerReplica"] == 16 && seen["engineArgs"][0] == "--max-num-seqs=64", "{seen}");
        ensure!(seen["group"] == json!({"pods": 2, "serving": serving}), "{seen}");
        let replicas = seen["replicas"].as_array().context("no replicas")?;
        ensure!(replicas.len() == 1 && replicas[0]["pod"] == "big-0", "{seen}");
        let is =
            |field: &str, wanted: f64| replicas[0][field].as_f64().is_some_and(|v| (v - wanted).abs() < 1e-6);
        ensure!(is("kv", kv) && is("queue", queue), "{seen}");
        Ok(())
    })
    .await
}
