//! The idle pod goes when the program scales a busy Deployment down.

use anyhow::{Context as _, ensure};
use wva_testbed::fixtures::VariantFixture;
use wva_testbed::{Fleet, eventually};

use super::{ENDLESS, servers};
use crate::support::{Cluster, DEADLINE, get_object, repository_path};

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const ACCOUNT: &str =
    "system:serviceaccount:workload-variant-autoscaler-system:workload-variant-autoscaler-controller-manager";

/// Each of three pods in turn is the idle one. A cost that a user has set stays.
pub(super) async fn idle_pod_goes(cluster: &Cluster) -> anyhow::Result<()> {
    let testbed = &cluster.testbed;
    let ns = testbed.namespace("idle-pod").await?;
    let fleet = servers(cluster, &ns)?;
    let fixture = VariantFixture::new(&ns, "a").replicas(3).port(fleet.port());
    testbed.apply(&[fixture.deployment(), fixture.variant()].join("---\n")).await?;
    let set_replicas = async |replicas: u32| {
        let mode = format!("wva.llmd.ai/mode=fixed={replicas}");
        testbed.kubectl(&["annotate", "va/a", "-n", &ns, "--overwrite", &mode]).await?.success()
    };
    set_replicas(3).await?;
    fleet.wait_ready(3, DEADLINE).await?;

    // Without the right to patch pods the program scales down all the same, and reports it.
    set_replicas(2).await?;
    fleet.wait_ready(2, DEADLINE).await?;
    eventually("the missing right to be reported", DEADLINE, async || {
        let events = cluster.events(&ns, "DeletionCostFailed").await?;
        let names_right = |event: &serde_json::Value| event["message"].to_string().contains("patch on pods");
        ensure!(events.len() == 1 && names_right(&events[0]), "{events:?}");
        Ok(())
    })
    .await?;
    for file in ["rbac.yaml", "policy.yaml"] {
        let path = repository_path("config/pod-deletion-cost").join(file);
        testbed.apply(&std::fs::read_to_string(path)?).await?;
    }
    for nth in 0..3 {
        set_replicas(3).await?;
        fleet.wait_ready(3, DEADLINE).await?;
        scale_down(cluster, &ns, &fleet, nth, async || set_replicas(2).await.map(|_| ())).await?;
    }

    set_replicas(3).await?;
    let pods = fleet.wait_ready(3, DEADLINE).await?;
    only_the_cost_may_change(cluster, &ns, pods.first().context("no pod")?).await?;
    asleep_pod_goes(cluster, &ns, &fleet, async || set_replicas(2).await.map(|_| ())).await?;

    // A user keeps the idle pod: a busy one goes.
    set_replicas(3).await?;
    let pods = fleet.wait_ready(3, DEADLINE).await?;
    let (kept, busy) = pods.split_last().context("no pod")?;
    for pod in busy {
        fleet.send_to(pod, ENDLESS);
    }
    let keep = format!("{COST}=100");
    testbed.kubectl(&["annotate", "pod", kept, "-n", &ns, &keep]).await?.success()?;
    set_replicas(2).await?;
    let left = fleet.wait_ready(2, DEADLINE).await?;
    ensure!(left.contains(kept), "{left:?}");
    let pod = get_object(testbed, &["pod", kept, "-n", &ns]).await?;
    ensure!(pod["metadata"]["annotations"][COST] == "100", "{}", pod["metadata"]["annotations"]);
    Ok(())
}

/// Who has the token of wva cannot change pods otherwise.
async fn only_the_cost_may_change(cluster: &Cluster, ns: &str, pod: &str) -> anyhow::Result<()> {
    let patch = async |patch: &str| {
        cluster.testbed.kubectl(&["--as", ACCOUNT, "patch", "pod", pod, "-n", ns, "--patch", patch]).await
    };
    for (field, change) in [
        ("spec", r#"{"spec": {"activeDeadlineSeconds": 1}}"#),
        ("metadata.labels", r#"{"metadata": {"labels": {"app": "other"}}}"#),
        ("metadata.annotations", r#"{"metadata": {"annotations": {"a": "b"}}}"#),
        ("metadata", r#"{"metadata": {"finalizers": ["example.com/stays"]}}"#),
    ] {
        // The API server needs a moment to read a new policy.
        eventually("the policy to refuse a change", DEADLINE, async || {
            let answer = patch(change).await?;
            let refused = format!("{field}: wva sets the annotation {COST} of pods, and nothing else");
            ensure!(!answer.ok && answer.stderr.contains(&refused), "{field}: {answer:?}");
            Ok(())
        })
        .await?;
    }
    patch(&format!(r#"{{"metadata": {{"annotations": {{"{COST}": "7"}}}}}}"#)).await?.success()?;
    patch(&format!(r#"{{"metadata": {{"annotations": {{"{COST}": null}}}}}}"#)).await?.success().map(|_| ())
}

/// Of idle pods the one whose engine sleeps goes. Prometheus shows it.
async fn asleep_pod_goes(
    cluster: &Cluster,
    ns: &str,
    fleet: &Fleet,
    scale: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let pods = fleet.wait_ready(3, DEADLINE).await?;
    let asleep = pods.first().context("no pod")?;
    fleet.set_asleep(asleep);
    eventually("the snapshot to show the engine that sleeps", DEADLINE, async || {
        let model = cluster.model(ns).await?;
        let replicas = model["variants"][0]["replicas"].as_array().context("no replicas")?;
        let is_shown = |r: &serde_json::Value| r["pod"] == **asleep && r["asleep"] == true;
        ensure!(replicas.iter().any(is_shown), "{replicas:?}");
        Ok(())
    })
    .await?;
    scale().await?;
    let left = fleet.wait_ready(2, DEADLINE).await?;
    ensure!(!left.contains(asleep), "{asleep} sleeps and stays: {left:?}");
    Ok(())
}

/// Makes all pods but one busy, scales down, and expects that one to be gone and no request to be lost.
async fn scale_down(
    cluster: &Cluster,
    ns: &str,
    fleet: &Fleet,
    idle: usize,
    scale: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let before: Vec<String> = fleet.pods().into_iter().map(|load| load.pod).collect();
    let idle = before.get(idle).context("no such pod")?;
    for busy in before.iter().filter(|pod| *pod != idle) {
        fleet.send_to(busy, ENDLESS);
    }
    scale().await?;
    let after = fleet.wait_ready(before.len() - 1, DEADLINE).await?;
    ensure!(!after.contains(idle), "{idle} is idle and stays: {after:?}");
    fleet.end_requests();
    ensure!(fleet.requests().iter().all(|r| r.begins == 1), "{:?}", fleet.requests());
    eventually("no pod to have a cost", DEADLINE, async || {
        let pods = get_object(&cluster.testbed, &["pods", "-n", ns]).await?;
        ensure!(!pods.to_string().contains(COST), "a cost is left: {pods}");
        Ok(())
    })
    .await
}
