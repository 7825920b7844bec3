//! ConfigMaps of the differential test: the main maps, every field of every kind of entry with valid, wrong-typed,
//! misspelt and impossible values, entries that inherit from each other, and mixtures that are the same in every run.
//! Each where it is read, and where it is not.

use serde_json::{Map, Value, json};
use wva_testbed::install::SYSTEM;

use super::main_objects::main_maps;
use crate::support::next_random;

/// Mixtures of each kind of map with entries.
const MIXTURES: u64 = 60;
/// Name of the main map.
pub(crate) const MAIN: &str = "wva-variantautoscaling-config";
const SATURATION: &str = "wva-saturation-scaling-config";
const SCALE_TO_ZERO: &str = "wva-model-scale-to-zero-config";
const SERVICE_CLASSES: &str = "serviceclass";

/// A map with name and namespace.
pub(crate) struct MapCase(pub(crate) Value);

impl MapCase {
    pub(crate) fn namespace(&self) -> &str {
        self.0["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap_or_default()
    }
}

/// Keys that an API server accepts and keys that it denies, each with this value.
pub(crate) fn odd_keys(text: &str) -> Vec<Value> {
    let long = "k".repeat(253);
    let keys =
        ["a/b", "a b", "", ".", "..", "..a", ".a", "a.b-c_d", "é", "a\n", long.as_str(), &format!("{long}k")];
    keys.iter().map(|key| json!({*key: text})).collect()
}

/// Fields of an entry with YAML values, the first of which is valid.
type Fields = &'static [(&'static str, &'static [&'static str])];

const SHARE: &[&str] = &[
    "0.5", "1", "0", "1.01", "-0.1", "\"0.5\"", "half", "true", "[0.5]", "{}", "null", ".nan", ".inf", "1e-3",
];
const COUNT: &[&str] = &["5", "0", "2.5", "-1", "\"5\"", "1e400", "99999999999999999999", "~", "five"];
const SPAN: &[&str] = &["10m", "1h30m", "0s", "-1m", "10", "\"\"", "25h", "10 m", "soon", "null", "[10m]"];
const YES_NO: &[&str] = &["true", "false", "yes", "on", "\"true\"", "1", "True", "null"];
const TEXT: &[&str] = &["meta/llama", "\"\"", "null", "7", "[a]", "\" \"", "'é'", "&x y"];
const MILLIS: &[&str] = &["200", "0", "0.1", "-1", "\"200\"", "200ms", "null", ".inf"];

const SATURATION_FIELDS: Fields = &[
    ("kvCacheThreshold", SHARE),
    ("kvSpareTrigger", SHARE),
    ("queueLengthThreshold", COUNT),
    ("queueSpareTrigger", COUNT),
    ("scaleUpThreshold", SHARE),
    ("scaleDownBoundary", SHARE),
    ("analyzerName", &["saturation", "throughput", "\"\"", "percent", "null", "1"]),
    ("shadowAnalyzer", &["saturation", "throughput", "\"\"", "percentage", "null"]),
    ("optimizer", &["exact", "costAware", "cheapest", "\"\"", "null", "true"]),
    ("enableLimiter", YES_NO),
    ("drain", SPAN),
    ("hold", SPAN),
    ("ttftSlo", MILLIS),
    ("itlSlo", MILLIS),
    ("utilization", SHARE),
    ("warmSpare", &["auto", "on", "off", "yes", "true", "\"on\"", "null"]),
    ("model_id", TEXT),
    ("namespace", TEXT),
    ("kvCacheThreshhold", &["0.5"]),
    ("modelID", &["m"]),
    ("KvCacheThreshold", &["0.5"]),
];

const SCALE_TO_ZERO_FIELDS: Fields = &[
    ("enable_scale_to_zero", YES_NO),
    ("allow_failed_requests", YES_NO),
    ("retention_period", SPAN),
    ("model_id", TEXT),
    ("namespace", TEXT),
    ("enableScaleToZero", &["true"]),
    ("retention", &["10m"]),
];

const CLASS_FIELDS: Fields = &[
    ("name", &["Premium", "\"\"", "null", "7"]),
    ("priority", &["1", "0", "-1", "1.5", "4294967295", "4294967296", "\"1\"", "null"]),
    (
        "data",
        &[
            "[{model: m, slo-tpot: 20, slo-ttft: 500}]",
            "[]",
            "null",
            "{}",
            "[{slo-tpot: 20}]",
            "[m]",
            "[{model: m, slo-itl: 1}]",
            "[{model: m}, {model: m}]",
            "[{model: '', slo-ttft: 0}]",
            "[{model: m, itlSlo: 20, ttftSlo: 500}]",
            "[{model: m, itlSlo: 20, slo-tpot: 21}]",
        ],
    ),
    ("nam", &["x"]),
];

const LIST_FIELDS: Fields = &[
    ("name", &["Premium", "\"\"", "null"]),
    ("model", &["m", "\"\"", "7", "null"]),
    ("priority", &["1", "0", "\"1\""]),
    ("slo-itl", MILLIS),
    ("slo-ttw", MILLIS),
    ("slo-ttft", &["1"]),
    ("itlSlo", MILLIS),
];

/// Texts that are not entries, and unusual entries.
const FORMS: &[&str] = &["", "null", "{}", "[]", "text", "7", "- a", "a: [1", "\ta: 1", "? a\n: b", "1: 2"];
const LONG_FORMS: &[&str] = &[
    "# nothing",
    "a: 1\na: 2",
    "model_id: m\nmodel_id: m",
    "model_id: m\n---\nmodel_id: n",
    "model_id: &a m\nnamespace: *a",
    "<<: {model_id: m}",
    "{\"model_id\": \"m\"}",
    "model_id: m # a model",
    "model_id: |\n  m\n",
    "model_id: 'm",
    "%YAML 1.1\n---\nmodel_id: m",
    "\u{feff}model_id: m",
    "model_id: !!str 7",
    "model_id: \"\\u0000\"",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
];

fn entry(fields: &[(&str, &str)]) -> String {
    let lines: Vec<String> = fields.iter().map(|(field, value)| format!("{field}: {value}\n")).collect();
    lines.concat()
}

/// `data` of maps whose entries have these fields: each value in `default` and in an override, unusual forms, and
/// mixtures of up to three entries.
fn entry_maps(fields: Fields, needed: &[(&str, &str)], seed: u64) -> Vec<Value> {
    let mut all = Vec::new();
    for (field, values) in fields {
        for value in *values {
            let with = |rest: &[(&str, &str)]| {
                let rest = rest.iter().filter(|(key, _)| key != field);
                entry(&rest.copied().chain([(*field, *value)]).collect::<Vec<_>>())
            };
            all.push(json!({"default": with(&[])}));
            all.push(json!({"llama": with(needed)}));
        }
    }
    for form in FORMS.iter().chain(LONG_FORMS) {
        all.push(json!({"default": form}));
        all.push(json!({"llama": form, "default": entry(&fields[0].1[..1].iter().map(|v| (fields[0].0, *v)).collect::<Vec<_>>())}));
    }
    all.extend(odd_keys(&entry(needed)));
    all.extend([
        json!({}),
        json!(null),
        json!("text"),
        json!({"default": null}),
        json!({"a": null}),
        json!({"default": 7}),
        json!({"a": {"model_id": "m"}}),
    ]);
    let mut state = seed;
    for _ in 0..MIXTURES {
        let mut data = Map::new();
        for key in ["default", "a", "b", "c"] {
            if next_random(&mut state).is_multiple_of(2) {
                continue;
            }
            let mut chosen: Vec<(&str, &str)> = if key == "default" { Vec::new() } else { needed.to_vec() };
            for (field, values) in fields {
                if next_random(&mut state).is_multiple_of(4) && chosen.iter().all(|(known, _)| known != field)
                {
                    // Mostly valid ones, or nearly every mixture is denied.
                    let is_any = next_random(&mut state).is_multiple_of(5);
                    let pick = if is_any { next_random(&mut state) % values.len() } else { 0 };
                    chosen.push((field, values[pick]));
                }
            }
            data.insert(key.to_owned(), json!(entry(&chosen)));
        }
        all.push(Value::Object(data));
    }
    all
}

/// Entries that are invalid, or valid, only in combination.
fn inherited() -> Vec<Value> {
    let (m, tokens) = ("model_id: m\n", "analyzerName: saturation\n");
    vec![
        json!({"default": "kvCacheThreshold: 0.3", "a": format!("{m}kvSpareTrigger: 0.4")}),
        json!({"default": "kvCacheThreshold: 0.05"}),
        json!({"default": "kvSpareTrigger: 0.8"}),
        json!({"default": "kvSpareTrigger: 0.81"}),
        json!({"default": "scaleUpThreshold: 0.7"}),
        json!({"default": format!("{tokens}scaleUpThreshold: 0.7")}),
        json!({"default": format!("{tokens}scaleDownBoundary: 0.9"), "a": format!("{m}scaleUpThreshold: 0.95")}),
        json!({"default": format!("{tokens}scaleUpThreshold: 0.9"), "a": format!("{m}scaleDownBoundary: 0.9")}),
        json!({"default": "scaleUpThreshold: 0.5\nscaleDownBoundary: 0.6", "a": format!("{m}{tokens}")}),
        json!({"a": format!("{m}kvCacheThreshold: 0.3"), "b": format!("{m}namespace: prod\nkvSpareTrigger: 0.4")}),
        json!({"a": m, "b": m}),
        json!({"a": m, "b": format!("{m}namespace: prod")}),
        json!({"a": format!("{m}namespace: prod"), "b": format!("{m}namespace: prod")}),
        json!({"a": format!("{m}namespace: \"\""), "b": m}),
        json!({"default": m}),
        json!({"default": "kvCacheThreshold: x", "a": format!("{m}kvSpareTrigger: 0.9")}),
    ]
}

/// A map as it is sent.
pub(crate) fn map(namespace: &str, name: &str, data: &Value) -> Value {
    // Each main map states that a restart follows: the process knows the settings at start, files do not.
    let annotations = (name == MAIN).then(|| json!({"wva.llmd.ai/restart-revision": "differential"}));
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace}, "data": data,
    });
    if let Some(annotations) = annotations {
        object["metadata"]["annotations"] = annotations;
    }
    object
}

/// All maps; `local` is a namespace other than the one of the controller.
pub(crate) fn map_cases(local: &str) -> Vec<MapCase> {
    let mut all: Vec<Value> = main_maps().iter().map(|data| map(SYSTEM, MAIN, data)).collect();
    let saturation = [entry_maps(SATURATION_FIELDS, &[("model_id", "m")], 1), inherited()].concat();
    let scale_to_zero = [entry_maps(SCALE_TO_ZERO_FIELDS, &[("model_id", "m")], 2), inherited()].concat();
    for (number, data) in saturation.iter().enumerate() {
        let older = ["saturation-scaling-config", "capacity-scaling-config"];
        all.push(map(SYSTEM, if number.is_multiple_of(9) { older[number % 2] } else { SATURATION }, data));
        all.push(map(local, SATURATION, data));
    }
    for (number, data) in scale_to_zero.iter().enumerate() {
        let older = number.is_multiple_of(9);
        all.push(map(SYSTEM, if older { "model-scale-to-zero-config" } else { SCALE_TO_ZERO }, data));
        all.push(map(local, SCALE_TO_ZERO, data));
    }
    let needed = [("name", "Premium"), ("priority", "1"), ("data", "[{model: m}]")];
    for data in entry_maps(CLASS_FIELDS, &needed, 3) {
        all.push(map(SYSTEM, SERVICE_CLASSES, &data));
    }
    for (field, values) in LIST_FIELDS {
        for value in *values {
            let row: Vec<String> = [("name", "Premium"), ("model", "m"), ("priority", "1")]
                .iter()
                .filter(|(key, _)| key != field)
                .map(|(key, value)| format!("{key}: {value}"))
                .chain([format!("{field}: {value}")])
                .collect();
            let text = format!("- {{{}}}\n", row.join(", "));
            all.push(map(
                SYSTEM,
                SERVICE_CLASSES,
                &json!({"serviceClasses": text.repeat(2), "other": "name: x"}),
            ));
            all.push(map(SYSTEM, SERVICE_CLASSES, &json!({"serviceClasses": text})));
        }
    }
    // Maps that are not read are not judged.
    let broken = json!({"a": "kvCacheThreshold: x", "V": "loud"});
    for name in [MAIN, "capacity-scaling-config", "model-scale-to-zero-config", SERVICE_CLASSES, "unrelated"]
    {
        all.push(map(local, name, &broken));
    }
    all.push(map(SYSTEM, "unrelated", &broken));
    all.into_iter().map(MapCase).collect()
}
