//! From caches, samples and memory to the values of a Snapshot: what counts as a replica, what its load is, and which
//! bounds hold.

use serde_json::{Value, json};
use wva_scaling::snapshot::{Mode, PendingState, Replica, SaturationEntry, SchedulerQueue};
use wva_scaling::units::{KvUsage, QueueLength};

use super::*;
use crate::collect::Answer;
use crate::collect::sample::tests::{answer, failed};
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
            (&self.samples, &Queues::default()),
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
    let one = |query, value| {
        answer(
            query,
            &[(json!({"namespace": "ns", "pod": "a-0", "model_name": "m", "signal": "queue"}), value)],
        )
    };
    let queue = || [one(Query::Queue, "0"), one(Query::SampleAge, "1")];
    let mut case = Case::new();
    case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1).pod("a-0", "a");
    let of = |case: &mut Case| case.assembled().snapshot.models[0].variants[0].replicas[0].clone();
    let take_in = |case: &mut Case, kv: Answer| {
        let [queue, age] = queue();
        case.samples.take_in(case.at.now, vec![queue, age, kv]);
    };
    // The very first query for the KV cache fails: the queue alone must not shrink a model.
    take_in(&mut case, failed(Query::KvUsage));
    assert_eq!((of(&mut case).kv, of(&mut case).age), (None, stale));
    // It is answered, and this pod has none: then 0 counts, as documented.
    take_in(&mut case, answer(Query::KvUsage, &[]));
    assert_eq!((of(&mut case).kv, of(&mut case).age), (None, GoDuration::from_secs(1)));
    // It was known, and has failed for so long that it is missing.
    case.load("m", 1.0, &[("a-0", 0.9, 0.0)]);
    case.at.now += Duration::from_mins(6);
    take_in(&mut case, failed(Query::KvUsage));
    assert_eq!((of(&mut case).kv, of(&mut case).age), (None, stale));
}

/// Entries under which every model has the token analyzer, or none has.
fn analyzed_by(tokens: bool) -> BTreeMap<String, SaturationEntry> {
    let analyzer = if tokens { AnalyzerName::Tokens } else { AnalyzerName::Percentage };
    let entry = SaturationEntry { analyzer_name: Some(analyzer), ..Default::default() };
    [("default".to_owned(), entry)].into()
}

#[test]
fn what_is_out_of_range_is_unknown_and_no_sign_of_idleness() {
    let stale = Config::default().metrics_age.stale;
    let mut case = Case::new();
    case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1).pod("a-0", "a");
    for (kv, queue, unknown) in [(1.0, 0.0, false), (1.02, 0.0, true), (85.0, 0.0, true), (0.4, -1.0, true)] {
        case.load("m", 1.0, &[("a-0", kv, queue)]);
        let age = case.assembled().snapshot.models[0].variants[0].replicas[0].age;
        assert_eq!(age, if unknown { stale } else { GoDuration::from_secs(1) }, "{kv} {queue}");
    }
    // Where nothing is stale, it is at least not fresh.
    case.config.metrics_age.fresh = stale;
    assert!(case.assembled().snapshot.models[0].variants[0].replicas[0].age > stale);
}

#[test]
fn a_value_of_long_ago_is_gone_as_it_is_to_a_new_leader() {
    let mut case = Case::new();
    case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1).pod("a-0", "a");
    case.load("m", 1.0, &[("a-0", 0.9, 0.0)]);
    case.at.now += Duration::from_mins(6);
    let of = |query, signal: &str, value| {
        let labels = json!({"namespace": "ns", "pod": "a-0", "model_name": "m", "signal": signal});
        answer(query, &[(labels, value)])
    };
    let round =
        || vec![answer(Query::KvUsage, &[]), of(Query::Queue, "", "0"), of(Query::SampleAge, "queue", "1")];
    case.samples.take_in(case.at.now, round());
    let replicas = case.models();
    case.samples = Samples::default();
    case.samples.take_in(case.at.now, round());
    assert_eq!(replicas, case.models());
    assert_eq!(replicas[0]["variants"][0]["replicas"], json!([{"pod": "a-0", "queue": 0.0, "age": "1s"}]));
}

#[test]
fn a_mean_or_cache_that_nobody_could_ask_for_keeps_a_token_model_from_shrinking() {
    let age = |tokens: bool, lost: Query, known: bool| {
        let mut case = Case::new();
        case.config.saturation = analyzed_by(tokens);
        case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1).pod("a-0", "a");
        case.load("m", 1.0, &[("a-0", 0.5, 0.0)]);
        let of = |signal: &str| json!({"namespace": "ns", "pod": "a-0", "model_name": "m", "signal": signal});
        let cache = json!({"namespace": "ns", "pod": "a-0", "num_gpu_blocks": "10", "block_size": "16"});
        let whole = || {
            let tokens = [(of("input"), "512"), (of("output"), "128")];
            let kv = answer(Query::KvUsage, &[(of(""), "0.5")]);
            let queue = answer(Query::Queue, &[(of(""), "0")]);
            let ages = answer(Query::SampleAge, &[(of("kv"), "1"), (of("queue"), "1")]);
            vec![
                kv,
                queue,
                ages,
                answer(Query::CacheConfig, &[(cache.clone(), "1")]),
                answer(Query::Tokens, &tokens),
            ]
        };
        if known {
            case.samples.take_in(case.at.now, whole());
        }
        let mut round = whole();
        round.retain(|a| a.query != lost);
        round.push(failed(lost));
        case.samples.take_in(case.at.now, round);
        case.assembled().snapshot.models[0].variants[0].replicas[0].age
    };
    let (young, stale) = (GoDuration::from_secs(1), Config::default().metrics_age.stale);
    for lost in [Query::Tokens, Query::CacheConfig] {
        assert_eq!(age(true, lost, false), stale, "{lost:?}");
        assert_eq!(age(true, lost, true), young, "{lost:?}: the last value counts");
        assert_eq!(age(false, lost, false), young, "{lost:?}: percentages do not read it");
    }
    assert_eq!(age(true, Query::PrefixHitRate, false), young, "without it demand is greater, not smaller");
}

/// What the token analyzer reads of a replica.
fn tokens(case: &mut Case) -> Value {
    let replica = case.assembled().snapshot.models[0].variants[0].replicas[0].clone();
    let value = serde_json::to_value(replica).unwrap();
    ["numGpuBlocks", "blockSize", "meanInput", "meanOutput", "prefixHitRate"]
        .iter()
        .map(|k| value[k].clone())
        .collect()
}

#[test]
fn a_replica_has_its_cache_and_the_means_of_its_model() {
    let mut case = Case::new();
    case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1).pod("a-0", "a");
    case.load("m", 1.0, &[("a-0", 0.5, 0.0)]);
    assert_eq!(tokens(&mut case), json!([null, null, null, null, null]));
    let of = |model: &str, signal: &str| json!({"namespace": "ns", "pod": "a-0", "model_name": model, "signal": signal});
    let config = |pod: &str, blocks: &str| json!({"namespace": "ns", "pod": pod, "num_gpu_blocks": blocks, "block_size": "16"});
    let caches =
        [(config("a-0", "4000"), "1"), (config("a-0-rank-0", "1000"), "1"), (config("x", "10"), "1")];
    case.samples.take_in(
        case.at.now,
        vec![
            // vLLM gives it no model; the lesser of two counts, and what no pod has is nobody's.
            answer(Query::CacheConfig, &caches),
            answer(
                Query::Tokens,
                &[(of("m", "input"), "512"), (of("m", "output"), "128"), (of("lora", "input"), "9000")],
            ),
            answer(Query::PrefixHitRate, &[(of("m", ""), "0.25")]),
        ],
    );
    assert_eq!(tokens(&mut case), json!([1000.0, 16.0, 512.0, 128.0, 0.25]));
    // Out of range is absent.
    let bad = [
        answer(Query::Tokens, &[(of("m", "input"), "-1")]),
        answer(Query::PrefixHitRate, &[(of("m", ""), "1.5")]),
    ];
    case.samples.take_in(case.at.now, bad.into());
    assert_eq!(tokens(&mut case), json!([1000.0, 16.0, null, 128.0, null]));
    // And so is what is too old.
    case.at.now += Duration::from_mins(6);
    case.load("m", 1.0, &[("a-0", 0.5, 0.0)]);
    assert_eq!(tokens(&mut case), json!([null, null, null, null, null]));
}

#[test]
fn a_model_has_the_queue_of_the_endpoint_picker_in_its_namespace() {
    let mut case = Case::new();
    case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1);
    let name = "inference_extension_flow_control_queue_size";
    let queue = |namespace: &str| json!({"__name__": name, "namespace": namespace, "target_model_name": "m"});
    let own = |case: &mut Case| serde_json::to_value(&case.assembled().snapshot.models[0]).unwrap();
    case.samples.take_in(case.at.now, vec![answer(Query::SchedulerQueue, &[(queue("elsewhere"), "7")])]);
    assert_eq!(own(&mut case).get("schedulerQueue"), None);
    case.samples.take_in(case.at.now, vec![answer(Query::SchedulerQueue, &[(queue("ns"), "7")])]);
    assert_eq!(own(&mut case)["schedulerQueue"], json!({"size": 7.0, "bytes": 0.0}));
    case.at.now += Duration::from_mins(6);
    assert_eq!(own(&mut case).get("schedulerQueue"), Some(&Value::Null), "unknown is not empty");
}

#[test]
fn a_late_queue_counts_and_keeps_a_token_model_from_shrinking() {
    let ages = Config::default().metrics_age;
    for (tokens, after, known, age) in [
        (true, 60, true, GoDuration::from_secs(1)),
        (true, 61, true, ages.stale),
        (true, 120, true, ages.stale),
        // Unknown: the rules see to it.
        (true, 121, false, GoDuration::from_secs(1)),
        (false, 61, true, GoDuration::from_secs(1)),
    ] {
        let mut case = Case::new();
        case.config.saturation = analyzed_by(tokens);
        case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1).pod("a-0", "a");
        let labels = json!({"__name__": "llm_d_epp_flow_control_queue_size", "namespace": "ns", "target_model_name": "m"});
        case.samples.take_in(case.at.now, vec![answer(Query::SchedulerQueue, &[(labels, "7")])]);
        case.at.now += Duration::from_secs(after);
        case.load("m", 1.0, &[("a-0", 0.1, 0.0)]);
        let empty = |query| answer(query, &[]);
        let mut round = vec![empty(Query::KvUsage), empty(Query::Queue), empty(Query::Tokens)];
        round.extend([empty(Query::CacheConfig), failed(Query::SchedulerQueue)]);
        case.samples.take_in(case.at.now, round);
        let model = case.assembled().snapshot.models.remove(0);
        assert_eq!(matches!(model.scheduler_queue, SchedulerQueue::Known(_)), known, "{after} s");
        assert_ne!(model.scheduler_queue, SchedulerQueue::Absent);
        assert_eq!(model.variants[0].replicas[0].age, age, "{after} s {tokens}");
    }
}

#[test]
fn what_an_earlier_pod_of_the_same_name_showed_does_not_count() {
    // (age of the sample, age of the pod, whether it counts); clocks may differ by some seconds.
    for (seen, made, counts) in
        [(200, 300, true), (64, 60, true), (66, 60, false), (66, 0, false), (4, 0, true)]
    {
        let mut case = Case::new();
        let created = (case.at.wall - Duration::from_secs(made)).to_string();
        case.cluster.variant_of("a", "StatefulSet", "s", "m", json!({})).stateful_set("s", 1, 1);
        case.cluster.pod_with("s-0", "StatefulSet", "s", json!({"creationTimestamp": created}));
        let now = case.at.now;
        case.at.now = now.checked_sub(Duration::from_secs(seen)).unwrap();
        let of = |signal: &str| json!({"namespace": "ns", "pod": "s-0", "model_name": "m", "signal": signal});
        let cache = json!({"namespace": "ns", "pod": "s-0", "num_gpu_blocks": "10", "block_size": "16"});
        let begin =
            vec![answer(Query::Tokens, &[(of("input"), "512")]), answer(Query::CacheConfig, &[(cache, "1")])];
        case.samples.take_in(case.at.now, begin);
        case.load("m", 0.0, &[("s-0", 0.05, 0.0)]);
        case.at.now = now;
        assert_eq!(case.replicas().len(), usize::from(counts), "{seen} {made}");
        // What is shown anew counts; what was shown then is not this one's.
        case.load("m", 0.0, &[("s-0", 0.9, 0.0)]);
        assert_eq!(case.replicas(), [said("s-0", 0.9, 0.0)]);
        assert_eq!(tokens(&mut case)[0].is_number(), counts, "{seen} {made}: its cache");
        assert_eq!(tokens(&mut case)[2].is_number(), counts, "{seen} {made}: its mean");
    }
}

#[test]
fn a_ready_pod_that_does_not_report_is_a_gap_whoever_else_reports() {
    let reporting = |ready_pods: &[&str], unready: &[&str], reports: &[&str]| {
        let mut case = Case::new();
        case.cluster.variant("a", "m", json!({})).deployment("a", 2, 2);
        for pod in ready_pods {
            case.cluster.status(pod, "ReplicaSet", "a-rs", &ready("2026-01-01T00:02:00Z"));
        }
        for pod in unready {
            case.cluster.pod(pod, "a");
        }
        let load: Vec<_> = reports.iter().map(|pod| (*pod, 0.1, 0.0)).collect();
        case.load("m", 1.0, &load);
        let variant = case.assembled().snapshot.models[0].variants[0].clone();
        let late = variant.replicas.iter().any(|r| r.age >= Config::default().metrics_age.stale);
        (variant.replicas.into_iter().map(|r| r.pod).collect::<Vec<_>>(), late)
    };
    let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let both = ["a-0", "a-1"];
    assert_eq!(reporting(&both, &["a-2"], &["a-0", "a-2"]), (list(&["a-0"]), false), "1 of 2");
    assert_eq!(reporting(&both, &["a-2"], &["a-0", "a-1", "a-2"]), (list(&["a-0", "a-1", "a-2"]), false));
    assert_eq!(reporting(&both, &[], &both), (list(&both), false));
    // In a rollout three are ready of two that count, and nobody knows what the third bears.
    assert_eq!(reporting(&["a-0", "a-1", "a-2"], &[], &both), (list(&both), true));
}

#[test]
fn requests_in_flight_are_known_when_every_replica_says() {
    let running = |reports: &[&str], values: &[(&str, &str)], after: u64| {
        let mut case = Case::new();
        case.cluster.variant("a", "m", json!({})).deployment("a", 2, 2).pod("a-0", "a").pod("a-1", "a");
        let labels = |pod: &str| json!({"namespace": "ns", "pod": pod, "model_name": "m"});
        let series: Vec<_> = values.iter().map(|(pod, value)| (labels(pod), *value)).collect();
        case.samples.take_in(case.at.now, vec![answer(Query::Running, &series)]);
        case.at.now += Duration::from_secs(after);
        let load: Vec<_> = reports.iter().map(|pod| (*pod, 0.5, 0.0)).collect();
        case.load("m", 1.0, &load);
        case.assembled().snapshot.models[0].variants[0].running.map(f64::from)
    };
    let both = ["a-0", "a-1"];
    assert_eq!(running(&both, &[("a-0", "3"), ("a-1", "4")], 300), Some(7.0));
    assert_eq!(running(&both, &[("a-0", "0"), ("a-1", "0")], 301), None, "of long ago");
    assert_eq!(running(&both, &[("a-0", "0")], 0), None);
    let ranks = ["a-0-rank-0", "a-0-rank-1"];
    assert_eq!(running(&ranks, &[(ranks[0], "1"), (ranks[1], "2")], 0), Some(3.0));
    assert_eq!(running(&ranks, &[(ranks[0], "0")], 0), None);
}

#[test]
fn a_name_that_a_server_had_once_does_not_stand_beside_its_present_one() {
    let mut case = Case::new();
    case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1).pod("a-0", "a");
    case.load("before", 1.0, &[("a-0", 0.5, 0.0)]);
    case.at.now += Duration::from_mins(6);
    case.load("now", 1.0, &[("a-0", 0.2, 0.0)]);
    assert_eq!(case.replicas(), [said("a-0", 0.2, 0.0)]);
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
