//! Limits of the series of one answer, against pages that a hostile pod may write.

use std::time::Duration;

use serde_json::{Value, json};
use wva_runtime::prometheus::{Series, Sink};

use super::*;
use crate::collect::signals::{Query, Retention, Rows};

/// Pod `a-0` of a variant of `m`, and pod `job` of another workload, in namespace `ns`.
fn filter() -> Arc<SeriesFilter> {
    let mut filter = SeriesFilter::default();
    filter.add_model("ns", "m");
    filter.add_pod("ns", "a-0", true);
    filter.add_pod("ns", "job", false);
    filter.add_pod("elsewhere", "a-0", true);
    Arc::new(filter)
}

fn read(query: Query, series: impl IntoIterator<Item = Value>) -> Rows {
    let mut rows = Rows::new(query, filter());
    for labels in series {
        rows.push(Series { labels: serde::Deserialize::deserialize(&labels).unwrap(), value: 1.0 });
    }
    rows
}

/// The limits that were reached, as text.
fn reached(rows: Rows) -> Vec<String> {
    rows.names.into_parts().1.iter().map(ToString::to_string).collect()
}

#[test]
fn only_series_of_managed_pods_are_read() {
    let series = |namespace: &str, pod: &str| json!({"namespace": namespace, "pod": pod, "model_name": "m"});
    let rows = read(
        Query::KvUsage,
        [
            series("ns", "a-0"),
            series("ns", "a-0-rank-1"),
            series("ns", "job"),
            series("ns", "gone"),
            series("ns", "gone"),
            series("elsewhere", "a-0"),
        ],
    );
    let pods: Vec<&str> = rows.pods.iter().map(|(_, key, _)| &*key.pod).collect();
    assert_eq!(pods, ["a-0", "a-0-rank-1"]);
    let (unmapped, reached) = rows.names.into_parts();
    assert_eq!((unmapped.len(), reached), (2, vec![]), "gone, and a-0 in a namespace without variants");
}

#[test]
fn two_hundred_thousand_names_of_models_are_32() {
    let name = |i: u32| json!({"namespace": "ns", "pod": "a-0", "model_name": format!("name-{i}")});
    let own = json!({"namespace": "ns", "pod": "a-0", "model_name": "m"});
    let rows = read(Query::KvUsage, (0..2000).map(name).chain([own]));
    assert_eq!(rows.pods.len(), MAX_NAMES + 1, "the managed model counts behind them too");
    let more = read(Query::KvUsage, (0..200_000).map(name));
    assert_eq!(reached(rows), [r#"pod "a-0" has more than 32 names of models"#]);
    assert!(more.pods.len() == MAX_NAMES && more.names.pods[0].names.capacity() <= 64);
}

#[test]
fn engines_series_and_long_labels_of_a_pod_are_limited() {
    let work = |engine: String, model: &str| {
        json!({"__name__": "vllm:num_requests_running", "namespace": "ns", "pod": "a-0", "model_name": model,
            "engine": engine})
    };
    let rows = read(Query::Work, (0..1000).map(|i| work(i.to_string(), "m")));
    assert_eq!(rows.work.len(), MAX_ENGINES);
    assert_eq!(reached(rows), [r#"pod "a-0" has more than 64 engines"#]);
    let rows = read(Query::Work, [work("e".repeat(1000), "m"), work("0".to_owned(), &"m".repeat(1000))]);
    assert!(rows.work.is_empty());
    assert_eq!(reached(rows), [r#"pod "a-0" has more than 512 bytes in a label"#]);
    // One engine whose cache has any number of sizes.
    let size = |i: u32| json!({"namespace": "ns", "pod": "a-0", "num_gpu_blocks": (i + 1).to_string(), "block_size": "16"});
    let rows = read(Query::CacheConfig, (0..5000).map(size));
    assert_eq!(rows.caches.len(), MAX_SERIES);
    assert_eq!(reached(rows), [r#"pod "a-0" has more than 2048 series"#]);
}

#[test]
fn names_at_a_router_count_only_for_their_pool() {
    let queue = |model: String, pool: &str| {
        json!({"__name__": "llm_d_epp_flow_control_queue_size", "namespace": "ns", "target_model_name": model,
            "inference_pool": pool})
    };
    let rows = read(
        Query::SchedulerQueue,
        (0..1000).map(|i| queue(format!("tenant-{i}"), "pool")).chain([queue("m".to_owned(), "pool")]),
    );
    let queues: Vec<(Option<&str>, f64)> =
        rows.queues.iter().map(|(key, value)| (key.model.as_deref(), *value)).collect();
    assert_eq!(queues, [(None, 1000.0), (Some("m"), 1.0)]);
    let rows = read(Query::SchedulerQueue, (0..400).map(|i| queue("m".to_owned(), &format!("pool-{i}"))));
    // Series of further pools count for the model without a pool.
    assert_eq!(rows.queues.len(), MAX_POOLS + 1);
    assert_eq!(reached(rows), [r#"namespace "ns" has more than 64 InferencePools"#]);
}

#[test]
fn counts_and_histograms_are_those_of_managed_models() {
    let count = |i: u32| json!({"namespace": "ns", "model_name": format!("name-{i}")});
    let own = json!({"namespace": "ns", "model_name": "m"});
    let window = Query::Completed(Retention::new(Duration::from_mins(1)));
    assert_eq!(read(window, (0..1000).map(count).chain([own])).completed.len(), 1);
    let bucket = |i: u32| json!({"namespace": "ns", "model_name": "m", "le": f64::from(i).to_string()});
    let rows = read(Query::TimeToFirstToken, (0..1000).map(bucket));
    assert_eq!(rows.buckets.len(), MAX_SERIES_OF_MODEL);
}
