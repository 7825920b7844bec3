//! Checks of a healthy variant, and of each way to break one.

mod annotations;
mod breaks;
mod causes;
mod pre;
mod replicas;
mod series;
mod signal;
mod unread_maps;
mod world;

use serde_json::{Value, json};
use world::{World, llm_d_wva, series, signal, unreadable_api_services};

use super::*;

/// Checks the variant after a change. `want` is the first broken check, `?check` for a first warning, or empty. The
/// report must contain all `parts`.
#[track_caller]
fn check(want: &str, parts: &[&str], change: impl FnOnce(&mut World)) {
    let mut world = World::new();
    change(&mut world);
    let facts = world.facts();
    let result = check_variant(&VariantState::new(&facts, &facts.objects.variants[0]));
    let all = std::slice::from_ref(&result);
    let json = output::report(FileKind::DoctorReport, json::DoctorReport::new(&[], all), "json").unwrap();
    crate::assert_schema(FileKind::DoctorReport, &json);
    let report = text::render(&[], all, text::Style { is_verbose: true, is_coloured: false });
    let warning = result.findings.iter().find(|(_, f)| f.state == State::Warning).map(|(name, _)| *name);
    let first = result.broken_at().map(str::to_owned).or_else(|| warning.map(|name| format!("?{name}")));
    assert_eq!(first.unwrap_or_default(), want, "{report}");
    for part in parts {
        assert!(report.contains(part), "{part:?} is not in\n{report}");
    }
    for (_, finding) in &result.findings {
        let needs_remedy = finding.state > State::Unknown;
        assert_eq!(finding.remedy.is_some(), needs_remedy, "{finding:?}");
    }
}

fn set_condition(world: &mut World, n: usize, status: &str, reason: &str, message: &str) {
    let condition = &mut world.variant["status"]["conditions"][n];
    condition["status"] = json!(status);
    condition["reason"] = json!(reason);
    condition["message"] = json!(message);
}

#[test]
fn finds_nothing_wrong_with_a_healthy_variant() {
    let names = [
        "variant", "workload", "pods", "gpus", "scrape", "series", "decision", "signal", "autoscaler",
        "metric", "selector", "bounds",
    ];
    check("", &names, |_| {});
    check("", &["series of 1 pod with model_name \"m\""], |_| {});
    check("", &["1 published, according to the status", "the leader reads series of 1 pod"], |w| {
        w.has_prometheus = false;
    });
}

#[test]
fn checks_the_variant() {
    check("variant", &["spec.modelID", "kubectl edit va -n prod a"], |w| {
        w.variant["spec"]["modelID"] = json!("");
    });
    check("variant", &["wva.llmd.ai/exclude-"], |w| {
        w.namespaces[0]["metadata"]["annotations"] = json!({"wva.llmd.ai/exclude": "true"});
    });
    check("variant", &["older and has the same target"], |w| {
        set_condition(w, 0, "False", "TargetConflict", "x is older and has the same target");
    });
    check("variant", &["20 min ago"], |w| {
        w.variant["status"]["desiredOptimizedAlloc"]["lastRunTime"] = json!("2026-01-01T00:40:00Z");
    });
    check("variant", &["no controller has written its status"], |w| w.variant["status"] = json!({}));
    check("variant", &["CONTROLLER_INSTANCE=blue"], |w| {
        w.variant["metadata"]["labels"] = json!({"wva.llmd.ai/controller-instance": "blue"});
    });
}

#[test]
fn names_the_owner_in_place_of_a_command() {
    let owner = json!({"meta.helm.sh/release-name": "llama", "meta.helm.sh/release-namespace": "prod"});
    let advice =
        r#"va prod/a: change it in the values of Helm release "llama" in namespace "prod" and upgrade"#;
    check("variant", &["spec.modelID", advice], |w| {
        w.variant["spec"]["modelID"] = json!("");
        w.variant["metadata"]["annotations"] = owner.clone();
    });
    check("variant", &["2 controllers", advice, "set the annotation wva.llmd.ai/mode"], |w| {
        w.controllers.push(llm_d_wva());
        w.variant["metadata"]["labels"] = json!({"kustomize.toolkit.fluxcd.io/name": "apps"});
        w.variant["metadata"]["annotations"] = owner.clone();
    });
}

#[test]
fn finds_two_publishers_of_one_variant() {
    check("variant", &["2 controllers publish it", "(llm-d WVA)", "mode=recommend"], |w| {
        w.controllers.push(llm_d_wva());
    });
    check("", &["mode recommend: not published by this controller; published by others: 2 by"], |w| {
        w.controllers.push(llm_d_wva());
        w.variant["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "recommend"});
        w.signals = vec![signal("llm-d-wva-0", 2.0)];
    });
    check("signal", &["2 publishers", "namespace=wva,pod=other-0"], |w| {
        w.signals.push(signal("other-0", 3.0));
    });
}

#[test]
fn checks_the_workload_and_its_pods() {
    check("workload", &["Deployment a does not exist in namespace prod"], |w| {
        w.deployment["metadata"]["name"] = json!("b");
    });
    let waiting = |reason: &str| json!([{"state": {"waiting": {"reason": reason, "message": "back-off"}}}]);
    check("pods", &["CrashLoopBackOff back-off", "describe pod -n prod a-0"], |w| {
        w.pods[0]["status"] = json!({"containerStatuses": waiting("CrashLoopBackOff")});
        w.deployment["status"] = json!({});
    });
    check("?pods", &["starting for 60 s"], |w| {
        w.pods[0]["status"] = json!({"containerStatuses": waiting("ContainerCreating")});
        w.deployment["status"] = json!({});
    });
    let gated = |gate: &str| {
        json!({"metadata": {"name": "a-1", "namespace": "prod", "labels": {"app": "a"}}, "spec": {"schedulingGates": [{"name": gate}]},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}})
    };
    check(
        "?pods",
        &["1 of 3 pods ready; 2 pods wait for quota: scheduling gate kueue.x-k8s.io/admission"],
        |w| {
            w.pods.extend([gated("kueue.x-k8s.io/admission"), gated("kueue.x-k8s.io/admission")]);
            w.deployment["spec"]["replicas"] = json!(3);
        },
    );
    check("pods", &["no pods for 1 replica: pod creation fails"], |w| {
        w.pods.clear();
        w.deployment["status"] = json!({});
    });
}

#[test]
fn finds_pods_without_one_of_the_main_signals() {
    let (kv, queue) = ("vllm:kv_cache_usage_perc", "vllm:num_requests_waiting");
    for (metric, signal) in [(kv, "kv: 0.5, "), (queue, "queue: 0, ")] {
        let missing = format!("1 pod without {metric}, so its load is unknown: a-0");
        check("?scrape", &[&missing, "a relabelling of the monitor drops it"], |w| {
            w.snapshot = w.snapshot.take().map(|s| s.replace(signal, ""));
        });
        check("?series", &[&missing], |w| w.models.retain(|s| s.label("__name__") != metric));
    }
}

#[test]
fn checks_decision_and_signal() {
    check("decision", &["from the status: No metrics"], |w| {
        w.snapshot = None;
        set_condition(w, 2, "False", "MetricsUnavailable", "No metrics");
    });
    let scale_to_zero = |w: &mut World, model: &str| {
        let with_model = |s: String| s.replace("{modelID: m,", model);
        w.snapshot =
            w.snapshot.take().map(|s| format!("config: {{scaleToZeroDefault: true}}\n{}", with_model(s)));
    };
    check("?decision", &["no endpoint picker serves it", "add an InferencePool"], |w| {
        scale_to_zero(w, "{modelID: m,");
    });
    check(
        "?decision",
        &[
            "1 replica(s) wait for quota: scheduling gate kueue.x-k8s.io/admission",
            "workloads.kueue.x-k8s.io",
        ],
        |w| {
            let held = "current: 2, ready: 1, pending: [{age: 2m, state: waitingForQuota}], quotaWait: {gate: kueue.x-k8s.io/admission},";
            w.snapshot = w.snapshot.take().map(|s| s.replace("current: 1,", held));
        },
    );
    check("", &[], |w| scale_to_zero(w, "{modelID: m, schedulerQueue: {size: 0},"));
    check("", &[], |w| scale_to_zero(w, "{modelID: m, schedulerQueue: null,"));
    check("signal", &["it does not scrape the controller's metrics"], |w| {
        w.signals.clear();
        w.external_values = Ok(Vec::new());
    });
    check("", &["1 published, according to the status", "HPA h gets 1"], |w| w.signals.clear());
    check("?signal", &["status.actuation.applied is not true"], |w| {
        w.has_prometheus = false;
        w.variant["status"]["actuation"] = json!({"applied": false});
    });
}

#[test]
fn checks_metric_and_selector() {
    check("autoscaler", &["No HPA and no ScaledObject scales Deployment a", "[NoAutoscaler]"], |w| {
        w.hpas.clear();
    });
    check("", &["mode recommend: no autoscaler needed yet"], |w| {
        w.hpas.clear();
        w.variant["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "recommend"});
    });
    check("", &["WVA_ACTUATION=scale: the controller scales the workload itself"], |w| {
        w.hpas.clear();
        w.map = json!({"WVA_ACTUATION": "scale"});
    });
    check("metric", &["404 not found", "no APIService", "install prometheus-adapter or KEDA"], |w| {
        w.external_values = Err("404 not found".to_owned());
    });
    check("metric", &["HPA h gets no value"], |w| w.external_values = Ok(Vec::new()));
    check("metric", &["its server is unknown: forbidden"], |w| {
        w.external_values = Ok(Vec::new());
        w.unreadable.push(unreadable_api_services());
    });
    check("metric", &["2 values", "adds them up: 1 ", "; 4 "], |w| {
        w.external_values = Ok(["1", "4"].map(|v| json!({"value": v, "metricLabels": {"pod": v}})).into());
    });
    let scaled_object = |w: &mut World, conditions: Value| {
        w.hpas.clear();
        w.scaled_objects.push(json!({
            "kind": "ScaledObject", "metadata": {"name": "s", "namespace": "prod"},
            "spec": {"scaleTargetRef": {"name": "a"}, "triggers": [
                {"type": "prometheus", "metadata": {"query": "wva_desired_replicas{variant_name=\"a\"}"}}]},
            "status": {"conditions": conditions},
        }));
    };
    check("autoscaler", &["ScaledObject s does not act: NoQuery: no such query"], |w| {
        scaled_object(
            w,
            json!([{"type": "Ready", "status": "False", "reason": "NoQuery", "message": "no such query"}]),
        );
    });
    check("autoscaler", &["ScaledObject s is in fallback", "check that KEDA reaches Prometheus"], |w| {
        scaled_object(
            w,
            json!([{"type": "Ready", "status": "True"}, {"type": "Fallback", "status": "True"}]),
        );
    });
    let selector = |w: &mut World, labels: Value| {
        w.hpas[0]["spec"]["metrics"][0]["external"]["metric"]["selector"]["matchLabels"] = labels;
    };
    check("autoscaler", &["HPA h selects variant_name=b", "variant_name=b; actual: a"], |w| {
        selector(w, json!({"variant_name": "b"}));
    });
    check("selector", &["WVA-HPA-051"], |w| selector(w, json!({"exported_namespace": "prod"})));
}

#[test]
fn checks_the_bounds() {
    check("autoscaler", &["[OutsideBounds]", "the target 12 is above the maximum 10 of HPA h"], |w| {
        w.variant["status"]["desiredOptimizedAlloc"]["numReplicas"] = json!(12);
    });
    check("bounds", &["the minimum 12 of the variant is above the maximum 10 of HPA h"], |w| {
        w.variant["spec"]["minReplicas"] = json!(12);
    });
    let inactive = |w: &mut World, reason: &str| {
        w.hpas[0]["status"]["conditions"] =
            json!([{"type": "ScalingActive", "status": "False", "reason": reason, "message": "why"}]);
    };
    check("autoscaler", &["HPA h does not act: InvalidSelector: why"], |w| inactive(w, "InvalidSelector"));
    check("autoscaler", &["[MetricsAPIMissing]", "install prometheus-adapter or KEDA"], |w| {
        inactive(w, "FailedGetExternalMetric");
    });
    check("autoscaler", &["FailedGetExternalMetric: why [NoMetricValue]"], |w| {
        inactive(w, "FailedGetExternalMetric");
        w.unreadable.push(unreadable_api_services());
    });
    let received = |w: &mut World, value: &str| {
        let current = json!({"metric": {"name": "wva_desired_replicas"}, "current": {"averageValue": value}});
        w.hpas[0]["status"]["currentMetrics"] = json!([{"type": "External", "external": current}]);
        w.hpas[0]["status"]["desiredReplicas"] = json!(4);
    };
    let differs = "HPA h received 4 replica(s), but the target is 1";
    check("", &["HPA h received 4 replica(s), but the target is 1; the condition SignalFollowed"], |w| {
        received(w, "4");
    });
    check("autoscaler", &[differs, "[ValueDiffers]"], |w| {
        received(w, "4");
        w.report_not_followed();
    });
    check("?autoscaler", &["fine now, but the last cycle found: why"], World::report_not_followed);
    check("bounds", &["was not carried out"], |w| {
        set_condition(w, 0, "False", "NotCarriedOut", "The target 3 was not carried out");
    });
}

#[test]
fn checks_the_cluster() {
    let report = |change: fn(&mut World)| {
        let mut world = World::new();
        change(&mut world);
        let facts = world.facts();
        text::render(&cluster_checks::check_cluster(&facts), &[], text::Style::default())
    };
    let fine = report(|_| {});
    assert!(fine.contains("ok     controller  Deployment wva/wva") && !fine.contains("BROKEN"), "{fine}");
    assert!(fine.contains("ok     kubernetes  1.37\n"), "{fine}");
    let oldest = report(|w| w.kubernetes = "1.30");
    assert!(
        oldest.contains("ok     kubernetes  1.30; before 1.34 GPUs") && oldest.contains("before 1.35 HPAs"),
        "{oldest}"
    );
    let unsupported = report(|w| w.kubernetes = "1.29");
    assert!(unsupported.contains("warn   kubernetes  1.29 is not supported"), "{unsupported}");
    let unnamed = report(|w| w.kubernetes = "");
    assert!(unnamed.contains("?      kubernetes  the API server names no version"), "{unnamed}");
    let both = report(|w| w.controllers.push(llm_d_wva()));
    assert!(both.contains("warn   controller  installed next to llm-d WVA"), "{both}");
    let other = report(|w| w.controllers = vec![llm_d_wva()]);
    assert!(other.contains("BROKEN controller  only llm-d WVA is installed"), "{other}");
    let orphaned = report(|w| {
        w.namespaces[0]["metadata"]["labels"] = json!({"wva.llmd.ai/controller-instance": "blue"});
    });
    assert!(orphaned.contains("prod is labelled for instance blue"), "{orphaned}");
    let system = report(|w| w.controllers[0]["metadata"]["namespace"] = json!("kube-system"));
    assert!(system.contains("warn   namespace   Deployment kube-system/wva is in kube-system"), "{system}");
    let leaderless = report(|w| w.snapshot = None);
    assert!(leaderless.contains("warn   leader") && leaderless.contains("not the leader"), "{leaderless}");
    let crashing = report(|w| {
        w.snapshot = None;
        w.controllers[0]["status"] = json!({});
    });
    assert!(crashing.contains("BROKEN controller  no replica of Deployment wva/wva is ready"), "{crashing}");
    let forbidden = report(|w| w.unreadable.push(unreadable_api_services()));
    assert!(forbidden.contains("?      metrics API forbidden"), "{forbidden}");
    let unread = report(|w| {
        w.snapshot =
            w.snapshot.take().map(|s| format!("config: {quotas}\n{s}", quotas = "{quotasForbidden: true}"));
    });
    assert!(unread.contains("warn   quotas") && unread.contains("watch on resourcequotas"), "{unread}");
}

#[test]
fn compares_the_targets_of_both_controllers() {
    let compare = |change: fn(&mut World)| {
        let mut world = World::new();
        world.variant["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "recommend"});
        world.signals = vec![signal("llm-d-wva-0", 1.0)];
        change(&mut world);
        let facts = world.facts();
        let variant = VariantState::new(&facts, &facts.objects.variants[0]);
        compare::compare(&facts, &[variant]).unwrap()
    };
    let Report { text, is_fine } = compare(|_| {});
    assert!(is_fine && text.contains("Publisher of OTHER: namespace=wva,pod=llm-d-wva-0"), "{text}");
    let row = "prod        a      1         1       1      0            NoChange\n";
    assert!(text.contains(row), "{text}");
    let Report { text, is_fine } = compare(|w| w.signals = vec![signal("llm-d-wva-0", 3.0)]);
    assert!(!is_fine && text.contains("-2") && text.contains("0 equal, 1 different"), "{text}");
    let Report { text, is_fine } = compare(|w| w.signals.clear());
    assert!(!is_fine && text.contains("Publisher of OTHER: not published"), "{text}");
    // Without the mode, this controller publishes too.
    let Report { text, is_fine } = compare(|w| {
        w.variant["metadata"]["annotations"] = json!({});
        w.signals.push(signal("wva-0", 1.0));
    });
    assert!(!is_fine && text.contains("1 variant published by both controllers"), "{text}");
}
