//! What is asked, word for word, and what the series of the answers say.

use serde_json::{Value, json};

use super::*;
use crate::collect::prometheus::answer::read;
use crate::collect::prometheus::tests::vector;

/// The rows of an answer with these series, each its labels and its value.
pub(crate) fn rows(query: Query, series: &[(Value, &str)]) -> Rows {
    let all: Vec<Value> =
        series.iter().map(|(metric, value)| json!({"metric": metric, "value": [1, value]})).collect();
    let mut rows = Rows::of(query);
    read(vector(&json!(all)).as_bytes(), &mut rows).unwrap();
    rows
}

/// Signal, pod, model and value.
fn of_pods(rows: &Rows) -> Vec<(Signal, &str, &str, f64)> {
    rows.pods.iter().map(|(s, key, value)| (*s, &*key.pod, &*key.model_name, *value)).collect()
}

#[test]
fn one_query_serves_all_models_and_all_are_few() {
    let by = "namespace, pod, pod_name, model_name";
    let engine = "namespace, pod, pod_name, model_name, engine";
    let mean = |metric: &str, matcher: &str| {
        let rate = |part| {
            format!(
                "sum by ({by}) (max by ({engine}) (rate(vllm:request_{metric}_tokens_{part}{matcher}[5m])))"
            )
        };
        format!("{} / {}", rate("sum"), rate("count"))
    };
    let named = |name: &str, expression: &str| {
        format!("label_replace({expression}, \"signal\", \"{name}\", \"\", \"\")")
    };
    let age = |metric: &str| format!("max by ({by}) (min by ({engine}) (time() - timestamp(vllm:{metric})))");
    let hits = |metric: &str| {
        format!(
            "sum by ({by}) (max by ({engine}) (rate(vllm:prefix_cache_{metric}_total[5m]) or rate(vllm:prefix_cache_{metric}[5m])))"
        )
    };
    let all = |query: Query| query.expression(&Scope::All, "");
    assert_eq!(all(Query::KvUsage), format!("max by ({by}) (max_over_time(vllm:kv_cache_usage_perc[1m]))"));
    assert_eq!(all(Query::Queue), format!("max by ({by}) (max_over_time(vllm:num_requests_waiting[1m]))"));
    assert_eq!(
        all(Query::SampleAge),
        format!(
            "{} or {}",
            named("kv", &age("kv_cache_usage_perc")),
            named("queue", &age("num_requests_waiting"))
        )
    );
    assert_eq!(
        all(Query::Running),
        [
            named("running", &format!("sum by ({by}) (max by ({engine}) (vllm:num_requests_running))")),
            named("waiting", &format!("sum by ({by}) (max by ({engine}) (vllm:num_requests_waiting))")),
            named("age", &age("num_requests_running")),
        ]
        .join(" or ")
    );
    assert_eq!(
        all(Query::CacheConfig),
        "max by (namespace, pod, pod_name, num_gpu_blocks, block_size) (vllm:cache_config_info)"
    );
    assert_eq!(
        all(Query::Tokens),
        format!("{} or {}", named("input", &mean("prompt", "")), named("output", &mean("generation", "")))
    );
    assert_eq!(all(Query::PrefixHitRate), format!("{} / {}", hits("hits"), hits("queries")));
    let metrics = "__name__=~\"(inference_extension|llm_d_epp)_flow_control_queue_(size|bytes)\"";
    let queue = |matchers: &str| {
        let by = "__name__, namespace, inference_pool, target_model_name, model_name";
        let of_picker = "pod, pod_name, fairness_id, priority";
        format!("sum by ({by}) (max by ({by}, {of_picker}) ({{{matchers}}}))")
    };
    assert_eq!(all(Query::SchedulerQueue), queue(metrics));
    let counter = "vllm:request_success_total";
    let within = |period| all(Query::Completed(Retention::new(period)));
    assert_eq!(
        within(Duration::from_mins(10)),
        format!(
            "sum by (namespace, model_name) (max by ({engine}, finished_reason) ((last_over_time({counter}[600s]) unless {counter} offset 600s) or increase({counter}[600s])))"
        )
    );
    assert!(within(Duration::from_micros(1500)).contains("[2ms]"), "rounded up");
    let prod = Scope::one("prod");
    let count = Query::Completed(Retention::new(Duration::from_secs(8))).expression(&prod, "");
    assert!(count.contains("vllm:request_success_total{namespace=\"prod\"} offset 8s"), "{count}");
    assert_eq!(Query::SchedulerQueue.expression(&prod, ""), queue(&format!("{metrics}, namespace=\"prod\"")));
    let tokens = Query::Tokens.expression(&prod, "");
    assert!(tokens.contains(&mean("generation", "{namespace=\"prod\"}")), "{tokens}");
    assert!(Query::ALL.len() <= 10, "a round has at most ten queries");
}

/// Every query there is, with the counters and one window.
fn every_query() -> Vec<Query> {
    let window = Query::Completed(Retention::new(Duration::from_mins(10)));
    Query::ALL.into_iter().chain(Query::WORK).chain([window]).collect()
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
fn extra_matchers_stand_in_every_selector() {
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
    let mut names: Vec<_> = Query::ALL.map(Query::name).to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Query::ALL.len());
    let signals: Vec<_> = Query::ALL.iter().flat_map(|q| q.signals()).collect();
    assert_eq!(signals.len(), 10);
}

#[test]
fn a_value_is_its_pods_under_either_label() {
    let pod = |label: &str| json!({"namespace": "ns", label: "a", "model_name": "m", "engine": "0"});
    for label in ["pod", "pod_name"] {
        let rows = rows(Query::Queue, &[(pod(label), "3")]);
        assert_eq!(of_pods(&rows), [(Signal::Queue, "a", "m", 3.0)]);
    }
    let both = json!({"namespace": "ns", "pod": "a", "pod_name": "b"});
    assert_eq!(of_pods(&rows(Query::Queue, &[(both, "1")])), [(Signal::Queue, "a", "", 1.0)]);
    let empty = json!({"namespace": "ns", "pod": "", "pod_name": "b"});
    assert_eq!(of_pods(&rows(Query::Queue, &[(empty, "1")])), [(Signal::Queue, "b", "", 1.0)]);
}

#[test]
fn what_says_nothing_is_absent() {
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
fn a_label_tells_two_signals_of_one_query_apart() {
    let of = |signal: &str| json!({"namespace": "ns", "pod": "a", "model_name": "m", "signal": signal});
    let ages = rows(Query::SampleAge, &[(of("kv"), "4"), (of("queue"), "5"), (of("other"), "6")]);
    assert_eq!(of_pods(&ages), [(Signal::KvAge, "a", "m", 4.0), (Signal::QueueAge, "a", "m", 5.0)]);
    let tokens = rows(Query::Tokens, &[(of("output"), "128"), (of("input"), "512")]);
    assert_eq!(
        of_pods(&tokens),
        [(Signal::MeanOutput, "a", "m", 128.0), (Signal::MeanInput, "a", "m", 512.0)]
    );
}

#[test]
fn the_size_of_a_cache_is_in_its_labels() {
    let cache = |blocks: &str, size: &str| {
        let labels = json!({"namespace": "ns", "pod": "a", "num_gpu_blocks": blocks, "block_size": size});
        rows(Query::CacheConfig, &[(labels, "1")])
            .caches
            .first()
            .map(|c| (c.2.num_gpu_blocks, c.2.block_size))
    };
    assert_eq!(cache("1000", "16"), Some((1000, 16)));
    // Before it has measured its memory, vLLM says None.
    for (blocks, size) in [("None", "16"), ("", "16"), ("0", "16"), ("-1", "16"), ("1e3", "16"), ("1000", "")]
    {
        assert_eq!(cache(blocks, size), None, "{blocks:?} {size:?}");
    }
}

#[test]
fn a_queue_is_its_target_models_under_either_name() {
    let of = |name: &str, target: &str, model: &str| json!({"__name__": name, "namespace": "ns", "target_model_name": target, "model_name": model});
    let rows = rows(
        Query::SchedulerQueue,
        &[
            (of("inference_extension_flow_control_queue_size", "m", "asked"), "3"),
            (of("llm_d_epp_flow_control_queue_bytes", "", "m"), "2048"),
            (of("llm_d_epp_flow_control_queue_size", "", ""), "9"),
        ],
    );
    let found: Vec<_> = rows.queues.iter().map(|q| (&*q.model, q.later, q.bytes, q.value)).collect();
    assert_eq!(found, [("m", false, false, 3.0), ("m", true, true, 2048.0)], "nobody's queue is nobody's");
}
