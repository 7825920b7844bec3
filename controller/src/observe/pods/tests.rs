//! Tests of pod ownership and of the readiness of replicas.

use serde_json::{Value, json};

use super::*;
use crate::fixture::{CREATED, Cluster};

fn wall() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

#[test]
fn drops_rank_suffix_only_without_exact_match() {
    let mut cluster = Cluster::new();
    cluster.deployment("d", 2, 2).pod("a", "d").pod("b-rank-0", "d");
    let pods = workload_pods(&cluster.watches());
    assert_eq!(find_pod(&pods, "ns", "a-rank-0").map(|(n, _)| n), Some("a"));
    assert_eq!(find_pod(&pods, "ns", "b-rank-0").map(|(n, _)| n), Some("b-rank-0"));
    assert_eq!(find_pod(&pods, "ns", "a-rank-x"), None);
    assert_eq!(find_pod(&pods, "other", "a"), None);
}

/// A LeaderWorkerSet `l` with one group of a leader and a worker, and the StatefulSets of its controller.
fn group() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.leader_worker_set("l", 1, 0, json!({"size": 2}));
    cluster.owned_stateful_set("l", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l");
    cluster.owned_stateful_set("l-0", "v1", "Pod", "l-0");
    cluster.pod_with("l-0", "StatefulSet", "l", json!({})).pod_with("l-0-1", "StatefulSet", "l-0", json!({}));
    cluster
}

#[test]
fn only_the_leader_of_a_group_takes_requests() {
    let all = workload_pods(&group().watches());
    let workload = WorkloadKey { namespace: "ns".into(), kind: LEADER_WORKER_SET.into(), name: "l".into() };
    let (leader, worker) = (&all[&PodKey::new("ns", "l-0")], &all[&PodKey::new("ns", "l-0-1")]);
    assert_eq!((&leader.workload, leader.takes_requests()), (&workload, true));
    assert_eq!((&worker.workload, worker.takes_requests()), (&workload, false));
    assert_eq!(unready_pods(&all, wall())[&workload].unready.len(), 1, "it is one replica");
}

#[test]
fn stateful_set_of_another_owner_is_the_workload() {
    let mut cluster = Cluster::new();
    cluster.owned_stateful_set("s", "serving.example.com/v1", "InferenceService", "i");
    // Its owner is of a kind named Pod in another API group.
    cluster.owned_stateful_set("t", "example.com/v1", "Pod", "p");
    for set in ["s", "t"] {
        cluster.pod_with(&format!("{set}-0"), "StatefulSet", set, json!({}));
    }
    let all = workload_pods(&cluster.watches());
    for set in ["s", "t"] {
        let of = &all[&PodKey::new("ns", &format!("{set}-0"))];
        assert_eq!((of.workload.kind.as_str(), of.workload.name.as_str()), ("StatefulSet", set));
    }
}

#[test]
fn ignores_worker_without_leader() {
    let mut cluster = Cluster::new();
    cluster.owned_stateful_set("l-0", "v1", "Pod", "l-0").pod_with("l-0-1", "StatefulSet", "l-0", json!({}));
    assert!(workload_pods(&cluster.watches()).is_empty());
}

#[test]
fn group_has_the_phase_of_its_slowest_pod() {
    let ready = |minute: u32| json!({"type": "Ready", "status": "True", "lastTransitionTime": format!("2026-01-01T00:0{minute}:00Z")});
    let unplaced = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    for (leader, worker, unready, last_ready) in [
        (json!([ready(1)]), json!([ready(3)]), None, Some("2026-01-01T00:03:00Z")),
        (json!([ready(1)]), json!([unplaced]), Some(Phase::Unschedulable), None),
        (json!([unplaced]), json!([]), Some(Phase::Unschedulable), None),
    ] {
        let mut cluster = group();
        let status = |conditions: Value| json!({"status": {"conditions": conditions}});
        cluster.pod_with("l-0", "StatefulSet", "l", status(leader));
        cluster.pod_with("l-0-1", "StatefulSet", "l-0", status(worker));
        let found = unready_pods(&workload_pods(&cluster.watches()), wall()).into_values().next().unwrap();
        assert_eq!(
            found.unready.iter().map(|(phase, _)| *phase).collect::<Vec<_>>(),
            Vec::from_iter(unready)
        );
        assert_eq!(found.last_ready, last_ready.map(|at| at.parse().unwrap()));
    }
}

#[test]
fn terminating_and_finished_pods_are_not_replicas() {
    let mut cluster = Cluster::new();
    cluster.deployment("d", 1, 0).pod("stays", "d");
    cluster.pod_with("leaves", "ReplicaSet", "d-rs", json!({"metadata": {"deletionTimestamp": CREATED}}));
    cluster.pod_with("evicted", "ReplicaSet", "d-rs", json!({"status": {"phase": "Failed"}}));
    let all = workload_pods(&cluster.watches());
    assert_eq!(all.len(), 3);
    let serving: Vec<_> =
        all.iter().filter(|(_, pod)| pod.takes_requests()).map(|(key, _)| key.name.as_str()).collect();
    assert_eq!(serving, ["stays"], "the last sample of a finished pod does not count");
    assert_eq!(unready_pods(&all, wall()).into_values().next().unwrap().unready.len(), 1);
}
