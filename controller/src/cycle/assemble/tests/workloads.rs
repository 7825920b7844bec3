//! GPUs and bounds of replicas from workloads, templates and autoscalers.

use super::*;
use crate::model::gpus::NoInventory;

const PRODUCT: &str = "NVIDIA-H100-80GB-HBM3";

/// Checks minimum, maximum, whether the minimum forbids zero, and the scale-up tolerance.
#[track_caller]
fn check_bounds(case: &mut Case, min: u32, max: u32, forbids_zero: bool, tolerance: Option<f64>) {
    let v = case.variant();
    let found = (v.min, v.max, v.min_forbids_zero, v.hpa_tolerance.map(|t| t.up.get()));
    assert_eq!(found, (Some(min), Some(max), forbids_zero, tolerance));
}

#[test]
fn the_narrowest_bounds_apply() {
    let mut case = Case::with_pods(&["a-0"]);
    case.cluster.variant("a", "m", json!({"spec": {"minReplicas": 0, "maxReplicas": 8}}));
    check_bounds(&mut case, 0, 8, false, None);
    // An HPA's minimum of 1 does not forbid zero.
    case.cluster.autoscaler("one", "a", json!({}));
    check_bounds(&mut case, 1, 8, false, Some(0.1));
    let behavior = json!({"scaleUp": {"tolerance": "200m"}});
    case.cluster.autoscaler("two", "a", json!({"minReplicas": 2, "maxReplicas": 5, "behavior": behavior}));
    check_bounds(&mut case, 2, 5, false, Some(0.2));
}

#[test]
fn a_scaled_object_sets_bounds_and_its_minimum_forbids_zero() {
    let mut case = Case::with_pods(&["a-0"]);
    let bound = |case: &mut Case, min: u32| {
        let target = json!({"scaleTargetRef": {"name": "a"}, "minReplicaCount": min, "maxReplicaCount": 7});
        case.cluster.scaled_object("one", &target);
    };
    bound(&mut case, 0);
    check_bounds(&mut case, 0, 7, false, None);
    bound(&mut case, 2);
    check_bounds(&mut case, 2, 7, true, None);
    // KEDA's HPA cannot have a minimum of 0; its 1 does not forbid zero.
    case.cluster.autoscaler("keda-hpa-one", "a", json!({"minReplicas": 1, "maxReplicas": 7}));
    bound(&mut case, 0);
    check_bounds(&mut case, 1, 7, false, Some(0.1));
    bound(&mut case, 1);
    check_bounds(&mut case, 1, 7, true, Some(0.1));
}

#[test]
fn a_scaled_object_that_idles_at_zero_allows_zero() {
    let mut case = Case::with_pods(&["a-0"]);
    let spec = json!({"scaleTargetRef": {"name": "a"}, "idleReplicaCount": 0, "minReplicaCount": 2, "maxReplicaCount": 8});
    case.cluster.scaled_object("one", &spec);
    case.cluster.autoscaler("keda-hpa-one", "a", json!({"minReplicas": 2, "maxReplicas": 8}));
    check_bounds(&mut case, 2, 8, false, Some(0.1));
    assert!(case.variant().idles_at_zero);
    case.cluster.variant("a", "m", json!({"spec": {"minReplicas": 1}}));
    check_bounds(&mut case, 2, 8, true, Some(0.1));
}

#[test]
fn obstacles_name_what_the_autoscaler_does_not_carry_out() {
    let mut case = Case::with_pods(&["a-0"]);
    let disabled = |rules: &str| json!({"maxReplicas": 8, "behavior": {rules: {"selectPolicy": "Disabled"}}});
    assert!(case.variant().obstacles.is_empty());
    case.cluster.autoscaler("h", "a", disabled("scaleUp"));
    let up = case.variant().obstacles.up;
    assert_eq!(up.as_deref(), Some("HPA h: behavior.scaleUp.selectPolicy is Disabled"));
    case.cluster.autoscaler("h", "a", disabled("scaleDown"));
    let obstacles = case.variant().obstacles;
    assert_eq!(obstacles.down.as_deref(), Some("HPA h: behavior.scaleDown.selectPolicy is Disabled"));
    assert_eq!(obstacles.up, None);
    // The controller takes the step from 0 itself.
    case.cluster.autoscaler("h", "a", disabled("scaleUp")).deployment("a", 0, 0);
    assert!(case.variant().obstacles.is_empty());
}

#[test]
fn the_template_gives_accelerator_gpus_and_engine_args() {
    let mut case = Case::new();
    let mut pod = gpu_pod(4);
    pod["containers"][0]["args"] = json!(["--max-num-seqs=64"]);
    pod["nodeSelector"] = json!({"nvidia.com/gpu.product": PRODUCT});
    let label = json!({"metadata": {"labels": {"inference.optimization/acceleratorName": "H200"}}});
    case.cluster.variant("a", "m", json!({})).deployment_with_pod_spec("a", 1, &pod);
    case.cluster.variant("b", "m", label).deployment_with_pod_spec("b", 1, &pod);
    let all = case.assembled().snapshot.models.remove(0).variants;
    for (variant, accelerator) in all.iter().zip(["H100", "H200"]) {
        assert_eq!(variant.accelerator.as_deref(), Some(accelerator), "the label takes precedence");
        assert_eq!((variant.gpus_per_replica.0, &*variant.engine_args.join(" ")), (4, "--max-num-seqs=64"));
    }
}

/// Variant `a` with LeaderWorkerSet `l`: groups of two pods with 8 GPUs each, without pods so far.
fn groups(replicas: u32, ready: u32, extra: Value) -> Case {
    let mut case = Case::new();
    let mut object = json!({"spec": {"scaleTargetRef": {"apiVersion": "leaderworkerset.x-k8s.io/v1"}}});
    object["metadata"] = extra;
    case.cluster.variant_with_target("a", "LeaderWorkerSet", "l", "m", object);
    let group = json!({"size": 2, "workerTemplate": {"spec": gpu_pod(8)}});
    case.cluster.leader_worker_set("l", replicas, ready, group);
    case.cluster.owned_stateful_set("l", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l");
    case
}

#[test]
fn leaders_of_a_leader_worker_set_are_its_replicas() {
    let mut case = groups(2, 1, json!({}));
    for group in ["l-0", "l-1"] {
        case.cluster.owned_stateful_set(group, "v1", "Pod", group);
        case.cluster.pod_with(group, "StatefulSet", "l", ready(CREATED));
        case.cluster.pod_with(&format!("{group}-1"), "StatefulSet", group, ready(CREATED));
    }
    case.cluster.pod_with("l-1-1", "StatefulSet", "l-1", unschedulable());
    case.load("m", 1.0, &[("l-0", 0.3, 0.0), ("l-0-1", 0.9, 0.0)]);
    let variant = case.variant();
    assert_eq!((variant.current, variant.ready, variant.gpus_per_replica.0), (2, Some(1), 16));
    assert_eq!(case.replicas(), [load("l-0", 0.3, 0.0)]);
    // The leader of the second group is ready, but one of its workers is unschedulable.
    let pending = variant.pending.unwrap();
    assert_eq!(pending.iter().map(|p| p.state).collect::<Vec<_>>(), [PendingState::Unschedulable]);
}

/// Variant `a` with one group of two pods that both serve.
fn wide_group() -> Case {
    let mut case = groups(1, 1, json!({}));
    let mut pod = gpu_pod(8);
    pod["containers"][0]["args"] = json!(["vllm serve m --data-parallel-hybrid-lb"]);
    case.cluster.leader_worker_set("l", 1, 1, json!({"size": 2, "workerTemplate": {"spec": pod}}));
    case.cluster.owned_stateful_set("l-0", "v1", "Pod", "l-0");
    case.cluster.pod_with("l-0", "StatefulSet", "l", ready(CREATED));
    case.cluster.pod_with("l-0-1", "StatefulSet", "l-0", ready(CREATED));
    case
}

#[test]
fn a_wide_group_is_one_replica_with_the_load_of_its_pods() {
    let mut case = wide_group();
    case.load("m", 1.0, &[("l-0", 0.2, 1.0), ("l-0-1", 0.6, 3.0)]);
    let variant = case.variant();
    assert_eq!((variant.current, variant.ready, variant.gpus_per_replica.0), (1, Some(1), 16));
    assert_eq!(variant.group, Some(PodGroup { pods: 2, serving: ServingPods::Every }));
    assert_eq!(case.replicas(), [load("l-0", 0.4, 4.0)]);
    // The cache of the worker is three times as large.
    let caches = [cache("l-0", "100"), cache("l-0-1", "300")];
    case.add_answers([answer(Query::CacheConfig, &caches)]);
    assert_eq!(case.replicas(), [load("l-0", 0.5, 4.0)]);
    assert_eq!((case.replica().num_gpu_blocks.map(f64::from), case.replica().ranks), (Some(100.0), Some(2)));
}

#[test]
fn a_wide_group_needs_the_series_of_every_pod() {
    let running = |pods: &[&str]| {
        let of =
            |pod: &&str| [(pod_metric(pod, "vllm:num_requests_running"), "1"), (pod_signal(pod, "age"), "0")];
        answer(Query::Running, &pods.iter().flat_map(of).collect::<Vec<_>>())
    };
    for (pods, total) in [(&["l-0", "l-0-1"][..], Some(2.0)), (&["l-0"], None), (&["l-0-1"], None)] {
        let mut case = wide_group();
        case.load("m", 1.0, &pods.iter().map(|pod| (*pod, 0.9, 7.0)).collect::<Vec<_>>());
        case.add_answers([running(pods)]);
        let replica = case.replica();
        assert_eq!(replica.pod, "l-0");
        let is_late = replica.age >= case.config.metrics_age.stale;
        assert_eq!(is_late, total.is_none(), "a missing pod forbids scale-down: {pods:?}");
        assert_eq!(replica.kv.map(f64::from), Some(0.9), "the load of the others counts: {pods:?}");
        assert_eq!(case.variant().running.map(f64::from), total, "{pods:?}");
    }
}

#[test]
fn a_group_whose_workers_do_not_exist_yet_is_pending() {
    let mut case = wide_group();
    // The LeaderWorkerSet controller counts it once its workers are ready.
    let pod = json!({"containers": [{"name": "vllm", "args": ["vllm serve m --data-parallel-hybrid-lb"]}]});
    case.cluster.leader_worker_set("l", 1, 0, json!({"size": 2, "workerTemplate": {"spec": pod}}));
    case.cluster.without_pod("l-0-1");
    case.load("m", 1.0, &[("l-0", 0.9, 7.0)]);
    let pending = case.variant().pending.unwrap();
    assert_eq!(pending.iter().map(|p| p.state).collect::<Vec<_>>(), [PendingState::Starting]);
    let snapshot = case.assembled().snapshot;
    let decision = wva_scaling::decide(&snapshot).decisions.remove(0);
    assert_eq!(decision.target(), 1, "no scale-up while the group starts: {decision:?}");
}

#[test]
fn the_inventory_counts_waiting_pods_of_managed_variants() {
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
    for (limited_mode, enable_limiter) in [(true, false), (false, true)] {
        case.config.limited_mode = limited_mode;
        let enable_limiter = Some(enable_limiter);
        case.set_saturation(SaturationEntry { enable_limiter, ..Default::default() });
        let inventory = case.assembled().snapshot.config.inventory.unwrap();
        let found: Vec<_> = inventory.iter().map(|(name, i)| (name.as_str(), i.limit, i.used)).collect();
        assert_eq!(found, [("H100", 8, 4)], "waiting pods of unmanaged workloads do not count");
    }
    case.cluster.set_nodes_availability(Availability::Forbidden);
    let assembled = case.assembled();
    assert_eq!(
        (assembled.snapshot.config.inventory, assembled.gaps.all),
        (None, Some(NoInventory::Forbidden("nodes")))
    );
}

#[test]
fn gpus_of_replicas_without_pods_count_once() {
    let mut case = groups(2, 0, h100_label()["metadata"].take());
    case.cluster.node("n", PRODUCT, 64, json!({}));
    case.config = Config { limited_mode: true, ..Config::default() };
    case.cluster.owned_stateful_set("l-0", "v1", "Pod", "l-0");
    let used = |case: &mut Case| case.assembled().snapshot.config.inventory.unwrap()["H100"].used;
    assert_eq!(used(&mut case), 32, "2 groups of 2 pods with 8 GPUs each, and no pod so far");
    // Pods that have ended hold no GPUs and are replaced.
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
    // With more pods than replicas, as during a rollout, existing pods count.
    case.cluster.leader_worker_set("l", 1, 0, json!({"size": 1, "workerTemplate": {"spec": gpu_pod(8)}}));
    assert_eq!(used(&mut case), 16);
}

#[test]
fn claims_of_a_template_give_gpus_and_accelerator() {
    let mut case = Case::new();
    let pod = json!({"containers": [{"name": "vllm", "image": "vllm"}], "resourceClaims": [
        {"name": "own", "resourceClaimTemplateName": "two"}, {"name": "cache", "resourceClaimName": "shared"}]});
    case.cluster.variant("a", "m", json!({})).deployment_with_pod_spec("a", 2, &pod);
    case.cluster.claim_template("two", "gpu.nvidia.com", json!({"count": 2}));
    let variant = case.variant();
    assert_eq!((variant.gpus_per_replica.0, variant.accelerator), (2, None), "the shared claim adds nothing");
    let names = ["gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"];
    case.cluster.node("n", "", 0, json!({"metadata": {"labels": null}}));
    case.cluster.slice("n", json!({"devices": devices(&names, "NVIDIA H100 80GB HBM3", &json!({}))}));
    case.cluster.claim("a-0-own", &["a-0"], "n", &["gpu-0", "gpu-1"], json!({}));
    let mut placed = pod.clone();
    placed["nodeName"] = json!("n");
    case.cluster.pod_with("a-0", "ReplicaSet", "a-rs", json!({"spec": placed}));
    case.config = Config { limited_mode: true, ..Config::default() };
    let snapshot = case.assembled().snapshot;
    let variant = &snapshot.models[0].variants[0];
    assert_eq!((variant.gpus_per_replica.0, variant.accelerator.as_deref()), (2, Some("H100")));
    let h100 = snapshot.config.inventory.unwrap()["H100"];
    assert_eq!((h100.limit, h100.used), (5, 4), "the second replica has no pod yet");
    case.cluster.set_claims_availability(Availability::Forbidden);
    let assembled = case.assembled();
    let gap = Some(NoInventory::Forbidden("resourceslices.resource.k8s.io"));
    assert_eq!((assembled.gaps.all, assembled.gaps.claims), (None, gap));
    assert_eq!(assembled.snapshot.models[0].variants[0].gpus_per_replica.0, 0);
}
