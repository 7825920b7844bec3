//! From caches, samples and memory to the values of a Snapshot: what counts as a variant, and as a replica.

use serde_json::{Value, json};
use wva_scaling::snapshot::{Mode, PendingState, Replica, SaturationEntry, SchedulerQueue};
use wva_scaling::units::{KvUsage, QueueLength};

use super::*;
use crate::collect::Answer;
use crate::collect::sample::tests::{answer, failed, pod_signal};
use crate::collect::signals::Query;
use crate::fixture::{CREATED, Cluster};
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
        let labels = |pod: &str, signal: &str| json!({"namespace": "ns", "pod": pod, "model_name": model, "signal": signal});
        let mut of = [(Query::KvUsage, vec![]), (Query::Queue, vec![]), (Query::SampleAge, vec![])];
        for (pod, kv, queue) in pods {
            of[0].1.push((labels(pod, ""), kv.to_string()));
            of[1].1.push((labels(pod, ""), queue.to_string()));
            of[2].1.extend(["kv", "queue"].map(|signal| (labels(pod, signal), age.to_string())));
        }
        let answers = of.map(|(query, series)| {
            let series: Vec<_> =
                series.iter().map(|(labels, value)| (labels.clone(), value.as_str())).collect();
            answer(query, &series)
        });
        let mut answers = Vec::from(answers);
        answers.push(answer(Query::SchedulerQueue, &[]));
        self.samples.take_in(self.at.now, answers);
    }

    fn assembled(&mut self) -> Assembled {
        let watches = self.cluster.watches();
        let managed = managed(&watches, &Ownership::default());
        assemble(
            &watches,
            &managed,
            (&self.samples, &Pickers::testing().0),
            &mut self.memory,
            self.config.clone(),
            self.at,
        )
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
            "name": "a", "accelerator": "H100", "coldStart": "9m0s", "cost": "80.0", "mode": "paused",
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

mod signals;
mod workloads;
