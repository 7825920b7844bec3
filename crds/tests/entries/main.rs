//! Schema and reader accept the same ConfigMap entries. This file has typical entries, typical mistakes and their
//! messages; `laws` has random entries.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod laws;

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use wva_crds::entries::{
    Entry, Fault, FaultKind, Kind, ParsedEntry, SaturationEntry, ScaleToZeroEntry, ServiceClassEntry,
    ServiceClassList, parse_objectives, read_text, read_value, schema, yaml_value,
};

fn validator(kind: Kind) -> &'static Validator {
    static ALL: LazyLock<Vec<Validator>> = LazyLock::new(|| {
        Kind::ALL.iter().map(|kind| jsonschema::draft202012::new(&schema(*kind)).unwrap()).collect()
    });
    &ALL[Kind::ALL.iter().position(|k| *k == kind).unwrap()]
}

/// Reads a value as an entry of a kind.
fn read(kind: Kind, value: &Value) -> Result<(), Vec<Fault>> {
    match kind {
        Kind::Saturation => read_value::<SaturationEntry>(value).map(|_| ()),
        Kind::ScaleToZero => read_value::<ScaleToZeroEntry>(value).map(|_| ()),
        Kind::ServiceClass => read_value::<ServiceClassEntry>(value).map(|_| ()),
        Kind::ServiceClassesList => read_value::<ServiceClassList>(value).map(|_| ()),
    }
}

/// Asserts whether schema and reader accept a text.
#[track_caller]
fn check(kind: Kind, text: &str, accepted: bool) {
    let value = yaml_value(text).unwrap();
    let found = read(kind, &value);
    assert_eq!(found.is_ok(), accepted, "{text}: reader: {found:?}");
    let errors: Vec<_> = validator(kind).iter_errors(&value).map(|e| e.to_string()).collect();
    assert_eq!(errors.is_empty(), accepted, "{text}: schema: {errors:?}");
}

#[test]
fn accepts_typical_entries() {
    for text in [
        "{}",
        "kvCacheThreshold: 0.80\nqueueLengthThreshold: 5\nkvSpareTrigger: 0.10\nqueueSpareTrigger: 3",
        "queueLengthThreshold: 5.5",
        "kvCacheThreshold: 1\nkvSpareTrigger: 0",
        "model_id: meta/llama-3.1-8b\nnamespace: prod\nenableLimiter: true",
        "model_id: ''\nnamespace: ''\nanalyzerName: ''",
        "analyzerName: saturation\nscaleUpThreshold: 0.85\nscaleDownBoundary: 0.7\noptimizer: exact",
        "optimizer: costAware",
        "shadowAnalyzer: throughput",
        "analyzerName: throughput\nshadowAnalyzer: ''",
        "analyzerName: throughput\nitlSlo: 24\nttftSlo: 500.5\nutilization: 1\nhold: 5m\ndrain: 1m30s\nwarmSpare: on",
    ] {
        check(Kind::Saturation, text, true);
    }
    for text in [
        "enable_scale_to_zero: false",
        "model_id: m\nnamespace: n\nenable_scale_to_zero: true\nallow_failed_requests: true\nretention_period: 10m",
    ] {
        check(Kind::ScaleToZero, text, true);
    }
    for text in [
        "name: Premium\npriority: 1\ndata:\n- model: m\n  slo-tpot: 24\n  slo-ttft: 500",
        "name: Premium\npriority: 10.0\ndata: [{model: m}]",
        "name: Premium\npriority: 1\ndata: []",
    ] {
        check(Kind::ServiceClass, text, true);
    }
    for text in ["[]", "- name: Premium\n  model: m\n  priority: 1\n  slo-itl: 24\n  slo-ttw: 500"] {
        check(Kind::ServiceClassesList, text, true);
    }
}

#[test]
fn refuses_typical_mistakes() {
    for text in [
        "kvCacheThreshold: 1.1", "kvCacheThreshold: -0.1", "kvCacheThreshold: '0.8'", "kvCacheThreshold:",
        "queueLengthThreshold: -1", "scaleUpThreshold: 0", "utilization: 1.01", "itlSlo: 0", "hold: 0s",
        "hold: 5", "hold: 1d", "drain: -2m", "warmSpare: true", "warmSpare: Auto", "analyzerName: tokens",
        "shadowAnalyzer: percentages", "optimizer: ''", "optimizer: Exact", "enableLimiter: yes",
        "model_id: 7", // Spellings of snapshot files and other maps.
        "modelID: m", "modelId: m", "kv_cache_threshold: 0.8", "retention_period: 10m", "[]", "text", "",
    ] {
        check(Kind::Saturation, text, false);
    }
    for text in ["enableScaleToZero: true", "retentionPeriod: 1h", "modelID: m", "retention_period: 600"] {
        check(Kind::ScaleToZero, text, false);
    }
    for text in [
        "name: Premium\npriority: 0\ndata: []",
        "name: Premium\npriority: 1.5\ndata: []",
        "name: Premium\npriority: '1'\ndata: []",
        "name: ''\npriority: 1\ndata: []",
        "name: Premium\ndata: []",
        "name: Premium\npriority: 1",
        "name: Premium\npriority: 1\ndata: [{model: m, slo-itl: 5}]",
        "name: Premium\npriority: 1\ndata: [{model: m, slo-tpot: 0}]",
        "name: Premium\npriority: 1\ndata: [{slo-tpot: 5}]",
        "name: Premium\npriority: 1\ndata: [[m]]",
        "[Premium, 1, []]",
    ] {
        check(Kind::ServiceClass, text, false);
    }
    for text in
        ["{}", "[{name: a, model: m}]", "[{name: a, model: m, priority: 1, slo-tpot: 5}]", "[[a, m, 1]]"]
    {
        check(Kind::ServiceClassesList, text, false);
    }
}

/// Paths of the faults of a text.
#[track_caller]
fn fault_paths<E: Entry + std::fmt::Debug>(text: &str) -> Vec<String> {
    let mut paths: Vec<_> = read_text::<E>(text).unwrap_err().into_iter().map(|fault| fault.path).collect();
    paths.sort_unstable();
    paths
}

#[test]
fn returns_all_faults_with_their_paths() {
    let text = "{kvThreshold: 1, kvCacheThreshold: 2, hold: 0s, enableLimiter: 1, drain: 1m}";
    let want = [".enableLimiter", ".hold", ".kvCacheThreshold", ".kvThreshold"];
    assert_eq!(fault_paths::<SaturationEntry>(text), want);
    let faults = read_text::<SaturationEntry>(text).unwrap_err();
    let messages = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for part in ["kvSpareTrigger", "from 0 to 1", "above 0", "true or false"] {
        assert!(messages.contains(part), "{part}: {messages}");
    }
    let text = "{priority: 0, data: [{model: m, slo: 1}]}";
    assert_eq!(fault_paths::<ServiceClassEntry>(text), [".data[0].slo", ".name", ".priority"]);
    let text = "{name: '', priority: 0, data: [{model: m, slo-ttft: 0}, {model: n, slo-ttft: 0}]}";
    let want = [".data[0].slo-ttft", ".data[1].slo-ttft", ".name", ".priority"];
    assert_eq!(fault_paths::<ServiceClassEntry>(text), want);
}

#[test]
fn messages_have_field_value_and_expectation() {
    for (text, want) in [
        (
            "kvCacheThreshold: '0.8'",
            "kvCacheThreshold: \"0.8\" is not valid; use a number from 0 to 1, without quotes",
        ),
        ("queueSpareTrigger: null", "queueSpareTrigger: null is not valid; use a number of 0 or more"),
        ("modelID: m", "modelID: unknown field; did you mean \"model_id\"?"),
        ("hold: 5m\nhold: 6m", "\"hold\" appears twice, again in line 2"),
        ("[]", "cannot read the entry: a list of 0; use fields and values, one `field: value` per line"),
    ] {
        let messages: Vec<_> =
            read_text::<SaturationEntry>(text).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(messages, [want], "{text}");
    }
    for text in ["kvCacheThreshold: .nan", "queueLengthThreshold: .inf", "hold: [", "&a [*a", &"[".repeat(40)]
    {
        let faults = read_text::<SaturationEntry>(text).unwrap_err();
        let [Fault { kind: FaultKind::Form, expected, .. }] = faults.as_slice() else {
            panic!("{text}: {faults:?}")
        };
        assert!(!expected.contains('\n') && expected.contains("line"), "{text}: {expected}");
    }
}

#[test]
fn empty_entries_are_valid() {
    for text in ["", "# nothing yet", "null"] {
        assert_eq!(read_text(text), Ok(SaturationEntry::default()), "{text}");
        assert_eq!(parse_objectives("premium", text), Ok(Vec::new()), "{text}");
        assert!(read_text::<ServiceClassList>(text).is_err(), "{text}");
    }
}

#[test]
fn accepts_the_key_spelling_of_snapshots() {
    let entry: SaturationEntry = serde_json::from_value(json!({"modelID": "m", "hold": "5m"})).unwrap();
    assert_eq!(serde_json::to_value(&entry).unwrap(), json!({"model_id": "m", "hold": "5m0s"}));
    let entry: ScaleToZeroEntry =
        serde_json::from_value(json!({"modelId": "m", "enableScaleToZero": true, "retentionPeriod": "1h"}))
            .unwrap();
    let written = serde_json::to_value(&entry).unwrap();
    assert_eq!(written, json!({"model_id": "m", "enable_scale_to_zero": true, "retention_period": "1h0m0s"}));
    // The output can be pasted into a map.
    assert_eq!(read_value::<ScaleToZeroEntry>(&written), Ok(entry));
}

#[test]
fn both_layouts_of_service_classes_give_the_same() {
    let map = |entries: &[(&str, &str)]| {
        let (mut objectives, mut invalid) = (Vec::new(), Vec::new());
        for (key, text) in entries {
            match parse_objectives(key, text) {
                Ok(parsed) => objectives.extend(parsed),
                Err(_) => invalid.push((*key).to_owned()),
            }
        }
        (objectives, invalid)
    };
    let (list, invalid) = map(&[(
        "serviceClasses",
        "- {name: Standard, model: m, priority: 5, slo-itl: 50}\n- {name: Premium, model: m, priority: 1, slo-itl: 24, slo-ttw: 500}",
    )]);
    assert!(invalid.is_empty());
    let (keys, invalid) = map(&[
        ("premium.yaml", "{name: Premium, priority: 1, data: [{model: m, slo-tpot: 24, slo-ttft: 500}]}"),
        (
            "standard.yaml",
            "{name: Standard, priority: 5, data: [{model: m, slo-tpot: 50}, {model: n, slo-ttft: 9}]}",
        ),
        ("wrong.yaml", "{name: FaultKind, priority: 1, data: [{model: m, slo-tpot: -1}]}"),
    ]);
    assert_eq!(invalid, ["wrong.yaml"]);
    for map in [list, keys] {
        let found = map.iter().find(|o| o.class == "Premium").unwrap();
        let millis = |m: Option<wva_crds::entries::Millis>| m.map(|m| format!("{}", m.get()));
        assert_eq!((found.model.as_str(), found.priority.get()), ("m", 1));
        assert_eq!((millis(found.itl), millis(found.ttft)), (Some("24".into()), Some("500".into())));
    }
}

#[test]
fn every_field_has_a_description_and_a_valid_default() {
    fn walk(schema: &Value, path: &str, described: &mut usize) {
        assert!(!path.contains("additional") && schema["title"].is_string(), "{path}: no title");
        if let Some(items) = schema.get("items") {
            walk(items, &format!("{path}[]"), described);
        }
        let Some(properties) = schema["properties"].as_object() else { return };
        assert_eq!(schema["additionalProperties"], json!(false), "{path}");
        for (key, field) in properties {
            let text = field["description"].as_str().unwrap_or_default();
            assert!(text.ends_with('.') && !text.contains('\n'), "{path}.{key}: {text:?}");
            if let Some(default) = field.get("default") {
                assert!(jsonschema::is_valid(field, default), "{path}.{key}: {default}");
            }
            *described += 1;
            // Texts have no fields to describe.
            if let Some(items) = field.get("items").filter(|items| items["type"] != "string") {
                walk(items, &format!("{path}.{key}[]"), described);
            }
        }
    }
    let mut described = 0;
    for kind in Kind::ALL {
        let schema = schema(kind);
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert!(!schema.to_string().contains("null"), "{kind:?} accepts null");
        walk(&schema, &format!("{kind:?}"), &mut described);
    }
    assert_eq!(described, 19 + 6 + 10 + 9);
}

#[test]
fn defaults_of_schema_and_merge_agree() {
    use wva_crds::entries::Saturation;
    let defaults = |kind| -> Value {
        let schema = schema(kind);
        let properties = schema["properties"].as_object().unwrap();
        properties
            .iter()
            .filter_map(|(k, field)| Some((k.clone(), field.get("default")?.clone())))
            .collect::<Map<_, _>>()
            .into()
    };
    let entry: SaturationEntry = read_value(&defaults(Kind::Saturation)).unwrap();
    assert_eq!(Saturation::from_entry(&entry), Saturation::default());
    let entry: ScaleToZeroEntry = read_value(&defaults(Kind::ScaleToZero)).unwrap();
    let default = wva_crds::entries::ScaleToZero::with_default(false);
    assert_eq!(default.with(&entry), default);
}

#[test]
fn bounds_the_faults_of_an_entry() {
    let fields = (0..9_500).map(|i| format!("unknownField{i}: 1\n")).collect::<Vec<_>>().concat();
    let faults = ParsedEntry::from_text(Kind::Saturation, &fields).faults;
    assert_eq!(faults.len(), 1_000);
    // The search for suggestions is the slowest part.
    assert_eq!(faults.iter().filter(|fault| !fault.expected.is_empty()).count(), 64);
}
