//! Output for differently written workloads, from fixtures.

mod bounds;

use wva_objects::autoscaler::AutoscalerKind;

use super::*;
use crate::gpus::GpuRequests;
use crate::validate::SourceObject;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/generate");

fn read(file: &str, only: Option<&str>) -> anyhow::Result<Inputs> {
    let only = only.map(WorkloadReference::parse).transpose()?;
    let path = PathBuf::from(format!("{FIXTURES}/{file}.yaml"));
    let mut inputs = inputs::read_files(&[path], "prod", only.as_ref())?;
    if only.is_none() {
        keep_servers(&mut inputs);
    }
    Ok(inputs)
}

fn plans(file: &str, options: &Options) -> (Vec<Plan>, Vec<String>) {
    plan_all(&read(file, None).unwrap(), options)
}

/// Notes and problems about a Deployment with this pod.
fn notes(pod: &str, options: &Options) -> Vec<String> {
    let text = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: a}}\nspec: {{template: {{spec: {pod}}}}}\n"
    );
    let object = serde_saphyr::from_str(&text).unwrap();
    let source = SourceObject { place: "a.yaml:1".to_owned(), namespace: "prod".to_owned(), object };
    let inputs = Inputs { workloads: kserve::workloads(&source).unwrap(), ..Inputs::default() };
    let (plans, mut problems) = plan_all(&inputs, options);
    problems.extend(plans.into_iter().flat_map(|plan| plan.notes));
    problems
}

#[track_caller]
fn check_notes(pod: &str, options: &Options, want: &[&str]) {
    let found = notes(pod, options);
    assert_eq!(found.len(), want.len(), "{found:#?}");
    for (note, part) in found.iter().zip(want) {
        assert!(note.contains(part), "{part:?} is not in {note:?}");
    }
}

#[test]
fn prints_objects_that_the_rules_accept() {
    for (file, objects) in [
        ("vllm-args", 2),
        ("vllm-env", 2),
        ("shell", 2),
        ("modelservice", 4),
        ("llminferenceservice", 4),
        ("inferenceservice", 2),
        ("leaderworkerset", 2),
        ("wide-ep", 2),
        ("quantised", 2),
        ("sglang", 2),
        ("served-names", 2),
        ("mi300x", 2),
        ("pvc", 2),
        ("existing-hpa", 2),
        ("existing-keda", 2),
    ] {
        let (plans, problems) = plans(file, &Options::default());
        assert_eq!(problems, Vec::<String>::new(), "{file}");
        let text = render::yaml(&plans).unwrap();
        let want = std::fs::read_to_string(format!("{FIXTURES}/expected/{file}.yaml")).unwrap();
        assert_eq!(text, want, "{file}");
        let valid = format!("{objects} objects: 0 denied, 0 warnings\n");
        assert_eq!(crate::validate::findings(&text), valid, "{file}");
        assert_eq!(crate::validate::findings(&render::json(&plans).unwrap()), valid, "{file} as JSON");
    }
}

#[test]
fn tolerance_depends_on_the_version_of_the_cluster() {
    let found = |file: &str, kubernetes: &str| {
        let options = Options { kubernetes: kubernetes.parse().ok(), ..Options::default() };
        let (plans, _) = plans(file, &options);
        let text = render::yaml(&plans).unwrap();
        let has_note = plans[0].notes.iter().any(|note| note.contains("have no tolerance field"));
        (text.matches("tolerance: \"0\"").count(), text.contains("# tolerance: needs"), has_note)
    };
    for file in ["vllm-args", "existing-keda"] {
        assert_eq!(found(file, "unknown"), (2, true, false), "{file}: a comment says what it needs");
        assert_eq!(found(file, "1.35"), (2, false, false), "{file}");
        assert_eq!(found(file, "1.34"), (0, false, true), "{file}: the API server drops or refuses it");
    }
}

#[test]
fn flags_replace_every_value() {
    let text = |value: &str| Some(value.to_owned());
    let options = Options {
        name: text("own"),
        model_id: text("own/model"),
        accelerator: text("B200"),
        cost: text("7.5"),
        min: Some(3),
        max: Some(4),
        autoscaler: Some(AutoscalerKind::ScaledObject),
        prometheus: text("http://own"),
        kubernetes: "1.36".parse().ok(),
    };
    let (plans, problems) = plans("vllm-args", &options);
    assert_eq!(problems, Vec::<String>::new());
    let printed = render::yaml(&plans).unwrap();
    assert_eq!(printed.matches('#').count(), 2, "headings only: {printed}");
    for part in [
        "modelID: own/model", "accelerator: B200", "variantCost: \"7.5\"", "minReplicaCount: 3",
        "maxReplicaCount: 4", "serverAddress: http://own", "variant_name=\"own\"", "name: own\n",
    ] {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    assert!(crate::validate::findings(&printed).ends_with(" 0 denied, 0 warnings\n"), "{printed}");
    assert!(render::summary(&plans[0]).contains("own/model    set by you"), "{}", render::summary(&plans[0]));
}

#[test]
fn summary_masks_only_the_password_of_prometheus() {
    let text = |value: &str| Some(value.to_owned());
    let options = Options {
        model_id: text("m@v1"),
        autoscaler: Some(AutoscalerKind::ScaledObject),
        prometheus: text("http://u:hunter2@p"),
        ..Options::default()
    };
    let (plans, _) = plans("vllm-args", &options);
    let summary = render::summary(&plans[0]);
    assert!(summary.contains(" m@v1 ") && summary.contains(" http://u:***@p "), "{summary}");
    assert!(render::yaml(&plans).unwrap().contains("serverAddress: http://u:hunter2@p"));
}

#[test]
fn summary_lists_values_with_their_sources() {
    let (plans, _) = plans("existing-hpa", &Options::default());
    let summary = render::summary(&plans[0]);
    for part in [
        "wva: Deployment prod/phi: VariantAutoscaling phi and HorizontalPodAutoscaler phi-queue. Nothing was applied.\n",
        "  modelID       microsoft/phi-4   from --model of container vllm\n",
        "  minReplicas   2                 from HorizontalPodAutoscaler phi-queue\n",
        "  note: HorizontalPodAutoscaler phi-queue scales the workload now by cpu, vllm_queue: the output replaces its metrics",
    ] {
        assert!(summary.contains(part), "{part:?} is not in\n{summary}");
    }
}

#[test]
fn second_run_changes_nothing() {
    for file in ["vllm-args", "existing-keda"] {
        let mut inputs = read(file, None).unwrap();
        let (first, _) = plan_all(&inputs, &Options::default());
        (inputs.variants, inputs.autoscalers) = (Vec::new(), Vec::new());
        for document in &first[0].documents {
            let object = document.object.clone();
            let source = SourceObject { place: String::new(), namespace: "prod".to_owned(), object };
            let is_variant = text(&source.object, "/kind") == "VariantAutoscaling";
            if is_variant { inputs.variants.push(source) } else { inputs.autoscalers.push(source) }
        }
        let (second, problems) = plan_all(&inputs, &Options::default());
        assert_eq!((problems, &second[0].notes), (Vec::new(), &Vec::new()), "{file}");
        assert_eq!(render::json(&second).unwrap(), render::json(&first).unwrap(), "{file}");
        assert!(second[0].documents[1].heading.ends_with("follows wva_desired_replicas already"));
    }
}

#[test]
fn other_autoscalers_must_be_deleted() {
    let options = Options { autoscaler: Some(AutoscalerKind::ScaledObject), ..Options::default() };
    let (changed, problems) = plans("existing-hpa", &options);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(changed[0].documents[1].object["kind"], "ScaledObject");
    assert_eq!(changed[0].documents[1].object["spec"]["maxReplicaCount"], 5, "the bounds stay");
    assert!(
        changed[0].notes[0].contains("HorizontalPodAutoscaler phi-queue scales the workload, too: delete it")
    );
    let options = Options { autoscaler: Some(AutoscalerKind::Hpa), ..Options::default() };
    let (changed, _) = plans("existing-keda", &options);
    assert_eq!(changed[0].documents[1].object["spec"]["minReplicas"], 1, "not every cluster accepts 0");
}

#[test]
fn missing_values_name_their_flag() {
    let none = Options::default();
    check_notes(
        "{containers: [{name: web, image: nginx}]}",
        &none,
        &[
            "a.yaml:1: Deployment prod/a: no container runs vLLM or names a model (web); if one does, set --model-id",
        ],
    );
    check_notes(
        "{containers: [{name: s, image: vllm, command: [vllm, serve, $(M)], env: [{name: MODEL, valueFrom: {configMapKeyRef: {name: c, key: k}}}]}]}",
        &none,
        &[
            "no model found: container \"s\" has no --served-model-name, --model or `vllm serve MODEL`, and no variable SERVED_MODEL_NAME, MODEL, MODEL_ID, VLLM_MODEL, HF_MODEL_ID, MODEL_NAME; the template does not have the value from `vllm serve` in container s, nor from the environment variable MODEL of container s; the pods have no label llm-d.ai/model or model; set --model-id",
        ],
    );
    // vLLM reports the served name, which the template does not have, and never the model.
    check_notes(
        "{containers: [{name: s, image: vllm, args: [--model, m, --served-model-name, $(NAME)], env: [{name: NAME, valueFrom: {configMapKeyRef: {name: c, key: k}}}]}]}",
        &none,
        &["the template does not have the value from --served-model-name of container s"],
    );
    check_notes(
        "{containers: [{name: chat, image: chat, env: [{name: MODEL, value: m}]}]}",
        &none,
        &["no container runs vLLM or names a model (chat)"],
    );
    let unnamed = "{containers: [{name: web, image: nginx, resources: {limits: {nvidia.com/gpu: 1}}}]}";
    let named =
        Options { model_id: Some("m".to_owned()), accelerator: Some("L4".to_owned()), ..Options::default() };
    check_notes(unnamed, &named, &[]);
    check_notes(
        unnamed,
        &Options { cost: Some("$4".to_owned()), ..named.clone() },
        &["spec.variantCost: \"$4\" is not a decimal number"],
    );
    check_notes(
        unnamed,
        &Options { min: Some(0), ..named.clone() },
        &["an HPA with minReplicas 0 needs the feature gate HPAScaleToZero; without it set --min 1"],
    );
    check_notes(
        unnamed,
        &Options { min: Some(5), max: Some(2), ..named.clone() },
        &["at least 5 replicas and at most 2: set --min and --max"],
    );
    check_notes(unnamed, &Options { max: Some(0), ..named }, &["set --min and --max"]);
}

#[test]
fn counts_the_accelerators_of_every_vendor() {
    for (resource, label) in [
        ("habana.ai/gaudi", "habana.ai/product.name"),
        ("gpu.intel.com/i915", "gpu.intel.com/product"),
        ("gpu.intel.com/xe", "intel.com/gpu.product"),
        ("google.com/tpu", "cloud.google.com/gke-tpu-accelerator"),
        ("nvidia.com/gpu", "cloud.google.com/gke-accelerator"),
        ("nvidia.com/gpu.shared", "nvidia.com/gpu.product"),
        ("amd.com/gpu", "beta.amd.com/gpu.product-name"),
    ] {
        let mut inputs = read("vllm-args", None).unwrap();
        inputs.workloads[0].replica.leader = serde_json::from_value(serde_json::json!({
            "nodeSelector": {label: "card-1"},
            "containers": [{"name": "vllm", "image": "vllm", "args": ["--model=m"], "resources": {"limits": {resource: "2"}}}],
        }))
        .unwrap();
        let workload = &inputs.workloads[0];
        let requests = GpuRequests::new(&workload.replica, &workload.namespace, &inputs.claim_templates);
        assert_eq!(requests.total(), 2, "{resource}");
        assert_eq!(
            accelerator::find_accelerator(workload).0.unwrap().value.to_lowercase(),
            "card-1",
            "{label}"
        );
    }
}

#[test]
fn counts_the_gpus_of_claim_templates() {
    let options = Options::default();
    let cost = |inputs: &Inputs| {
        let (plans, problems) = plan_all(inputs, &options);
        assert_eq!(problems, [""; 0]);
        (plans[0].documents[0].object["spec"]["variantCost"].clone(), plans[0].notes.clone())
    };
    let mut inputs = read("claims", None).unwrap();
    let (found, notes) = cost(&inputs);
    assert_eq!(found, "20", "{notes:?}");
    assert!(!notes.iter().any(|note| note.contains("claim") || note.contains("no GPUs")), "{notes:?}");
    inputs.claim_templates = crate::gpus::ClaimTemplates::default();
    let (found, notes) = cost(&inputs);
    assert_eq!(found, "10");
    assert!(notes.iter().any(|note| note.contains("ResourceClaimTemplate \"two-gpus\"")), "{notes:?}");
}

#[test]
fn comments_stay_out_of_block_scalars() {
    let object = serde_json::json!({
        "metadata": {"annotations": {"note": "first\nmin: 5\n\nmin: 6\n"}},
        "spec": {"min": 1},
    });
    let field = render::Field { key: "min", value: "1".to_owned(), source: Some("a guess".to_owned()) };
    let document = render::Document { heading: "a".to_owned(), object, fields: vec![field] };
    let plan = Plan { title: String::new(), documents: vec![document], notes: Vec::new() };
    let text = render::yaml(&[plan]).unwrap();
    assert!(text.contains("|\n      first\n      min: 5\n      \n      min: 6\n"), "{text}");
    assert!(text.contains("  # min: a guess\n  min: 1\n"), "{text}");
}

#[test]
fn notes_tell_what_to_check() {
    let none = Options::default();
    check_notes(
        "{nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}, containers: [{name: a, image: vllm, args: [--model=m]}]}",
        &none,
        &["the pods request no GPUs"],
    );
    check_notes(
        "{nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}, containers: [{name: a, image: vllm, args: [--model=m], resources: {limits: {nvidia.com/gpu.shared: 1}}}]}",
        &none,
        &["the pods request nvidia.com/gpu.shared, a part of a GPU"],
    );
    check_notes(
        "{containers: [{name: a, image: own, args: [--model=m]}, {name: b, image: vllm, args: [--model=/models/n, -tp, '2'], resources: {limits: {nvidia.com/gpu: 4}}}]}",
        &none,
        &[
            "the model is a path, which the server reports as its name",
            "no accelerator found",
            "vLLM uses 2 GPUs (tensor parallel 2, pipeline 1, data 1), but a replica requests 4",
            "several containers may serve the model: wva reads b, not a",
        ],
    );
    let term = |value| {
        format!("{{matchExpressions: [{{key: gpu.nvidia.com/class, operator: In, values: [{value}]}}]}}")
    };
    let either = format!(
        "{{affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{}, {}]}}}}}}, containers: [{{name: a, image: vllm, args: [m], resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}",
        term("L40S"),
        term("H100_NVLINK_80GB")
    );
    check_notes(&either, &none, &["the pods may run on L40S and H100; L40S is the first"]);
}

#[test]
fn names_must_be_free() {
    let name = |name: &str| Options { name: Some(name.to_owned()), ..Options::default() };
    let (_, problems) = plans("existing-keda", &name("other"));
    assert!(
        problems[0].contains("VariantAutoscaling granite-8b has this target; delete it first"),
        "{problems:?}"
    );
    let mut inputs = read("existing-hpa", None).unwrap();
    let taken = read("existing-keda", None).unwrap();
    inputs.variants = taken.variants;
    let (_, problems) = plan_all(&inputs, &name("granite-8b"));
    assert!(
        problems[0].contains("VariantAutoscaling \"granite-8b\" has another target; set --name"),
        "{problems:?}"
    );
    inputs.autoscalers = taken.autoscalers;
    let options = Options { autoscaler: Some(AutoscalerKind::ScaledObject), ..name("granite-scaler") };
    let (_, problems) = plan_all(&inputs, &options);
    assert!(problems[0].contains("ScaledObject \"granite-scaler\" has another target"), "{problems:?}");
}

#[test]
fn one_workload_can_be_named() {
    let inputs = read("modelservice", Some("pd-llm-d-modelservice-prefill")).unwrap();
    assert_eq!(inputs.workloads.len(), 1);
    let (_, problems) = plan_all(&read("modelservice", Some("deploy/gateway")).unwrap(), &Options::default());
    assert!(problems[0].contains("no container runs vLLM or names a model (gateway)"), "{problems:?}");
    let Err(error) = read("vllm-args", Some("sts/llama-h100")) else { panic!("found") };
    let error = error.to_string();
    assert_eq!(error, "no StatefulSet \"llama-h100\" in the files, which have Deployment prod/llama-h100");
    for (reference, part) in [
        ("pod/a", "the kind is not Deployment, StatefulSet or LeaderWorkerSet"),
        ("LLMInferenceService/a", "pass the manifest with -f"),
        ("lws/", "the name is empty"),
    ] {
        let error = WorkloadReference::parse(reference).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(WorkloadReference::parse("statefulset.apps/a").unwrap().resource.kind, "StatefulSet");
}

#[test]
fn files_without_model_servers_are_a_problem() {
    let mut inputs = read("modelservice", None).unwrap();
    inputs.workloads.clear();
    keep_servers(&mut inputs);
    assert!(
        inputs.problems[0].starts_with("no Deployment, StatefulSet, LeaderWorkerSet or object of KServe")
    );
}

#[test]
fn accelerator_comes_from_nodes_if_the_pods_name_none() {
    let mut inputs = read("vllm-args", None).unwrap();
    let workload = &mut inputs.workloads[0];
    workload.replica.leader.node_selector = None;
    assert!(!accelerator::is_in_template(workload));
    workload.nodes = vec![serde_json::json!({"nvidia.com/gpu.product": "NVIDIA-B200", "zone": "a"})];
    let (guess, notes) = accelerator::find_accelerator(workload);
    let guess = guess.unwrap();
    assert_eq!((guess.value.as_str(), notes.len()), ("B200", 0));
    let source = "from the label nvidia.com/gpu.product of the nodes of the pods";
    assert_eq!(guess.source.as_deref(), Some(source));
    workload.nodes =
        vec![serde_json::json!({"node.kubernetes.io/instance-type": "Standard_ND96isr_H200_v5"})];
    assert_eq!(accelerator::find_accelerator(workload).0.unwrap().value, "H200");
}
