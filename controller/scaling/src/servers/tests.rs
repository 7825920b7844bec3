//! The table against pages of the servers' own documentation.

use std::collections::BTreeSet;

use super::*;

/// Server, page of a release, and signals that this release does not export.
const PAGES: [(ServerKind, &str, &[ServerSignal]); 6] = [
    (ServerKind::Vllm, include_str!("../../../../tests/fixtures/model-servers/vllm-v1.txt"), &[]),
    (
        ServerKind::Vllm,
        include_str!("../../../../tests/fixtures/model-servers/vllm-0.6.txt"),
        &[ServerSignal::PrefixHits, ServerSignal::PrefixLookups],
    ),
    (ServerKind::Sglang, include_str!("../../../../tests/fixtures/model-servers/sglang-0.5.txt"), &[]),
    (
        ServerKind::Sglang,
        include_str!("../../../../tests/fixtures/model-servers/sglang-0.4.txt"),
        &[ServerSignal::CacheTokens, ServerSignal::PrefixHits],
    ),
    (ServerKind::TensorrtLlm, include_str!("../../../../tests/fixtures/model-servers/tensorrt-llm.txt"), &[]),
    (ServerKind::Triton, include_str!("../../../../tests/fixtures/model-servers/triton-25.03.txt"), &[]),
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

/// The name alone shows the server of a pod.
#[test]
fn no_name_belongs_to_two_servers() {
    for row in &MODEL_SERVERS {
        for metric in row.signals.iter().flat_map(|(_, metrics)| *metrics) {
            let of = |other: &&ModelServer| {
                other.signals.iter().any(|(_, all)| all.iter().any(|other| other.name == metric.name))
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
