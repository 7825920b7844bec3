//! The chain of one variant that is fine, and of each way in which a link breaks.

mod world;

use serde_json::{Value, json};
use world::{World, hidden_api_services, original, series, signal};

use super::*;

/// Follows the chain after a change, which has to break it first at `link` (or nowhere, or only give something to look
/// at: `?link`), and say all of `parts`.
#[track_caller]
fn check(link: &str, parts: &[&str], change: impl FnOnce(&mut World)) {
    let mut world = World::new();
    change(&mut world);
    let facts = world.facts();
    let followed = follow(&Seen::of(&facts, &facts.variants[0]));
    let told = text::render(&[], std::slice::from_ref(&followed), true);
    let doubtful = followed.found.iter().find(|(_, found)| found.state == State::Doubtful).map(|(l, _)| *l);
    let at = followed.broken_at().map(str::to_owned).or_else(|| doubtful.map(|l| format!("?{l}")));
    assert_eq!(at.unwrap_or_default(), link, "{told}");
    for part in parts {
        assert!(told.contains(part), "{part:?} is not in\n{told}");
    }
    for (_, found) in &followed.found {
        assert_eq!(
            found.remedy.is_some(),
            found.state > State::Unknown,
            "every finding has its remedy: {found:?}"
        );
    }
}

fn condition(world: &mut World, n: usize, status: &str, reason: &str, message: &str) {
    let condition = &mut world.variant["status"]["conditions"][n];
    condition["status"] = json!(status);
    condition["reason"] = json!(reason);
    condition["message"] = json!(message);
}

#[test]
fn a_chain_that_holds_is_fine_link_by_link() {
    let links = [
        "variant", "workload", "pods", "scrape", "series", "decision", "signal", "metric", "selector",
        "bounds",
    ];
    check("", &links, |_| {});
    check("", &["the series of 1 pod have model_name \"m\""], |_| {});
    check("", &["1 published, by the status", "the leader counts the series of 1 pod"], |w| {
        w.scraped = false;
    });
}

#[test]
fn the_variant() {
    check("variant", &["spec.modelID", "kubectl edit va -n prod a"], |w| {
        w.variant["spec"]["modelID"] = json!("");
    });
    check("variant", &["wva.llmd.ai/exclude-"], |w| {
        w.namespaces[0]["metadata"]["annotations"] = json!({"wva.llmd.ai/exclude": "true"});
    });
    check("variant", &["older and has the same target"], |w| {
        condition(w, 0, "False", "TargetConflict", "x is older and has the same target");
    });
    check("variant", &["20 min ago"], |w| {
        w.variant["status"]["desiredOptimizedAlloc"]["lastRunTime"] = json!("2026-01-01T00:40:00Z");
    });
    check("variant", &["no controller has written a status"], |w| w.variant["status"] = json!({}));
    check("variant", &["CONTROLLER_INSTANCE=blue"], |w| {
        w.variant["metadata"]["labels"] = json!({"wva.llmd.ai/controller-instance": "blue"});
    });
}

#[test]
fn two_controllers_may_not_publish_one_variant() {
    check("variant", &["2 controllers publish it", "(the original)", "mode=recommend"], |w| {
        w.controllers.push(original());
    });
    check("", &["mode recommend: nothing is published by this controller; others say: 2 by"], |w| {
        w.controllers.push(original());
        w.variant["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "recommend"});
        w.signals = vec![signal("original-0", 2.0)];
    });
    check("signal", &["2 publishers", "namespace=wva,pod=other-0"], |w| {
        w.signals.push(signal("other-0", 3.0));
    });
}

#[test]
fn the_workload_and_its_pods() {
    check("workload", &["no Deployment a in namespace prod"], |w| {
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
    check("pods", &["no pod: something refuses"], |w| {
        w.pods.clear();
        w.deployment["status"] = json!({});
    });
}

#[test]
fn the_scrape_and_the_series() {
    let silent = |w: &mut World| {
        w.snapshot = w.snapshot.take().map(|s| s.replace("kv: 0.5, queue: 0, ", ""));
        condition(w, 1, "False", "MetricsMissing", "No vLLM metrics");
        w.models.clear();
    };
    check("scrape", &["no Service and no PodMonitor selects its pods"], silent);
    let service = || json!({"metadata": {"name": "s", "namespace": "prod", "labels": {"x": "y"}}, "spec": {"selector": {"app": "a"}}});
    check("scrape", &["Service s leads to its pods, and no ServiceMonitor selects it"], |w| {
        silent(w);
        w.services.push(service());
        w.monitors.push(json!({"metadata": {"namespace": "elsewhere"}, "spec": {"selector": {"matchLabels": {"x": "y"}}}}));
    });
    check("scrape", &["though ServiceMonitor elsewhere/m selects its pods"], |w| {
        silent(w);
        w.services.push(service());
        w.monitors.push(
            json!({"kind": "ServiceMonitor", "metadata": {"name": "m", "namespace": "elsewhere"}, "spec": {
            "namespaceSelector": {"matchNames": ["prod"]}, "selector": {"matchLabels": {"x": "y"}}}}),
        );
    });
    check("scrape", &["Prometheus at http://p did not answer"], |w| {
        silent(w);
        condition(w, 1, "False", "PrometheusError", "Prometheus at http://p did not answer");
    });
    check("scrape", &["No vLLM metrics", "BROKEN scrape"], |w| {
        silent(w);
        w.snapshot = None;
        condition(w, 1, "False", "MetricsStale", "No vLLM metrics that count");
    });
    check("series", &["namespace and pod of its pods"], |w| w.models.clear());
    check("?series", &["serve model_name \"base\""], |w| {
        w.models = vec![series(&[("namespace", "prod"), ("pod", "a-0-rank-0"), ("model_name", "base")], 1.0)];
    });
    check("series", &["\"base\", \"other\", and none is spec.modelID \"m\""], |w| {
        w.models = ["base", "other"]
            .map(|name| series(&[("namespace", "prod"), ("pod_name", "a-0"), ("model_name", name)], 1.0))
            .into();
    });
}

#[test]
fn pods_that_are_scraped_twice_are_named() {
    let said = "the series of 1 pod more than once (a-0); they differ in job (llm-d, vllm). The highest value counts";
    check("?series", &[said, "PROMETHEUS_EXTRA_MATCHERS"], |w| {
        let of =
            |pod, job| series(&[("namespace", "prod"), ("pod", pod), ("job", job), ("engine", "0")], 2.0);
        w.duplicates = vec![of("a-0", "vllm"), of("a-0", "llm-d"), of("other", "vllm"), of("other", "x")];
    });
}

#[test]
fn each_of_the_two_main_signals_is_asked_for_by_itself() {
    let (kv, queue) = ("vllm:kv_cache_usage_perc", "vllm:num_requests_waiting");
    for (metric, signal) in [(kv, "kv: 0.5, "), (queue, "queue: 0, ")] {
        let lacking = format!("1 pod without {metric}, which counts as 0: a-0");
        check("?scrape", &[&lacking, "a relabelling of the monitor drops it"], |w| {
            w.snapshot = w.snapshot.take().map(|s| s.replace(signal, ""));
        });
        check("?series", &[&lacking], |w| w.models.retain(|s| s.label("__name__") != metric));
    }
}

#[test]
fn the_decision_and_the_signal() {
    check("decision", &["by the status: No vLLM"], |w| {
        w.snapshot = None;
        condition(w, 2, "False", "MetricsUnavailable", "No vLLM");
    });
    let zero = |w: &mut World, model: &str| {
        let of_model = |s: String| s.replace("{modelID: m,", model);
        w.snapshot =
            w.snapshot.take().map(|s| format!("config: {{scaleToZeroDefault: true}}\n{}", of_model(s)));
    };
    check("?decision", &["no endpoint picker serves it that could wake it", "add an InferencePool"], |w| {
        zero(w, "{modelID: m,");
    });
    check("", &[], |w| zero(w, "{modelID: m, schedulerQueue: {size: 0},"));
    check("", &[], |w| zero(w, "{modelID: m, schedulerQueue: null,"));
    check("signal", &["the controller's own metrics are not scraped"], |w| w.signals.clear());
    check("?signal", &["status.actuation.applied is not true"], |w| {
        w.scraped = false;
        w.variant["status"]["actuation"] = json!({"applied": false});
    });
}

#[test]
fn what_carries_the_metric_and_its_selector() {
    check("metric", &["no HPA and no ScaledObject on Deployment a follows"], |w| w.hpas.clear());
    check("", &["mode recommend: nothing has to follow it yet"], |w| {
        w.hpas.clear();
        w.variant["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "recommend"});
    });
    check("", &["WVA_ACTUATION=scale: the controller carries the target out itself"], |w| {
        w.hpas.clear();
        w.map = json!({"WVA_ACTUATION": "scale"});
    });
    check("metric", &["404 not found", "no APIService", "install prometheus-adapter or KEDA"], |w| {
        w.told = Err("404 not found".to_owned());
    });
    check("metric", &["is told nothing"], |w| w.told = Ok(Vec::new()));
    check("metric", &["who serves it cannot be seen: forbidden"], |w| {
        w.told = Ok(Vec::new());
        w.hidden.push(hidden_api_services());
    });
    check("metric", &["2 values", "adds up: 1 ", "; 4 "], |w| {
        w.told = Ok(["1", "4"].map(|v| json!({"value": v, "metricLabels": {"pod": v}})).into());
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
    check("metric", &["ScaledObject s is not ready: no such query"], |w| {
        scaled_object(w, json!([{"type": "Ready", "status": "False", "message": "no such query"}]));
    });
    check("?metric", &["ScaledObject s is in fallback", "can KEDA reach Prometheus"], |w| {
        scaled_object(
            w,
            json!([{"type": "Ready", "status": "True"}, {"type": "Fallback", "status": "True"}]),
        );
    });
    let selector = |w: &mut World, labels: Value| {
        w.hpas[0]["spec"]["metrics"][0]["external"]["metric"]["selector"]["matchLabels"] = labels;
    };
    check("selector", &["variant_name=b; here: a"], |w| selector(w, json!({"variant_name": "b"})));
    check("selector", &["WVA-HPA-051"], |w| selector(w, json!({"exported_namespace": "prod"})));
}

#[test]
fn the_bounds() {
    check("?bounds", &["the target 12 is above the maximum 10 of HPA h"], |w| {
        w.variant["status"]["desiredOptimizedAlloc"]["numReplicas"] = json!(12);
    });
    check("bounds", &["at least 12 by the variant, and at most 10 by HPA h"], |w| {
        w.variant["spec"]["minReplicas"] = json!(12);
    });
    check("bounds", &["HPA h does not act: FailedGetExternalMetric: no such metric"], |w| {
        w.hpas[0]["status"]["conditions"] = json!([
            {"type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric", "message": "no such metric"}]);
    });
    check("bounds", &["was not carried out"], |w| {
        condition(w, 0, "False", "NotCarriedOut", "The target 3 was not carried out");
    });
}

#[test]
fn around_the_variants() {
    let look = |change: fn(&mut World)| {
        let mut world = World::new();
        change(&mut world);
        let facts = world.facts();
        text::render(&around::look(&facts), &[], false)
    };
    let fine = look(|_| {});
    assert!(fine.contains("ok     controller  Deployment wva/ours") && !fine.contains("BROKEN"), "{fine}");
    assert!(look(|w| w.controllers.push(original())).contains("look   controller  beside the original"));
    assert!(look(|w| w.controllers = vec![original()]).contains("BROKEN controller  only the original runs"));
    let orphaned =
        look(|w| w.namespaces[0]["metadata"]["labels"] = json!({"wva.llmd.ai/controller-instance": "blue"}));
    assert!(orphaned.contains("prod is given to instance blue"), "{orphaned}");
    let system = look(|w| w.controllers[0]["metadata"]["namespace"] = json!("kube-system"));
    assert!(system.contains("look   namespace   Deployment kube-system/ours is in kube-system"), "{system}");
    let silent = look(|w| w.snapshot = None);
    assert!(silent.contains("look   leader") && silent.contains("it does not lead"), "{silent}");
    let crashing = look(|w| {
        w.snapshot = None;
        w.controllers[0]["status"] = json!({});
    });
    assert!(crashing.contains("BROKEN controller  no replica of Deployment wva/ours is ready"), "{crashing}");
    let forbidden = look(|w| w.hidden.push(hidden_api_services()));
    assert!(forbidden.contains("?      metrics API forbidden"), "{forbidden}");
}

#[test]
fn both_controllers_series_are_compared() {
    let compared = |change: fn(&mut World)| {
        let mut world = World::new();
        world.variant["metadata"]["annotations"] = json!({"wva.llmd.ai/mode": "recommend"});
        world.signals = vec![signal("original-0", 1.0)];
        change(&mut world);
        let facts = world.facts();
        let seen = Seen::of(&facts, &facts.variants[0]);
        compare::compare(&facts, &[seen]).unwrap()
    };
    let Report { text: told, is_fine } = compared(|_| {});
    assert!(is_fine && told.contains("OTHER is published by namespace=wva,pod=original-0"), "{told}");
    let row = "prod        a      1         1       1      0            NoChange\n";
    assert!(told.contains(row), "{told}");
    let Report { text: told, is_fine } = compared(|w| w.signals = vec![signal("original-0", 3.0)]);
    assert!(!is_fine && told.contains("-2") && told.contains("0 the same, 1 not"), "{told}");
    let Report { text: told, is_fine } = compared(|w| w.signals.clear());
    assert!(!is_fine && told.contains("by nobody"), "{told}");
    // Without the mode this one publishes too.
    let Report { text: told, is_fine } = compared(|w| {
        w.variant["metadata"]["annotations"] = json!({});
        w.signals.push(signal("wva-0", 1.0));
    });
    assert!(!is_fine && told.contains("1 variant not in mode recommend"), "{told}");
}
