//! Blueprints of llm-d, from fixtures.

use serde_json::{Value, json};
use wva_crds::entries::{SaturationEntry, read_text};

use super::*;
use crate::migrate::options::PlanOptions;
use crate::migrate::plan::{Plan, plan};
use crate::migrate::{manifests, workloads_among};
use crate::validate::findings;

const BLUEPRINTS: [(&str, &str); 4] = [
    ("queue", include_str!("../../../../tests/fixtures/migrate/blueprints/queue.yaml")),
    ("saturation", include_str!("../../../../tests/fixtures/migrate/blueprints/saturation.yaml")),
    ("token-aware", include_str!("../../../../tests/fixtures/migrate/blueprints/token-aware.yaml")),
    ("slo-aware", include_str!("../../../../tests/fixtures/migrate/blueprints/slo-aware.yaml")),
];
const DEPLOYMENT: &str = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "decode", "namespace": "prod"},
    "spec": {"template": {"spec": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, "containers": [
        {"name": "vllm", "image": "vllm/vllm-openai", "args": ["--served-model-name=qwen"],
         "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}}}"#;

fn objects(text: &str) -> Vec<SourceObject> {
    let text = text
        .replace("NAMESPACE", "prod")
        .replace("MODEL", "qwen")
        .replace("PROMETHEUS", "http://prometheus:9090");
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let source =
        |object: Value| SourceObject { place: "f.yaml".to_owned(), namespace: "prod".to_owned(), object };
    all.into_iter().map(source).collect()
}

fn migrated(texts: &[&str], options: PlanOptions) -> Plan {
    let objects: Vec<SourceObject> = texts.iter().flat_map(|text| objects(text)).collect();
    plan(&objects, &workloads_among(&objects), options)
}

fn blueprint(name: &str) -> &'static str {
    BLUEPRINTS.iter().find(|(known, _)| *known == name).unwrap().1
}

fn kinds(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(|step| text(&step.object, "/kind")).collect()
}

fn entry(plan: &Plan) -> SaturationEntry {
    read_text(text(&plan.steps[0].object, "/data/decode")).unwrap()
}

#[test]
fn each_blueprint_becomes_three_objects_that_admission_accepts() {
    for (name, yaml) in BLUEPRINTS {
        let plan = migrated(&[yaml, DEPLOYMENT], PlanOptions::default());
        assert_eq!(kinds(&plan), ["ConfigMap", "VariantAutoscaling", "ScaledObject"], "{name}");
        assert_eq!(plan.unresolved, Vec::<String>::new(), "{name}");
        let variant = &plan.steps[1].object;
        assert_eq!(variant["spec"]["modelID"], "qwen", "{name}");
        assert_eq!(variant["spec"]["variantCost"], "20", "{name}: two GPUs");
        let (before, after) = (&objects(yaml)[0].object, &plan.steps[2].object);
        for field in ["minReplicaCount", "maxReplicaCount", "pollingInterval", "scaleTargetRef"] {
            assert_eq!(after["spec"][field], before["spec"][field], "{name}: {field}");
        }
        assert_eq!(after["metadata"]["name"], before["metadata"]["name"], "{name}");
        let [trigger] = &after["spec"]["triggers"].as_array().unwrap()[..] else { panic!("{name}: {after}") };
        let query = "max(wva_desired_replicas{variant_name=\"decode\",exported_namespace=\"prod\"})";
        assert_eq!(trigger["metadata"]["query"], query, "{name}");
        assert_eq!(trigger["metadata"]["ignoreNullValues"], "false", "{name}");
        assert_eq!(after["spec"]["fallback"]["behavior"], "currentReplicas", "{name}");
        assert!(after.pointer("/spec/advanced/scalingModifiers").is_none(), "{name}");
        let text = manifests(&plan).unwrap();
        let found = findings(&text);
        assert!(found.contains("0 denied"), "{name}: {found}");
        assert!(text.contains("to go back:"), "{name}: {text}");
    }
}

#[test]
fn figures_become_settings_of_the_entry() {
    let read = |name: &str| entry(&migrated(&[blueprint(name), DEPLOYMENT], PlanOptions::default()));
    let figures = |entry: &SaturationEntry| {
        let entry = serde_json::to_value(entry).unwrap();
        ["utilization", "kvCacheThreshold", "ttftSlo", "itlSlo"]
            .map(|field| entry.get(field).and_then(Value::as_f64))
    };
    assert_eq!(figures(&read("queue")), [None; 4]);
    assert_eq!(figures(&read("saturation")), [Some(0.7), None, None, None]);
    assert_eq!(figures(&read("token-aware")), [None, Some(0.8), None, None]);
    assert_eq!(figures(&read("slo-aware")), [None, None, Some(3000.0), Some(100.0)]);
    for name in ["queue", "slo-aware"] {
        let entry = read(name);
        assert_eq!(entry.model_id.as_deref(), Some("qwen"));
        assert_eq!(entry.analyzer_name.map(|name| json!(name)), Some(json!("throughput")));
    }
}

#[test]
fn comments_say_what_each_threshold_became() {
    for (name, parts) in [
        (
            "queue",
            &["epp-queue-size, threshold 1: no counterpart", "epp-running-requests, threshold 16: no"][..],
        ),
        ("saturation", &["pool-saturation, threshold 0.7: utilization: 0.7"]),
        (
            "token-aware",
            &["threshold 1.5: no counterpart", "kvCacheThreshold: 0.8", "at most 1 pods more in 180 s"],
        ),
        ("slo-aware", &["scalingModifiers: dropped, formula saturation > 0.55", "fallback: currentReplicas"]),
    ] {
        let plan = migrated(&[blueprint(name), DEPLOYMENT], PlanOptions::default());
        let changes = plan.steps[2].changes.join("\n");
        for part in parts {
            assert!(changes.contains(part), "{name}: {part:?} is not in\n{changes}");
        }
    }
}

#[test]
fn a_workload_outside_the_input_gives_its_model_by_the_queries() {
    let plan = migrated(&[blueprint("queue")], PlanOptions::default());
    assert_eq!(kinds(&plan), ["ConfigMap", "VariantAutoscaling", "ScaledObject"], "{:?}", plan.unresolved);
    assert_eq!(plan.steps[1].object["spec"]["modelID"], "qwen");
    assert!(plan.steps[1].object["spec"].get("variantCost").is_none());
    assert!(plan.steps[2].changes.iter().any(|change| change.contains("is not in the input")));
    let plan = migrated(&[blueprint("token-aware")], PlanOptions::default());
    assert_eq!(kinds(&plan), Vec::<&str>::new(), "no query names the model");
    assert!(plan.unresolved[0].contains("--model-id"), "{:?}", plan.unresolved);
}

#[test]
fn objectives_outside_the_input_are_reported() {
    let scaled_object = blueprint("slo-aware").split("---").next().unwrap();
    let plan = migrated(&[scaled_object, DEPLOYMENT], PlanOptions::default());
    assert_eq!(plan.steps.len(), 3);
    assert!(plan.unresolved[0].contains("pass the PrometheusRule"), "{:?}", plan.unresolved);
    let two = blueprint("slo-aware").replace("/ 3.0", "/ 3.0 or epp_ttft_seconds / (2)");
    let plan = migrated(&[&two, DEPLOYMENT], PlanOptions::default());
    assert!(plan.unresolved[0].contains("several objectives"), "{:?}", plan.unresolved);
}

#[test]
fn a_second_run_and_recommend_change_no_more_than_needed() {
    let recommend = PlanOptions { recommend: true, ..PlanOptions::default() };
    let plan = migrated(&[blueprint("queue"), DEPLOYMENT], recommend);
    assert_eq!(kinds(&plan), ["ConfigMap", "VariantAutoscaling"], "wva publishes no target yet");
    let json =
        |plan: &Plan| plan.steps.iter().map(|step| step.object.to_string() + "\n---\n").collect::<String>();
    let applied = json(&plan);
    let plan = migrated(
        &[blueprint("queue"), DEPLOYMENT, applied.trim_end_matches("---\n")],
        PlanOptions::default(),
    );
    assert_eq!(kinds(&plan), ["ScaledObject"]);
    let all = json(&migrated(&[blueprint("queue"), DEPLOYMENT], PlanOptions::default()));
    let plan = migrated(&[DEPLOYMENT, all.trim_end_matches("---\n")], PlanOptions::default());
    assert_eq!(kinds(&plan), Vec::<&str>::new());
}

#[test]
fn an_entry_joins_those_that_the_map_has() {
    let map = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "wva-saturation-scaling-config", "namespace": "prod"},
        "data": {"default": "analyzerName: token", "decode": "{model_id: other, analyzerName: throughput}"}}"#;
    let plan = migrated(&[blueprint("queue"), DEPLOYMENT, map], PlanOptions::default());
    let keys: Vec<&String> = plan.steps[0].object["data"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["decode", "decode-migrated", "default"]);
}

#[test]
fn another_trigger_is_refused_with_its_remedy() {
    let cron = blueprint("queue").to_owned()
        + "  - type: cron\n    metadata: {start: 0 6 * * *, desiredReplicas: \"4\"}\n";
    let plan = migrated(&[&cron, DEPLOYMENT], PlanOptions::default());
    assert_eq!(kinds(&plan), Vec::<&str>::new());
    assert!(
        plan.unresolved[0].contains("spec.triggers[2]: wva has no counterpart for type cron"),
        "{:?}",
        plan.unresolved
    );
    // Not a blueprint at all.
    let cpu =
        json!({"kind": "ScaledObject", "spec": {"triggers": [{"type": "cpu", "metadata": {"value": "50"}}]}});
    assert!(!is_blueprint(&cpu));
}

#[test]
fn the_roles_of_a_model_share_an_entry() {
    let role = |name: &str, trigger: usize| {
        let mut object = objects(blueprint("token-aware")).remove(0).object;
        object["metadata"]["name"] = json!(name);
        object["spec"]["scaleTargetRef"]["name"] = json!(name);
        object["spec"]["triggers"] = json!([object["spec"]["triggers"][trigger]]);
        format!("{object}\n---\n{}", DEPLOYMENT.replacen("\"decode\"", &format!("\"{name}\""), 1))
    };
    let plan = migrated(&[&role("prefill", 0), &role("decode", 1)], PlanOptions::default());
    let names: Vec<&str> = plan.steps.iter().map(|step| text(&step.object, "/metadata/name")).collect();
    assert_eq!(names, ["wva-saturation-scaling-config", "prefill", "decode", "prefill", "decode"]);
    let data = plan.steps[0].object["data"].as_object().unwrap();
    assert_eq!(data.len(), 1);
    let entry: SaturationEntry = read_text(data["prefill"].as_str().unwrap()).unwrap();
    assert_eq!(json!(entry)["kvCacheThreshold"], 0.8);
}
