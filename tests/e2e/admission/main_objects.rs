//! Main maps of the differential test: every setting in both layouts with valid and invalid values, violations about
//! several keys or about the shape, and updates of a stored map.

use serde_json::{Map, Value, json};
use wva_crds::settings::{Kind, SETTINGS, Setting};
use wva_testbed::install::SYSTEM;

use super::map_objects::{MAIN, MapCase, map, odd_keys};

/// Valid and invalid values of a setting.
fn texts(setting: &Setting) -> Vec<&'static str> {
    match setting.kind {
        Kind::Bool => vec!["true", "F", "yes", "2"],
        Kind::Int { .. } => vec!["7", "0", "-1", "1.5", "99999999999999999999"],
        Kind::Duration { .. } => vec!["90s", "1h0.5m", "90", "0", "-5s", "soon"],
        Kind::Address => vec![":9000", "127.0.0.1:9000", "0", "localhost", ":99999"],
        Kind::LoopbackAddress => vec!["127.0.0.1:9000", "[::1]:9000", "0", ":9000", "10.0.0.1:80"],
        Kind::Url => {
            vec!["https://prometheus:9090", "http://[::1]:9090/p", "ftp://x", "prometheus:9090", "http://"]
        }
        Kind::LabelValue => vec!["blue", "-blue", "a b"],
        Kind::OneOf(words) => vec![words[words.len() - 1], "sometimes"],
        Kind::Name { dots } => vec!["wva", if dots { "a.b" } else { "a-b" }, "a..b", "Not A Name"],
        Kind::DnsName => vec!["prometheus.monitoring.svc", "10.0.0.7"],
        Kind::Matchers => vec!["cluster=\"a\"", "region=~\"eu.*\",zone!=\"b\"", "cluster=a"],
        Kind::Selector => vec!["gpu=a100,!spot", "zone in (a, b)", "((("],
        Kind::Text => vec!["some text"],
        Kind::Token => vec!["token", " token\n", "a b"],
    }
}

/// Values of the entry `config.yaml`.
const NESTED: [&str; 28] = [
    "", "~", "V", "V: [1]\n", "- V\n", "1: 2\n", "a: [1\n", "\tV: 1\n", "# nothing\n", "V: {a: b}\n",
    "V: 1\nV: 2\n", "V: null\n", "V: 0x10\n", "V: 1e3\n", "V: 1_0\n", "V: .inf\n", "LEADER_ELECT: yes\n",
    "LEADER_ELECT: True\n", "LEADER_ELECT: on\n", "V: 1\n---\nV: 2\n", "V: &a 1\nX: *a\n", "\u{feff}V: 1\n",
    "V: \"1\"\r\nLOG_LEVEL: info\r\n", "? [a]\n: b\n", "GLOBAL_OPT_INTERVALL: 60s\n",
    "GLOBAL_OPT_INTERVAL: 60s # a minute\n", "GLOBAL_OPT_INTERVAL: 1:30\n", "V: 2001-01-01\n",
];

/// `data` of main maps: each setting alone, flat and nested, then several keys or wrong shapes.
pub(crate) fn main_maps() -> Vec<Value> {
    let mut all = Vec::new();
    for setting in SETTINGS {
        for text in texts(setting) {
            all.push(json!({setting.key: text}));
        }
        for old in setting.old_keys() {
            all.push(json!({old: texts(setting)[0]}));
            all.push(json!({old: "not, right", setting.key: texts(setting)[0]}));
        }
        // Without quotes, as people write it, so that YAML makes numbers and booleans of some values.
        let (first, last) = (texts(setting)[0], texts(setting)[texts(setting).len() - 1]);
        all.push(json!({"config.yaml": format!("{}: {first}\n", setting.key)}));
        all.push(json!({"config.yaml": format!("{}: {last}\n", setting.key), setting.key: first}));
    }
    for nested in NESTED {
        all.push(json!({"config.yaml": nested}));
        all.push(json!({"config.yaml": nested, "V": "1", "GLOBAL_OPT_INTERVAL": "60s"}));
    }
    all.extend([
        json!({}),
        json!(null),
        json!("text"),
        json!(["V"]),
        json!({"V": 2}),
        json!({"LEADER_ELECT": true, "V": null}),
        json!({"V": null}),
        json!({"V": {"a": "b"}, "LOG_LEVEL": "loud"}),
        json!({"V": ""}),
        json!({"LOG_LEVEL": " info"}),
        json!({"GLOBAL_OPT_INTERVAL": "60s", "config.yaml": "GLOBAL_OPT_INTERVAL: 1m\n"}),
        json!({"GLOBAL_OPT_INTERVAL": "60s", "config.yaml": "GLOBAL_OPT_INTERVAL: 2m\n"}),
        json!({"LEADER_ELECTION_LEASE_DURATION": "50s"}),
        json!({"LEADER_ELECTION_LEASE_DURATION": "30s", "LEADER_ELECTION_RENEW_DEADLINE": "20s", "LEADER_ELECTION_RETRY_PERIOD": "5s"}),
        json!({"LEADER_ELECTION_RETRY_PERIOD": "50s"}),
        json!({"LEADER_ELECTION_RETRY_PERIOD": "soon", "LEADER_ELECTION_RENEW_DEADLINE": "2m"}),
        json!({"PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD": "3m"}),
        json!({"config.yaml": "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD: 10m\n"}),
        json!({"GLOBAL_OPT_INTERVALL": "60s", "whatever": "x", "WVA.X": "y", "global_opt_interval": "1"}),
        json!({"PROMETHEUS_BEARER_TOKEN": "hunter2", "config.yaml": "PROMETHEUS_BEARER_TOKEN: hunter3\n"}),
    ]);
    all.extend(odd_keys("1m"));
    all
}

/// A main map with the annotation that a restart follows.
fn annotated(data: &Value, revision: Option<&str>) -> Value {
    let mut object = map(SYSTEM, MAIN, data);
    object["metadata"]["annotations"] = json!({"wva.llmd.ai/restart-revision": revision});
    object
}

/// `data` of the stored map: every setting with its first value, as far as they are consistent.
fn stored_data() -> Map<String, Value> {
    let kept = SETTINGS.iter().filter(|s| s.in_map && !s.key.starts_with("LEADER_ELECTION_R"));
    let mut data: Map<String, Value> = kept.map(|s| (s.key.to_owned(), json!(texts(s)[0]))).collect();
    for (key, text) in [
        ("PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD", "1m"),
        ("PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD", "2m"),
        ("PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD", "5m"),
        ("LEADER_ELECTION_LEASE_DURATION", "90s"),
    ] {
        data.insert(key.to_owned(), json!(text));
    }
    data.insert("config.yaml".to_owned(), json!("LEADER_ELECTION_RETRY_PERIOD: 20s\n"));
    data
}

/// The stored main map, and its updates: each setting removed, changed, or written differently, with and without the
/// annotation of a restart.
pub(crate) fn main_updates() -> (Value, Vec<MapCase>) {
    let data = stored_data();
    let stored = annotated(&json!(data), Some("one"));
    let mut all = Vec::new();
    let with = |change: &[(&str, Option<&str>)]| {
        let mut data = data.clone();
        for (key, text) in change {
            match text {
                Some(text) => data.insert((*key).to_owned(), json!(text)),
                None => data.remove(*key),
            };
        }
        json!(data)
    };
    for setting in SETTINGS {
        all.push(annotated(&with(&[(setting.key, None)]), Some("one")));
        for text in texts(setting) {
            all.push(annotated(&with(&[(setting.key, Some(text))]), Some("one")));
        }
        let last = texts(setting).last().copied();
        all.push(annotated(&with(&[(setting.key, last)]), Some("two")));
        all.push(annotated(&with(&[(setting.key, last)]), None));
        // The same value in the other layout is not a change.
        let nested =
            format!("LEADER_ELECTION_RETRY_PERIOD: 20s\n{}: \"{}\"\n", setting.key, texts(setting)[0]);
        all.push(annotated(&with(&[(setting.key, None), ("config.yaml", Some(&nested))]), Some("one")));
    }
    for (key, text) in [
        ("REST_CLIENT_TIMEOUT", "1m30s"),
        ("METRICS_ADDR", ":9000"),
        ("METRICS_ADDR", ":9001"),
        ("WVA_SCALE_TO_ZERO", "1"),
        ("config.yaml", "LEADER_ELECTION_RETRY_PERIOD: 0.02e3s"),
        ("config.yaml", "a: ["),
        ("config.yaml", ""),
        ("unknown", "x"),
    ] {
        all.push(annotated(&with(&[(key, Some(text))]), Some("one")));
    }
    all.push(annotated(&json!({}), Some("one")));
    all.push(annotated(&json!(null), Some("one")));
    all.push(annotated(&json!({}), Some("two")));
    (stored, all.into_iter().map(MapCase).collect())
}
