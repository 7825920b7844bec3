//! Fuzz targets: each passes arbitrary bytes to a parser or a check, and asserts invariants. `cargo fuzz` runs them
//! by coverage (`make fuzz`); `tests/program/fuzz_targets.rs` runs them on the seeds and on random bytes, so that
//! they stay in working order.

use std::sync::{Arc, LazyLock};

use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{Map, Value, json};
use tower::ServiceExt as _;
use wva_crds::GoDuration;
use wva_crds::entries::{
    Entry, Kind, PositiveDuration, SaturationEntry, ScaleToZeroEntry, ServiceClassEntry, ServiceClassList,
    parse_objectives, read_text, yaml_value,
};
use wva_crds::settings::SETTINGS;
use wva_crds::settings::map::{MapText, contradictions, parse_nested};
use wva_objects::Target;
use wva_rules::{
    InstancePolicy, MAX_WARNING_BYTES, MapFacts, MapNames, Operation, OtherVariant, Running, Verdict,
    validate_map,
};
use wva_scaling::{Snapshot, decide};
use wva_webhook::{
    CONFIG_MAP_PATH, ClusterFacts, Limits, MUTATE_PATH, Settings, State, TargetState, VALIDATE_PATH, router,
};

/// A target: only a panic is a fault.
pub type Run = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Run); 6] = [
    ("review", review),
    ("config_map", config_map),
    ("entries", entries),
    ("settings", settings),
    ("snapshot", snapshot),
    ("units", units),
];

struct Cluster;

impl ClusterFacts for Cluster {
    fn is_synced(&self) -> bool {
        true
    }

    fn variants_with_target(&self, _: &str, target: &Target) -> Vec<OtherVariant> {
        vec![OtherVariant { name: "other".into(), instance: None, target: target.clone(), created: None }]
    }

    fn target(&self, _: &str, target: &Target) -> Option<TargetState> {
        (target.name.len() > 3).then_some(TargetState::Absent)
    }

    fn is_namespace_owned(&self, namespace: &str) -> bool {
        namespace.len() > 3
    }

    fn reads_local_maps(&self, namespace: &str) -> Option<bool> {
        (namespace.len() > 2).then_some(namespace.len() > 4)
    }
}

type Server = (tokio::runtime::Runtime, axum::Router);

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let settings = Settings::new(Some("a".into()), InstancePolicy::Inject);
    let state =
        State::new(settings, Arc::new(Cluster), None, &prometheus::Registry::new()).expect("new metrics");
    (runtime, router(Arc::new(state), Limits::default()))
});

/// A review: the first byte selects the path, and whether the rest is the whole body or the object of a review.
pub fn review(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let (path, group, kind) = match choice % 3 {
        0 => (VALIDATE_PATH, "llmd.ai", "VariantAutoscaling"),
        1 => (MUTATE_PATH, "llmd.ai", "VariantAutoscaling"),
        _ => (CONFIG_MAP_PATH, "", "ConfigMap"),
    };
    let body = if choice & 64 == 0 {
        rest.to_vec()
    } else {
        let operation = if choice & 32 == 0 { "CREATE" } else { "UPDATE" };
        let head = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"{operation}","namespace":"workload-variant-autoscaler-system","kind":{{"group":"{group}","version":"v1","kind":"{kind}"}},"object":"#
        );
        [head.as_bytes(), rest, b"}}"].concat()
    };
    let (runtime, router) = &*SERVER;
    let request = Request::post(path).body(Body::from(body)).expect("a request");
    let (status, answer) = runtime.block_on(async {
        let response = router.clone().oneshot(request).await.expect("routers do not fail");
        (response.status().as_u16(), to_bytes(response.into_body(), 1 << 24).await.expect("a body in memory"))
    });
    assert!(matches!(status, 200 | 400 | 413), "{status}: {}", String::from_utf8_lossy(&answer));
    if status == 200 {
        let review: Value = serde_json::from_slice(&answer).expect("an answer is JSON");
        assert!(
            review["response"]["allowed"].is_boolean() && review["response"]["uid"].is_string(),
            "{review}"
        );
        assert!(answer.len() < 1 << 20, "an answer of {} bytes", answer.len());
    }
}

/// Entries of a map: the first byte selects the map, `\0` separates keys and values, and an update follows `\x01`.
pub fn config_map(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let names = MapNames::default();
    let name = [
        "wva-saturation-scaling-config", "wva-model-scale-to-zero-config", "serviceclass", "",
        "capacity-scaling-config",
    ][usize::from(choice % 5)];
    let name = if name.is_empty() { names.main.as_str() } else { name };
    let namespace = if choice & 128 == 0 { names.namespace.as_str() } else { "other" };
    let (role, scope) = names.role(namespace, name).expect("these names are read");
    let object = |text: &str| {
        let mut data = Map::new();
        let mut parts = text.split('\0');
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            data.insert(key.to_owned(), value.into());
        }
        json!({"metadata": {"name": name, "namespace": namespace}, "data": data})
    };
    let (old, new) = text.split_once('\u{1}').unwrap_or((text, text));
    let (old, new) = (object(old), object(new));
    let running = Running::default();
    let judge = |object: &Value, old: Option<&Value>| {
        let mut facts = MapFacts::new(object, namespace, role, scope);
        facts.operation = if old.is_some() { Operation::Update } else { Operation::Create };
        facts.old = old;
        facts.running = Some(&running);
        let verdict = validate_map(&facts);
        bounded(text, &verdict);
        verdict
    };
    judge(&old, None);
    judge(&new, Some(&old));
    assert!(!judge(&old, Some(&old)).is_denied(), "an update that changes nothing is refused: {old}");
}

fn bounded(text: &str, verdict: &Verdict) {
    assert!(
        verdict.warnings.iter().map(String::len).sum::<usize>() <= MAX_WARNING_BYTES,
        "{:?}",
        verdict.warnings
    );
    assert_eq!(verdict.is_denied(), verdict.to_status().is_some());
    is_plain(text, &verdict.message());
    assert!(verdict.message().len() < 1 << 20, "a message of {} bytes", verdict.message().len());
}

/// Text that must not appear in a message, unless the user wrote it: identifiers of Rust and its libraries.
const RUST_WORDS: [&str; 9] =
    ["Option<", "struct ", "deserialize", "&str", "Cow<", "Policy in Options", "std::", "serde", "breached"];

fn is_plain(text: &str, message: &str) {
    let strange = RUST_WORDS.iter().find(|word| message.contains(*word) && !text.contains(*word));
    assert!(strange.is_none(), "{text:?}: {message}");
}

fn is_read<E: Entry>(text: &str) -> bool {
    let read = read_text::<E>(text);
    for fault in read.as_ref().err().into_iter().flatten() {
        is_plain(text, &fault.to_string());
    }
    read.is_ok()
}

/// One entry, parsed as each kind. Only valid YAML may parse.
pub fn entries(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let yaml = yaml_value(text).is_ok();
    let read = [
        is_read::<SaturationEntry>(text),
        is_read::<ScaleToZeroEntry>(text),
        is_read::<ServiceClassEntry>(text),
        is_read::<ServiceClassList>(text),
    ];
    assert_eq!(read.len(), Kind::ALL.len());
    assert!(yaml || read == [false; 4], "{text:?} is not YAML and was read");
    for key in ["serviceClasses", "a"] {
        let _ = parse_objectives(key, text);
    }
}

/// Lines `KEY=value`, as a map, as the entry `config.yaml`, and each value as every kind of setting.
pub fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut data: Map<String, Value> =
        text.lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.into())).collect();
    for setting in SETTINGS {
        let _ = setting.kind.parse(text);
        for value in data.values().filter_map(Value::as_str) {
            let first = setting.kind.parse(value);
            assert_eq!(first, setting.kind.parse(value));
        }
    }
    if let Err(error) = parse_nested(text) {
        is_plain(text, &error.to_string());
    }
    let _ = contradictions(&MapText::from_data(&data));
    data.insert("config.yaml".to_owned(), text.into());
    let map = MapText::from_data(&data);
    let _ = contradictions(&map);
    assert_eq!(map, MapText::from_data(&data));
}

/// A snapshot: one that parses can be decided, twice with the same outcome.
pub fn snapshot(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let snapshot = match Snapshot::parse(text) {
        Ok(snapshot) => snapshot,
        Err(error) => return is_plain(text, &error.to_string()),
    };
    let outcome = decide(&snapshot);
    assert_eq!(format!("{outcome:?}"), format!("{:?}", decide(&snapshot)));
}

/// A duration: its printed form parses to the same value.
pub fn units(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let duration = text.parse::<GoDuration>();
    if let Ok(duration) = &duration {
        assert_eq!(duration.to_string().parse::<GoDuration>().as_ref(), Ok(duration), "{text:?}");
    }
    assert_eq!(text.parse::<PositiveDuration>().is_ok(), duration.is_ok_and(|d| !d.is_zero()));
    for key in ["kvCacheThreshold", "queueLengthThreshold", "priority", "model_id", "warmSpare"] {
        let _ = read_text::<SaturationEntry>(&format!("{key}: {text}"));
    }
    let _ = read_text::<ScaleToZeroEntry>(&format!("retention_period: {text}"));
}
