//! The law of config map entries: what the schema accepts is what the reader reads, whoever asks. Tables of entries
//! that people write, and random maps made of known keys and values that are nearly right.
#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test itself does")]

use std::collections::BTreeMap;

use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use wva_crds::GoDuration;
use wva_crds::entries::{
    Fault, Kind, PositiveDuration, SaturationEntry, ScaleToZeroEntry, ServiceClassEntry, ServiceClassList,
    ServiceClassMap, read_text, read_value, schema, yaml,
};

fn validator(kind: Kind) -> Validator {
    jsonschema::draft202012::new(&schema(kind)).unwrap()
}

/// What the reader of a kind says.
fn read(kind: Kind, value: &Value) -> Result<(), Vec<Fault>> {
    match kind {
        Kind::Saturation => read_value::<SaturationEntry>(value).map(|_| ()),
        Kind::ScaleToZero => read_value::<ScaleToZeroEntry>(value).map(|_| ()),
        Kind::ServiceClass => read_value::<ServiceClassEntry>(value).map(|_| ()),
        Kind::ServiceClassesList => read_value::<ServiceClassList>(value).map(|_| ()),
    }
}

/// One text, and whether schema and reader accept it.
#[track_caller]
fn check(kind: Kind, text: &str, accepted: bool) {
    let value = yaml(text).unwrap();
    let found = read(kind, &value);
    assert_eq!(found.is_ok(), accepted, "{text}: the reader says {found:?}");
    let errors: Vec<_> = validator(kind).iter_errors(&value).map(|e| e.to_string()).collect();
    assert_eq!(errors.is_empty(), accepted, "{text}: the schema says {errors:?}");
}

#[test]
fn what_people_write_is_read() {
    for text in [
        "{}",
        "kvCacheThreshold: 0.80\nqueueLengthThreshold: 5\nkvSpareTrigger: 0.10\nqueueSpareTrigger: 3",
        "queueLengthThreshold: 5.5",
        "kvCacheThreshold: 1\nkvSpareTrigger: 0",
        "model_id: meta/llama-3.1-8b\nnamespace: prod\nenableLimiter: true",
        "model_id: ''\nnamespace: ''\nanalyzerName: ''",
        "analyzerName: saturation\nscaleUpThreshold: 0.85\nscaleDownBoundary: 0.7",
        "analyzerName: throughput\nitlSlo: 24\nttftSlo: 500.5\nutilization: 1\nhold: 5m\ndrain: 1m30s\nwarmSpare: on",
    ] {
        check(Kind::Saturation, text, true);
    }
    for text in [
        "enable_scale_to_zero: false",
        "model_id: m\nnamespace: n\nenable_scale_to_zero: true\nretention_period: 10m",
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
fn what_is_nearly_right_is_refused() {
    for text in [
        "kvCacheThreshold: 1.1",
        "kvCacheThreshold: -0.1",
        "kvCacheThreshold: '0.8'",
        "kvCacheThreshold:",
        "kvCacheThreshold: .nan",
        "queueLengthThreshold: .inf",
        "queueLengthThreshold: -1",
        "scaleUpThreshold: 0",
        "utilization: 1.01",
        "itlSlo: 0",
        "hold: 0s",
        "hold: 5",
        "hold: 1d",
        "drain: -2m",
        "warmSpare: true",
        "warmSpare: Auto",
        "analyzerName: tokens",
        "enableLimiter: yes",
        "model_id: 7",
        // Spellings of snapshot files, and of other maps.
        "modelID: m",
        "modelId: m",
        "kv_cache_threshold: 0.8",
        "retention_period: 10m",
        "[]",
        "text",
        "",
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
    ] {
        check(Kind::ServiceClass, text, false);
    }
    for text in ["{}", "[{name: a, model: m}]", "[{name: a, model: m, priority: 1, slo-tpot: 5}]"] {
        check(Kind::ServiceClassesList, text, false);
    }
}

#[test]
fn all_faults_come_back_together_with_their_paths() {
    let faults = read_text::<SaturationEntry>(
        "{kvThreshold: 1, kvCacheThreshold: 2, hold: 0s, enableLimiter: 1, drain: 1m}",
    )
    .unwrap_err();
    let paths: Vec<_> = faults.iter().map(|f| f.path().unwrap()).collect();
    assert_eq!(paths[0], "kvThreshold");
    let mut rest = paths[1..].to_vec();
    rest.sort_unstable();
    assert_eq!(rest, ["enableLimiter", "hold", "kvCacheThreshold"], "{faults:?}");
    let text = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for said in ["kvSpareTrigger", "from 0 to 1", "above 0", "boolean"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let faults = read_text::<ServiceClassEntry>("{priority: 0, data: [{model: m, slo: 1}]}").unwrap_err();
    let paths: Vec<_> = faults.iter().map(|f| f.path().unwrap()).collect();
    assert_eq!(paths, ["data[0].slo", "priority", "."], "{faults:?}");
    let twice = read_text::<SaturationEntry>("hold: 5m\nhold: 6m").unwrap_err();
    assert!(
        matches!(twice.as_slice(), [Fault::NotYaml { problem }] if problem.contains("hold")),
        "{twice:?}"
    );
}

#[test]
fn a_snapshot_may_spell_keys_its_own_way() {
    let entry: SaturationEntry = serde_json::from_value(json!({"modelID": "m", "hold": "5m"})).unwrap();
    assert_eq!(serde_json::to_value(&entry).unwrap(), json!({"model_id": "m", "hold": "5m0s"}));
    let entry: ScaleToZeroEntry =
        serde_json::from_value(json!({"modelId": "m", "enableScaleToZero": true, "retentionPeriod": "1h"}))
            .unwrap();
    let written = serde_json::to_value(&entry).unwrap();
    assert_eq!(written, json!({"model_id": "m", "enable_scale_to_zero": true, "retention_period": "1h0m0s"}));
    // What is written can be pasted into a map.
    assert_eq!(read_value::<ScaleToZeroEntry>(&written), Ok(entry));
}

#[test]
fn both_layouts_of_service_classes_say_the_same() {
    let map = |entries: &[(&str, &str)]| {
        let data: BTreeMap<_, _> = entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ServiceClassMap::read(&data)
    };
    let (list, faults) = map(&[(
        "serviceClasses",
        "- {name: Standard, model: m, priority: 5, slo-itl: 50}\n- {name: Premium, model: m, priority: 1, slo-itl: 24, slo-ttw: 500}",
    )]);
    assert_eq!(faults, []);
    let (keys, faults) = map(&[
        ("premium.yaml", "{name: Premium, priority: 1, data: [{model: m, slo-tpot: 24, slo-ttft: 500}]}"),
        (
            "standard.yaml",
            "{name: Standard, priority: 5, data: [{model: m, slo-tpot: 50}, {model: n, slo-ttft: 9}]}",
        ),
        ("wrong.yaml", "{name: Wrong, priority: 1, data: [{model: m, slo-tpot: -1}]}"),
    ]);
    assert_eq!(faults.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["wrong.yaml"]);
    for map in [list, keys] {
        let found = map.objective("m").unwrap();
        let millis = |m: Option<wva_crds::entries::Millis>| m.map(|m| format!("{}", m.get()));
        assert_eq!((found.class.as_str(), found.priority.get()), ("Premium", 1));
        assert_eq!((millis(found.itl), millis(found.ttft)), (Some("24".into()), Some("500".into())));
        assert_eq!(map.objective("unknown"), None);
    }
}

/// Every property says what it is for, and its default is one that the schema accepts.
#[test]
fn every_field_is_described_and_every_default_is_valid() {
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
            if let Some(items) = field.get("items") {
                walk(items, &format!("{path}.{key}[]"), described);
            }
        }
    }
    let mut described = 0;
    for kind in Kind::ALL {
        let schema = schema(kind);
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert!(!schema.to_string().contains("null"), "{kind:?} takes null");
        walk(&schema, &format!("{kind:?}"), &mut described);
    }
    assert_eq!(described, 16 + 4 + 6 + 5);
}

/// The schema's defaults are what holds where nothing is said.
#[test]
fn defaults_of_the_schema_are_those_of_the_merge() {
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
    assert_eq!(Saturation::of(&entry), Saturation::default());
    let entry: ScaleToZeroEntry = read_value(&defaults(Kind::ScaleToZero)).unwrap();
    let unless_said = wva_crds::entries::ScaleToZero::unless_said(false);
    assert_eq!(unless_said.with(&entry), unless_said);
}

/// Values that are right for some field and wrong for others.
fn near_miss() -> impl Strategy<Value = Value> {
    let text = [
        "",
        "m",
        "5m",
        "0s",
        "0",
        "10",
        "1h30m",
        "500ms",
        "-5s",
        "+1m",
        "1.5h",
        ".5s",
        "5 m",
        "auto",
        "on",
        "off",
        "saturation",
        "throughput",
        "Saturation",
        "true",
        "0.8",
    ];
    prop_oneof![
        3 => (-2i32..12).prop_map(|n| json!(f64::from(n) / 4.0)),
        2 => (-1i64..7).prop_map(|n| json!(n)),
        1 => prop_oneof![Just(json!(1e300)), Just(json!(-0.0)), Just(json!(u64::MAX)), Just(json!(5e-324))],
        4 => proptest::sample::select(text.as_slice()).prop_map(|t| json!(t)),
        1 => any::<bool>().prop_map(|b| json!(b)),
        1 => Just(Value::Null),
        1 => Just(json!([])),
        1 => Just(json!({})),
    ]
}

/// Maps with a few of the keys that a kind knows, and some that another kind, a snapshot or nobody knows.
fn map_of(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    proptest::collection::vec((proptest::sample::select(keys), near_miss()), 0..4)
        .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>().into())
}

const SATURATION: &[&str] = &[
    "model_id",
    "namespace",
    "kvCacheThreshold",
    "queueLengthThreshold",
    "kvSpareTrigger",
    "queueSpareTrigger",
    "enableLimiter",
    "analyzerName",
    "scaleUpThreshold",
    "scaleDownBoundary",
    "itlSlo",
    "ttftSlo",
    "utilization",
    "hold",
    "drain",
    "warmSpare",
    "modelID",
    "kvcachethreshold",
];
const SCALE_TO_ZERO: &[&str] =
    &["model_id", "namespace", "enable_scale_to_zero", "retention_period", "modelId", "enableScaleToZero"];
const ROW: &[&str] = &["slo-itl", "slo-ttw", "slo-tpot", "priority", "name"];
const MODEL: &[&str] = &["slo-tpot", "slo-ttft", "slo-itl", "model"];

/// A valid value with some of its fields replaced, so that required fields are mostly there.
fn over(base: Value, keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let gone = proptest::sample::select(keys);
    (map_of(keys), proptest::option::weighted(0.2, gone)).prop_map(move |(map, gone)| {
        let mut whole = base.clone();
        let fields = whole.as_object_mut().unwrap();
        fields.extend(map.as_object().unwrap().clone());
        gone.map(|key| fields.remove(key));
        whole
    })
}

fn entry() -> impl Strategy<Value = (Kind, Value)> {
    let row = || over(json!({"name": "a", "model": "m", "priority": 1}), ROW);
    let model = || over(json!({"model": "m"}), MODEL);
    let class = (proptest::collection::vec(model(), 0..3), map_of(&["name", "priority", "data", "model"]));
    prop_oneof![
        4 => map_of(SATURATION).prop_map(|v| (Kind::Saturation, v)),
        2 => map_of(SCALE_TO_ZERO).prop_map(|v| (Kind::ScaleToZero, v)),
        2 => proptest::collection::vec(row(), 0..3).prop_map(|v| (Kind::ServiceClassesList, v.into())),
        2 => class.prop_map(|(data, extra)| {
            let mut whole = json!({"name": "a", "priority": 1, "data": data});
            whole.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            (Kind::ServiceClass, whole)
        }),
        1 => near_miss().prop_flat_map(|v| proptest::sample::select(Kind::ALL.as_slice()).prop_map(move |k| (k, v.clone()))),
    ]
}

/// Durations as people write and mistype them: up to five parts, units right and wrong.
fn duration_text() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        6 => "[0-9]{1,4}",
        1 => "0{1,4}",
        2 => r"[0-9]{0,3}\.[0-9]{0,13}",
        1 => r"0?\.0{0,12}[0-9]",
        1 => Just(String::new()),
    ];
    let unit = proptest::sample::select(
        ["h", "m", "s", "ms", "us", "µs", "μs", "ns", "d", "", " s", "S", "m "].as_slice(),
    );
    let sign = proptest::sample::select(["", "", "", "", "+", "-", "++", " "].as_slice());
    (sign, proptest::collection::vec((number, unit), 0..5)).prop_map(|(sign, parts)| {
        parts.into_iter().fold(sign.to_owned(), |text, (number, unit)| text + &number + unit)
    })
}

fn retention(text: &str) -> Value {
    json!({"retention_period": text})
}

#[test]
fn durations_have_one_verdict() {
    for text in [
        "10m",
        "1h30m",
        "500ms",
        "1.5h",
        ".5s",
        "5.s",
        "+5s",
        "0h1m",
        "1m0s",
        "007s",
        "1ns",
        "1µs",
        "1μs",
        "0.001us",
        "0.000000000001h",
        "0.00000000002m",
        "99999h",
        "1h0m0.5s",
        "720h",
    ] {
        assert!(text.parse::<PositiveDuration>().is_ok(), "{text}");
        check(Kind::ScaleToZero, &retention(text).to_string(), true);
    }
    for text in [
        "",
        "0",
        "0s",
        "-0s",
        "0.1ns",
        "0.0001us",
        "0.0000000000001h",
        "-5s",
        "5",
        "5 s",
        "1d",
        "1..5s",
        "s",
        ".s",
        "+-5s",
        "--5s",
        "10M",
        "9999999h",
        "1m\n",
        "１s",
    ] {
        assert_eq!(validator(Kind::ScaleToZero).is_valid(&retention(text)), false, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_schema_accepts_what_is_read((kind, value) in entry()) {
        let validator = validator(kind);
        let errors: Vec<_> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
        let found = read(kind, &value);
        prop_assert_eq!(errors.is_empty(), found.is_ok(), "{:?} {}: {:?}, {:?}", kind, value, errors, found);
    }

    #[test]
    fn the_pattern_accepts_the_durations_that_are_read(text in duration_text()) {
        let accepted = validator(Kind::ScaleToZero).is_valid(&retention(&text));
        let parsed = text.parse::<PositiveDuration>();
        prop_assert_eq!(accepted, parsed.is_ok(), "{:?}: {:?}", text, parsed);
    }

    /// Nothing is longer than this program can hold, however it is written.
    #[test]
    fn the_pattern_accepts_no_text_that_is_refused(text in r"\+?([0-9]{1,22}(\.[0-9]{0,5})?(h|m|s|ms|us|µs|ns)){1,14}") {
        if validator(Kind::ScaleToZero).is_valid(&retention(&text)) {
            prop_assert!(text.parse::<PositiveDuration>().is_ok(), "{}", text);
        }
    }

    #[test]
    fn what_is_printed_matches_the_pattern(seconds in 1u64..300_000_000, nanos in 0u32..1_000_000_000) {
        let text = GoDuration::from(std::time::Duration::new(seconds, nanos)).to_string();
        prop_assert!(validator(Kind::ScaleToZero).is_valid(&retention(&text)), "{}", text);
    }
}
