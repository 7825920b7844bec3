//! Load of a replica and of a model from samples. Unknown is not idle.

use wva_crds::GoDuration;
use wva_scaling::units::Amount;

use super::*;

const FRESH: GoDuration = GoDuration::from_secs(1);

fn stale() -> GoDuration {
    Config::default().metrics_age.stale
}

#[test]
fn series_of_the_model_count_or_the_only_ones() {
    // (model names that the pod serves, whether its load counts for model m)
    for (names, counts) in
        [(&["m"][..], true), (&["alias"], true), (&["m", "lora"], true), (&["lora", "other"], false)]
    {
        let mut case = Case::with_pods(&["a-0"]);
        for (i, name) in names.iter().enumerate() {
            let kv = if i == 0 { 0.5 } else { 0.9 };
            case.load(name, 1.0, &[("a-0", kv, 0.0)]);
        }
        let want = if counts { vec![load("a-0", 0.5, 0.0)] } else { vec![] };
        assert_eq!(case.replicas(), want, "{names:?}");
    }
}

#[test]
fn a_missing_or_invalid_signal_is_omitted() {
    let mut case = Case::with_pods(&["a-0", "a-1"]);
    case.load("m", 1.0, &[("a-0", f64::NAN, 3.0), ("a-1", 0.4, -1.0)]);
    assert_eq!(case.replicas(), [("a-0".into(), None, Some(3.0)), ("a-1".into(), Some(0.4), None)]);
    // Samples older than five minutes are ignored.
    for (age, reports) in [(299.0, 2), (301.0, 0)] {
        case.samples = Samples::default();
        case.load("m", age, &[("a-0", 0.1, 0.0), ("a-1", 0.1, 0.0)]);
        assert_eq!(case.replicas().len(), reports, "{age} s");
    }
}

/// Answers for pod `a-0`: an empty queue scraped a second ago, and this one about its KV cache.
fn idle_but_for(kv: Answer) -> [Answer; 3] {
    let queue = answer(Query::Queue, &[(pod_signal("a-0", ""), "0")]);
    [queue, answer(Query::SampleAge, &[(pod_signal("a-0", "queue"), "1")]), kv]
}

#[test]
fn a_failed_query_does_not_mean_idle() {
    let mut case = Case::with_pods(&["a-0"]);
    let check = |case: &mut Case, age: GoDuration| {
        let replica = case.replica();
        assert_eq!((replica.kv, replica.age), (None, age));
    };
    // The first query for the KV cache fails: the empty queue alone must not scale the model down.
    case.add_answers(idle_but_for(failed(Query::KvUsage)));
    check(&mut case, stale());
    // The query succeeds without a series of this pod: KV usage counts as 0, as documented.
    case.add_answers(idle_but_for(no_series(Query::KvUsage)));
    check(&mut case, FRESH);
    // The last value is too old, and the query fails.
    case.load("m", 1.0, &[("a-0", 0.9, 0.0)]);
    case.at.now += Duration::from_mins(6);
    case.add_answers(idle_but_for(failed(Query::KvUsage)));
    check(&mut case, stale());
}

/// Settings with the token or the percentage analyzer.
fn analyzed_by(tokens: bool) -> SaturationEntry {
    let analyzer = if tokens { AnalyzerName::Token } else { AnalyzerName::Percentage };
    SaturationEntry { analyzer_name: Some(analyzer), ..Default::default() }
}

#[test]
fn an_out_of_range_value_does_not_mean_idle() {
    let mut case = Case::with_pods(&["a-0"]);
    for (kv, queue, unknown) in [(1.0, 0.0, false), (1.02, 0.0, true), (85.0, 0.0, true), (0.4, -1.0, true)] {
        case.load("m", 1.0, &[("a-0", kv, queue)]);
        assert_eq!(case.replica().age, if unknown { stale() } else { FRESH }, "{kv} {queue}");
    }
    // If no age is stale, the sample is at least not fresh.
    case.config.metrics_age.fresh = stale();
    assert!(case.replica().age > stale());
}

#[test]
fn an_expired_value_is_ignored() {
    let mut case = Case::with_pods(&["a-0"]);
    case.load("m", 1.0, &[("a-0", 0.9, 0.0)]);
    case.at.now += Duration::from_mins(6);
    for _ in 0..2 {
        case.add_answers(idle_but_for(no_series(Query::KvUsage)));
        let replica = serde_json::to_value(case.replica()).unwrap();
        assert_eq!(replica, json!({"pod": "a-0", "queue": 0.0, "age": "1s"}));
        case.samples = Samples::default();
    }
}

#[test]
fn unknown_means_or_caches_block_scale_down_by_tokens() {
    #[track_caller]
    fn check(tokens: bool, failing: Query, known: bool, age: GoDuration) {
        let mut case = Case::with_pods(&["a-0"]);
        case.set_saturation(analyzed_by(tokens));
        case.load("m", 1.0, &[("a-0", 0.5, 0.0)]);
        let means = [(pod_signal("a-0", "input"), "512"), (pod_signal("a-0", "output"), "128")];
        let both = || [answer(Query::CacheConfig, &[cache("a-0", "10")]), answer(Query::Tokens, &means)];
        if known {
            case.add_answers(both());
        }
        let mut round = Vec::from(idle_but_for(answer(Query::KvUsage, &[(pod_signal("a-0", ""), "0.5")])));
        round.extend(both());
        round.retain(|a| a.query != failing);
        round.push(failed(failing));
        case.add_answers(round);
        assert_eq!(case.replica().age, age, "{failing:?}");
    }
    for failing in [Query::Tokens, Query::CacheConfig] {
        check(true, failing, false, stale());
        // The last value still counts.
        check(true, failing, true, FRESH);
        // The percentage analyzer does not read it.
        check(false, failing, false, FRESH);
    }
    // Without it, demand is overestimated.
    check(true, Query::PrefixHitRate, false, FRESH);
}

/// Signals of a replica that the token analyzer reads.
fn tokens(case: &mut Case) -> Value {
    let value = serde_json::to_value(case.replica()).unwrap();
    ["numGpuBlocks", "blockSize", "meanInput", "meanOutput", "prefixHitRate"]
        .iter()
        .map(|k| value[k].clone())
        .collect()
}

#[test]
fn a_replica_has_its_cache_and_token_means() {
    let mut case = Case::with_pods(&["a-0"]);
    case.load("m", 1.0, &[("a-0", 0.5, 0.0)]);
    assert_eq!(tokens(&mut case), json!([null, null, null, null, null]));
    let of = |signal: &str, value: &'static str| (pod_signal("a-0", signal), value);
    let lora = json!({"namespace": "ns", "pod": "a-0", "model_name": "lora", "signal": "input"});
    case.add_answers([
        // vLLM sets no model on this series. The smaller of two ranks is used; unknown pods are ignored.
        answer(Query::CacheConfig, &[cache("a-0", "4000"), cache("a-0-rank-0", "1000"), cache("x", "10")]),
        answer(Query::Tokens, &[of("input", "512"), of("output", "128"), (lora, "9000")]),
        answer(Query::PrefixHitRate, &[of("", "0.25")]),
    ]);
    assert_eq!(tokens(&mut case), json!([1000.0, 16.0, 512.0, 128.0, 0.25]));
    // Out-of-range values are absent.
    let rate = answer(Query::PrefixHitRate, &[of("", "1.5")]);
    case.add_answers([answer(Query::Tokens, &[of("input", "-1")]), rate]);
    assert_eq!(tokens(&mut case), json!([1000.0, 16.0, null, 128.0, null]));
    // Expired values are absent, too.
    case.at.now += Duration::from_mins(6);
    case.load("m", 1.0, &[("a-0", 0.5, 0.0)]);
    assert_eq!(tokens(&mut case), json!([null, null, null, null, null]));
}

#[test]
fn an_old_queue_counts_and_blocks_scale_down_by_tokens() {
    for (tokens, after, known, age) in [
        (true, 60, true, FRESH),
        (true, 61, true, stale()),
        (true, 120, true, stale()),
        // Unknown: the rules handle it.
        (true, 121, false, FRESH),
        (false, 61, true, FRESH),
    ] {
        let mut case = Case::with_pods(&["a-0"]);
        case.set_saturation(analyzed_by(tokens));
        case.add_answers([answer(Query::SchedulerQueue, &[(queue_size("ns", "m"), "7")])]);
        case.at.now += Duration::from_secs(after);
        case.load("m", 1.0, &[("a-0", 0.1, 0.0)]);
        let others = [Query::KvUsage, Query::Queue, Query::Tokens, Query::CacheConfig];
        let mut round = Vec::from(others.map(no_series));
        round.push(failed(Query::SchedulerQueue));
        case.add_answers(round);
        let queue = case.assembled().snapshot.models[0].scheduler_queue;
        assert_eq!(matches!(queue, SchedulerQueue::Known(_)), known, "{after} s");
        assert_ne!(queue, SchedulerQueue::Absent);
        assert_eq!(case.replica().age, age, "{after} s {tokens}");
    }
}

#[test]
fn samples_of_an_earlier_pod_with_the_same_name_are_ignored() {
    // (age of the sample, age of the pod, whether it counts); clocks may differ by some seconds.
    for (seen, made, counts) in
        [(200, 300, true), (64, 60, true), (66, 60, false), (66, 0, false), (4, 0, true)]
    {
        let mut case = Case::new();
        let created = (case.at.wall - Duration::from_secs(made)).to_string();
        case.cluster.variant_with_target("a", "StatefulSet", "s", "m", json!({})).stateful_set("s", 1, 1);
        let made_then = json!({"metadata": {"creationTimestamp": created}});
        case.cluster.pod_with("s-0", "StatefulSet", "s", made_then);
        let now = case.at.now;
        case.at.now = now.checked_sub(Duration::from_secs(seen)).unwrap();
        let mean = answer(Query::Tokens, &[(pod_signal("s-0", "input"), "512")]);
        case.add_answers([mean, answer(Query::CacheConfig, &[cache("s-0", "10")])]);
        case.load("m", 0.0, &[("s-0", 0.05, 0.0)]);
        case.at.now = now;
        assert_eq!(case.replicas().len(), usize::from(counts), "{seen} {made}");
        // New samples count; those of the earlier pod do not.
        case.load("m", 0.0, &[("s-0", 0.9, 0.0)]);
        assert_eq!(case.replicas(), [load("s-0", 0.9, 0.0)]);
        assert_eq!(tokens(&mut case)[0].is_number(), counts, "{seen} {made}: its cache");
        assert_eq!(tokens(&mut case)[2].is_number(), counts, "{seen} {made}: its mean");
    }
}

#[test]
fn a_ready_pod_that_does_not_report_is_a_gap() {
    let both = ["a-0", "a-1"];
    let three = ["a-0", "a-1", "a-2"];
    for (ready_pods, unready, reports, counted, late) in [
        (&both[..], &["a-2"][..], &["a-0", "a-2"][..], &["a-0"][..], false),
        (&both, &["a-2"], &three, &three, false),
        (&both, &[], &both, &both, false),
        // During a rollout, three pods are ready for two replicas. The load of the third is unknown.
        (&three, &[], &both, &both, true),
    ] {
        let mut case = Case::with_pods(unready);
        case.cluster.deployment("a", 2, 2);
        for pod in ready_pods {
            case.cluster.pod_with(pod, "ReplicaSet", "a-rs", ready("2026-01-01T00:02:00Z"));
        }
        case.load("m", 1.0, &reports.iter().map(|pod| (*pod, 0.1, 0.0)).collect::<Vec<_>>());
        let replicas = case.variant().replicas;
        assert_eq!(replicas.iter().map(|r| r.pod.as_str()).collect::<Vec<_>>(), counted);
        assert_eq!(replicas.iter().any(|r| r.age >= stale()), late, "{counted:?}");
    }
}

#[test]
fn running_requests_are_known_if_every_replica_reports() {
    let ranks = ["a-0-rank-0", "a-0-rank-1"];
    for (values, after, want) in [
        ([("a-0", Some("3")), ("a-1", Some("4"))], 300, Some(7.0)),
        ([("a-0", Some("0")), ("a-1", Some("0"))], 301, None),
        ([("a-0", Some("0")), ("a-1", None)], 0, None),
        ([(ranks[0], Some("1")), (ranks[1], Some("2"))], 0, Some(3.0)),
        ([(ranks[0], Some("0")), (ranks[1], None)], 0, None),
    ] {
        let mut case = Case::with_pods(&["a-0", "a-1"]);
        let known = values.iter().filter_map(|(pod, value)| Some((pod, (*value)?)));
        let of = |(pod, value): (&&str, _)| {
            [(pod_metric(pod, "sglang:num_running_reqs"), value), (pod_signal(pod, "age"), "0")]
        };
        case.add_answers([answer(Query::Running, &known.flat_map(of).collect::<Vec<_>>())]);
        case.at.now += Duration::from_secs(after);
        case.load("m", 1.0, &values.map(|(pod, _)| (pod, 0.5, 0.0)));
        assert_eq!(case.variant().running.map(f64::from), want, "{values:?} after {after} s");
    }
}

#[test]
fn work_of_all_ranks_of_a_pod_is_summed() {
    for (series, figures, ranks) in [
        (&[("a-0", "", 10.0)][..], (10.0, 3.0), None),
        (&[("a-0", "0", 10.0), ("a-0", "1", 20.0)], (30.0, 6.0), Some(2)),
        (&[("a-0-rank-0", "0", 10.0), ("a-0-rank-1", "0", 20.0)], (30.0, 6.0), Some(2)),
    ] {
        let mut case = Case::with_pods(&["a-0"]);
        let of = |(pod, engine, completed): &(&str, &str, f64)| {
            let age = (pod_signal(pod, "age"), 3.0);
            let series = ["running", "waiting"].map(|state| format!("vllm:num_requests_{state}"));
            let tokens = ["prompt", "generation"].map(|kind| format!("vllm:{kind}_tokens_total"));
            let series = series.into_iter().chain(tokens).map(|name| (pod_metric(pod, &name), 3.0));
            let done = (pod_metric(pod, "vllm:request_success_total"), *completed);
            let of_engine = |(mut labels, value): (Value, f64)| {
                labels["engine"] = json!(engine);
                (labels, value)
            };
            series.chain([age, done]).map(of_engine).collect::<Vec<_>>()
        };
        case.add_answers([answer(Query::Work, &series.iter().flat_map(of).collect::<Vec<_>>())]);
        let pods: BTreeSet<&str> = series.iter().map(|(pod, ..)| *pod).collect();
        case.load("m", 1.0, &pods.into_iter().map(|pod| (pod, 0.5, 0.0)).collect::<Vec<_>>());
        let replica = case.replica();
        assert_eq!((replica.work[0].completed.get(), replica.work[0].running.get()), figures);
        assert_eq!(replica.ranks, ranks);
    }
}

#[test]
fn a_former_model_name_of_a_server_is_ignored() {
    let mut case = Case::with_pods(&["a-0"]);
    case.load("before", 1.0, &[("a-0", 0.5, 0.0)]);
    case.at.now += Duration::from_mins(6);
    case.load("now", 1.0, &[("a-0", 0.2, 0.0)]);
    assert_eq!(case.replicas(), [load("a-0", 0.2, 0.0)]);
}

/// Running requests of pod `a-0`, and the share of its awake engines.
fn engines_awake(awake: Option<&'static str>) -> Answer {
    let running = Some((pod_metric("a-0", "vllm:num_requests_running"), "0"));
    let awake = awake.map(|share| (pod_signal("a-0", "awake"), share));
    let age = Some((pod_signal("a-0", "age"), "1"));
    answer(Query::Running, &[running, awake, age].into_iter().flatten().collect::<Vec<_>>())
}

#[test]
fn a_replica_sleeps_if_all_its_engines_do() {
    let (asleep, fresh) = (true, FRESH);
    for (share, want) in
        [(None, (!asleep, fresh)), (Some("0"), (asleep, fresh)), (Some("0.5"), (!asleep, stale()))]
    {
        let mut case = Case::with_pods(&["a-0"]);
        case.load("m", 1.0, &[("a-0", 0.0, 0.0)]);
        case.add_answers([engines_awake(share)]);
        let replica = case.replica();
        assert_eq!((replica.asleep, replica.age), want, "{share:?}");
    }
}

#[test]
fn a_replica_has_the_most_requests_that_ran_at_once() {
    let mut case = Case::with_pods(&["a-0"]);
    case.load("m", 1.0, &[("a-0", 0.95, 0.0)]);
    assert_eq!(case.replica().running, None, "its server has no such gauge");
    case.add_answers([answer(Query::Queue, &[(pod_signal("a-0", "running"), "0")])]);
    assert_eq!(case.replica().running, Some(Amount::default()));
}

#[test]
fn a_replica_without_progress_is_stalled() {
    let mut case = Case::with_pods(&["a-0"]);
    let requests = || answer(Query::Running, &[(pod_metric("a-0", "vllm:num_requests_waiting"), "14")]);
    for (counters, stalled) in [("500", None), ("500", Some("11m0s")), ("501", None)] {
        case.load("m", 1.0, &[("a-0", 0.0, 14.0)]);
        case.add_answers([requests(), answer(Query::Tokens, &[(pod_signal("a-0", "progress"), counters)])]);
        let found = case.replica().stalled_for.map(|time| time.to_string());
        assert_eq!(found.as_deref(), stalled, "{counters}");
        case.at.now += Duration::from_mins(11);
        case.at.wall += Duration::from_mins(11);
    }
}
