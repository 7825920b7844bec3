//! From caches, samples and memory to the values of a Snapshot: what counts as a replica, what its load is, and which
//! bounds hold.

use serde_json::{Value, json};
use wva_scaling::snapshot::{Mode, PendingState};

use super::*;
use crate::collect::signals::Signal;
use crate::fixture::{CREATED, Cluster, series};
use crate::variants::{Ownership, managed};
use crate::watches::Sight;

/// A cluster, what Prometheus answered, and the Snapshot made from both.
struct Case {
    cluster: Cluster,
    samples: Samples,
    memory: Memory,
    config: Config,
    at: Moment,
}

impl Case {
    fn new() -> Self {
        // Ten minutes after everything was made.
        let wall = CREATED.parse::<Timestamp>().unwrap() + Duration::from_mins(10);
        let at = Moment { now: Instant::now() + Duration::from_hours(1), wall };
        Self {
            cluster: Cluster::new(),
            samples: Samples::default(),
            memory: Memory::default(),
            config: Config::default(),
            at,
        }
    }

    /// `kv` and `queue` by pod, all of `age` seconds, served under `model`.
    fn load(&mut self, model: &str, age: f64, pods: &[(&str, f64, f64)]) {
        let of = |value: fn(&(&str, f64, f64)) -> f64| {
            Ok(pods.iter().map(|p| series(p.0, model, value(p))).collect())
        };
        let ages: Result<Vec<_>, String> = Ok(pods.iter().map(|p| series(p.0, model, age)).collect());
        let answers = vec![
            (Signal::KvUsage, of(|p| p.1)),
            (Signal::Queue, of(|p| p.2)),
            (Signal::KvAge, ages.clone()),
            (Signal::QueueAge, ages),
        ];
        self.samples.take_in(self.at.now, answers);
    }

    fn assembled(&mut self) -> Assembled {
        let watches = self.cluster.watches();
        let managed = managed(&watches, &Ownership::default());
        assemble(&watches, &managed, &self.samples, &mut self.memory, self.config.clone(), self.at)
    }

    /// The snapshot as its file has it, without what is the same everywhere.
    fn models(&mut self) -> Value {
        serde_json::to_value(self.assembled().snapshot.models).unwrap()
    }

    /// Pod, KV and queue of every replica.
    fn replicas(&mut self) -> Vec<(String, Option<f64>, Option<f64>)> {
        let models = self.assembled().snapshot.models;
        let variants = models.iter().flat_map(|m| &m.variants);
        let of = |r: &Replica| (r.pod.clone(), r.kv.map(KvUsage::get), r.queue.map(QueueLength::get));
        variants.flat_map(|v| v.replicas.iter().map(of)).collect()
    }
}

fn ready(since: &str) -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]})
}

fn unschedulable() -> Value {
    json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]})
}

fn said(pod: &str, kv: f64, queue: f64) -> (String, Option<f64>, Option<f64>) {
    (pod.to_owned(), Some(kv), Some(queue))
}

#[test]
fn a_snapshot_carries_what_caches_and_samples_say() {
    let mut case = Case::new();
    case.cluster
        .variant(
            "a",
            "m",
            json!({"metadata": {"labels": {"inference.optimization/acceleratorName": "H100"}, "annotations": {"wva.llmd.ai/mode": "paused"}},
                "spec": {"variantCost": "80", "minReplicas": 1, "maxReplicas": 6},
                "status": {"desiredOptimizedAlloc": {"numReplicas": 4, "accelerator": "H100", "lastRunTime": CREATED}}}),
        )
        .deployment("a", 3, 2)
        .status("a-0", "ReplicaSet", "a-rs", &ready("2026-01-01T00:09:00Z"))
        .status("a-1", "ReplicaSet", "a-rs", &ready("2026-01-01T00:02:00Z"))
        .status("a-2", "ReplicaSet", "a-rs", &unschedulable())
        .autoscaler("a", "a", json!({"minReplicas": 2, "maxReplicas": 9, "behavior": {"scaleUp": {"tolerance": "0"}}}));
    case.load("m", 5.0, &[("a-0", 0.7, 2.0), ("a-1", 0.5, 0.0)]);
    assert_eq!(
        case.models(),
        json!([{"modelID": "m", "namespace": "ns", "variants": [{
            "name": "a", "accelerator": "H100", "cost": "80.0", "mode": "paused",
            "current": 3, "ready": 2, "desired": 4, "desiredAge": "0s",
            "min": 2, "max": 6, "minForbidsZero": true, "hpaTolerance": {"up": 0.0, "down": 0.1},
            "pending": [{"age": "1m0s", "state": "unschedulable"}],
            "replicas": [{"pod": "a-0", "kv": 0.7, "queue": 2.0, "age": "5s"}, {"pod": "a-1", "kv": 0.5, "queue": 0.0, "age": "5s"}],
        }]}])
    );
}

#[test]
fn variants_of_one_model_are_one_model_and_namespaces_are_not_mixed() {
    let mut case = Case::new();
    case.cluster.variant("a", "m", json!({})).variant("b", "m", json!({})).variant("c", "other", json!({}));
    case.cluster.variant("d", "m", json!({"metadata": {"namespace": "elsewhere"}}));
    case.cluster.deployment("a", 1, 1).deployment("b", 1, 1).deployment("c", 1, 1);
    let assembled = case.assembled();
    let models: Vec<(&str, Vec<&str>)> = assembled
        .snapshot
        .models
        .iter()
        .map(|m| (m.model_id.as_str(), m.variants.iter().map(|v| v.name.as_str()).collect()))
        .collect();
    assert_eq!(models, [("m", vec!["a", "b"]), ("other", vec!["c"])], "d has no workload in its namespace");
    assert_eq!(assembled.workloads.len(), 3);
}

#[test]
fn a_pod_counts_by_its_owner_and_not_by_its_name() {
    let mut case = Case::new();
    case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1).pod("x", "a").deployment("a-2", 1, 1);
    case.cluster.pod("a-2-0", "a-2").pod_with("a-3", "Job", "a", json!({}));
    case.cluster.pod_with("a-4", "ReplicaSet", "a-rs", json!({"namespace": "elsewhere"}));
    case.load(
        "m",
        1.0,
        &[("x", 0.1, 0.0), ("a-2-0", 0.2, 0.0), ("a-3", 0.3, 0.0), ("a-4", 0.4, 0.0), ("gone", 0.5, 0.0)],
    );
    assert_eq!(case.replicas(), [said("x", 0.1, 0.0)]);
    assert_eq!(case.assembled().unmapped, 2, "a-4 is in another namespace, and gone is nowhere");
}

#[test]
fn a_stateful_set_is_a_workload_like_any() {
    let mut case = Case::new();
    case.cluster.variant_of("a", "StatefulSet", "s", "m", json!({})).stateful_set("s", 2, 1);
    case.cluster.pod_with("s-0", "StatefulSet", "s", json!({}));
    case.load("m", 1.0, &[("s-0", 0.1, 0.0)]);
    assert_eq!(case.replicas(), [said("s-0", 0.1, 0.0)]);
}

#[test]
fn a_pod_that_is_going_away_is_no_replica() {
    let mut case = Case::new();
    case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1).pod("stays", "a");
    case.cluster.pod_with("leaves", "ReplicaSet", "a-rs", json!({"deletionTimestamp": CREATED}));
    case.load("m", 1.0, &[("stays", 0.7, 0.0), ("leaves", 0.0, 0.0)]);
    assert_eq!(case.replicas(), [said("stays", 0.7, 0.0)]);
    assert_eq!(case.assembled().unmapped, 0, "it is known all the same");
}

#[test]
fn of_the_ranks_in_one_pod_the_worst_counts() {
    for (first, second) in [("a-0-rank-0", "a-0-rank-1"), ("a-0-rank-1", "a-0-rank-0")] {
        let mut case = Case::new();
        case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1).pod("a-0", "a");
        case.load("m", 1.0, &[(first, 0.9, 0.0), (second, 0.1, 7.0)]);
        assert_eq!(case.replicas(), [said("a-0", 0.9, 7.0)]);
    }
}

#[test]
fn only_series_of_the_model_count_or_the_only_ones_there_are() {
    // (what the pod serves, whether its load counts for model m)
    for (names, counts) in
        [(&["m"][..], true), (&["alias"], true), (&["m", "lora"], true), (&["lora", "other"], false)]
    {
        let mut case = Case::new();
        case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1).pod("a-0", "a");
        for (i, name) in names.iter().enumerate() {
            let kv = if i == 0 { 0.5 } else { 0.9 };
            case.load(name, 1.0, &[("a-0", kv, 0.0)]);
        }
        let want = if counts { vec![said("a-0", 0.5, 0.0)] } else { vec![] };
        assert_eq!(case.replicas(), want, "{names:?}");
    }
}

#[test]
fn a_signal_that_is_missing_or_out_of_range_is_left_out() {
    let mut case = Case::new();
    case.cluster.variant("a", "m", json!({})).deployment("a", 2, 2).pod("a-0", "a").pod("a-1", "a");
    case.load("m", 1.0, &[("a-0", f64::NAN, 3.0), ("a-1", 0.4, -1.0)]);
    assert_eq!(case.replicas(), [("a-0".into(), None, Some(3.0)), ("a-1".into(), Some(0.4), None)]);
    // Beyond five minutes there is no sample at all.
    for (age, reports) in [(299.0, 2), (301.0, 0)] {
        case.samples = Samples::default();
        case.load("m", age, &[("a-0", 0.1, 0.0), ("a-1", 0.1, 0.0)]);
        assert_eq!(case.replicas().len(), reports, "{age} s");
    }
}

#[test]
fn a_signal_that_nobody_could_ask_for_is_no_sign_of_idleness() {
    let stale = Config::default().metrics_age.stale;
    let failed = |signal| (signal, Err("time-out".to_owned()));
    let queue = |age: f64| {
        let of = |value: f64| Ok(vec![series("a-0", "m", value)]);
        [(Signal::Queue, of(0.0)), (Signal::QueueAge, of(age))]
    };
    let mut case = Case::new();
    case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1).pod("a-0", "a");
    let of = |case: &mut Case| case.assembled().snapshot.models[0].variants[0].replicas[0].clone();
    // The very first query for the KV cache fails: the queue alone must not shrink a model.
    let answers = queue(1.0).into_iter().chain([failed(Signal::KvUsage), failed(Signal::KvAge)]);
    case.samples.take_in(case.at.now, answers.collect());
    assert_eq!((of(&mut case).kv, of(&mut case).age), (None, stale));
    // It is answered, and this pod has none: then 0 counts, as documented.
    let answers = queue(1.0).into_iter().chain([(Signal::KvUsage, Ok(vec![])), (Signal::KvAge, Ok(vec![]))]);
    case.samples.take_in(case.at.now, answers.collect());
    assert_eq!((of(&mut case).kv, of(&mut case).age), (None, GoDuration::from_secs(1)));
    // It was known, and has failed for so long that it is missing.
    case.load("m", 1.0, &[("a-0", 0.9, 0.0)]);
    case.at.now += Duration::from_mins(6);
    let answers = queue(1.0).into_iter().chain([failed(Signal::KvUsage), failed(Signal::KvAge)]);
    case.samples.take_in(case.at.now, answers.collect());
    assert_eq!((of(&mut case).kv, of(&mut case).age), (None, stale));
}

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
    let limiter = wva_scaling::snapshot::SaturationEntry { enable_limiter: Some(true), ..Default::default() };
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
fn an_object_that_is_set_aside_gives_up_its_target() {
    let mut case = Case::new();
    let status =
        json!({"desiredOptimizedAlloc": {"numReplicas": 4, "accelerator": "", "lastRunTime": CREATED}});
    case.cluster.variant("a", "m", json!({"status": status})).deployment("a", 2, 2);
    assert_eq!(case.assembled().snapshot.models[0].variants[0].desired, Some(4));
    case.cluster.variant("a", "m", json!({"status": status, "spec": {"variantCost": "cheap"}}));
    assert!(case.assembled().snapshot.models.is_empty());
    case.at.now += Duration::from_hours(2);
    case.cluster.variant("a", "m", json!({"status": status}));
    assert_eq!(case.assembled().snapshot.models[0].variants[0].desired, None, "not one of two hours ago");
}

#[test]
fn what_is_not_managed_is_not_in_it() {
    let mut case = Case::new();
    let label = |value: &str| json!({"metadata": {"labels": {"wva.llmd.ai/controller-instance": value}}});
    case.cluster.variant("labelled", "m", label("x")).deployment("labelled", 1, 1);
    case.cluster.variant("plain", "m", json!({})).deployment("plain", 1, 1);
    // No instance has an empty name: it is nobody else's, and is told what is wrong with it.
    case.cluster.variant("empty", "m", label("")).deployment("empty", 1, 1);
    let names = |case: &Case| -> Vec<(String, bool)> {
        let all = managed(&case.cluster.watches(), &Ownership::default());
        all.into_iter().map(|m| (m.key.name.clone(), m.declared().is_ok())).collect()
    };
    assert_eq!(names(&case), [("empty".to_owned(), false), ("plain".to_owned(), true)]);
    assert_eq!(case.assembled().workloads.len(), 1);
    case.cluster.excluded_namespace("ns");
    assert!(names(&case).is_empty());
}

#[test]
fn a_pod_from_the_future_has_just_started() {
    let mut case = Case::new();
    case.cluster.variant("a", "m", json!({})).deployment("a", 1, 0);
    case.cluster.pod_with("a-0", "ReplicaSet", "a-rs", json!({"creationTimestamp": "2027-01-01T00:00:00Z"}));
    let variant = case.assembled().snapshot.models[0].variants[0].clone();
    assert_eq!(variant.pending.unwrap()[0].age, GoDuration::default());
    assert_eq!(variant.mode, Mode::Auto);
}
