//! From workloads, their templates and autoscalers to what a replica takes, and within which bounds.

use super::*;

const PRODUCT: &str = "NVIDIA-H100-80GB-HBM3";

/// Minimum, maximum, whether the minimum forbids zero, and the tolerance upwards.
#[track_caller]
fn check_bounds(case: &mut Case, min: u32, max: u32, forbids_zero: bool, tolerance: Option<f64>) {
    let v = case.variant();
    let found = (v.min, v.max, v.min_forbids_zero, v.hpa_tolerance.map(|t| t.up.get()));
    assert_eq!(found, (Some(min), Some(max), forbids_zero, tolerance));
}

#[test]
fn bounds_are_the_narrower_of_the_object_and_all_its_autoscalers() {
    let mut case = Case::of(&["a-0"]);
    case.cluster.variant("a", "m", json!({"spec": {"minReplicas": 0, "maxReplicas": 8}}));
    check_bounds(&mut case, 0, 8, false, None);
    // The 1 of an HPA forbids nothing.
    case.cluster.autoscaler("one", "a", json!({}));
    check_bounds(&mut case, 1, 8, false, Some(0.1));
    let behavior = json!({"scaleUp": {"tolerance": "200m"}});
    case.cluster.autoscaler("two", "a", json!({"minReplicas": 2, "maxReplicas": 5, "behavior": behavior}));
    check_bounds(&mut case, 2, 5, false, Some(0.2));
}

#[test]
fn a_scaled_object_bounds_its_workload_and_its_minimum_forbids_zero() {
    let mut case = Case::of(&["a-0"]);
    let bound = |case: &mut Case, min: u32| {
        let target = json!({"scaleTargetRef": {"name": "a"}, "minReplicaCount": min, "maxReplicaCount": 7});
        case.cluster.scaled_object("one", &target);
    };
    bound(&mut case, 0);
    check_bounds(&mut case, 0, 7, false, None);
    bound(&mut case, 2);
    check_bounds(&mut case, 2, 7, true, None);
    // The HPA that KEDA makes of it cannot say 0, and means nothing by its 1.
    case.cluster.autoscaler("keda-hpa-one", "a", json!({"minReplicas": 1, "maxReplicas": 7}));
    bound(&mut case, 0);
    check_bounds(&mut case, 1, 7, false, Some(0.1));
    bound(&mut case, 1);
    check_bounds(&mut case, 1, 7, true, Some(0.1));
}

#[test]
fn the_template_says_what_a_replica_takes_and_how_it_is_run() {
    let mut case = Case::new();
    let mut pod = gpu_pod(4);
    pod["containers"][0]["args"] = json!(["--max-num-seqs=64"]);
    pod["nodeSelector"] = json!({"nvidia.com/gpu.product": PRODUCT});
    let label = json!({"metadata": {"labels": {"inference.optimization/acceleratorName": "H200"}}});
    case.cluster.variant("a", "m", json!({})).template("a", 1, &pod);
    case.cluster.variant("b", "m", label).template("b", 1, &pod);
    let all = case.assembled().snapshot.models.remove(0).variants;
    for (variant, accelerator) in all.iter().zip(["H100", "H200"]) {
        assert_eq!(variant.accelerator.as_deref(), Some(accelerator), "the label goes first");
        assert_eq!((variant.gpus_per_replica.0, &*variant.engine_args.join(" ")), (4, "--max-num-seqs=64"));
    }
}

/// Variant `a` on LeaderWorkerSet `l` of groups of two pods with 8 GPUs each, none of which is there yet.
fn groups(replicas: u32, ready: u32, extra: Value) -> Case {
    let mut case = Case::new();
    let mut object = json!({"spec": {"scaleTargetRef": {"apiVersion": "leaderworkerset.x-k8s.io/v1"}}});
    object["metadata"] = extra;
    case.cluster.variant_of("a", "LeaderWorkerSet", "l", "m", object);
    let group = json!({"size": 2, "workerTemplate": {"spec": gpu_pod(8)}});
    case.cluster.leader_worker_set("l", replicas, ready, group);
    case.cluster.stateful_set_of("l", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l");
    case
}

#[test]
fn a_leader_worker_set_is_a_workload_of_which_the_leaders_serve() {
    let mut case = groups(2, 1, json!({}));
    for group in ["l-0", "l-1"] {
        case.cluster.stateful_set_of(group, "v1", "Pod", group);
        case.cluster.pod_with(group, "StatefulSet", "l", ready(CREATED));
        case.cluster.pod_with(&format!("{group}-1"), "StatefulSet", group, ready(CREATED));
    }
    case.cluster.pod_with("l-1-1", "StatefulSet", "l-1", unschedulable());
    case.load("m", 1.0, &[("l-0", 0.3, 0.0), ("l-0-1", 0.9, 0.0)]);
    assert_eq!(case.assembled().unmapped, 0, "a worker is known, and no replica");
    let variant = case.variant();
    assert_eq!((variant.current, variant.ready, variant.gpus_per_replica.0), (2, Some(1), 16));
    assert_eq!(case.replicas(), [said("l-0", 0.3, 0.0)]);
    // The leader of the second group is ready, and one of its workers finds no node.
    let pending = variant.pending.unwrap();
    assert_eq!(pending.iter().map(|p| p.state).collect::<Vec<_>>(), [PendingState::Unschedulable]);
}

#[test]
fn the_inventory_is_taken_where_something_is_limited_and_counts_our_pods_that_wait() {
    let mut case = Case::new();
    case.cluster.variant("a", "m", h100_label()).deployment("a", 2, 1).deployment("other", 1, 0);
    case.cluster.node("n", PRODUCT, 8, json!({}));
    let on = json!({"spec": {"nodeName": "n"}});
    let leaving = json!({"metadata": {"deletionTimestamp": CREATED}});
    for (name, of, mut pod) in
        [("a-0", "a", on), ("a-1", "a", json!({})), ("a-2", "a", leaving), ("other-0", "other", json!({}))]
    {
        pod["spec"]["containers"] = gpu_pod(2)["containers"].take();
        case.cluster.pod_with(name, "ReplicaSet", &format!("{of}-rs"), pod);
    }
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
    case.cluster.nodes_are(Availability::Forbidden);
    let assembled = case.assembled();
    assert_eq!(
        (assembled.snapshot.config.inventory, assembled.unlimited),
        (None, Some(NoInventory::Forbidden("nodes")))
    );
}

#[test]
fn replicas_whose_pods_are_not_there_yet_are_counted_once_and_with_all_their_pods() {
    let mut case = groups(2, 0, h100_label()["metadata"].take());
    case.cluster.node("n", PRODUCT, 64, json!({}));
    case.config = Config { limited_mode: true, ..Config::default() };
    case.cluster.stateful_set_of("l-0", "v1", "Pod", "l-0");
    let used = |case: &mut Case| case.assembled().snapshot.config.inventory.unwrap()["H100"].used;
    assert_eq!(used(&mut case), 32, "2 groups of 2 pods with 8 each, and no pod yet");
    // What has ended holds nothing, and is made again.
    for (name, set, node, phase) in [
        ("l-0", "l", Some("n"), "Pending"),
        ("l-0-1", "l-0", None, "Pending"),
        ("l-1", "l", None, "Pending"),
        ("l-0-1", "l-0", Some("n"), "Failed"),
    ] {
        let mut pod = json!({"spec": gpu_pod(8), "status": {"phase": phase}});
        pod["spec"]["nodeName"] = node.into();
        case.cluster.pod_with(name, "StatefulSet", set, pod);
        assert_eq!(used(&mut case), 32, "{name}");
    }
    // More pods than replicas, as in a rollout: those count that are there.
    case.cluster.leader_worker_set("l", 1, 0, json!({"size": 1, "workerTemplate": {"spec": gpu_pod(8)}}));
    assert_eq!(used(&mut case), 16);
}
