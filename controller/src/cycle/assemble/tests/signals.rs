//! From samples to the load of a replica and of a model: what is unknown is no sign of idleness.

use wva_crds::GoDuration;

use super::*;
use crate::collect::work::Counter;

const FRESH: GoDuration = GoDuration::from_secs(1);

fn stale() -> GoDuration {
    Config::default().metrics_age.stale
}

#[test]
fn only_series_of_the_model_count_or_the_only_ones_there_are() {
    // (what the pod serves, whether its load counts for model m)
    for (names, counts) in
        [(&["m"][..], true), (&["alias"], true), (&["m", "lora"], true), (&["lora", "other"], false)]
    {
        let mut case = Case::of(&["a-0"]);
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
    let mut case = Case::of(&["a-0", "a-1"]);
    case.load("m", 1.0, &[("a-0", f64::NAN, 3.0), ("a-1", 0.4, -1.0)]);
    assert_eq!(case.replicas(), [("a-0".into(), None, Some(3.0)), ("a-1".into(), Some(0.4), None)]);
    // Beyond five minutes there is no sample at all.
    for (age, reports) in [(299.0, 2), (301.0, 0)] {
        case.samples = Samples::default();
        case.load("m", age, &[("a-0", 0.1, 0.0), ("a-1", 0.1, 0.0)]);
        assert_eq!(case.replicas().len(), reports, "{age} s");
    }
}

/// An empty queue of pod `a-0` that was scraped a second ago, and this about its KV cache.
fn idle_but_for(kv: Answer) -> [Answer; 3] {
    let queue = answer(Query::Queue, &[(pod_signal("a-0", ""), "0")]);
    [queue, answer(Query::SampleAge, &[(pod_signal("a-0", "queue"), "1")]), kv]
}

#[test]
fn a_signal_that_nobody_could_ask_for_is_no_sign_of_idleness() {
    let mut case = Case::of(&["a-0"]);
    let check = |case: &mut Case, age: GoDuration| {
        let replica = case.replica();
        assert_eq!((replica.kv, replica.age), (None, age));
    };
    // The very first query for the KV cache fails: the queue alone must not shrink a model.
    case.take_in(idle_but_for(failed(Query::KvUsage)));
    check(&mut case, stale());
    // It is answered, and this pod has none: then 0 counts, as documented.
    case.take_in(idle_but_for(no_series(Query::KvUsage)));
    check(&mut case, FRESH);
    // It was known, and has failed for so long that it is missing.
    case.load("m", 1.0, &[("a-0", 0.9, 0.0)]);
    case.at.now += Duration::from_mins(6);
    case.take_in(idle_but_for(failed(Query::KvUsage)));
    check(&mut case, stale());
}

/// Entries under which every model has the token analyzer, or none has.
fn analyzed_by(tokens: bool) -> BTreeMap<String, SaturationEntry> {
    let analyzer = if tokens { AnalyzerName::Token } else { AnalyzerName::Percentage };
    let entry = SaturationEntry { analyzer_name: Some(analyzer), ..Default::default() };
    [("default".to_owned(), entry)].into()
}

#[test]
fn what_is_out_of_range_is_unknown_and_no_sign_of_idleness() {
    let mut case = Case::of(&["a-0"]);
    for (kv, queue, unknown) in [(1.0, 0.0, false), (1.02, 0.0, true), (85.0, 0.0, true), (0.4, -1.0, true)] {
        case.load("m", 1.0, &[("a-0", kv, queue)]);
        assert_eq!(case.replica().age, if unknown { stale() } else { FRESH }, "{kv} {queue}");
    }
    // Where nothing is stale, it is at least not fresh.
    case.config.metrics_age.fresh = stale();
    assert!(case.replica().age > stale());
}

#[test]
fn a_value_of_long_ago_is_gone_as_it_is_to_a_new_leader() {
    let mut case = Case::of(&["a-0"]);
    case.load("m", 1.0, &[("a-0", 0.9, 0.0)]);
    case.at.now += Duration::from_mins(6);
    for _ in 0..2 {
        case.take_in(idle_but_for(no_series(Query::KvUsage)));
        let replica = serde_json::to_value(case.replica()).unwrap();
        assert_eq!(replica, json!({"pod": "a-0", "queue": 0.0, "age": "1s"}));
        case.samples = Samples::default();
    }
}

#[test]
fn a_mean_or_cache_that_nobody_could_ask_for_keeps_a_token_model_from_shrinking() {
    #[track_caller]
    fn check(tokens: bool, lost: Query, known: bool, age: GoDuration) {
        let mut case = Case::of(&["a-0"]);
        case.config.saturation = analyzed_by(tokens);
        case.load("m", 1.0, &[("a-0", 0.5, 0.0)]);
        let means = [(pod_signal("a-0", "input"), "512"), (pod_signal("a-0", "output"), "128")];
        let both = || [answer(Query::CacheConfig, &[cache("a-0", "10")]), answer(Query::Tokens, &means)];
        if known {
            case.take_in(both());
        }
        let mut round = Vec::from(idle_but_for(answer(Query::KvUsage, &[(pod_signal("a-0", ""), "0.5")])));
        round.extend(both());
        round.retain(|a| a.query != lost);
        round.push(failed(lost));
        case.take_in(round);
        assert_eq!(case.replica().age, age, "{lost:?}");
    }
    for lost in [Query::Tokens, Query::CacheConfig] {
        check(true, lost, false, stale());
        // The last value counts.
        check(true, lost, true, FRESH);
        // Percentages do not read it.
        check(false, lost, false, FRESH);
    }
    // Without it demand is greater, not smaller.
    check(true, Query::PrefixHitRate, false, FRESH);
}

/// What the token analyzer reads of a replica.
fn tokens(case: &mut Case) -> Value {
    let value = serde_json::to_value(case.replica()).unwrap();
    ["numGpuBlocks", "blockSize", "meanInput", "meanOutput", "prefixHitRate"]
        .iter()
        .map(|k| value[k].clone())
        .collect()
}

#[test]
fn a_replica_has_its_cache_and_the_means_of_its_model() {
    let mut case = Case::of(&["a-0"]);
    case.load("m", 1.0, &[("a-0", 0.5, 0.0)]);
    assert_eq!(tokens(&mut case), json!([null, null, null, null, null]));
    let of = |signal: &str, value: &'static str| (pod_signal("a-0", signal), value);
    let lora = json!({"namespace": "ns", "pod": "a-0", "model_name": "lora", "signal": "input"});
    case.take_in([
        // vLLM gives it no model; the lesser of two counts, and what no pod has is left out.
        answer(Query::CacheConfig, &[cache("a-0", "4000"), cache("a-0-rank-0", "1000"), cache("x", "10")]),
        answer(Query::Tokens, &[of("input", "512"), of("output", "128"), (lora, "9000")]),
        answer(Query::PrefixHitRate, &[of("", "0.25")]),
    ]);
    assert_eq!(tokens(&mut case), json!([1000.0, 16.0, 512.0, 128.0, 0.25]));
    // Out of range is absent.
    let rate = answer(Query::PrefixHitRate, &[of("", "1.5")]);
    case.take_in([answer(Query::Tokens, &[of("input", "-1")]), rate]);
    assert_eq!(tokens(&mut case), json!([1000.0, 16.0, null, 128.0, null]));
    // And so is what is too old.
    case.at.now += Duration::from_mins(6);
    case.load("m", 1.0, &[("a-0", 0.5, 0.0)]);
    assert_eq!(tokens(&mut case), json!([null, null, null, null, null]));
}

#[test]
fn a_late_queue_counts_and_keeps_a_token_model_from_shrinking() {
    for (tokens, after, known, age) in [
        (true, 60, true, FRESH),
        (true, 61, true, stale()),
        (true, 120, true, stale()),
        // Unknown: the rules see to it.
        (true, 121, false, FRESH),
        (false, 61, true, FRESH),
    ] {
        let mut case = Case::of(&["a-0"]);
        case.config.saturation = analyzed_by(tokens);
        case.take_in([answer(Query::SchedulerQueue, &[(queue_size("ns", "m"), "7")])]);
        case.at.now += Duration::from_secs(after);
        case.load("m", 1.0, &[("a-0", 0.1, 0.0)]);
        let others = [Query::KvUsage, Query::Queue, Query::Tokens, Query::CacheConfig];
        let mut round = Vec::from(others.map(no_series));
        round.push(failed(Query::SchedulerQueue));
        case.take_in(round);
        let queue = case.assembled().snapshot.models[0].scheduler_queue;
        assert_eq!(matches!(queue, SchedulerQueue::Known(_)), known, "{after} s");
        assert_ne!(queue, SchedulerQueue::Absent);
        assert_eq!(case.replica().age, age, "{after} s {tokens}");
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
        let made_then = json!({"metadata": {"creationTimestamp": created}});
        case.cluster.pod_with("s-0", "StatefulSet", "s", made_then);
        let now = case.at.now;
        case.at.now = now.checked_sub(Duration::from_secs(seen)).unwrap();
        let mean = answer(Query::Tokens, &[(pod_signal("s-0", "input"), "512")]);
        case.take_in([mean, answer(Query::CacheConfig, &[cache("s-0", "10")])]);
        case.load("m", 0.0, &[("s-0", 0.05, 0.0)]);
        case.at.now = now;
        assert_eq!(case.replicas().len(), usize::from(counts), "{seen} {made}");
        // What is shown now counts; what was shown then is not this one's.
        case.load("m", 0.0, &[("s-0", 0.9, 0.0)]);
        assert_eq!(case.replicas(), [said("s-0", 0.9, 0.0)]);
        assert_eq!(tokens(&mut case)[0].is_number(), counts, "{seen} {made}: its cache");
        assert_eq!(tokens(&mut case)[2].is_number(), counts, "{seen} {made}: its mean");
    }
}

#[test]
fn a_ready_pod_that_does_not_report_is_a_gap_whoever_else_reports() {
    let both = ["a-0", "a-1"];
    let three = ["a-0", "a-1", "a-2"];
    for (ready_pods, unready, reports, counted, late) in [
        (&both[..], &["a-2"][..], &["a-0", "a-2"][..], &["a-0"][..], false),
        (&both, &["a-2"], &three, &three, false),
        (&both, &[], &both, &both, false),
        // In a rollout three are ready of two that count: the load of the third is not known.
        (&three, &[], &both, &both, true),
    ] {
        let mut case = Case::of(unready);
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
fn requests_in_flight_are_known_when_every_replica_says() {
    let ranks = ["a-0-rank-0", "a-0-rank-1"];
    for (values, after, want) in [
        ([("a-0", Some("3")), ("a-1", Some("4"))], 300, Some(7.0)),
        ([("a-0", Some("0")), ("a-1", Some("0"))], 301, None),
        ([("a-0", Some("0")), ("a-1", None)], 0, None),
        ([(ranks[0], Some("1")), (ranks[1], Some("2"))], 0, Some(3.0)),
        ([(ranks[0], Some("0")), (ranks[1], None)], 0, None),
    ] {
        let mut case = Case::of(&["a-0", "a-1"]);
        let known = values.iter().filter_map(|(pod, value)| Some((pod, (*value)?)));
        let of =
            |(pod, value): (&&str, _)| [(pod_signal(pod, "running"), value), (pod_signal(pod, "age"), "0")];
        case.take_in([answer(Query::Running, &known.flat_map(of).collect::<Vec<_>>())]);
        case.at.now += Duration::from_secs(after);
        case.load("m", 1.0, &values.map(|(pod, _)| (pod, 0.5, 0.0)));
        assert_eq!(case.variant().running.map(f64::from), want, "{values:?} after {after} s");
    }
}

#[test]
fn the_work_of_all_ranks_of_a_pod_is_added_up() {
    for (series, figures, ranks) in [
        (&[("a-0", "", 10.0)][..], (10.0, 3.0), None),
        (&[("a-0", "0", 10.0), ("a-0", "1", 20.0)], (30.0, 6.0), Some(2)),
        (&[("a-0-rank-0", "0", 10.0), ("a-0-rank-1", "0", 20.0)], (30.0, 6.0), Some(2)),
    ] {
        let mut case = Case::of(&["a-0"]);
        let of = |(pod, engine, completed): &(&str, &str, f64)| {
            Counter::TABLE.map(|(counter, name, _)| {
                let mut labels = pod_signal(pod, name);
                labels["engine"] = json!(engine);
                (labels, if counter == Counter::Completed { *completed } else { 3.0 })
            })
        };
        case.take_in([answer(Query::Work, &series.iter().flat_map(of).collect::<Vec<_>>())]);
        let pods: BTreeSet<&str> = series.iter().map(|(pod, ..)| *pod).collect();
        case.load("m", 1.0, &pods.into_iter().map(|pod| (pod, 0.5, 0.0)).collect::<Vec<_>>());
        let replica = case.replica();
        assert_eq!((replica.work[0].completed.get(), replica.work[0].running.get()), figures);
        assert_eq!(replica.ranks, ranks);
    }
}

#[test]
fn a_name_that_a_server_had_once_does_not_stand_beside_its_present_one() {
    let mut case = Case::of(&["a-0"]);
    case.load("before", 1.0, &[("a-0", 0.5, 0.0)]);
    case.at.now += Duration::from_mins(6);
    case.load("now", 1.0, &[("a-0", 0.2, 0.0)]);
    assert_eq!(case.replicas(), [said("a-0", 0.2, 0.0)]);
}
