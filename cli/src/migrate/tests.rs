//! Conversion of objects of llm-d WVA, from fixtures.

mod global_maps;

use std::path::PathBuf;

use super::options::PlanOptions;
use super::plan::{Plan, plan};
use super::{autoscaler, variant, *};

const RECOMMEND: PlanOptions<'static> = PlanOptions {
    recommend: true,
    from_cluster: false,
    kubernetes: None,
    controller_namespace: None,
    release: None,
};
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures");

fn plan_for(file: &str, options: PlanOptions<'_>) -> Plan {
    let (objects, problems) =
        read_kinds(&[PathBuf::from(format!("{FIXTURES}/{file}"))], "default", is_read).unwrap();
    assert_eq!(problems, Vec::<String>::new());
    plan(&objects, &workloads_among(&objects), options)
}

fn steps(plan: &Plan) -> Vec<String> {
    let step = |s: &step::Step| {
        format!("{} {}: {}", text(&s.object, "/kind"), text(&s.object, "/metadata/name"), s.changes.len())
    };
    plan.steps.iter().map(step).collect()
}

#[track_caller]
fn check_conversion(spec: &Value, want: &Value, changes: &[&str]) {
    let object = json!({"metadata": {"name": "a"}, "spec": spec});
    let found = variant::convert(&object);
    assert_eq!(found.object["spec"], *want);
    assert_eq!(found.changes.len(), changes.len(), "{:?}", found.changes);
    for (change, part) in found.changes.iter().zip(changes) {
        assert!(change.contains(part), "{part:?} is not in {change:?}");
    }
}

#[test]
fn adds_target_and_accelerator_to_variants_of_first_releases() {
    let plan = plan_for("migrate/first-releases.yaml", PlanOptions::default());
    assert_eq!(steps(&plan), ["VariantAutoscaling vllme-deployment: 4", "VariantAutoscaling premium: 3"]);
    assert_eq!((plan.read, plan.unchanged, plan.unresolved.len()), (2, 0, 0), "{:?}", plan.unresolved);
    let want = json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
        "metadata": {
            "name": "vllme-deployment", "namespace": "llm-d-sim",
            "labels": {"inference.optimization/acceleratorName": "A100"},
        },
        "spec": {
            "modelID": "default/default",
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "vllme-deployment"},
        },
    });
    assert_eq!(plan.steps[0].object, want);
    assert_eq!(plan.steps[1].object["spec"]["variantCost"], "65");
}

#[test]
fn leaves_out_objects_that_need_no_change() {
    let plan = plan_for("migrate/v0.8.yaml", PlanOptions::default());
    assert_eq!(steps(&plan), ["VariantAutoscaling llama-a100: 3"]);
    assert_eq!((plan.read, plan.unchanged, plan.unresolved.len()), (2, 1, 0), "the HPA does not count");
    assert_eq!(plan.steps[0].object["spec"]["modelID"], "meta/llama-3.1-8b");
    assert_eq!(plan.steps[0].object["spec"]["variantCost"], "40.0");
    assert_eq!(
        plan.steps[0].object["metadata"]["labels"],
        json!({"inference.optimization/acceleratorName": "A100"})
    );
    let summary = summary(&plan, "yaml");
    assert!(summary.contains("2 objects of llm-d WVA: 1 to apply, 1 need no change"), "{summary}");
}

#[test]
fn sets_mode_recommend_on_every_variant() {
    let plan = plan_for("migrate/v0.8.yaml", RECOMMEND);
    assert_eq!(steps(&plan), ["VariantAutoscaling llama-h100: 1", "VariantAutoscaling llama-a100: 4"]);
    for step in &plan.steps {
        assert_eq!(step.object["metadata"]["annotations"], json!({"wva.llmd.ai/mode": "recommend"}));
    }
}

#[test]
fn converts_annotated_autoscalers_to_variants() {
    let plan = plan_for("migrate/v0.9.yaml", PlanOptions::default());
    assert_eq!(
        steps(&plan),
        [
            "VariantAutoscaling qwen-l40s: 3", "VariantAutoscaling phi-decode: 2",
            "VariantAutoscaling gemma: 3", "HorizontalPodAutoscaler phi-hpa: 1",
        ]
    );
    assert_eq!((plan.read, plan.unchanged, plan.unresolved.len()), (3, 0, 0), "{:?}", plan.unresolved);
    let qwen = &plan.steps[0].object;
    assert_eq!(qwen["metadata"]["labels"], json!({"inference.optimization/acceleratorName": "L40S"}));
    assert_eq!(qwen["spec"]["variantCost"], "40.0");
    let label = "inference.optimization/acceleratorName";
    assert_eq!(
        plan.steps[1].object["metadata"]["labels"][label], "H100",
        "its Deployment is in the same file"
    );
    assert_eq!(qwen["spec"]["scaleTargetRef"]["name"], "qwen-decode");
    let selector = &plan.steps[3].object["spec"]["metrics"][0]["external"]["metric"]["selector"];
    assert_eq!(
        *selector,
        json!({"matchLabels": {"variant_name": "phi-decode", "exported_namespace": "prod"}})
    );
    assert_eq!(plan.steps[3].object["spec"]["maxReplicas"], 4, "all else stays");
}

#[test]
fn changes_nothing_in_a_second_run() {
    for file in ["first-releases", "v0.8", "v0.9"] {
        let first = plan_for(&format!("migrate/{file}.yaml"), RECOMMEND);
        let again = first.steps.iter().map(|step| SourceObject {
            place: step.place.clone(),
            namespace: text(&step.object, "/metadata/namespace").to_owned(),
            object: step.object.clone(),
        });
        let again = plan(&again.collect::<Vec<_>>(), &Workloads::default(), RECOMMEND);
        assert_eq!((steps(&again), again.unresolved.len()), (Vec::new(), 0), "{file}");
    }
}

#[test]
fn renames_misspelt_fields_and_removes_unknown_ones() {
    let target = json!({"kind": "Deployment", "name": "d"});
    let right = json!({"modelID": "m", "scaleTargetRef": target});
    check_conversion(&right, &right, &[]);
    check_conversion(
        &json!({"model_id": "m", "scaleTargetRef": target}),
        &right,
        &["spec.model_id: renamed to spec.modelID"],
    );
    check_conversion(
        &json!({"modelID": "m", "modelId": "other", "scaleTargetRef": target}),
        &right,
        &["spec.modelId: removed"],
    );
    check_conversion(
        &json!({"modelID": "m", "scaleTargetRef": target, "own": 1}),
        &right,
        &["spec.own: removed"],
    );
    let own = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
    let want = json!({"modelID": "m", "scaleTargetRef": own});
    for none in [json!(null), json!({}), json!({"name": ""})] {
        check_conversion(&json!({"modelID": "m", "scaleTargetRef": none}), &want, &["required since v0.5.0"]);
    }
    check_conversion(&json!({"modelID": "m", "scaleTargetRef": "a"}), &want, &["became a reference"]);
}

#[test]
fn removes_fields_of_the_api_server() {
    let object = json!({
        "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "managedFields": [],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": {"modelID": "m", "scaleTargetRef": {"name": "a"}},
        "status": {"currentReplicas": 3},
    });
    let found = variant::convert(&object);
    assert_eq!(found.object["metadata"], json!({"name": "a", "namespace": "n"}));
    assert!(found.object.get("status").is_none() && found.changes.is_empty(), "{found:?}");
}

#[test]
fn reports_variants_that_the_rules_refuse() {
    let source = |name: &str, spec: Value| SourceObject {
        place: format!("{name}.yaml:1"),
        namespace: "n".to_owned(),
        object: json!({"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": {"name": name, "namespace": "n"}, "spec": spec}),
    };
    let good = json!({"modelID": "m", "scaleTargetRef": {"name": "d"}});
    let plan = plan(
        &[source("one", good.clone()), source("two", good), source("three", json!({"variantCost": -1}))],
        &Workloads::default(),
        RECOMMEND,
    );
    assert_eq!(steps(&plan), Vec::<String>::new(), "variants that would be refused are not printed");
    let unresolved = plan.unresolved.join("\n");
    for part in ["one.yaml:1", "two.yaml:1", "three.yaml:1: spec.modelID", "spec.variantCost", "WVA-VA-"] {
        assert!(unresolved.contains(part), "{part:?} is not in\n{unresolved}");
    }
}

#[test]
fn reports_missing_information_of_annotated_autoscalers() {
    let hpa = |annotations: Value, metrics: Value| {
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "annotations": annotations},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3, "metrics": metrics}})
    };
    let converted = autoscaler::convert(&hpa(json!({"llm-d.ai/managed": "true"}), json!([])), "n");
    assert!(
        converted.variant.is_none() && converted.unresolved[0].contains("llm-d.ai/model-id"),
        "{converted:?}"
    );
    let cpu = json!([{"type": "Resource", "resource": {"name": "cpu"}}]);
    let converted = autoscaler::convert(&hpa(json!({"llm-d.ai/model-id": "m"}), cpu), "n");
    let variant::Conversion { object: autoscaler, changes } = converted.autoscaler.unwrap();
    assert_eq!(autoscaler["spec"]["metrics"].as_array().unwrap().len(), 2, "the other metric stays");
    assert_eq!(autoscaler["spec"]["metrics"][1]["external"]["target"]["averageValue"], "1");
    assert!(changes[0].contains("the highest of its metrics"), "{changes:?}");
    let scaled = json!({"kind": "ScaledObject", "metadata": {"annotations": {"llm-d.ai/model-id": "m"}},
        "spec": {"scaleTargetRef": {"name": "d"}, "triggers": [
            {"type": "prometheus", "metadata": {"query": "sum(wva_desired_replicas)"}}]}});
    let converted = autoscaler::convert(&scaled, "n");
    assert_eq!(converted.unresolved.len(), 1);
    assert!(
        converted.unresolved[0].contains("spec.triggers[0].metadata.query")
            && converted.unresolved[0].contains("variant_name=\"d\",exported_namespace=\"n\"}"),
        "{converted:?}"
    );
}

#[test]
fn keeps_line_breaks_out_of_comments() {
    let mut plan = Plan::default();
    plan.steps.push(step::Step {
        place: "a\n---\nkind: Secret".to_owned(),
        object: json!({"kind": "x"}),
        changes: vec!["b\nkind: y".to_owned()],
    });
    let text = manifests(&plan).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("kind:")).count(), 1, "{text}");
}

/// Plans the migration of saturation maps with this data. Returns data and number of changes of each step.
fn plan_for_maps(maps: &[Value]) -> Vec<(Value, usize)> {
    let source = |(i, data): (usize, &Value)| SourceObject {
        place: format!("map {i}"),
        namespace: "ns".to_owned(),
        object: json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": "wva-saturation-scaling-config", "namespace": format!("ns{i}"), "uid": "1"},
        }),
    };
    let objects: Vec<SourceObject> = maps.iter().enumerate().map(source).collect();
    let plan = plan(&objects, &workloads_among(&objects), PlanOptions::default());
    assert_eq!(plan.read, plan.unchanged + plan.steps.len());
    plan.steps.iter().map(|step| (step.object["data"].clone(), step.changes.len())).collect()
}

#[test]
fn adds_the_analyzer_to_entries_without_one() {
    let block = "# ours\nkvCacheThreshold: 0.7\n";
    let both = json!({"default": block, "m": "model_id: m\nkvSpareTrigger: 0.2\n"});
    let mut want = both.clone();
    want["default"] = json!(format!("analyzerName: percentage\n{block}"));
    assert_eq!(plan_for_maps(&[both]), [(want, 1)]);

    let braces = plan_for_maps(&[json!({"default": "{kvCacheThreshold: 0.7}"})]);
    assert_eq!(braces, [(json!({"default": "analyzerName: percentage\nkvCacheThreshold: 0.7\n"}), 1)]);

    let overrides = json!({"m": "model_id: m", "n": "{model_id: n, analyzerName: saturation}"});
    let (data, changes) = plan_for_maps(std::slice::from_ref(&overrides)).remove(0);
    assert_eq!((&data["m"], changes), (&json!("analyzerName: percentage\nmodel_id: m"), 1));
    assert_eq!(data["n"], overrides["n"]);
}

#[test]
fn leaves_maps_whose_analyzer_is_named_or_inherited() {
    let (throughput, unnamed) =
        (json!({"default": "analyzerName: throughput"}), json!({"default": "queueLengthThreshold: 3"}));
    assert_eq!(plan_for_maps(&[throughput, unnamed]), []);
    assert_eq!(plan_for_maps(&[json!({"default": "not an entry"})]), []);
}

#[test]
fn selector_chooses_autoscalers_by_kind_of_workload() {
    let metadata = json!({"namespace": "prod", "name": "a"});
    let reference = |kind| json!({"apiVersion": "apps/v1", "kind": kind, "name": "a"});
    let object = |kind| json!({"metadata": metadata, "spec": {"scaleTargetRef": reference(kind)}});
    let first_release = json!({"metadata": metadata, "spec": {"modelID": "m"}});
    for (variant, same, other) in [
        (object("StatefulSet"), "StatefulSet", "Deployment"),
        (object("Deployment"), "Deployment", "StatefulSet"),
        (first_release, "Deployment", "StatefulSet"),
    ] {
        let targets = targets(&[variant]);
        let is_chosen = |kind| targets.contains(&workload_key(&object(kind)).unwrap());
        assert!(is_chosen(same) && !is_chosen(other), "{targets:?}");
    }
}
