//! The table against recorded pages, and those of the servers' own documentation.

use std::collections::BTreeSet;

use super::*;

/// Server, page of a release, and signals that this release does not export.
const PAGES: [(ServerKind, &str, &[ServerSignal]); 8] = [
    (
        ServerKind::Vllm,
        include_str!("../../../tests/fixtures/model-servers/vllm-0.32-asleep.txt"),
        &[ServerSignal::Refused],
    ),
    (ServerKind::Vllm, include_str!("../../../tests/fixtures/model-servers/vllm-0.32-load.txt"), &[]),
    (
        ServerKind::Vllm,
        include_str!("../../../tests/fixtures/model-servers/vllm-0.32-dp2-api2-idle.txt"),
        &[ServerSignal::KvUsage, ServerSignal::Waiting, ServerSignal::Running],
    ),
    (
        ServerKind::Vllm,
        include_str!("../../../tests/fixtures/model-servers/vllm-0.6.txt"),
        &[
            ServerSignal::Awake,
            ServerSignal::PrefixHits,
            ServerSignal::PrefixLookups,
            ServerSignal::Refused,
            ServerSignal::CachedTokens,
        ],
    ),
    (ServerKind::Sglang, include_str!("../../../tests/fixtures/model-servers/sglang-0.5.txt"), &[]),
    (
        ServerKind::Sglang,
        include_str!("../../../tests/fixtures/model-servers/sglang-0.4.txt"),
        &[ServerSignal::CacheTokens, ServerSignal::PrefixHits, ServerSignal::CachedTokens],
    ),
    (ServerKind::TensorrtLlm, include_str!("../../../tests/fixtures/model-servers/tensorrt-llm.txt"), &[]),
    (ServerKind::Triton, include_str!("../../../tests/fixtures/model-servers/triton-25.03.txt"), &[]),
];

/// Whether a page has series of a metric; those of a histogram have a suffix.
fn has(page: &str, metric: ServerMetric) -> bool {
    let is_own = |name: &str| {
        name == metric.name
            || ["_bucket", "_sum", "_count"]
                .iter()
                .all(|suffix| page.contains(&format!("{}{suffix}", metric.name)))
                && name == format!("{}_count", metric.name)
    };
    let label = metric.label.map(|(label, value)| format!("{label}=\"{value}\""));
    page.lines().filter(|line| !line.starts_with('#')).any(|line| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        is_own(name) && label.as_ref().is_none_or(|label| line.contains(label))
    })
}

#[test]
fn each_server_has_a_row_and_its_page_has_the_signals() {
    let kinds: BTreeSet<ServerKind> = MODEL_SERVERS.iter().map(|row| row.kind).collect();
    assert_eq!(kinds.len(), MODEL_SERVERS.len());
    for (kind, page, absent) in PAGES {
        let row = kind.row();
        assert_eq!(row.kind, kind);
        let missing = |(signal, metrics): &(ServerSignal, &[ServerMetric])| {
            (!metrics.iter().any(|metric| has(page, *metric))).then_some(*signal)
        };
        let missing: Vec<ServerSignal> = row.signals.iter().filter_map(missing).collect();
        assert_eq!(missing, absent, "{}: {}", row.name, page.lines().next().unwrap_or_default());
    }
}

const DISAGGREGATED: &str = include_str!("../../../tests/fixtures/model-servers/sglang-0.5-prefill.txt");

#[test]
fn pages_have_the_queues_that_are_added_up() {
    for (name, signal) in [
        ("sglang:num_prefill_bootstrap_queue_reqs", ServerSignal::Waiting),
        ("sglang:num_decode_prealloc_queue_reqs", ServerSignal::Waiting),
        ("sglang:num_prefill_inflight_queue_reqs", ServerSignal::Running),
        ("sglang:num_decode_transfer_queue_reqs", ServerSignal::Running),
    ] {
        let part = ServerKind::Sglang.row().parts(signal).find(|metric| metric.name == name);
        assert!(part.is_some_and(|metric| has(DISAGGREGATED, metric)), "{name}");
    }
    let of_page = |line: &&str| line.contains("_queue_reqs{");
    let known = |line: &str| {
        let name = line.split('{').next().unwrap_or_default();
        [ServerSignal::Waiting, ServerSignal::Running]
            .iter()
            .any(|signal| server_series(*signal).any(|(_, metric)| metric.name == name))
    };
    let unknown: Vec<&str> = DISAGGREGATED.lines().filter(of_page).filter(|line| !known(line)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// The name alone shows the server of a pod.
#[test]
fn no_name_belongs_to_two_servers() {
    for row in &MODEL_SERVERS {
        let parts = row.parts.iter().map(|(_, metric)| metric);
        for metric in row.signals.iter().flat_map(|(_, metrics)| *metrics).chain(parts) {
            let of = |other: &&ModelServer| {
                let parts = other.parts.iter().map(|(_, part)| part);
                let mut all = other.signals.iter().flat_map(|(_, metrics)| *metrics).chain(parts);
                all.any(|other| other.name == metric.name)
            };
            let owners: Vec<_> = MODEL_SERVERS.iter().filter(of).map(|row| row.name).collect();
            assert_eq!(owners, [row.name], "{metric}");
        }
    }
}

#[test]
fn every_server_has_main_signals_and_can_go_to_zero() {
    for row in &MODEL_SERVERS {
        for signal in
            [ServerSignal::KvUsage, ServerSignal::Waiting, ServerSignal::Running, ServerSignal::Completed]
        {
            assert!(!row.metrics(signal).is_empty(), "{} {signal:?}", row.name);
        }
    }
}

#[test]
fn command_lines_and_images_name_the_server() {
    for (text, kind) in [
        ("vllm serve m", Some(ServerKind::Vllm)),
        ("python3 -m sglang.launch_server --model-path m", Some(ServerKind::Sglang)),
        ("lmsysorg/SGLang:v0.5.4", Some(ServerKind::Sglang)),
        ("trtllm-serve", Some(ServerKind::TensorrtLlm)),
        ("nvcr.io/nvidia/tritonserver:25.03-trtllm-python-py3", Some(ServerKind::Triton)),
        ("envoy", None),
    ] {
        assert_eq!(ServerKind::named_in(text), kind, "{text}");
    }
}

/// The list is read from SGLang's package, because the server needs a GPU.
#[test]
fn names_of_sglang_are_in_its_package() {
    let list = include_str!("../../../tests/fixtures/model-servers/sglang-names.txt");
    let names: BTreeSet<&str> = list.lines().filter_map(|line| line.split(' ').next()).collect();
    let is_known = |metric: ServerMetric| {
        let name = metric.name.strip_suffix("_count").unwrap_or(metric.name);
        names.contains(name)
    };
    let row = ServerKind::Sglang.row();
    for (signal, metrics) in row.signals {
        assert!(is_known(metrics[0]), "{signal:?}: {}", metrics[0]);
    }
    let earlier: Vec<&str> =
        row.parts.iter().map(|(_, part)| part.name).filter(|name| !names.contains(name)).collect();
    assert_eq!(earlier, ["sglang:num_prefill_prealloc_queue_reqs", "sglang:num_prefill_infight_queue_reqs"]);
}
