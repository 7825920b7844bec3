//! From workloads, their templates and autoscalers to what a replica takes, and within which bounds.

use super::*;

#[test]
fn bounds_are_the_narrower_of_the_object_and_all_its_autoscalers() {
    let mut case = Case::new();
    case.cluster
        .variant("a", "m", json!({"spec": {"minReplicas": 0, "maxReplicas": 8}}))
        .deployment("a", 1, 1);
    let bounds = |case: &mut Case| {
        let v = case.assembled().snapshot.models[0].variants[0].clone();
        (v.min, v.max, v.min_forbids_zero, v.hpa_tolerance.map(|t| t.up.get()))
    };
    assert_eq!(bounds(&mut case), (Some(0), Some(8), false, None));
    case.cluster.autoscaler("one", "a", json!({}));
    assert_eq!(bounds(&mut case), (Some(1), Some(8), false, Some(0.1)), "an HPA's 1 forbids nothing");
    case.cluster.autoscaler(
        "two",
        "a",
        json!({"minReplicas": 2, "maxReplicas": 5, "behavior": {"scaleUp": {"tolerance": "200m"}}}),
    );
    assert_eq!(bounds(&mut case), (Some(2), Some(5), false, Some(0.2)));
}

#[test]
fn a_scaled_object_bounds_its_workload_and_its_minimum_forbids_zero() {
    let mut case = Case::new();
    case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1);
    let bounds = |case: &mut Case, min: u32| {
        let target = json!({"scaleTargetRef": {"name": "a"}, "minReplicaCount": min, "maxReplicaCount": 7});
        case.cluster.scaled_object("one", &target);
        let v = case.assembled().snapshot.models[0].variants[0].clone();
        (v.min, v.max, v.min_forbids_zero, v.hpa_tolerance.map(|t| t.up.get()))
    };
    assert_eq!(bounds(&mut case, 0), (Some(0), Some(7), false, None));
    assert_eq!(bounds(&mut case, 2), (Some(2), Some(7), true, None));
    // The HPA that KEDA makes of it cannot say 0, and means nothing by its 1.
    case.cluster.autoscaler("keda-hpa-one", "a", json!({"minReplicas": 1, "maxReplicas": 7}));
    assert_eq!(bounds(&mut case, 0), (Some(1), Some(7), false, Some(0.1)));
    assert_eq!(bounds(&mut case, 1), (Some(1), Some(7), true, Some(0.1)));
}

#[test]
fn the_template_says_what_a_replica_takes_and_how_it_is_run() {
    let mut case = Case::new();
    let container = json!({"name": "s", "image": "vllm", "args": ["--max-num-seqs=64"], "resources": {"limits": {"nvidia.com/gpu": "4"}}});
    let pod = json!({"containers": [container], "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}});
    case.cluster.variant("a", "m", json!({})).template("a", &pod);
    let label = json!({"metadata": {"labels": {"inference.optimization/acceleratorName": "H200"}}});
    case.cluster.variant("b", "m", label).template("b", &pod);
    let all = case.assembled().snapshot.models.remove(0).variants;
    for (variant, accelerator) in all.iter().zip(["H100", "H200"]) {
        assert_eq!(variant.accelerator.as_deref(), Some(accelerator), "the label goes first");
        assert_eq!(
            (variant.gpus_per_replica.0, variant.engine_args.as_slice()),
            (4, &["--max-num-seqs=64".to_owned()][..])
        );
    }
}

#[test]
fn a_leader_worker_set_is_a_workload_of_which_the_leaders_serve() {
    let mut case = Case::new();
    let target = json!({"spec": {"scaleTargetRef": {"apiVersion": "leaderworkerset.x-k8s.io/v1"}}});
    case.cluster.variant_of("a", "LeaderWorkerSet", "l", "m", target);
    let container = json!({"name": "s", "image": "vllm", "args": ["serve"], "resources": {"limits": {"nvidia.com/gpu": "8"}}});
    let worker = json!({"spec": {"containers": [container]}});
    case.cluster.leader_worker_set("l", 2, 1, json!({"size": 2, "workerTemplate": worker}));
    case.cluster.stateful_set_of("l", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l");
    for group in ["l-0", "l-1"] {
        case.cluster.stateful_set_of(group, "v1", "Pod", group);
        case.cluster.status(group, "StatefulSet", "l", &ready(CREATED));
        case.cluster.status(&format!("{group}-1"), "StatefulSet", group, &ready(CREATED));
    }
    case.cluster.status("l-1-1", "StatefulSet", "l-1", &unschedulable());
    case.load("m", 1.0, &[("l-0", 0.3, 0.0), ("l-0-1", 0.9, 0.0)]);
    let assembled = case.assembled();
    assert_eq!(assembled.unmapped, 0, "a worker is known, and nobody's replica");
    let variant = &assembled.snapshot.models[0].variants[0];
    assert_eq!((variant.current, variant.ready, variant.gpus_per_replica.0), (2, Some(1), 16));
    assert_eq!(variant.replicas.iter().map(|r| r.pod.as_str()).collect::<Vec<_>>(), ["l-0"]);
    // The leader of the second group is ready, and one of its workers finds no node.
    let pending = variant.pending.as_ref().unwrap();
    assert_eq!(pending.iter().map(|p| p.state).collect::<Vec<_>>(), [PendingState::Unschedulable]);
}

#[test]
fn the_inventory_is_taken_where_something_is_limited_and_counts_our_pods_that_wait() {
    let mut case = Case::new();
    let label = json!({"metadata": {"labels": {"inference.optimization/acceleratorName": "H100"}}});
    case.cluster.variant("a", "m", label).deployment("a", 2, 1).deployment("other", 1, 0);
    case.cluster.node(
        "n",
        &json!({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}),
        &json!({"nvidia.com/gpu": "8"}),
    );
    let asks = json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]});
    let mut pod = |name: &str, of: &str, node: Option<&str>, leaving: Option<&str>| {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{of}-rs"), "uid": format!("uid of {of}-rs"), "controller": true}]);
        let metadata =
            json!({"name": name, "namespace": "ns", "ownerReferences": owner, "deletionTimestamp": leaving});
        let mut spec = asks.clone();
        spec["nodeName"] = node.into();
        case.cluster.any_pod(&json!({"metadata": metadata, "spec": spec}));
    };
    pod("a-0", "a", Some("n"), None);
    pod("a-1", "a", None, None);
    pod("a-2", "a", None, Some(CREATED));
    pod("other-0", "other", None, None);
    assert_eq!(case.assembled().snapshot.config.inventory, None, "nothing is limited");
    let limiter = SaturationEntry { enable_limiter: Some(true), ..Default::default() };
    for config in [
        Config { limited_mode: true, ..Config::default() },
        Config { saturation: [("default".to_owned(), limiter)].into(), ..Config::default() },
    ] {
        case.config = config;
        let inventory = case.assembled().snapshot.config.inventory.unwrap();
        let found: Vec<_> = inventory.iter().map(|(name, i)| (name.as_str(), i.limit, i.used)).collect();
        assert_eq!(found, [("H100", 8, 4)], "what the other workload waits for is not ours to count");
    }
    case.cluster.nodes_are(Sight::Forbidden);
    let assembled = case.assembled();
    assert_eq!(
        (assembled.snapshot.config.inventory, assembled.unlimited),
        (None, Some(NoInventory::Forbidden("nodes")))
    );
}

#[test]
fn replicas_whose_pods_are_not_there_yet_are_counted_once_and_with_all_their_pods() {
    let mut case = Case::new();
    let of_lws = json!({"metadata": {"labels": {"inference.optimization/acceleratorName": "H100"}},
        "spec": {"scaleTargetRef": {"apiVersion": "leaderworkerset.x-k8s.io/v1"}}});
    case.cluster.variant_of("a", "LeaderWorkerSet", "l", "m", of_lws);
    let product = json!({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"});
    case.cluster.node("n", &product, &json!({"nvidia.com/gpu": "64"}));
    case.config = Config { limited_mode: true, ..Config::default() };
    let asks = json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]});
    case.cluster.leader_worker_set("l", 2, 0, json!({"size": 2, "workerTemplate": {"spec": asks}}));
    case.cluster.stateful_set_of("l", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l");
    case.cluster.stateful_set_of("l-0", "v1", "Pod", "l-0");
    let used = |case: &mut Case| case.assembled().snapshot.config.inventory.unwrap()["H100"].used;
    assert_eq!(used(&mut case), 32, "2 groups of 2 pods with 8 each, and no pod yet");
    let pod = |case: &mut Case, name: &str, set: &str, node: Option<&str>, phase: &str| {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": format!("uid of {set}"), "controller": true}]);
        let mut spec = asks.clone();
        spec["nodeName"] = node.into();
        let metadata = json!({"name": name, "namespace": "ns", "ownerReferences": owner});
        case.cluster.any_pod(&json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}}));
    };
    for (name, set, node) in [("l-0", "l", Some("n")), ("l-0-1", "l-0", None), ("l-1", "l", None)] {
        pod(&mut case, name, set, node, "Pending");
        assert_eq!(used(&mut case), 32, "{name}");
    }
    // What has ended holds nothing, and is made anew.
    pod(&mut case, "l-0-1", "l-0", Some("n"), "Failed");
    assert_eq!(used(&mut case), 32);
    // More pods than replicas, as in a rollout: those count that are there.
    case.cluster.leader_worker_set("l", 1, 0, json!({"size": 1, "workerTemplate": {"spec": asks}}));
    assert_eq!(used(&mut case), 16);
}
