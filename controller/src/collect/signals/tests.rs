//! Tests of the expressions, word for word, and of the rows of answers.

use serde_json::{Value, json};

use super::*;
use crate::collect::prometheus::answer::read;
use crate::collect::prometheus::tests::FakeReply;

/// Rows of an answer with these series, each as labels and value.
pub(crate) fn rows(query: Query, series: &[(Value, impl ToString + Clone)]) -> Rows {
    let FakeReply::Body(_, text) = FakeReply::series(series.to_vec()) else { unreachable!() };
    let mut rows = Rows::new(query);
    read(text.as_bytes(), &mut rows).unwrap();
    rows
}

/// Signal, pod, model and value of each row.
fn pod_rows(rows: &Rows) -> Vec<(Signal, &str, &str, f64)> {
    rows.pods.iter().map(|(s, key, value)| (*s, &*key.pod, &*key.model_name, *value)).collect()
}

/// Expressions of a round and of a retention period.
const EXPRESSIONS: &str = r#"
kv_usage: max by (namespace, pod, pod_name, model_name) (max_over_time(vllm:kv_cache_usage_perc[1m]))
queue: max by (namespace, pod, pod_name, model_name) (max_over_time(vllm:num_requests_waiting[1m]))
sample_age: label_replace(max by (namespace, pod, pod_name, model_name) (min by (namespace, pod, pod_name, model_name, engine) (time() - timestamp(vllm:kv_cache_usage_perc))), "signal", "kv", "", "") or label_replace(max by (namespace, pod, pod_name, model_name) (min by (namespace, pod, pod_name, model_name, engine) (time() - timestamp(vllm:num_requests_waiting))), "signal", "queue", "", "")
running: label_replace(sum by (namespace, pod, pod_name, model_name) (max by (namespace, pod, pod_name, model_name, engine) (vllm:num_requests_running)), "signal", "running", "", "") or label_replace(sum by (namespace, pod, pod_name, model_name) (max by (namespace, pod, pod_name, model_name, engine) (vllm:num_requests_waiting)), "signal", "waiting", "", "") or label_replace(max by (namespace, pod, pod_name, model_name) (min by (namespace, pod, pod_name, model_name, engine) (time() - timestamp(vllm:num_requests_running))), "signal", "age", "", "")
cache_config: max by (namespace, pod, pod_name, num_gpu_blocks, block_size) (vllm:cache_config_info)
tokens: label_replace(sum by (namespace, pod, pod_name, model_name) (max by (namespace, pod, pod_name, model_name, engine) (rate(vllm:request_prompt_tokens_sum[5m]))) / sum by (namespace, pod, pod_name, model_name) (max by (namespace, pod, pod_name, model_name, engine) (rate(vllm:request_prompt_tokens_count[5m]))), "signal", "input", "", "") or label_replace(sum by (namespace, pod, pod_name, model_name) (max by (namespace, pod, pod_name, model_name, engine) (rate(vllm:request_generation_tokens_sum[5m]))) / sum by (namespace, pod, pod_name, model_name) (max by (namespace, pod, pod_name, model_name, engine) (rate(vllm:request_generation_tokens_count[5m]))), "signal", "output", "", "")
prefix_hit_rate: sum by (namespace, pod, pod_name, model_name) (max by (namespace, pod, pod_name, model_name, engine) (rate(vllm:prefix_cache_hits_total[5m]) or rate(vllm:prefix_cache_hits[5m]))) / sum by (namespace, pod, pod_name, model_name) (max by (namespace, pod, pod_name, model_name, engine) (rate(vllm:prefix_cache_queries_total[5m]) or rate(vllm:prefix_cache_queries[5m])))
scheduler_queue: sum by (__name__, namespace, inference_pool, target_model_name, model_name) (max by (__name__, namespace, inference_pool, target_model_name, model_name, pod, pod_name, fairness_id, priority) ({__name__=~"(inference_extension|llm_d_epp)_flow_control_queue_(size|bytes)"}))
completed: sum by (namespace, model_name) (max by (namespace, pod, pod_name, model_name, engine, finished_reason) ((last_over_time(vllm:request_success_total[600s]) unless vllm:request_success_total offset 600s) or increase(vllm:request_success_total[600s])))
"#;

/// Expressions of models with an objective.
const LATENCIES: &str = r"
time_to_first_token: sum by (namespace, model_name, le) (max by (namespace, pod, pod_name, model_name, engine, le) (increase(vllm:time_to_first_token_seconds_bucket[5m])))
inter_token_latency: sum by (namespace, model_name, le) (max by (namespace, pod, pod_name, model_name, engine, le) (increase(vllm:inter_token_latency_seconds_bucket[5m]) or increase(vllm:time_per_output_token_seconds_bucket[5m])))
";

/// Two expressions for the namespace `prod`.
const OF_PROD: &str = r#"
tokens: label_replace(sum by (namespace, pod, pod_name, model_name) (max by (namespace, pod, pod_name, model_name, engine) (rate(vllm:request_prompt_tokens_sum{namespace="prod"}[5m]))) / sum by (namespace, pod, pod_name, model_name) (max by (namespace, pod, pod_name, model_name, engine) (rate(vllm:request_prompt_tokens_count{namespace="prod"}[5m]))), "signal", "input", "", "") or label_replace(sum by (namespace, pod, pod_name, model_name) (max by (namespace, pod, pod_name, model_name, engine) (rate(vllm:request_generation_tokens_sum{namespace="prod"}[5m]))) / sum by (namespace, pod, pod_name, model_name) (max by (namespace, pod, pod_name, model_name, engine) (rate(vllm:request_generation_tokens_count{namespace="prod"}[5m]))), "signal", "output", "", "")
scheduler_queue: sum by (__name__, namespace, inference_pool, target_model_name, model_name) (max by (__name__, namespace, inference_pool, target_model_name, model_name, pod, pod_name, fairness_id, priority) ({__name__=~"(inference_extension|llm_d_epp)_flow_control_queue_(size|bytes)", namespace="prod"}))
"#;

fn expressions(queries: impl IntoIterator<Item = Query>, scope: &Scope) -> String {
    let one = |query: Query| format!("{}: {}\n", query.name(), query.expression(scope, ""));
    queries.into_iter().map(one).collect()
}

#[test]
fn one_query_serves_all_models_and_a_round_has_few() {
    let within = |period| Query::Completed(Retention::new(period));
    let all = Query::ALL.into_iter().chain([within(Duration::from_mins(10))]);
    assert_eq!(expressions(all, &Scope::All), EXPRESSIONS.trim_start());
    let prod = Scope::one("prod");
    assert_eq!(expressions([Query::Tokens, Query::SchedulerQueue], &prod), OF_PROD.trim_start());
    assert!(within(Duration::from_micros(1500)).expression(&Scope::All, "").contains("[2ms]"), "rounded up");
    let count = within(Duration::from_secs(8)).expression(&prod, "");
    assert!(count.contains("vllm:request_success_total{namespace=\"prod\"} offset 8s"), "{count}");
    assert_eq!(expressions(Query::LATENCY, &Scope::All), LATENCIES.trim_start());
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
        let expression = query.expression(&Scope::All, "");
        for summed in expression.split("sum by (").skip(1) {
            let (_, of) = summed.split_once(") (").unwrap();
            assert!(of.starts_with("max by ("), "{}: {expression}", query.name());
        }
        assert!(!expression.contains("sum(") && !expression.contains("avg"), "{expression}");
    }
    // Series of two outcomes are not duplicates.
    for query in every_query() {
        let expression = query.expression(&Scope::All, "");
        let counts = expression.contains("request_success_total");
        assert_eq!(counts, expression.contains("engine, finished_reason) ("), "{expression}");
    }
}

#[test]
fn extra_matchers_are_in_every_selector() {
    for query in every_query() {
        for scope in [Scope::All, Scope::one("prod")] {
            let expression = query.expression(&scope, "cluster=\"a\"");
            let without = query.expression(&scope, "");
            let selectors = without.matches("vllm:").count().max(without.matches("flow_control").count());
            assert_eq!(expression.matches("cluster=\"a\"").count(), selectors, "{expression}");
        }
    }
    let prod = Query::Queue.expression(&Scope::one("prod"), "cluster=\"a\"");
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
    assert_eq!(signals.len(), 10);
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
    let tokens = rows(Query::Tokens, &[(of("output"), "128"), (of("input"), "512")]);
    assert_eq!(
        pod_rows(&tokens),
        [(Signal::MeanOutput, "a", "m", 128.0), (Signal::MeanInput, "a", "m", 512.0)]
    );
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
    let found: Vec<_> =
        rows.queues.iter().map(|q| (&*q.model, q.is_later_name, q.is_bytes, q.value)).collect();
    assert_eq!(
        found,
        [("m", false, false, 3.0), ("m", true, true, 2048.0)],
        "a queue without a model has no row"
    );
}
