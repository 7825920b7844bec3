//! Tests of the expressions, word for word, and of the rows of answers.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wva_fakes::prometheus::FakeReply;
use wva_objects::servers::ServerKind;
use wva_runtime::prometheus::read;

use super::selector::POD;
use super::*;
use crate::collect::filter::SeriesFilter;
use crate::collect::scope::Scope;
use crate::collect::work::Counter;

pub(crate) mod pages;

/// Rows of an answer with these series, each as labels and value.
pub(crate) fn rows(query: Query, series: &[(Value, impl ToString + Clone)]) -> Rows {
    let FakeReply::Body(_, text) = FakeReply::series(series.to_vec()) else { unreachable!() };
    let mut rows = Rows::new(query, SeriesFilter::everything().into());
    read(text.as_bytes(), &mut rows).unwrap();
    rows
}

/// Signal, pod, model and value of each row.
fn pod_rows(rows: &Rows) -> Vec<(Signal, &str, &str, f64)> {
    rows.pods.iter().map(|(s, key, value)| (*s, &*key.pod, &*key.model_name, *value)).collect()
}

/// Every expression for all namespaces.
const EXPRESSIONS: &str = include_str!("expressions.txt");

fn expressions(queries: impl IntoIterator<Item = Query>) -> String {
    let one = |query: Query| format!("{}: {}\n", query.name(), query.expression("", ""));
    queries.into_iter().map(one).collect()
}

#[test]
fn a_label_with_an_escape_is_read() {
    let text = r#"{"status":"success","data":{"resultType":"vector","result":[
        {"metric":{"namespace":"n","pod":"\u0061-0","model_name":"m\"x"},"value":[1,"0.5"]}]}}"#;
    let mut rows = Rows::new(Query::KvUsage, SeriesFilter::everything().into());
    read(text.as_bytes(), &mut rows).unwrap();
    assert_eq!(pod_rows(&rows), [(Signal::KvUsage, "a-0", "m\"x", 0.5)]);
}

#[test]
fn one_query_serves_all_models_and_a_round_has_few() {
    assert_eq!(expressions(every_query()), EXPRESSIONS);
    let within = |period| Query::Completed(Retention::new(period));
    let prod = Scope::one("prod").matcher();
    assert!(within(Duration::from_micros(1500)).expression("", "").contains("[2ms]"), "rounded up");
    let count = within(Duration::from_secs(8)).expression(&prod, "");
    assert!(count.contains("vllm:request_success_total{namespace=\"prod\"} offset 8s"), "{count}");
    let with_objectives = Query::ALL.len() + Query::LATENCY.len();
    assert!(with_objectives <= 10, "a round has at most ten queries");
}

/// Every query, with the counters and one window.
fn every_query() -> Vec<Query> {
    let window = Query::Completed(Retention::new(Duration::from_mins(10)));
    Query::ALL.into_iter().chain(Query::WORK).chain(Query::LATENCY).chain([window]).collect()
}

#[test]
fn every_sum_is_over_the_maximum_of_duplicate_scrapes() {
    for query in every_query() {
        let expression = query.expression("", "");
        for summed in expression.split("sum by (").skip(1) {
            let (_, of) = summed.split_once(") (").unwrap();
            // Of the sum of all counters only a change counts.
            let is_progress = query == Query::Tokens && of.starts_with("{__name__=~");
            assert!(of.starts_with("max by (") || is_progress, "{}: {expression}", query.name());
        }
        assert!(!expression.contains("sum(") && !expression.contains("avg("), "{expression}");
        for averaged in expression.split("avg by (").skip(1) {
            let (_, of) = averaged.split_once(") (").unwrap();
            assert!(of.starts_with("max by ("), "{}: {expression}", query.name());
        }
    }
    // Series of two outcomes are not duplicates.
    for query in [Query::Tokens, Query::PrefixHitRate, Query::Work, Query::InterTokenLatency] {
        let expression = query.expression("", "");
        assert!(
            expression.contains("dp_rank, wva_server, finished_reason, is_streaming, cache_source, priority"),
            "{expression}"
        );
    }
    // A gauge has the total of all priorities next to them.
    let running = Query::Running.expression("", "");
    assert!(!running.contains("priority"), "{running}");
}

/// Engines share the requests of a pod: counts are added up, and shares are averaged.
#[test]
fn engines_of_a_pod_are_combined_by_kind_of_signal() {
    let engine = "namespace, pod, pod_name, model_name, engine, dp_rank, wva_server";
    let pod = "namespace, pod, pod_name, model_name";
    for (query, over, by) in [
        (Query::KvUsage, "avg", pod),
        (Query::Queue, "sum", pod),
        (Query::Running, "sum", "__name__, request_type, reason, namespace, pod, pod_name, model_name"),
        (Query::PrefixHitRate, "sum", pod),
    ] {
        let expression = query.expression("", "");
        assert!(expression.starts_with(&format!("{over} by ({by}) (max by (")), "{expression}");
        assert!(expression.contains(engine), "{expression}");
    }
    // Each engine has a row of its own.
    let caches = Query::CacheConfig.expression("", "");
    let rows = "max by (namespace, pod, pod_name, engine, dp_rank, wva_server, kv_cache_size_tokens";
    assert!(caches.starts_with(rows), "{caches}");
}

/// Two servers of a pod may have equal labels of engine and model.
#[test]
fn every_maximum_tells_servers_of_a_pod_apart() {
    for query in every_query().into_iter().filter(|query| *query != Query::SchedulerQueue) {
        let expression = query.expression("", "");
        let inner = |part: &&str| !part.starts_with(&format!("{POD})"));
        for by in expression.split("max by (").skip(1).filter(inner) {
            let (labels, of) = by.split_once(") (").unwrap();
            let is_router = labels.contains("target_model_name");
            assert!(is_router || labels.contains("wva_server"), "{}: {by}", query.name());
            assert!(is_router || of.starts_with("label_replace(label_replace("), "{}: {by}", query.name());
        }
    }
}

/// `or` and `rate` ignore names: a pod that exports two names of a signal must not fail the query of all pods.
#[test]
fn no_function_is_over_several_names() {
    for query in every_query() {
        let expression = query.expression("", "");
        for function in ["rate(", "increase(", "timestamp(", "max_over_time(", "last_over_time("] {
            assert!(!expression.contains(&format!("{function}{{__name__")), "{expression}");
        }
    }
}

#[test]
fn extra_matchers_are_in_every_selector() {
    for query in every_query() {
        for scope in [String::new(), Scope::one("prod").matcher()] {
            let expression = query.expression(&scope, "cluster=\"a\"");
            let (mut single, mut several) = (String::new(), 0);
            for (i, part) in expression.split("__name__=~\"").enumerate() {
                let rest = part.split_once('"').filter(|_| i > 0).map_or(part, |(_, rest)| rest);
                single.push_str(rest);
                several += usize::from(i > 0);
            }
            let names = ["vllm:", "sglang:", "trtllm_", "nv_", "llm_d_epp_"]
                .map(|prefix| single.matches(prefix).count());
            let selectors = names.into_iter().sum::<usize>() + several;
            assert_eq!(expression.matches("cluster=\"a\"").count(), selectors, "{expression}");
        }
    }
    let prod = Query::Queue.expression(&Scope::one("prod").matcher(), "cluster=\"a\"");
    assert!(prod.contains("{namespace=\"prod\", cluster=\"a\"}"), "{prod}");
}

#[test]
fn every_query_is_in_the_table_once() {
    let all = every_query();
    let mut names: Vec<_> = all.iter().map(|query| query.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len());
    let signals: Vec<_> = Query::ALL.iter().flat_map(|q| q.signals()).collect();
    assert_eq!(signals.len(), 11);
}

#[test]
fn reads_pod_from_either_label() {
    let pod = |label: &str| json!({"namespace": "ns", label: "a", "model_name": "m", "engine": "0"});
    for label in ["pod", "pod_name"] {
        let rows = rows(Query::Queue, &[(pod(label), "3")]);
        assert_eq!(pod_rows(&rows), [(Signal::Queue, "a", "m", 3.0)]);
    }
    let both = json!({"namespace": "ns", "pod": "a", "pod_name": "b"});
    assert_eq!(pod_rows(&rows(Query::Queue, &[(both, "1")])), [(Signal::Queue, "a", "", 1.0)]);
    let empty = json!({"namespace": "ns", "pod": "", "pod_name": "b"});
    assert_eq!(pod_rows(&rows(Query::Queue, &[(empty, "1")])), [(Signal::Queue, "b", "", 1.0)]);
}

#[test]
fn skips_series_without_value_or_labels() {
    let pod = json!({"namespace": "ns", "pod": "a"});
    let series = [
        (pod.clone(), "NaN"),
        (pod.clone(), "+Inf"),
        (pod, "-Inf"),
        (json!({"pod": "a"}), "1"),
        (json!({"namespace": "ns"}), "1"),
        (json!({}), "1"),
    ];
    for query in Query::ALL {
        let rows = rows(query, &series);
        assert!(rows.pods.is_empty() && rows.caches.is_empty() && rows.queues.is_empty(), "{query:?}");
    }
}

#[test]
fn label_distinguishes_signals_of_one_query() {
    let of = |signal: &str| json!({"namespace": "ns", "pod": "a", "model_name": "m", "signal": signal});
    let ages = rows(Query::SampleAge, &[(of("kv"), "4"), (of("queue"), "5"), (of("other"), "6")]);
    assert_eq!(pod_rows(&ages), [(Signal::KvAge, "a", "m", 4.0), (Signal::QueueAge, "a", "m", 5.0)]);
    let waiting = rows(Query::Queue, &[(of("running"), "3"), (of(""), "5")]);
    assert_eq!(pod_rows(&waiting), [(Signal::PeakRunning, "a", "m", 3.0), (Signal::Queue, "a", "m", 5.0)]);
    let tokens = rows(Query::Tokens, &[(of("output"), "128"), (of("input"), "512")]);
    assert_eq!(
        pod_rows(&tokens),
        [(Signal::MeanOutput, "a", "m", 128.0), (Signal::MeanInput, "a", "m", 512.0)]
    );
}

#[test]
fn name_distinguishes_signals_and_servers() {
    let of = |name: &str, state: &str| json!({"namespace": "ns", "pod": name, "__name__": name, "request_type": state});
    let all = [
        (of("vllm:num_requests_running", ""), "1"),
        (of("sglang:num_running_reqs", ""), "2"),
        (of("sglang:num_queue_reqs", ""), "3"),
        (of("sglang:num_prefill_prealloc_queue_reqs", ""), "8"),
        (of("sglang:num_decode_transfer_queue_reqs", ""), "9"),
        (of("nv_trt_llm_request_metrics", "active"), "4"),
        (of("nv_trt_llm_request_metrics", "waiting"), "5"),
        (of("nv_trt_llm_request_metrics", "max"), "512"),
        (of("vllm:generation_tokens_total", ""), "7"),
    ];
    let rows = rows(Query::Running, &all);
    let found: Vec<_> = rows.pods.iter().map(|(signal, _, value)| (*signal, *value)).collect();
    let (running, waiting) = (Signal::Running, Signal::Waiting);
    let parts = [(Signal::WaitingPart, 8.0), (Signal::RunningPart, 9.0)];
    let others = [(running, 1.0), (running, 2.0), (waiting, 3.0), (running, 4.0), (waiting, 5.0)];
    assert_eq!(found, [&others[..3], &parts, &others[3..]].concat());
    let servers: BTreeMap<&str, ServerKind> =
        rows.servers.iter().map(|(key, server)| (&*key.pod, *server)).collect();
    let others = [
        ("nv_trt_llm_request_metrics", ServerKind::Triton),
        ("sglang:num_decode_transfer_queue_reqs", ServerKind::Sglang),
        ("sglang:num_prefill_prealloc_queue_reqs", ServerKind::Sglang),
        ("sglang:num_queue_reqs", ServerKind::Sglang),
        ("sglang:num_running_reqs", ServerKind::Sglang),
    ];
    assert_eq!(servers, BTreeMap::from(others));
}

#[test]
fn reads_counters_by_name() {
    let of = |name: &str, signal: &str| json!({"namespace": "ns", "pod": "a", "__name__": name, "signal": signal, "engine": "0"});
    let all = [
        (of("sglang:num_requests_total", "counter"), 1.0),
        (of("sglang:e2e_request_latency_seconds_count", "counter"), 1.5),
        (of("trtllm_time_per_output_token_seconds_sum", "counter"), 2.0),
        (of("nv_llm_output_token_len_sum", "counter"), 3.0),
        (of("vllm:num_requests_waiting", ""), 4.0),
        (of("", "age"), 5.0),
        (of("up", ""), 6.0),
    ];
    let rows = rows(Query::Work, &all);
    let found: Vec<_> = rows.work.iter().map(|row| (row.counter, row.rank, row.value)).collect();
    let want = [
        (Counter::Completed, 0, 1.0),
        (Counter::Completed, 1, 1.5),
        (Counter::GapSeconds, 0, 2.0),
        (Counter::GeneratedTokens, 0, 3.0),
        // Under its name with reasons, releases tell those apart that wait for a place.
        (Counter::Waiting, 1, 4.0),
        (Counter::Age, 0, 5.0),
    ];
    assert_eq!(found, want);
}

#[test]
fn servers_of_a_pod_have_counters_of_their_own() {
    let of = |server: &str, engine: &str| json!({"namespace": "ns", "pod": "a", "__name__": "vllm:generation_tokens_total", "signal": "counter", "engine": engine, "wva_server": server});
    let all = [(of("8000", "0"), 1.0), (of("8001", "0"), 2.0), (of("", "1"), 3.0)];
    let rows = rows(Query::Work, &all);
    let found: Vec<_> = rows.work.iter().map(|row| (&*row.engine.engine, row.value)).collect();
    assert_eq!(found, [("0@8000", 1.0), ("0@8001", 2.0), ("1", 3.0)]);
}

#[test]
fn reads_cache_size_in_tokens() {
    let tokens = |value: f64| {
        let labels = json!({"namespace": "ns", "pod": "a", "signal": "tokens"});
        let caches = rows(Query::CacheConfig, &[(labels, value)]).caches;
        caches.first().map(|row| (row.cache.num_gpu_blocks, row.cache.block_size))
    };
    assert_eq!(tokens(65536.0), Some((65536, 1)));
    for value in [0.0, 0.5, -1.0, 1e12] {
        assert_eq!(tokens(value), None, "{value}");
    }
}

#[test]
fn reads_cache_size_from_labels() {
    let cache = |blocks: &str, size: &str| {
        let labels = json!({"namespace": "ns", "pod": "a", "num_gpu_blocks": blocks, "block_size": size});
        rows(Query::CacheConfig, &[(labels, "1")])
            .caches
            .first()
            .map(|row| (row.cache.num_gpu_blocks, row.cache.block_size))
    };
    assert_eq!(cache("1000", "16"), Some((1000, 16)));
    // vLLM writes None until it has measured its memory.
    for (blocks, size) in [("None", "16"), ("", "16"), ("0", "16"), ("-1", "16"), ("1e3", "16"), ("1000", "")]
    {
        assert_eq!(cache(blocks, size), None, "{blocks:?} {size:?}");
    }
}

#[test]
fn reads_queue_of_target_model_under_either_name() {
    let of = |name: &str, target: &str, model: &str| json!({"__name__": name, "namespace": "ns", "target_model_name": target, "model_name": model});
    let rows = rows(
        Query::SchedulerQueue,
        &[
            (of("inference_extension_flow_control_queue_size", "m", "asked"), "3"),
            (of("llm_d_epp_flow_control_queue_bytes", "", "m"), "2048"),
            (of("llm_d_epp_flow_control_queue_size", "", ""), "9"),
        ],
    );
    let found: Vec<_> = rows
        .queues
        .iter()
        .map(|(q, value)| (q.model.as_deref().unwrap(), q.is_later_name, q.is_bytes, *value))
        .collect();
    assert_eq!(
        found,
        [("m", false, false, 3.0), ("m", true, true, 2048.0)],
        "a queue without a model has no row"
    );
}
