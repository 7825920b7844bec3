//! The law of config map entries: what the schema accepts is what the reader reads, whoever asks. Here are tables of
//! entries that people write and mistype, and what they are told; `laws` has random ones.
#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test itself does")]

mod laws;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use wva_crds::entries::{
    Fault, Kind, SaturationEntry, ScaleToZeroEntry, ServiceClassEntry, ServiceClassList, ServiceClassMap,
    read_text, read_value, schema, yaml,
};

fn validator(kind: Kind) -> &'static Validator {
    static ALL: LazyLock<Vec<Validator>> = LazyLock::new(|| {
        Kind::ALL.iter().map(|kind| jsonschema::draft202012::new(&schema(*kind)).unwrap()).collect()
    });
    &ALL[Kind::ALL.iter().position(|k| *k == kind).unwrap()]
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
        "analyzerName: saturation\nscaleUpThreshold: 0.85\nscaleDownBoundary: 0.7\noptimizer: exact",
        "optimizer: costAware",
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
        "optimizer: ''",
        "optimizer: Exact",
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
    assert_eq!(paths, ["name", "data[0].slo"], "{faults:?}");
    let faults = read_text::<ServiceClassEntry>("{name: '', priority: 0, data: [{model: m, slo-ttft: 0}]}")
        .unwrap_err();
    let paths: Vec<_> = faults.iter().map(|f| f.path().unwrap()).collect();
    assert_eq!(paths, ["data[0].slo-ttft", "name", "priority"], "{faults:?}");
    let faults =
        read_text::<SaturationEntry>("{kvCacheThreshold: '0.8', queueSpareTrigger: null}").unwrap_err();
    let texts: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "kvCacheThreshold: invalid type: string \"0.8\", expected a number from 0 to 1",
            "queueSpareTrigger: invalid type: null, expected a number of 0 or more"
        ]
    );
    for text in ["kvCacheThreshold: .nan", "queueLengthThreshold: .inf", "hold: [", "&a [*a", &"[".repeat(40)]
    {
        let faults = read_text::<SaturationEntry>(text).unwrap_err();
        let [Fault::NotYaml { problem }] = faults.as_slice() else { panic!("{text}: {faults:?}") };
        assert!(!problem.contains('\n') && problem.contains("line"), "{text}: {problem}");
    }
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
    assert_eq!(described, 17 + 4 + 6 + 5);
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
