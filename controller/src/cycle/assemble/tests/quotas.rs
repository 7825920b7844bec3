//! ResourceQuotas of the Snapshot, and replicas that wait for quota.

use wva_scaling::snapshot::QuotaWait;

use super::*;

const GATE: &str = "kueue.x-k8s.io/admission";

fn limited() -> SaturationEntry {
    SaturationEntry { enable_limiter: Some(true), ..Default::default() }
}

/// A Deployment `a` whose pods request 2 CPUs, with `pods` of its replicas.
fn case(replicas: u32, pods: &[&str]) -> Case {
    let mut case = Case::new();
    let container = json!({"name": "vllm", "image": "vllm", "resources": {"requests": {"cpu": "2"}}});
    case.cluster.variant("a", "m", json!({})).deployment_with_pod_spec(
        "a",
        replicas,
        &json!({"containers": [container]}),
    );
    for pod in pods {
        case.cluster.pod(pod, "a");
    }
    case
}

/// Resource, limit and use of every row, and what a replica takes from it.
fn rows(case: &mut Case) -> Vec<(String, u64, u64, u64)> {
    let snapshot = case.assembled().snapshot;
    let needs = &snapshot.models[0].variants[0].quota_needs;
    let row = |(row, need): (&wva_scaling::snapshot::QuotaLimit, &wva_scaling::snapshot::QuotaNeed)| {
        assert_eq!((&row.quota, &row.resource), (&need.quota, &need.resource));
        (row.resource.clone(), row.limit.0, row.used.0, need.per_replica.0)
    };
    snapshot.config.quotas.iter().zip(needs).map(row).collect()
}

#[test]
fn quotas_limit_what_replicas_take() {
    let mut case = case(3, &["a-0", "a-1"]);
    case.cluster.quota("all", "pods", "9", "2").quota("cpus", "requests.cpu", "12", "4500m");
    case.cluster.quota("other", "requests.memory", "1Gi", "0").quota("services", "count/services", "1", "1");
    assert!(rows(&mut case).is_empty(), "the limiter is off");
    case.set_saturation(limited());
    // The third replica has no pod, so the quotas do not count it yet.
    let want = [("pods", 9, 3, 1), ("requests.cpu", 12_000, 6500, 2000)];
    assert_eq!(rows(&mut case), want.map(|(name, limit, used, per)| (name.to_owned(), limit, used, per)));
}

#[test]
fn pods_of_a_group_add_up() {
    let mut case = Case::new();
    let target = json!({"spec": {"scaleTargetRef": {"apiVersion": "leaderworkerset.x-k8s.io/v1"}}});
    case.cluster.variant_with_target("a", "LeaderWorkerSet", "l", "m", target);
    case.cluster.leader_worker_set("l", 2, 0, json!({"size": 3, "workerTemplate": {"spec": gpu_pod(8)}}));
    case.cluster.owned_stateful_set("l", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l");
    case.cluster.pod_with("l-0", "StatefulSet", "l", json!({}));
    case.cluster.quota("gpus", "requests.nvidia.com/gpu", "64", "8");
    case.set_saturation(limited());
    // One of six pods exists.
    assert_eq!(rows(&mut case), [("requests.nvidia.com/gpu".to_owned(), 64, 48, 24)]);
}

#[test]
fn a_gated_pod_waits_for_quota() {
    let mut case = case(2, &[]);
    let conditions = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    let gated = json!({"spec": {"schedulingGates": [{"name": GATE}]}, "status": {"conditions": conditions}});
    case.cluster.pod_with("a-0", "ReplicaSet", "a-rs", gated);
    let variant = case.variant();
    let states: Vec<_> = variant.pending.unwrap().iter().map(|p| p.state).collect();
    assert_eq!(states, [PendingState::WaitingForQuota, PendingState::Starting]);
    assert_eq!(variant.quota_wait, Some(QuotaWait::Gate(GATE.to_owned())));
}

#[test]
fn replicas_wait_for_a_quota_without_room_for_their_pods() {
    for (used, state, cause) in [
        ("2", PendingState::Starting, None),
        ("3", PendingState::WaitingForQuota, Some(QuotaWait::Quota("cpus".to_owned()))),
    ] {
        let mut case = case(2, &["a-0"]);
        case.cluster.quota("cpus", "requests.cpu", "4", used);
        let variant = case.variant();
        let pending = variant.pending.unwrap();
        assert!(pending.iter().any(|p| p.state == state), "{pending:?}");
        assert_eq!(variant.quota_wait, cause, "{used} of 4 used");
    }
}

#[test]
fn terminating_pods_are_counted_while_the_limiter_is_on() {
    let mut case = case(1, &["a-0"]);
    let on = json!({"metadata": {"deletionTimestamp": CREATED}, "spec": {"nodeName": "n"}});
    case.cluster.pod_with("a-1", "ReplicaSet", "a-rs", on);
    assert_eq!(case.variant().terminating, 0);
    case.set_saturation(limited());
    assert_eq!(case.variant().terminating, 1);
}
