//! Whose a pod is, and what pods say of replicas.

use serde_json::{Value, json};

use super::*;
use crate::fixture::{CREATED, Cluster};

fn wall() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

#[test]
fn a_rank_suffix_is_tried_only_when_no_pod_has_the_full_name() {
    let mut cluster = Cluster::new();
    cluster.deployment("d", 2, 2).pod("a", "d").pod("b-rank-0", "d");
    let pods = pods(&cluster.watches());
    assert_eq!(pod_named(&pods, "ns", "a-rank-0").map(|(n, _)| n), Some("a"));
    assert_eq!(pod_named(&pods, "ns", "b-rank-0").map(|(n, _)| n), Some("b-rank-0"));
    assert_eq!(pod_named(&pods, "ns", "a-rank-x"), None);
    assert_eq!(pod_named(&pods, "other", "a"), None);
}

/// A LeaderWorkerSet `l` with one group of a leader and a worker, and the StatefulSets that its controller makes.
fn group() -> Cluster {
    let mut cluster = Cluster::new();
    cluster.leader_worker_set("l", 1, 0, json!({"size": 2}));
    cluster.stateful_set_of("l", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l");
    cluster.stateful_set_of("l-0", "v1", "Pod", "l-0");
    cluster.pod_with("l-0", "StatefulSet", "l", json!({})).pod_with("l-0-1", "StatefulSet", "l-0", json!({}));
    cluster
}

#[test]
fn of_a_group_the_leader_alone_serves() {
    let all = pods(&group().watches());
    let workload = WorkloadKey { namespace: "ns".into(), kind: LEADER_WORKER_SET.into(), name: "l".into() };
    let (leader, worker) = (&all[&PodKey::new("ns", "l-0")], &all[&PodKey::new("ns", "l-0-1")]);
    assert_eq!((&leader.workload, leader.serves()), (&workload, true));
    assert_eq!((&worker.workload, worker.serves()), (&workload, false));
    assert_eq!(standings(&all, wall())[&workload].unready.len(), 1, "it is one replica");
}

#[test]
fn a_stateful_set_that_something_else_made_is_the_workload_itself() {
    let mut cluster = Cluster::new();
    cluster.stateful_set_of("s", "serving.example.com/v1", "InferenceService", "i");
    // Its maker has the name of a pod, and is none.
    cluster.stateful_set_of("t", "example.com/v1", "Pod", "p");
    for set in ["s", "t"] {
        cluster.pod_with(&format!("{set}-0"), "StatefulSet", set, json!({}));
    }
    let all = pods(&cluster.watches());
    for set in ["s", "t"] {
        let of = &all[&PodKey::new("ns", &format!("{set}-0"))];
        assert_eq!((of.workload.kind.as_str(), of.workload.name.as_str()), ("StatefulSet", set));
    }
}

#[test]
fn a_worker_of_a_leader_that_is_not_there_belongs_to_nobody() {
    let mut cluster = Cluster::new();
    cluster.stateful_set_of("l-0", "v1", "Pod", "l-0").pod_with("l-0-1", "StatefulSet", "l-0", json!({}));
    assert!(pods(&cluster.watches()).is_empty());
}

#[test]
fn a_group_is_as_far_as_its_last_pod() {
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
        let found = standings(&pods(&cluster.watches()), wall()).into_values().next().unwrap();
        assert_eq!(
            found.unready.iter().map(|(phase, _)| *phase).collect::<Vec<_>>(),
            Vec::from_iter(unready)
        );
        assert_eq!(found.last_ready, last_ready.map(|at| at.parse().unwrap()));
    }
}

#[test]
fn pods_that_go_or_have_ended_are_no_replicas() {
    let mut cluster = Cluster::new();
    cluster.deployment("d", 1, 0).pod("stays", "d");
    cluster.pod_with("leaves", "ReplicaSet", "d-rs", json!({"metadata": {"deletionTimestamp": CREATED}}));
    cluster.pod_with("evicted", "ReplicaSet", "d-rs", json!({"status": {"phase": "Failed"}}));
    let all = pods(&cluster.watches());
    assert_eq!(all.len(), 3);
    let serving: Vec<_> =
        all.iter().filter(|(_, pod)| pod.serves()).map(|(key, _)| key.name.as_str()).collect();
    assert_eq!(serving, ["stays"], "what one that has ended said last is nobody's load");
    assert_eq!(standings(&all, wall()).into_values().next().unwrap().unready.len(), 1);
}
