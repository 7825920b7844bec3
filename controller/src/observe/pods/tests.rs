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
    assert_eq!(unready_pods(&replicas(&all, wall()))[&workload].unready.len(), 1, "it is one replica");
}

/// Groups of two pods, each with a server.
fn wide_groups() -> Value {
    let server = json!({"name": "vllm", "args": ["vllm serve m --data-parallel-hybrid-lb"]});
    json!({"size": 2, "workerTemplate": {"spec": {"containers": [server]}}})
}

#[test]
fn every_pod_of_a_wide_group_takes_requests() {
    let mut cluster = group();
    cluster.leader_worker_set("l", 1, 0, wide_groups());
    let all = workload_pods(&cluster.watches());
    let (leader, worker) = (&all[&PodKey::new("ns", "l-0")], &all[&PodKey::new("ns", "l-0-1")]);
    assert!(leader.takes_requests() && worker.takes_requests());
    assert_eq!((leader.serving_pods(), worker.serving_pods()), (2, 2));
    assert_eq!((leader.replica("l-0"), worker.replica("l-0-1")), ("l-0", "l-0"));
    assert_eq!(replicas(&all, wall()).len(), 1, "it is one replica");
}

#[test]
fn group_without_all_pods_is_starting() {
    let since = "2026-01-01T00:01:00Z";
    let ready =
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}});
    // With the startup policy LeaderReady, the StatefulSet of the workers comes after the leader is ready.
    for (has_workers, has_worker, is_ready) in
        [(false, false, false), (true, false, false), (true, true, true)]
    {
        let mut cluster = Cluster::new();
        cluster.leader_worker_set("l", 1, 0, wide_groups());
        cluster.owned_stateful_set("l", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l");
        cluster.pod_with("l-0", "StatefulSet", "l", ready.clone());
        if has_workers {
            cluster.owned_stateful_set("l-0", "v1", "Pod", "l-0");
        }
        if has_worker {
            cluster.pod_with("l-0-1", "StatefulSet", "l-0", ready.clone());
        }
        let all = workload_pods(&cluster.watches());
        let found = replicas(&all, wall());
        let pending: Vec<_> =
            unready_pods(&found).into_values().flat_map(|unready| unready.unready).collect();
        let starting = (Phase::Starting, Some(since.parse().unwrap()));
        assert_eq!(pending, if is_ready { vec![] } else { vec![starting] }, "{has_workers} {has_worker}");
        assert_eq!(ready_pods(&found).len(), usize::from(is_ready));
        assert_eq!(median_cold_starts(&found).len(), usize::from(is_ready));
    }
}

#[test]
fn group_of_an_earlier_template_keeps_its_size() {
    let mut cluster = group();
    let mut template = wide_groups();
    template["size"] = json!(4);
    cluster.leader_worker_set("l", 1, 0, template);
    let pods = |cluster: &Cluster| workload_pods(&cluster.watches())[&PodKey::new("ns", "l-0")].group.pods;
    assert_eq!(pods(&cluster), 2, "its StatefulSet has one worker");
    cluster.pod_with("l-1", "StatefulSet", "l", json!({}));
    assert_eq!(workload_pods(&cluster.watches())[&PodKey::new("ns", "l-1")].group.pods, 4);
}

#[test]
fn cold_start_of_a_group_ends_with_its_last_pod() {
    let ready = |minute: u32| {
        let since = format!("2026-01-01T00:0{minute}:00Z");
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}})
    };
    let mut cluster = group();
    cluster.pod_with("l-0", "StatefulSet", "l", ready(2)).pod_with("l-0-1", "StatefulSet", "l-0", ready(7));
    let all = workload_pods(&cluster.watches());
    let found = median_cold_starts(&replicas(&all, wall()));
    assert_eq!(found.into_values().collect::<Vec<_>>(), [Duration::from_mins(7)]);
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
        let found =
            unready_pods(&replicas(&workload_pods(&cluster.watches()), wall())).into_values().next().unwrap();
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
    assert_eq!(unready_pods(&replicas(&all, wall())).into_values().next().unwrap().unready.len(), 1);
}
