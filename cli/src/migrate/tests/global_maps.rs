//! Where global ConfigMaps of llm-d WVA go.

use super::*;

const FILE: &str = "migrate/global-maps.yaml";

fn options<'a>(controller_namespace: Option<&'a str>, release: Option<&'a str>) -> PlanOptions<'a> {
    PlanOptions { controller_namespace, release, ..PlanOptions::default() }
}

#[expect(clippy::needless_pass_by_value, reason = "lets tests pass json! directly")]
fn map(namespace: &str, name: &str, data: Value) -> SourceObject {
    let metadata = json!({"name": name, "namespace": namespace});
    source(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}))
}

fn source(object: Value) -> SourceObject {
    let namespace = text(&object, "/metadata/namespace").to_owned();
    SourceObject { place: format!("{namespace}/{}", text(&object, "/metadata/name")), namespace, object }
}

/// A Deployment of a controller. `release`: that of Helm.
fn controller(namespace: &str, image: &str, saturation: &str, release: Option<&str>) -> SourceObject {
    let labels = release.map(
        |release| json!({"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": release}),
    );
    let env = json!([{"name": "CONFIG_MAP_NAME", "value": "settings"},
        {"name": "SATURATION_CONFIG_MAP_NAME", "value": saturation}]);
    source(json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "c", "namespace": namespace, "labels": labels},
        "spec": {"template": {"spec": {"containers": [{"image": image, "env": env}]}}}}))
}

fn llm_d_wva(namespace: &str, saturation: &str) -> SourceObject {
    controller(namespace, "ghcr.io/llm-d/llm-d-workload-variant-autoscaler:v0.8.0", saturation, None)
}

fn plan_maps(objects: &[SourceObject], options: PlanOptions<'_>) -> Plan {
    plan(objects, &Workloads::default(), options)
}

fn places(plan: &Plan) -> Vec<String> {
    let place = |step: &step::Step| {
        let ObjectId { namespace, name } = id(&step.object);
        format!("{namespace}/{name}")
    };
    plan.steps.iter().map(place).collect()
}

fn threshold(value: f64) -> Value {
    json!({"default": format!("analyzerName: percentage\nkvCacheThreshold: {value}")})
}

#[test]
fn moves_global_maps_to_the_default_names() {
    let plan = plan_for(FILE, options(Some("wva-system"), None));
    assert_eq!(
        places(&plan),
        [
            "wva-system/wva-variantautoscaling-config",
            "wva-system/wva-saturation-scaling-config",
            "wva-system/wva-model-scale-to-zero-config",
            "wva-system/serviceclass",
        ]
    );
    assert_eq!((plan.read, plan.unchanged, &plan.unresolved[..]), (4, 0, &[][..]));
    let entry = plan.steps[1].object["data"]["default"].as_str().unwrap();
    assert!(entry.starts_with("analyzerName: percentage\n") && entry.contains("queueLengthThreshold: 7"));
    assert_eq!(plan.steps[0].object["metadata"].get("labels"), None, "Helm does not own the copy");

    let printed = manifests(&plan).unwrap();
    let findings = crate::validate::findings_with_global_maps(&printed, Some("wva-system"));
    assert!(findings.contains("0 denied"), "{findings}");
    assert!(!printed.contains("original-system"), "{printed}");
}

#[test]
fn moving_again_changes_nothing() {
    let first = plan_for(FILE, options(Some("wva-system"), None));
    let (mut objects, _) =
        read_kinds(&[PathBuf::from(format!("{FIXTURES}/{FILE}"))], "default", is_read).unwrap();
    objects.extend(first.steps.iter().map(|step| source(step.object.clone())));
    let again = plan_maps(&objects, options(Some("wva-system"), None));
    assert_eq!((places(&again), &again.unresolved[..]), (Vec::new(), &[][..]));
}

#[test]
fn maps_that_helm_renders_become_values() {
    let plan = plan_for(FILE, options(Some("wva-system"), Some("wva")));
    assert_eq!(places(&plan), ["wva-system/wva-model-scale-to-zero-config", "wva-system/serviceclass"]);
    assert_eq!(plan.unresolved, Vec::<String>::new());
    let want = json!({"wva": {
        "prometheus": {"baseURL": "https://prometheus:9090"},
        "reconcileInterval": "30s", "scaleToZero": true,
        "capacityScaling": {
            "default": {"analyzerName": "percentage", "kvCacheThreshold": 0.8, "queueLengthThreshold": 7.0,
                "kvSpareTrigger": 0.1, "queueSpareTrigger": 3.0},
            "overrides": {"qwen": {"modelID": "Qwen/Qwen3-0.6B", "namespace": "llm-d-autoscaler",
                "kvCacheThreshold": 0.7, "kvSpareTrigger": 0.35}},
        },
    }});
    assert_eq!(plan.values.values, want);
    let summary = summary(&plan, "yaml");
    assert!(summary.contains("2 ConfigMaps must become values of the chart"), "{summary}");
}

#[test]
fn values_omit_settings_of_the_old_pods() {
    let data = json!({
        "PROMETHEUS_BASE_URL": "https://p:9090", "WVA_LIMITED_MODE": "true", "WVA_DECISION_HOLD": "15m",
        "METRICS_BIND_ADDRESS": ":8443", "PROMETHEUS_CA_CERT_PATH": "/etc/ssl/certs/prometheus-ca.crt",
        "PROMETHEUS_TLS_INSECURE_SKIP_VERIFY": "true",
    });
    let plan =
        plan_maps(&[map("old", "wva-variantautoscaling-config", data)], options(Some("new"), Some("r")));
    let want = json!({"wva": {
        "prometheus": {"baseURL": "https://p:9090"}, "limitedMode": true, "settings": {"WVA_DECISION_HOLD": "15m"},
    }});
    assert_eq!(plan.values.values, want, "{:?}", plan.unresolved);
    let text = values(&plan).unwrap();
    for part in [
        "without METRICS_BIND_ADDRESS",
        "without PROMETHEUS_CA_CERT_PATH",
        "without PROMETHEUS_TLS_INSECURE_SKIP_VERIFY",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn the_chart_sets_these_settings_itself() {
    let checks =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/workload-variant-autoscaler/templates/_checks.tpl");
    let checks = std::fs::read_to_string(checks).unwrap();
    let ours = checks.lines().find(|line| line.contains("$ours := list")).unwrap();
    let refused = ours
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|key| wva_crds::settings::Setting::by_key(key).is_some_and(|setting| setting.in_map));
    for key in refused {
        assert!(values::OF_THE_CHART.contains(&key), "{key}");
    }
}

#[test]
fn global_maps_without_a_destination_are_named() {
    let plan = plan_for(FILE, PlanOptions::default());
    assert_eq!((places(&plan).len(), plan.unresolved.len()), (0, 1));
    assert!(plan.unresolved[0].contains("--controller-namespace"), "{:?}", plan.unresolved);
}

#[test]
fn an_installed_wva_is_the_destination() {
    let llm_d = [llm_d_wva("old", "mine"), map("old", "mine", threshold(0.7))];
    let kustomize = controller("new", "wva:v1", "theirs", None);
    let plan = plan_maps(&[&llm_d[..], &[kustomize]].concat(), PlanOptions::default());
    assert_eq!((places(&plan), &plan.unresolved[..]), (vec!["new/theirs".to_owned()], &[][..]));

    let helm = controller("new", "wva:v1", "theirs", Some("r"));
    let plan = plan_maps(&[&llm_d[..], &[helm]].concat(), PlanOptions::default());
    assert_eq!((places(&plan).len(), plan.values.sources.len()), (0, 1));
}

#[test]
fn local_maps_stay() {
    let local = map("prod", "wva-saturation-scaling-config", threshold(0.7));
    let exempt = json!({"m": "model_id: m\nenable_scale_to_zero: false"});
    let zero = map("prod", "wva-model-scale-to-zero-config", exempt);
    let plan = plan_maps(&[local.clone(), zero.clone()], options(Some("new"), None));
    assert_eq!((places(&plan).len(), plan.unresolved.len()), (0, 0));
    // A map that llm-d WVA never read does not make them global.
    let variant =
        source(json!({"kind": "VariantAutoscaling", "metadata": {"name": "v", "namespace": "prod"}}));
    let stray = map("prod", "capacity-scaling-config", threshold(0.5));
    let plan = plan_maps(&[local.clone(), variant, stray], options(Some("new"), None));
    assert_eq!(plan.steps[0].object["data"], threshold(0.5));
    // The same names are global where llm-d WVA runs.
    let plan = plan_maps(&[local, zero, llm_d_wva("prod", "x")], options(Some("new"), None));
    assert_eq!(places(&plan), ["new/wva-saturation-scaling-config", "new/wva-model-scale-to-zero-config"]);
}

#[test]
fn the_map_that_llm_d_wva_read_is_moved() {
    let first = map("old", "wva-saturation-scaling-config", threshold(0.7));
    let second = map("old", "capacity-scaling-config", threshold(0.6));
    let release = map("old", "r-saturation-scaling-config", threshold(0.5));
    for (maps, want) in [(vec![&second, &first], 0.7), (vec![&second, &release, &first], 0.5)] {
        let maps: Vec<SourceObject> = maps.into_iter().cloned().collect();
        let plan = plan_maps(&maps, options(Some("new"), None));
        assert_eq!(plan.steps[0].object["data"], threshold(want));
        let changes = plan.steps[0].changes.join("\n");
        assert!(changes.contains("without old/capacity-scaling-config"), "{changes}");
    }
}

#[test]
fn the_configured_map_takes_precedence() {
    let objects = [
        llm_d_wva("old", "y-saturation-scaling-config"),
        map("old", "x-saturation-scaling-config", threshold(0.5)),
        map("old", "y-saturation-scaling-config", threshold(0.6)),
    ];
    let plan = plan_maps(&objects, options(Some("new"), None));
    assert_eq!((&plan.steps[0].object["data"], plan.unresolved.len()), (&threshold(0.6), 0));
}

#[test]
fn two_sources_of_one_map_are_refused() {
    let check = |objects: &[SourceObject], names: [&str; 2]| {
        let plan = plan_maps(objects, options(Some("new"), None));
        assert_eq!((places(&plan).len(), plan.unresolved.len()), (0, 1), "{:?}", plan.unresolved);
        assert!(names.iter().all(|name| plan.unresolved[0].contains(name)), "{:?}", plan.unresolved);
    };
    let class =
        |slo: u8| json!({"p": format!("name: P\npriority: 1\ndata:\n- {{model: m, slo-tpot: {slo}}}")});
    check(&[map("a", "serviceclass", class(1)), map("b", "serviceclass", class(2))], ["a/", "b/"]);
    check(
        &[map("a", "serviceclass", class(1)), map("a", "r-service-classes-config", class(2))],
        ["a/s", "a/r"],
    );
    let (one, other) = ("x-saturation-scaling-config", "y-saturation-scaling-config");
    check(&[map("a", one, threshold(0.5)), map("a", other, threshold(0.6))], ["a/x", "a/y"]);
    let same = [map("a", "serviceclass", class(1)), map("b", "serviceclass", class(1))];
    assert_eq!(plan_maps(&same, options(Some("new"), None)).steps.len(), 1);
}

#[test]
fn other_content_of_the_target_is_named() {
    let objects = [
        map("old", "capacity-scaling-config", threshold(0.7)),
        map(
            "new",
            "wva-saturation-scaling-config",
            json!({"default": "analyzerName: throughput", "m": "model_id: m"}),
        ),
    ];
    let plan = plan_maps(&objects, options(Some("new"), None));
    let data = &plan.steps[0].object["data"];
    assert_eq!((&data["default"], &data["m"]), (&threshold(0.7)["default"], &json!("model_id: m")));
    assert!(
        plan.unresolved[0].contains("new/wva-saturation-scaling-config: default"),
        "{:?}",
        plan.unresolved
    );
}

#[test]
fn maps_that_the_rules_refuse_are_named() {
    let bad = json!({"default": "kvCacheThreshold: 1.7", "m": "kvCacheThreshold: 0.5"});
    let plan = plan_maps(&[map("old", "capacity-scaling-config", bad)], options(Some("new"), None));
    let unresolved = plan.unresolved.join("\n");
    assert_eq!(places(&plan).len(), 0);
    for part in ["old/capacity-scaling-config: ", "default", "WVA-CM-"] {
        assert!(unresolved.contains(part), "{unresolved}");
    }
}

#[test]
fn in_place_only_hidden_maps_move() {
    let old = || [map("ns", "capacity-scaling-config", threshold(0.7)), llm_d_wva("ns", "x")];
    let plan = plan_maps(&old(), options(Some("ns"), None));
    assert_eq!((places(&plan).len(), plan.unchanged, plan.unresolved.len()), (0, 1, 0));
    let plan = plan_maps(&old(), options(Some("ns"), Some("r")));
    assert_eq!((places(&plan).len(), plan.values.sources.len()), (0, 1), "the chart's own map hides it");
}
