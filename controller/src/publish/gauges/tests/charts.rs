//! Series for charts and alerts.

use std::collections::BTreeSet;

use super::*;

/// A cycle on variant `a` of model `m` with this input and these settings.
#[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
fn cycle(variant: Value, config: Value) -> Published {
    let mut own = json!({"name": "a", "accelerator": "H100", "current": 2});
    own.as_object_mut().unwrap().extend(variant.as_object().unwrap().clone());
    let models = json!([{"modelID": "m", "namespace": "ns", "variants": [own]}]);
    let snapshot = Snapshot::parse(&json!({"config": config, "models": models}).to_string()).unwrap();
    let decision = wva_scaling::decide(&snapshot).decisions.remove(0);
    let publication = fixture::publication([("a", published(decision))]);
    Published { snapshot: Arc::new(snapshot), ..publication }
}

/// Values of the series whose names begin with `name`, as `labels value` without the labels of every variant.
fn values(lines: &[String], name: &str) -> Vec<String> {
    let short = |line: &String| {
        let mut line = line.strip_prefix(name)?.to_owned();
        for label in [r#"accelerator_type="H100","#, r#"namespace="ns","#, r#"namespace="ns""#] {
            line = line.replace(label, "");
        }
        Some(line.replace(r#",variant_name="a""#, "").replace(r#"variant_name="a""#, ""))
    };
    lines.iter().filter_map(short).collect()
}

fn lines(published: Published) -> Vec<String> {
    let mut scope = Scope::new(None, None);
    scope.cluster.deployment("a", 2, 2);
    scope.lines(published, false)
}

#[test]
fn a_variant_is_described() {
    let variant =
        json!({"cost": 40.5, "gpusPerReplica": 8, "ready": 1, "min": 1, "max": 6, "mode": "fixed=3"});
    let lines = lines(cycle(variant, json!({"saturation": {"default": {"analyzerName": "token"}}})));
    let labels = r#"analyzer="saturation",mode="fixed",model_name="m",scale_target_kind="Deployment",scale_target_name="a""#;
    assert_eq!(values(&lines, "wva_variant_info"), [format!("{{{labels}}} 1")], "{lines:#?}");
    for (name, value) in [
        ("cost", "40.5"),
        ("gpus", "8"),
        ("ready_replicas", "1"),
        ("min_replicas", "1"),
        ("max_replicas", "6"),
        ("scale_target_replicas", "2"),
    ] {
        assert_eq!(values(&lines, &format!("wva_variant_{name}{{")), [format!("}} {value}")], "{name}");
    }
}

#[test]
fn series_that_kube_state_metrics_has_are_optional() {
    let names = |workload: bool| -> BTreeSet<String> {
        let mut scope = Scope { workload, ..Scope::new(None, None) };
        scope.cluster.deployment("a", 2, 2);
        let lines = scope.lines(cycle(json!({"ready": 1}), json!({})), false);
        lines.iter().filter_map(|line| Some(line.split('{').next()?.to_owned())).collect()
    };
    let (all, fewer) = (names(true), names(false));
    let gone: Vec<&String> = all.difference(&fewer).collect();
    assert_eq!(gone, ["wva_variant_ready_replicas", "wva_variant_scale_target_replicas"]);
    assert!(fewer.is_subset(&all) && fewer.contains("wva_desired_replicas"));
}

#[test]
fn an_unbounded_variant_has_no_maximum() {
    let lines = lines(cycle(json!({}), json!({})));
    assert_eq!(values(&lines, "wva_variant_max_replicas"), [""; 0]);
    assert_eq!(values(&lines, "wva_variant_min_replicas"), ["{} 0"]);
}

#[test]
fn a_variant_without_a_decision_has_conditions_only() {
    let lines = lines(fixture::publication([("a", without_target())]));
    let names: Vec<_> = lines.iter().filter_map(|line| line.split('{').next()).collect();
    let (last, conditions) = names.split_last().unwrap();
    assert!(conditions.iter().all(|name| *name == "wva_variant_condition"), "{lines:#?}");
    assert_eq!(*last, "wva_variants", "{lines:#?}");
    let ready = r#"{reason="DeploymentNotFound",status="False",type="Ready"} 1"#.to_owned();
    assert!(values(&lines, "wva_variant_condition").contains(&ready), "{lines:#?}");
}

#[test]
fn conditions_that_are_true_have_no_series_except_ready() {
    let of = |kv, age| {
        let lines = lines(cycle(json!({"desired": 2, "replicas": replicas(2, kv, age)}), json!({})));
        values(&lines, r#"wva_variant_condition{namespace="ns",reason="#)
    };
    let unfollowed = r#""NotPublished",status="Unknown",type="SignalFollowed"} 1"#;
    assert_eq!(of(0.5, "1s"), [unfollowed, r#""Ready",status="True",type="Ready"} 1"#]);
    let stale = of(0.5, "4m");
    let named = r#""MetricsStale",status="False",type="MetricsAvailable"} 1"#.to_owned();
    assert!(stale.contains(&named), "{stale:?}");
}

#[test]
fn load_is_that_of_the_counted_replicas() {
    let replicas = json!([
        {"pod": "a-0", "kv": 0.4, "queue": 3, "age": "1s"},
        {"pod": "a-1", "queue": 2, "age": "90s"},
        {"pod": "a-2", "kv": 0.9, "queue": 50, "age": "121s"},
    ]);
    let lines = lines(cycle(json!({"current": 3, "replicas": replicas}), json!({})));
    assert_eq!(values(&lines, "wva_variant_kv_cache_usage_ratio"), ["{} 0.2"]);
    assert_eq!(values(&lines, "wva_variant_queue_length"), ["{} 5"]);
    // Thresholds 0.8 and 5: spare is min(0.5, 0.4) and min(1, 0.6).
    assert_eq!(values(&lines, "wva_spare_capacity_ratio"), [r#"{model_name="m",} 0.5"#]);
    for name in ["wva_variant_kv_cache_usage_ratio", "wva_variant_queue_length", "wva_spare_capacity_ratio"] {
        assert_eq!(
            values(&self::lines(cycle(json!({}), json!({}))), name),
            [""; 0],
            "{name} without metrics"
        );
    }
}

#[test]
fn spare_capacity_is_a_share() {
    let entry = json!({"kvCacheThreshold": 0.5, "queueLengthThreshold": 10});
    let spare = |kv: f64, queue: f64| {
        let replicas = json!([{"pod": "a-0", "kv": kv, "queue": queue, "age": "1s"}]);
        let config = json!({"saturation": {"default": entry}});
        values(&lines(cycle(json!({"current": 1, "replicas": replicas}), config)), "wva_spare_capacity_ratio")
    };
    for (kv, queue, value) in [(0.0, 0.0, "1"), (0.25, 0.0, "0.5"), (0.25, 8.0, "0.2"), (0.9, 0.0, "0")] {
        let found = spare(kv, queue);
        let number: f64 = found[0].rsplit(' ').next().unwrap().parse().unwrap();
        assert!((number - value.parse::<f64>().unwrap()).abs() < 1e-9, "{found:?} for {kv}, {queue}");
    }
}

#[test]
fn limits_exist_while_they_hold() {
    let busy = |more: Value| {
        let mut variant = json!({"replicas": replicas(2, 0.78, "1s")});
        variant.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        variant
    };
    let scarce = json!({"limitedMode": true, "inventory": {"H100": {"limit": 2, "used": 2}}});
    let quota = json!({"limitedMode": true, "quotas": [{"namespace": "ns", "quota": "q", "resource": "pods", "limit": 0}]});
    let needs = json!([{"quota": "q", "resource": "pods", "perReplica": 1}]);
    let held = json!({"age": "2m", "state": "waitingForQuota"});
    for (variant, config, by) in [
        (busy(json!({})), json!({}), None),
        (busy(json!({"max": 2})), json!({}), Some("maximum")),
        (busy(json!({})), scarce, Some("gpus")),
        (busy(json!({"quotaNeeds": needs})), quota, Some("quota")),
        (busy(json!({"ready": 1, "pending": [held]})), json!({}), Some("quota")),
        (busy(json!({"refusedAgo": "1m"})), json!({}), Some("refused")),
    ] {
        let wanted: Vec<_> = by.iter().map(|by| format!("{{by=\"{by}\"}} 1")).collect();
        assert_eq!(values(&lines(cycle(variant, config)), "wva_variant_limited"), wanted);
    }
}

#[test]
fn the_answer_of_the_autoscaler_is_next_to_the_replicas() {
    let mut scope = Scope::new(None, None);
    scope.cluster.deployment("a", 5, 2);
    let published = || cycle(json!({}), json!({}));
    let answers = |scope: &Scope| values(&scope.lines(published(), false), "wva_variant_autoscaler_replicas");
    assert_eq!(answers(&scope), [""; 0]);
    scope.cluster.autoscaler("h", "a", json!({}));
    assert_eq!(answers(&scope), [""; 0], "it has no status yet");
    scope.cluster.answered_autoscaler("h", "a", 3, None);
    scope.cluster.answered_autoscaler("other", "b", 9, None);
    assert_eq!(answers(&scope), [r#"{autoscaler="HorizontalPodAutoscaler"} 3"#]);
    let lines = scope.lines(published(), false);
    assert_eq!(values(&lines, "wva_variant_scale_target_replicas"), ["{} 5"], "as of the scrape");
    scope.cluster.answered_autoscaler("h", "a", 4, Some("ScaledObject"));
    assert_eq!(answers(&scope), [r#"{autoscaler="ScaledObject"} 4"#]);
}

#[test]
fn gpus_are_those_of_the_nodes() {
    let mut scope = Scope::new(None, None);
    scope.cluster.node("n", "NVIDIA-H100-80GB-HBM3", 8, json!({}));
    let mut pod = json!({"metadata": {"namespace": "theirs"}, "spec": fixture::gpu_pod(3), "status": {"phase": "Running"}});
    pod["spec"]["nodeName"] = json!("n");
    scope.cluster.pod_with("p", "Job", "theirs", pod);
    let gpus = |scope: &Scope| values(&scope.lines(cycle(json!({}), json!({})), false), "wva_gpus_");
    let h100 = |name: &str, n: u32| format!("{name}{{accelerator_type=\"H100\"}} {n}");
    assert_eq!(gpus(&scope), [h100("capacity", 8), h100("free", 5), h100("used", 3)]);
    scope.cluster.set_nodes_availability(wva_runtime::Availability::Forbidden);
    assert_eq!(gpus(&scope), [""; 0]);
}

#[test]
fn usual_changes_count_from_zero() {
    let config = json!({"scaleToZeroDefault": true});
    let mut published = cycle(json!({}), config);
    let key = |reason| ScalingKey { variant: key("a"), direction: "up", reason };
    published.scalings = [(key("SpareBelowTarget"), 2), (key("Fixed"), 1)].into();
    let wanted = [
        ("down", "NoRequests", 0),
        ("down", "ScaleDownSafe", 0),
        ("up", "AllSaturated", 0),
        ("up", "Fixed", 1),
        ("up", "RequestsWaiting", 0),
        ("up", "SpareBelowTarget", 2),
    ]
    .map(|(direction, reason, n)| format!("{{direction=\"{direction}\",reason=\"{reason}\"}} {n}"));
    assert_eq!(values(&lines(published), "wva_replica_scaling_total"), wanted);
}
