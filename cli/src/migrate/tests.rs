//! What becomes of objects of the original, from files shaped like them.

use std::path::PathBuf;

use super::plan::{Plan, Wanted, plan};
use super::{annotated, variant, *};

const RECOMMEND: Wanted = Wanted { recommend: true, in_cluster: false };
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures");

fn planned(file: &str, wanted: Wanted) -> Plan {
    let (originals, problems) =
        objects_in(&[PathBuf::from(format!("{FIXTURES}/{file}"))], "default").unwrap();
    assert_eq!(problems, Vec::<String>::new());
    plan(&originals, &in_files(&originals), wanted)
}

/// Kind, name and number of changes of each step.
fn steps(plan: &Plan) -> Vec<String> {
    let step = |s: &plan::Step| {
        format!("{} {}: {}", text(&s.object, "/kind"), text(&s.object, "/metadata/name"), s.changes.len())
    };
    plan.steps.iter().map(step).collect()
}

#[track_caller]
fn changed(spec: &Value, want: &Value, changes: &[&str]) {
    let object = json!({"metadata": {"name": "a"}, "spec": spec});
    let found = variant::migrate(&object);
    assert_eq!(found.object["spec"], *want);
    assert_eq!(found.changes.len(), changes.len(), "{:?}", found.changes);
    for (change, part) in found.changes.iter().zip(changes) {
        assert!(change.contains(part), "{change:?} does not say {part:?}");
    }
}

#[test]
fn a_variant_of_the_first_releases_gets_its_target_and_its_accelerator() {
    let plan = planned("migrate/first-releases.yaml", Wanted::default());
    assert_eq!(steps(&plan), ["VariantAutoscaling vllme-deployment: 4", "VariantAutoscaling premium: 3"]);
    assert_eq!((plan.read, plan.fine, plan.open.len()), (2, 0, 0), "{:?}", plan.open);
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
fn what_needs_no_change_is_not_printed() {
    let plan = planned("migrate/v0.8.yaml", Wanted::default());
    assert_eq!(steps(&plan), ["VariantAutoscaling llama-a100: 3"]);
    assert_eq!((plan.read, plan.fine, plan.open.len()), (2, 1, 0), "the HPA is nobody's concern");
    assert_eq!(plan.steps[0].object["spec"]["modelID"], "meta/llama-3.1-8b");
    assert_eq!(plan.steps[0].object["spec"]["variantCost"], "40.0");
    assert_eq!(
        plan.steps[0].object["metadata"]["labels"],
        json!({"inference.optimization/acceleratorName": "A100"})
    );
    let told = summary(&plan);
    assert!(told.contains("2 objects of the original read: 1 to apply, 1 as they should be"), "{told}");
}

#[test]
fn to_recommend_is_set_on_every_variant() {
    let plan = planned("migrate/v0.8.yaml", RECOMMEND);
    assert_eq!(steps(&plan), ["VariantAutoscaling llama-h100: 1", "VariantAutoscaling llama-a100: 4"]);
    for step in &plan.steps {
        assert_eq!(step.object["metadata"]["annotations"], json!({"wva.llmd.ai/mode": "recommend"}));
    }
}

#[test]
fn annotated_autoscalers_become_variants_that_they_follow() {
    let plan = planned("migrate/v0.9.yaml", Wanted::default());
    assert_eq!(
        steps(&plan),
        [
            "VariantAutoscaling qwen-l40s: 3", "VariantAutoscaling phi-decode: 2",
            "VariantAutoscaling gemma: 3", "HorizontalPodAutoscaler phi-hpa: 1",
        ]
    );
    assert_eq!((plan.read, plan.fine, plan.open.len()), (3, 0, 0), "{:?}", plan.open);
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
fn a_second_run_has_nothing_left_to_do() {
    for file in ["first-releases", "v0.8", "v0.9"] {
        let first = planned(&format!("migrate/{file}.yaml"), RECOMMEND);
        let again = first.steps.iter().map(|step| FoundObject {
            place: step.place.clone(),
            namespace: text(&step.object, "/metadata/namespace").to_owned(),
            object: step.object.clone(),
        });
        let again = plan(&again.collect::<Vec<_>>(), &Workloads::default(), RECOMMEND);
        assert_eq!((steps(&again), again.open.len()), (Vec::new(), 0), "{file}");
    }
}

#[test]
fn fields_are_known_by_other_spellings_and_what_is_unknown_is_named() {
    let target = json!({"kind": "Deployment", "name": "d"});
    let right = json!({"modelID": "m", "scaleTargetRef": target});
    changed(&right, &right, &[]);
    changed(
        &json!({"model_id": "m", "scaleTargetRef": target}),
        &right,
        &["spec.model_id is spelt spec.modelID"],
    );
    changed(
        &json!({"modelID": "m", "modelId": "other", "scaleTargetRef": target}),
        &right,
        &["spec.modelId is left out"],
    );
    changed(&json!({"modelID": "m", "scaleTargetRef": target, "own": 1}), &right, &["spec.own is left out"]);
    let own = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"});
    let whole = json!({"modelID": "m", "scaleTargetRef": own});
    for none in [json!(null), json!({}), json!({"name": ""})] {
        changed(&json!({"modelID": "m", "scaleTargetRef": none}), &whole, &["required since v0.5.0"]);
    }
    changed(&json!({"modelID": "m", "scaleTargetRef": "a"}), &whole, &["a reference"]);
}

#[test]
fn what_the_api_server_wrote_is_not_applied() {
    let object = json!({
        "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "managedFields": [],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        },
        "spec": {"modelID": "m", "scaleTargetRef": {"name": "a"}},
        "status": {"currentReplicas": 3},
    });
    let found = variant::migrate(&object);
    assert_eq!(found.object["metadata"], json!({"name": "a", "namespace": "n"}));
    assert!(found.object.get("status").is_none() && found.changes.is_empty(), "{found:?}");
}

#[test]
fn what_the_rules_refuse_is_a_persons_to_settle() {
    let of = |name: &str, spec: Value| FoundObject {
        place: format!("{name}.yaml:1"),
        namespace: "n".to_owned(),
        object: json!({"apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": {"name": name, "namespace": "n"}, "spec": spec}),
    };
    let good = json!({"modelID": "m", "scaleTargetRef": {"name": "d"}});
    let plan = plan(
        &[of("one", good.clone()), of("two", good), of("three", json!({"variantCost": -1}))],
        &Workloads::default(),
        RECOMMEND,
    );
    assert_eq!(steps(&plan), Vec::<String>::new(), "nothing that would be refused is printed");
    let open = plan.open.join("\n");
    for part in ["one.yaml:1", "two.yaml:1", "three.yaml:1: spec.modelID", "spec.variantCost", "WVA-VA-"] {
        assert!(open.contains(part), "{part:?} is not in\n{open}");
    }
}

#[test]
fn what_an_annotated_autoscaler_does_not_say_is_asked_for() {
    let hpa = |annotations: Value, metrics: Value| {
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "annotations": annotations},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3, "metrics": metrics}})
    };
    let made = annotated::migrate(&hpa(json!({"llm-d.ai/managed": "true"}), json!([])), "n");
    assert!(made.variant.is_none() && made.open[0].contains("llm-d.ai/model-id"), "{made:?}");
    let cpu = json!([{"type": "Resource", "resource": {"name": "cpu"}}]);
    let made = annotated::migrate(&hpa(json!({"llm-d.ai/model-id": "m"}), cpu), "n");
    let variant::Changed { object: autoscaler, changes } = made.autoscaler.unwrap();
    assert_eq!(autoscaler["spec"]["metrics"].as_array().unwrap().len(), 2, "the other metric stays");
    assert_eq!(autoscaler["spec"]["metrics"][1]["external"]["target"]["averageValue"], "1");
    assert!(changes[0].contains("the most of all its metrics"), "{changes:?}");
    let scaled = json!({"kind": "ScaledObject", "metadata": {"annotations": {"llm-d.ai/model-id": "m"}},
        "spec": {"scaleTargetRef": {"name": "d"}, "triggers": [
            {"type": "prometheus", "metadata": {"query": "sum(wva_desired_replicas)"}}]}});
    let made = annotated::migrate(&scaled, "n");
    assert_eq!(made.open.len(), 1);
    assert!(
        made.open[0].contains("spec.triggers[0].metadata.query")
            && made.open[0].contains("variant_name=\"d\",exported_namespace=\"n\"}"),
        "{made:?}"
    );
}

#[test]
fn a_comment_cannot_be_left() {
    let mut plan = Plan::default();
    plan.steps.push(plan::Step {
        place: "a\n---\nkind: Secret".to_owned(),
        object: json!({"kind": "x"}),
        changes: vec!["b\nkind: y".to_owned()],
    });
    let told = manifests(&plan).unwrap();
    assert_eq!(told.lines().filter(|line| line.starts_with("kind:")).count(), 1, "{told}");
}

/// Applies the plan to saturation maps, given as data, and returns data and number of changes of each step.
fn named(maps: &[Value]) -> Vec<(Value, usize)> {
    let original = |(i, data): (usize, &Value)| FoundObject {
        place: format!("map {i}"),
        namespace: "ns".to_owned(),
        object: json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": "wva-saturation-scaling-config", "namespace": format!("ns{i}"), "uid": "1"},
        }),
    };
    let originals: Vec<FoundObject> = maps.iter().enumerate().map(original).collect();
    let plan = plan(&originals, &in_files(&originals), Wanted::default());
    assert_eq!(plan.read, plan.fine + plan.steps.len());
    plan.steps.iter().map(|step| (step.object["data"].clone(), step.changes.len())).collect()
}

#[test]
fn writes_the_analyzer_that_an_entry_means() {
    let block = "# ours\nkvCacheThreshold: 0.7\n";
    let both = json!({"default": block, "m": "model_id: m\nkvSpareTrigger: 0.2\n"});
    let mut want = both.clone();
    want["default"] = json!(format!("analyzerName: percentage\n{block}"));
    assert_eq!(named(&[both]), [(want, 1)]);

    let braces = named(&[json!({"default": "{kvCacheThreshold: 0.7}"})]);
    assert_eq!(braces, [(json!({"default": "analyzerName: percentage\nkvCacheThreshold: 0.7\n"}), 1)]);

    let overrides = json!({"m": "model_id: m", "n": "{model_id: n, analyzerName: saturation}"});
    let (data, changes) = named(std::slice::from_ref(&overrides)).remove(0);
    assert_eq!((&data["m"], changes), (&json!("analyzerName: percentage\nmodel_id: m"), 1));
    assert_eq!(data["n"], overrides["n"]);
}

#[test]
fn leaves_maps_whose_analyzer_is_named_or_inherited() {
    let (throughput, unnamed) =
        (json!({"default": "analyzerName: throughput"}), json!({"default": "queueLengthThreshold: 3"}));
    assert_eq!(named(&[throughput, unnamed]), []);
    assert_eq!(named(&[json!({"default": "not an entry"})]), []);
}
