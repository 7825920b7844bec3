//! The law of config map entries: what the schema accepts is what the reader reads, whoever asks. Here are tables of
//! entries that people write and mistype, and what they are told; `laws` has random ones.
#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test itself does")]

mod laws;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use wva_crds::entries::{
    Entry, Fault, Kind, Reading, SaturationEntry, ScaleToZeroEntry, ServiceClassEntry, ServiceClassList,
    ServiceClassMap, Wrong, read_text, read_value, schema, yaml_value,
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
    let value = yaml_value(text).unwrap();
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
        "shadowAnalyzer: throughput",
        "analyzerName: throughput\nshadowAnalyzer: ''",
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
        "kvCacheThreshold: 1.1", "kvCacheThreshold: -0.1", "kvCacheThreshold: '0.8'", "kvCacheThreshold:",
        "queueLengthThreshold: -1", "scaleUpThreshold: 0", "utilization: 1.01", "itlSlo: 0", "hold: 0s",
        "hold: 5", "hold: 1d", "drain: -2m", "warmSpare: true", "warmSpare: Auto", "analyzerName: tokens",
        "shadowAnalyzer: percentages", "optimizer: ''", "optimizer: Exact", "enableLimiter: yes",
        "model_id: 7", // Spellings of snapshot files, and of other maps.
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

/// Where the faults of a text are.
#[track_caller]
fn paths<E: Entry + std::fmt::Debug>(text: &str) -> Vec<String> {
    let mut paths: Vec<_> = read_text::<E>(text).unwrap_err().into_iter().map(|fault| fault.path).collect();
    paths.sort_unstable();
    paths
}

#[test]
fn all_faults_come_back_together_with_their_paths() {
    let text = "{kvThreshold: 1, kvCacheThreshold: 2, hold: 0s, enableLimiter: 1, drain: 1m}";
    let want = [".enableLimiter", ".hold", ".kvCacheThreshold", ".kvThreshold"];
    assert_eq!(paths::<SaturationEntry>(text), want);
    let faults = read_text::<SaturationEntry>(text).unwrap_err();
    let told = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for said in ["kvSpareTrigger", "from 0 to 1", "above 0", "true or false"] {
        assert!(told.contains(said), "{said}: {told}");
    }
    let text = "{priority: 0, data: [{model: m, slo: 1}]}";
    assert_eq!(paths::<ServiceClassEntry>(text), [".data[0].slo", ".name", ".priority"]);
    let text = "{name: '', priority: 0, data: [{model: m, slo-ttft: 0}, {model: n, slo-ttft: 0}]}";
    let want = [".data[0].slo-ttft", ".data[1].slo-ttft", ".name", ".priority"];
    assert_eq!(paths::<ServiceClassEntry>(text), want);
}

#[test]
fn a_fault_names_the_field_what_was_found_and_what_would_be_right() {
    for (text, want) in [
        (
            "kvCacheThreshold: '0.8'",
            "kvCacheThreshold: found \"0.8\": write a number from 0 to 1, without quotes",
        ),
        ("queueSpareTrigger: null", "queueSpareTrigger: found null: write a number of 0 or more"),
        ("modelID: m", "modelID: there is no such field: \"model_id\"?"),
        ("hold: 5m\nhold: 6m", "found \"hold\" twice, again in line 2"),
        ("[]", "found a list of 0: write fields and values, one `field: value` a line"),
    ] {
        let told: Vec<_> =
            read_text::<SaturationEntry>(text).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(told, [want], "{text}");
    }
    for text in ["kvCacheThreshold: .nan", "queueLengthThreshold: .inf", "hold: [", "&a [*a", &"[".repeat(40)]
    {
        let faults = read_text::<SaturationEntry>(text).unwrap_err();
        let [Fault { wrong: Wrong::Form, right, .. }] = faults.as_slice() else {
            panic!("{text}: {faults:?}")
        };
        assert!(!right.contains('\n') && right.contains("line"), "{text}: {right}");
    }
}

#[test]
fn an_entry_that_says_nothing_inherits_everything_and_a_class_of_nothing_has_no_objectives() {
    for text in ["", "# nothing yet", "null"] {
        assert_eq!(read_text(text), Ok(SaturationEntry::default()), "{text}");
        let data = BTreeMap::from([("premium".to_owned(), text.to_owned())]);
        assert_eq!(ServiceClassMap::read(&data), (ServiceClassMap::default(), Vec::new()), "{text}");
        assert!(read_text::<ServiceClassList>(text).is_err(), "{text}");
    }
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
        let found = map.objectives.iter().find(|o| o.class == "Premium").unwrap();
        let millis = |m: Option<wva_crds::entries::Millis>| m.map(|m| format!("{}", m.get()));
        assert_eq!((found.model.as_str(), found.priority.get()), ("m", 1));
        assert_eq!((millis(found.itl), millis(found.ttft)), (Some("24".into()), Some("500".into())));
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
    assert_eq!(described, 18 + 4 + 6 + 5);
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

#[test]
fn many_unknown_fields_are_noted_within_bounds() {
    let fields = (0..9_500).map(|i| format!("unknownField{i}: 1\n")).collect::<Vec<_>>().concat();
    let faults = Reading::of(Kind::Saturation, &fields).faults;
    assert_eq!(faults.len(), 1_000);
    // To look for the field that is meant takes longer than all the rest.
    assert_eq!(faults.iter().filter(|fault| !fault.right.is_empty()).count(), 64);
}
