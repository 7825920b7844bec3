//! Values of a Snapshot from caches, samples and memory: variants and replicas.

use std::time::Instant;

use serde_json::{Value, json};
use wva_objects::servers::{PodGroup, ServingPods};
use wva_runtime::Availability;
use wva_scaling::snapshot::{PendingState, Replica, SaturationEntry, SchedulerQueue, Variant};
use wva_scaling::units::{KvUsage, QueueLength};

use super::*;
use crate::collect::Answer;
use crate::collect::sample::tests::{answer, cache, failed, no_series, pod_metric, pod_signal, queue_size};
use crate::collect::signals::Query;
use crate::fixture::{CREATED, Cluster, devices, gpu_pod};
use crate::observe::variants::{Ownership, managed_variants};

/// A cluster, answers of Prometheus, and the Snapshot made from both.
struct Case {
    cluster: Cluster,
    samples: Samples,
    memory: Memory,
    config: Config,
    fleet: FleetSettings,
    at: Moment,
}

impl Case {
    fn new() -> Self {
        // Ten minutes after the objects were created.
        let wall = CREATED.parse::<Timestamp>().unwrap() + Duration::from_mins(10);
        let at = Moment { now: Instant::now() + Duration::from_hours(1), wall };
        Self {
            cluster: Cluster::new(),
            samples: Samples::default(),
            memory: Memory::default(),
            config: Config::default(),
            fleet: FleetSettings::default(),
            at,
        }
    }

    /// Variant `a` of model `m` with these pods and as many ready replicas.
    fn with_pods(pods: &[&str]) -> Self {
        let mut case = Self::new();
        let replicas = u32::try_from(pods.len()).unwrap();
        case.cluster.variant("a", "m", json!({})).deployment("a", replicas, replicas);
        for pod in pods {
            case.cluster.pod(pod, "a");
        }
        case
    }

    fn add_answers(&mut self, answers: impl Into<Vec<Answer>>) {
        self.samples.add_round(self.at.now, answers.into());
    }

    /// Adds `kv` and `queue` by pod, sampled `age` seconds ago, served under `model`.
    fn load(&mut self, model: &str, age: f64, pods: &[(&str, f64, f64)]) {
        let labels = |pod: &str, signal: &str| json!({"namespace": "ns", "pod": pod, "model_name": model, "signal": signal});
        let (mut kvs, mut queues, mut ages) = (vec![], vec![], vec![]);
        for (pod, kv, queue) in pods {
            kvs.push((labels(pod, ""), kv.to_string()));
            queues.push((labels(pod, ""), queue.to_string()));
            ages.extend(["kv", "queue"].map(|signal| (labels(pod, signal), age.to_string())));
        }
        self.add_answers([
            answer(Query::KvUsage, &kvs),
            answer(Query::Queue, &queues),
            answer(Query::SampleAge, &ages),
            no_series(Query::SchedulerQueue),
        ]);
    }

    /// Settings of all models.
    fn set_saturation(&mut self, saturation: SaturationEntry) {
        self.fleet.default = ModelSettings { saturation, ..ModelSettings::default() };
    }

    fn assembled(&mut self) -> Assembled {
        let watches = self.cluster.watches();
        let managed = managed_variants(&watches, &Ownership::default());
        assemble(
            &watches,
            &managed,
            CollectedSignals { samples: &self.samples, pickers: &Pickers::testing().0 },
            &mut self.memory,
            self.config.clone(),
            &self.fleet,
            self.at,
        )
    }

    fn variant(&mut self) -> Variant {
        self.assembled().snapshot.models[0].variants[0].clone()
    }

    fn replica(&mut self) -> Replica {
        let mut replicas = self.variant().replicas;
        assert_eq!(replicas.len(), 1);
        replicas.remove(0)
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
    json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}})
}

fn unschedulable() -> Value {
    json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}})
}

fn h100_label() -> Value {
    json!({"metadata": {"labels": {"inference.optimization/acceleratorName": "H100"}}})
}

fn load(pod: &str, kv: f64, queue: f64) -> (String, Option<f64>, Option<f64>) {
    (pod.to_owned(), Some(kv), Some(queue))
}

#[test]
fn a_snapshot_contains_data_of_caches_and_samples() {
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
        .pod_with("a-0", "ReplicaSet", "a-rs", ready("2026-01-01T00:09:00Z"))
        .pod_with("a-1", "ReplicaSet", "a-rs", ready("2026-01-01T00:02:00Z"))
        .pod_with("a-2", "ReplicaSet", "a-rs", unschedulable())
        .autoscaler("a", "a", json!({"minReplicas": 2, "maxReplicas": 9, "behavior": {"scaleUp": {"tolerance": "0"}}}));
    case.load("m", 5.0, &[("a-0", 0.7, 2.0), ("a-1", 0.5, 0.0)]);
    assert_eq!(
        serde_json::to_value(case.assembled().snapshot.models).unwrap(),
        json!([{"modelID": "m", "namespace": "ns", "variants": [{
            "name": "a", "accelerator": "H100", "coldStart": "9m0s", "cost": "80.0", "mode": "paused",
            "current": 3, "ready": 2, "desired": 4, "desiredAge": "0s",
            "min": 2, "max": 6, "minForbidsZero": true, "hpaTolerance": {"up": 0.0, "down": 0.1},
            "pending": [{"age": "1m0s", "state": "unschedulable"}],
            "replicas": [{"pod": "a-0", "kv": 0.7, "queue": 2.0, "age": "5s"}, {"pod": "a-1", "kv": 0.5, "queue": 0.0, "age": "5s"}],
        }]}])
    );
}

#[test]
fn variants_of_one_model_are_grouped_by_namespace() {
    let mut case = Case::new();
    for (name, model) in [("a", "m"), ("b", "m"), ("c", "other")] {
        case.cluster.variant(name, model, json!({})).deployment(name, 1, 1);
    }
    case.cluster.variant("d", "m", json!({"metadata": {"namespace": "elsewhere"}}));
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
fn pods_of_a_workload_count_by_owner_until_deletion() {
    let mut case = Case::with_pods(&["x"]);
    case.cluster.deployment("a-2", 1, 1).pod("a-2-0", "a-2").pod_with("a-3", "Job", "a", json!({}));
    case.cluster.pod_with("a-4", "ReplicaSet", "a-rs", json!({"metadata": {"namespace": "elsewhere"}}));
    case.cluster.pod_with(
        "leaves",
        "ReplicaSet",
        "a-rs",
        json!({"metadata": {"deletionTimestamp": CREATED}}),
    );
    case.load("m", 1.0, &["x", "a-2-0", "a-3", "a-4", "leaves", "gone"].map(|pod| (pod, 0.1, 0.0)));
    assert_eq!(case.replicas(), [load("x", 0.1, 0.0)]);
}

#[test]
fn ranks_of_a_pod_share_its_load() {
    for (first, second) in [("a-0-rank-0", "a-0-rank-1"), ("a-0-rank-1", "a-0-rank-0")] {
        let mut case = Case::with_pods(&["a-0"]);
        case.load("m", 1.0, &[(first, 0.9, 0.0), (second, 0.1, 7.0)]);
        assert_eq!(case.replicas(), [load("a-0", 0.5, 7.0)]);
    }
}

#[test]
fn an_invalid_object_loses_its_target() {
    let mut case = Case::with_pods(&["a-0", "a-1"]);
    let with_cost = |cost: &str| json!({"spec": {"variantCost": cost}, "status": {"desiredOptimizedAlloc": {"numReplicas": 4, "accelerator": "", "lastRunTime": CREATED}}});
    case.cluster.variant("a", "m", with_cost("10"));
    assert_eq!(case.variant().desired, Some(4));
    case.cluster.variant("a", "m", with_cost("cheap"));
    assert!(case.assembled().snapshot.models.is_empty());
    case.at.now += Duration::from_hours(2);
    case.cluster.variant("a", "m", with_cost("10"));
    assert_eq!(case.variant().desired, None, "the target of two hours ago is gone");
}

#[test]
fn unmanaged_variants_are_left_out() {
    let mut case = Case::new();
    let label = |value: &str| json!({"metadata": {"labels": {"wva.llmd.ai/controller-instance": value}}});
    // No instance has an empty name, so this controller manages the variant and reports the error.
    for (name, extra) in [("labelled", label("x")), ("plain", json!({})), ("empty", label(""))] {
        case.cluster.variant(name, "m", extra).deployment(name, 1, 1);
    }
    let names = |case: &Case| -> Vec<(String, bool)> {
        let all = managed_variants(&case.cluster.watches(), &Ownership::default());
        all.into_iter().map(|m| (m.key.name.clone(), m.spec().is_ok())).collect()
    };
    assert_eq!(names(&case), [("empty".to_owned(), false), ("plain".to_owned(), true)]);
    assert_eq!(case.assembled().workloads.len(), 1);
    case.cluster.excluded_namespace("ns");
    assert!(names(&case).is_empty());
}

mod quotas;
mod signals;
mod workloads;
