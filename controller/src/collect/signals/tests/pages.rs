//! Recorded pages of vLLM 0.32: rows as Prometheus gives them after a scrape.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde_json::{Map, Value, json};
use wva_crds::GoDuration;
use wva_scaling::snapshot::WorkSample;

use super::*;
use crate::collect::page::{self, Page, PageReader};
use crate::collect::pod_model::PodModel;
use crate::collect::work::{Counter, CounterHistory};

pub(crate) const LOAD: &str = include_str!("../../../../../tests/fixtures/model-servers/vllm-0.32-load.txt");
pub(crate) const SATURATED: &str =
    include_str!("../../../../../tests/fixtures/model-servers/vllm-0.32-saturated.txt");
pub(crate) const HYBRID: &str =
    include_str!("../../../../../tests/fixtures/model-servers/vllm-0.32-hybrid-idle.txt");
pub(crate) const TWO_ENGINES: &str =
    include_str!("../../../../../tests/fixtures/model-servers/vllm-0.32-dp2-api2-load.txt");
pub(crate) const TWO_IDLE_ENGINES: &str =
    include_str!("../../../../../tests/fixtures/model-servers/vllm-0.32-dp2-api2-idle.txt");

/// Labels and value of each series.
struct AllSeries(Vec<(Value, f64)>);

impl PageReader for AllSeries {
    fn read_series(&mut self, name: &str, rest: &str) -> Option<()> {
        let mut labels = Map::from_iter([("__name__".to_owned(), json!(name))]);
        let value = page::parse_value(rest, |label, value| {
            labels.insert(label.to_owned(), json!(value));
        })?;
        self.0.push((Value::Object(labels), value));
        Some(())
    }
}

/// Series of a page as those of the server at port `server` of pod `a` in `ns`.
pub(crate) fn series_of(page: &str, server: &str, select: impl Fn(&str) -> bool) -> Vec<(Value, f64)> {
    let mut read = Page::new(AllSeries(Vec::new()));
    read.feed(page.as_bytes()).unwrap();
    let AllSeries(mut series) = read.finish().unwrap();
    series.retain(|(labels, _)| select(labels["__name__"].as_str().unwrap()));
    for (labels, _) in &mut series {
        labels["namespace"] = json!("ns");
        labels["pod"] = json!("a");
        labels["wva_server"] = json!(server);
    }
    series
}

fn caches(page: &str, server: &str) -> Vec<(Value, f64)> {
    series_of(page, server, |name| name == "vllm:cache_config_info")
}

/// Tokens of all engines of the only pod.
fn tokens(series: &[(Value, f64)]) -> Option<f64> {
    let pods = EngineCaches::by_pod(rows(Query::CacheConfig, series).caches);
    assert!(pods.len() <= 1, "{pods:?}");
    pods.into_values().next().map(|caches| caches.smallest.tokens() * f64::from(caches.engines))
}

/// As a release that does not report its tokens.
fn without_tokens(page: &str, server: &str) -> Vec<(Value, f64)> {
    let mut series = caches(page, server);
    for (labels, _) in &mut series {
        labels.as_object_mut().unwrap().remove("kv_cache_size_tokens").unwrap();
    }
    series
}

#[test]
fn cache_size_is_that_of_all_engines_of_a_pod() {
    for (page, size) in [(LOAD, 8192.0), (HYBRID, 2661.0), (TWO_ENGINES, 2560.0), (TWO_IDLE_ENGINES, 2560.0)]
    {
        assert_eq!(tokens(&caches(page, "")), Some(size));
    }
}

#[test]
fn blocks_are_the_sum_of_the_engines_of_a_server() {
    for (page, size) in [(LOAD, 8192.0), (TWO_ENGINES, 2560.0)] {
        assert_eq!(tokens(&without_tokens(page, "")), Some(size));
    }
    let servers = ["8000", "8001"].map(|server| without_tokens(TWO_ENGINES, server)).concat();
    assert_eq!(tokens(&servers), Some(2.0 * 2560.0), "each server has a sum of its own");
}

/// Nothing tells sliding layers from the page.
#[test]
fn blocks_of_mamba_layers_do_not_show_the_size() {
    let mut series = without_tokens(HYBRID, "");
    assert_eq!(tokens(&series), Some(512.0 * 32.0));
    for (labels, _) in &mut series {
        labels["mamba_block_size"] = json!("4096");
    }
    assert_eq!(tokens(&series), None);
}

/// Counters and gauges of the throughput analyzer, with the age of the scrape.
fn work(page: &str) -> Option<WorkSample> {
    let mut sums: BTreeMap<[String; 3], (Value, f64)> = BTreeMap::new();
    let names = [named::names(&Counter::GAUGES), named::names(&Counter::COUNTERS)].concat();
    for (labels, value) in series_of(page, "8000", |name| names.iter().any(|own| own == name)) {
        let key = ["__name__", "engine", "reason"].map(|label| labels[label].to_string());
        // As the query does, over the reasons for which requests finish.
        sums.entry(key).or_insert((labels, 0.0)).1 += value;
    }
    let mut series: Vec<(Value, f64)> = sums.into_values().collect();
    for engine in ["0", "1"] {
        let mut age = json!({"namespace": "ns", "pod": "a", "model_name": "acme/tiny", "signal": "age"});
        (age["engine"], age["wva_server"]) = (json!(engine), json!("8000"));
        series.push((age, 3.0));
    }
    let (mut history, now) = (CounterHistory::default(), Instant::now());
    history.add(now, rows(Query::Work, &series).work);
    let pod = PodModel { namespace: "ns".into(), pod: "a".into(), model_name: "acme/tiny".into() };
    history.samples_of(&[&pod], None, now).0.first().copied()
}

#[test]
fn a_server_without_a_request_yet_has_zeros() {
    // The query selects this counter of pods without gauges while it is 0.
    let unused = series_of(TWO_IDLE_ENGINES, "", |name| name == "vllm:prompt_tokens_total");
    let unused = rows(Query::Running, &unused);
    let found: BTreeSet<(Signal, &str)> = pod_rows(&unused).iter().map(|(s, pod, ..)| (*s, *pod)).collect();
    assert_eq!(found, BTreeSet::from([(Signal::Running, "a"), (Signal::Waiting, "a")]));
    assert!(pod_rows(&unused).iter().all(|(.., value)| *value == 0.0));
    let idle = WorkSample { age: GoDuration::from_secs(3), ..WorkSample::default() };
    assert_eq!(work(TWO_IDLE_ENGINES), Some(idle));
    let of_gauges = |line: &&str| !line.starts_with("vllm:num_requests_");
    let without_gauges: Vec<&str> = TWO_ENGINES.lines().filter(of_gauges).collect();
    assert_eq!(work(&without_gauges.join("\n")), None, "a relabelling drops its gauges");
}

/// Times of creation stand next to counters.
#[test]
fn creation_times_are_no_counters() {
    for name in ["vllm:request_success_created", "vllm:time_to_first_token_seconds_created"] {
        assert_eq!(named::find(name, ""), None);
    }
    assert!(LOAD.contains("\nvllm:request_success_created{"));
}

#[test]
fn first_tokens_count_requests_that_do_not_finish() {
    let found = |page: &str| {
        let work = work(page).unwrap();
        [work.first_tokens, work.completed, work.running, work.waiting].map(|n| n.get().to_string()).join(" ")
    };
    assert_eq!(found(LOAD), "988 978 10 0");
    assert_eq!(found(SATURATED), "1037 1022 15 138");
    assert_eq!(found(TWO_ENGINES), "20 12 7 5");
}

/// A request that waits for a KV transfer holds memory; more replicas do not help it.
#[test]
fn deferred_requests_do_not_wait_for_a_place() {
    let found = |page: &str| work(page).map(|work| [work.running, work.waiting].map(f64::from));
    let by_reason = |reason: &str, value: &str| {
        format!(
            "vllm:num_requests_waiting_by_reason{{engine=\"0\",model_name=\"acme/tiny\",reason=\"{reason}\"}} {value}"
        )
    };
    assert_eq!(found(SATURATED), Some([15.0, 138.0]));
    let page = SATURATED.replace(&by_reason("capacity", "138.0"), &by_reason("capacity", "130.0"));
    let page = page.replace(&by_reason("deferred", "0.0"), &by_reason("deferred", "8.0"));
    assert_eq!(found(&page), Some([23.0, 130.0]));
    let older: Vec<&str> = SATURATED.lines().filter(|line| !line.contains("_by_reason{")).collect();
    assert_eq!(found(&older.join("\n")), Some([15.0, 138.0]), "releases without reasons");
}

#[test]
fn prompts_of_a_cache_and_refused_requests_are_counted() {
    let found = |page: &str| {
        let work = work(page).unwrap();
        [work.prompt_tokens, work.cached_tokens, work.refused].map(|n| n.get().to_string())
    };
    assert_eq!(found(LOAD), ["222274", "32", "0"]);
    // The server has these two without an engine.
    let refused = |reason: &str, value: &str| {
        format!("vllm:admission_rejections_total{{model_name=\"acme/tiny\",reason=\"{reason}\"}} {value}")
    };
    let page = [("max_num_queued_reqs", "5.0"), ("max_num_queued_tokens", "2.0")]
        .into_iter()
        .fold(TWO_ENGINES.to_owned(), |page, (reason, value)| {
            page.replace(&refused(reason, "0.0"), &refused(reason, value))
        });
    assert_eq!(found(&page)[2], "7", "of the first engine");
}
