//! From samples to the load of a replica and of a model: what is unknown is no sign of idleness.

use super::*;
use crate::collect::work::Counter;

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
        let series: Vec<_> = values
            .iter()
            .flat_map(|(pod, value)| [(pod_signal(pod, "running"), *value), (pod_signal(pod, "age"), "0")])
            .collect();
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
fn the_work_of_all_ranks_of_a_pod_is_added_up() {
    let work = |series: &[(&str, &str, f64)]| {
        let mut case = Case::new();
        case.cluster.variant("a", "m", json!({})).deployment("a", 1, 1).pod("a-0", "a");
        let of = |(pod, engine, completed): &(&str, &str, f64)| {
            Counter::ALL.map(|counter| {
                let labels = json!({"namespace": "ns", "pod": pod, "model_name": "m", "engine": engine, "signal": counter.name()});
                let value = if counter == Counter::Completed { *completed } else { 3.0 };
                (labels, value.to_string())
            })
        };
        let rows: Vec<_> = series.iter().flat_map(of).collect();
        let rows: Vec<_> = rows.iter().map(|(labels, value)| (labels.clone(), value.as_str())).collect();
        case.samples.take_in(case.at.now, vec![answer(Query::Work, &rows)]);
        let pods: BTreeSet<&str> = series.iter().map(|(pod, ..)| *pod).collect();
        case.load("m", 1.0, &pods.into_iter().map(|pod| (pod, 0.5, 0.0)).collect::<Vec<_>>());
        let replica = case.assembled().snapshot.models[0].variants[0].replicas.remove(0);
        let figures = replica.work.first().map(|w| (w.completed.get(), w.running.get()));
        (figures, replica.ranks)
    };
    assert_eq!(work(&[("a-0", "", 10.0)]), (Some((10.0, 3.0)), None));
    assert_eq!(work(&[("a-0", "0", 10.0), ("a-0", "1", 20.0)]), (Some((30.0, 6.0)), Some(2)));
    assert_eq!(work(&[("a-0-rank-0", "0", 10.0), ("a-0-rank-1", "0", 20.0)]), (Some((30.0, 6.0)), Some(2)));
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
