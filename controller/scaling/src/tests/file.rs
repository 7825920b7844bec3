//! The snapshot file: accepted fields, errors and their paths, and the JSON of an outcome.

use super::fixture::{snapshot, yaml};
use crate::snapshot::{Mode, SchedulerQueue};
use crate::{Snapshot, SnapshotError, decide};

/// Every field of the format.
const WHOLE: &str = r#"
now: "2026-01-01T00:00:00Z"
config:
  saturation:
    default: { kvCacheThreshold: 0.8, queueLengthThreshold: 5, analyzerName: "" }
    special: { model_id: meta/llama-3.1-8b, namespace: prod, kvSpareTrigger: 0.2 }
    other: { modelID: x, analyzerName: throughput, itlSlo: 50, hold: 5m, warmSpare: on }
  scaleToZero: { default: { enable_scale_to_zero: true, retention_period: 10m }, a: { modelID: x, enableScaleToZero: false, retentionPeriod: 1h } }
  scaleToZeroDefault: false
  limitedMode: false
  decisionHold: 10m
  pendingGrace: 10m
  metricsAge: { fresh: 1m, stale: 2m, unavailable: 5m }
  inventory: { H100: { limit: 8, used: 2 } }
remembered: [{ modelID: m, accelerator: H100, output: "<100", k2: [8000] }, { modelID: m, accelerator: H100, output: ">=500", k2: [] }]
models:
- modelID: meta/llama-3.1-8b
  namespace: prod
  settings: { saturation: { itlSlo: 40 }, scaleToZero: { retention_period: 20m } }
  requestsInRetention: 12
  schedulerQueue: { size: 0, bytes: 0 }
  trackedFor: 2h
  sinceActivity: 15m
  sincePodStart: 40m
  variants:
  - name: llama-h100
    accelerator: H100
    cost: "80.0"
    mode: auto
    current: 2
    ready: 1
    desired: 2
    desiredAge: 30s
    min: 1
    max: 10
    minForbidsZero: false
    hpaTolerance: { up: 0.1 }
    wokenAgo: 40s
    rememberedCapacity: 12800
    pending: [{ age: 40s, state: starting }]
    running: 3
    gpusPerReplica: 1
    engineArgs: ["--max-num-seqs=256"]
    replicas:
    - { pod: a, kv: 0.71, queue: 2, numGpuBlocks: 1000, blockSize: 16, meanInput: 512, meanOutput: 128, prefixHitRate: 0.0, age: 10s }
"#;

#[test]
fn reads_and_writes_every_field() {
    let read = yaml(WHOLE);
    let variant = &read.models[0].variants[0];
    assert_eq!(
        (variant.cost.get(), variant.mode, variant.running.map(f64::from)),
        (80.0, Mode::Auto, Some(3.0))
    );
    assert_eq!(variant.hpa_tolerance, Some(crate::snapshot::HpaTolerance::default()));
    let json = serde_json::to_string(&read).unwrap();
    let again = Snapshot::read(&mut serde_json::Deserializer::from_str(&json)).unwrap();
    assert_eq!(again, read);
    assert_eq!(decide(&again), decide(&read));
    let again = yaml(&serde_saphyr::to_string(&read).unwrap());
    assert_eq!(again, read);
}

#[test]
fn settings_of_a_model_override_the_entries_of_the_file() {
    let read = yaml(WHOLE);
    assert_eq!(
        read.config,
        crate::snapshot::Config { inventory: read.config.inventory.clone(), ..Default::default() }
    );
    let settings = &read.models[0].settings;
    let saturation = settings.saturation();
    let found = (saturation.kv_spare_trigger, saturation.throughput.itl_slo, saturation.analyzer);
    assert_eq!(found, (0.2, Some(40.0), crate::snapshot::AnalyzerName::Percentage));
    let to_zero = settings.scale_to_zero(false);
    assert_eq!((to_zero.enabled, to_zero.retention.to_string().as_str()), (true, "20m0s"));
    assert_eq!(settings.saturation.model_id, None, "the model has its name");
}

#[test]
fn settings_that_break_a_rule_do_not_count() {
    let text = "{config: {saturation: {default: {kvCacheThreshold: 0.6}}},
        models: [{modelID: m, namespace: n, settings: {saturation: {kvSpareTrigger: 0.7}}}]}";
    let read = yaml(text);
    assert_eq!(read.models[0].settings.saturation().kv_spare_trigger.to_string(), "0.1");
    let warnings: Vec<_> = decide(&read).warnings.iter().map(ToString::to_string).collect();
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.contains(r#"entry "settings" ignored: kvSpareTrigger 0.7"#), "{warning}");
}

#[test]
fn an_absent_queue_differs_from_an_unknown_one() {
    let queue = |fields: &str| snapshot(&format!("model {fields}\na: 0")).models[0].scheduler_queue;
    assert_eq!(queue("trackedFor: 1h"), SchedulerQueue::Absent);
    assert_eq!(queue("schedulerQueue: null"), SchedulerQueue::Unknown);
    assert!(queue("schedulerQueue: {size: 1}").holds_requests());
    for fields in ["trackedFor: 1h", "schedulerQueue: null", "schedulerQueue: {size: 1}"] {
        let read = snapshot(&format!("model {fields}\na: 0"));
        let json = serde_json::to_string(&read).unwrap();
        assert_eq!(Snapshot::read(&mut serde_json::Deserializer::from_str(&json)).unwrap(), read, "{json}");
    }
}

/// Error of an invalid file.
#[track_caller]
fn parse_error(text: &str) -> SnapshotError {
    Snapshot::parse(text).unwrap_err()
}

#[test]
fn errors_name_the_path_of_the_field() {
    let invalid = r#"
models[0].variants[0].replica | unknown field | {models: [{modelID: m, namespace: n, variants: [{name: a, current: 1, replica: []}]}]}
config.saturation.default.kvThreshold | unknown field | {config: {saturation: {default: {kvThreshold: 1}}}}
config.saturation.default.kvCacheThreshold | from 0 to 1 | {config: {saturation: {default: {kvCacheThreshold: 1.5}}}}
models[0].variants[0].cost | "-3" | {models: [{modelID: m, namespace: n, variants: [{name: a, current: 1, cost: "-3"}]}]}
models[0].variants[0].current | u32 | {models: [{modelID: m, namespace: n, variants: [{name: a, current: -1}]}]}
models[0].variants[0].mode | fixed=3 | {models: [{modelID: m, namespace: n, variants: [{name: a, current: 1, mode: off}]}]}
models[0].variants[0].replicas[0].kv | from 0 to 1 | {models: [{modelID: m, namespace: n, variants: [{name: a, current: 1, replicas: [{pod: p, kv: .nan}]}]}]}
models[0].trackedFor | unit | {models: [{modelID: m, namespace: n, trackedFor: 5}]}
config.saturation.default.analyzerName | magic | {config: {saturation: {default: {analyzerName: magic}}}}
"#;
    for row in invalid.trim().lines() {
        let [path, problem, text] = row.split(" | ").collect::<Vec<_>>()[..] else { panic!("{row}") };
        let SnapshotError::Field { path: found, problem: why } = parse_error(text) else { panic!("{text}") };
        assert_eq!(found, path, "{text}: {why}");
        assert!(why.contains(problem), "{text}: {why}");
    }
    let twice = "{models: [{modelID: m, namespace: n}, {modelID: m, namespace: n}]}";
    assert_eq!(parse_error(twice), SnapshotError::Duplicate { path: "models[1]".into(), name: "m".into() });
    let kind = "{modelID: m, accelerator: H100, output: <100, k2: []}";
    let kinds = format!("{{remembered: [{kind}, {kind}]}}");
    assert_eq!(
        parse_error(&kinds),
        SnapshotError::Duplicate { path: "remembered[1]".into(), name: "m".into() }
    );
    let no_model = "{config: {saturation: {x: {kvCacheThreshold: 0.5}}}}";
    assert_eq!(parse_error(no_model), SnapshotError::NoModel { path: "config.saturation.x".into() });
}

#[test]
fn the_output_has_the_documented_form() {
    let outcome = decide(&snapshot("a: 2 accelerator=H100 kv=.75,.76"));
    let json = serde_json::to_value(&outcome).unwrap();
    let decision = &json["decisions"][0];
    let keys: Vec<_> = decision.as_object().unwrap().keys().cloned().collect();
    let mut expected = [
        "namespace", "modelID", "variant", "accelerator", "current", "target", "action", "reason",
        "limitedBy", "steps",
    ];
    expected.sort_unstable();
    let mut sorted = keys;
    sorted.sort();
    assert_eq!(sorted, expected);
    assert_eq!((&decision["action"], &decision["reason"]), (&"up".into(), &"SpareBelowTarget".into()));
    assert_eq!(decision["limitedBy"], serde_json::Value::Null);
    let step = &decision["steps"][0];
    assert_eq!((&step["stage"], &step["before"], &step["after"]), (&"analyze".into(), &2.into(), &3.into()));
    assert_eq!(step["reason"], "SpareBelowTarget");
    assert!((step["figures"]["meanSpareKv"].as_f64().unwrap() - 0.045).abs() < 1e-9);
    let yaml = serde_saphyr::to_string(&outcome).unwrap();
    assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&yaml).unwrap(), json, "{yaml}");
    for step in decision["steps"].as_array().unwrap() {
        assert!(step["figures"].is_object(), "{step}");
    }
}

#[test]
fn the_trace_lists_all_steps_with_figures() {
    let text = crate::trace::render(&decide(&snapshot("a: 12 max=10 kv=.65")));
    assert_eq!(
        text,
        "ns/a (unresolved, model m)\n  12 -> 10  down  AtMaximum\n  12 ready, 12 reporting, bounds 0..10, mode auto\n  \
         analyze  12 -> 12  NoChange: no change: mean spare KV 0.15 (at least 0.1), mean spare queue 5 (at least 3), \
         12 of 12 replicas below the thresholds of 0.8 and 5\n  enforce  12 -> 10  AtMaximum: the maximum is 10\n"
    );
}

/// The default limits of the parsers are too small for large clusters.
#[test]
fn reads_large_snapshots_as_yaml_and_json() {
    let replica = |i: usize| {
        format!(
            "{{pod: p{i}, kv: 0.5, queue: 0, numGpuBlocks: 1000, blockSize: 16, meanInput: 512, meanOutput: 128, prefixHitRate: 0.1, age: 1s}}"
        )
    };
    let replicas: Vec<String> = (0..20_000).map(replica).collect();
    let text = format!(
        "{{models: [{{modelID: m, namespace: ns, variants: [{{name: a, current: 20000, replicas: [{}]}}]}}]}}",
        replicas.join(", ")
    );
    let snapshot = Snapshot::parse(&text).unwrap();
    assert_eq!(snapshot.models[0].variants[0].replicas.len(), 20_000);
    let json = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(Snapshot::parse(&json).unwrap(), snapshot);
    let error = Snapshot::parse(&format!("{json} {{}}")).unwrap_err().to_string();
    assert!(!error.is_empty(), "trailing text is an error");
}
