//! Series that are not where the controller looks for them, and engines with several.

use super::*;
use crate::prometheus::Series;

/// Waiting requests of an engine.
fn queue(pod: &str, labels: &[(&str, &str)]) -> Series {
    let own = [("namespace", "prod"), ("pod", pod), ("engine", "0"), ("model_name", "m")];
    series(&[&own[..], labels].concat(), 2.0)
}

fn report(world: World) -> String {
    let facts = world.facts();
    let result = check_variant(&VariantState::new(&facts, &facts.objects.variants[0]));
    text::render(&[], &[result], text::Style { is_verbose: true, is_coloured: false })
}

#[test]
fn names_pods_that_are_scraped_twice() {
    let (a, b) = (("instance", "10.0.0.1:8000"), ("instance", "10.0.0.2:8000"));
    let same =
        "scrapes the server of 1 pod (a-0) more than once, with other job (llm-d, vllm); it counts once";
    check("?series", &[same, "no figure is wrong"], |w| {
        w.duplicates = ["vllm", "llm-d"].map(|job| queue("a-0", &[a, ("job", job)])).into();
        w.duplicates.extend([a, b].map(|instance| queue("other", &[instance])));
    });
    let unclear = "several series for each engine of 1 pod (a-0); they differ in job (llm-d, vllm), which does not \
                   tell servers apart, so the highest value counts";
    check(
        "?series",
        &[unclear, "instance (address and port) or container", "PROMETHEUS_EXTRA_MATCHERS"],
        |w| {
            w.duplicates = ["vllm", "llm-d"].map(|job| queue("a-0", &[("job", job)])).into();
        },
    );
    check("?series", &["they differ in instance (10.0.0.1:8000, 10.0.0.2:8000)"], |w| {
        w.duplicates = [a, b].map(|instance| queue("a-0", &[instance])).into();
    });
}

#[test]
fn several_servers_of_a_pod_are_no_duplicates() {
    for labels in [
        [
            [("instance", "10.0.0.1:8000"), ("container", "a")],
            [("instance", "10.0.0.1:8001"), ("container", "a")],
        ],
        [[("instance", "a-0"), ("container", "8000")], [("instance", "a-0"), ("container", "8001")]],
    ] {
        check("", &["1 pod (a-0) with several servers (8000, 8001), which add up"], |w| {
            w.duplicates = labels.map(|labels| queue("a-0", &labels)).into();
        });
    }
}

#[test]
fn no_advice_deletes_a_monitor() {
    for label in ["instance", "container", "endpoint", "job", "prometheus_replica"] {
        let mut world = World::new();
        world.duplicates = ["a", "b"].map(|value| queue("a-0", &[(label, value)])).into();
        let report = report(world);
        assert!(!report.contains("delete") && !report.contains("remove"), "{label}: {report}");
    }
}

/// No series has the labels of the variant's pods.
fn without_own_series(w: &mut World, others: Vec<Series>) {
    w.snapshot = w.snapshot.take().map(|s| s.replace("kv: 0.5, queue: 0, ", ""));
    set_condition(w, 1, "False", "MetricsMissing", "No model server metrics");
    w.models = others;
}

#[test]
fn finds_series_whose_pod_has_another_label() {
    let of = |labels: &[(&str, &str)]| {
        let main = ["vllm:kv_cache_usage_perc", "vllm:num_requests_waiting"];
        let named =
            main.map(|name| series(&[labels, &[("__name__", name), ("model_name", "m")]].concat(), 1.0));
        Vec::from(named)
    };
    for (labels, sentence, rule) in [
        (
            &[("namespace", "prod"), ("k8s_pod_name", "a-0")][..],
            "1 series with model_name \"m\" has no label pod, but k8s_pod_name",
            "metricRelabelings: [{sourceLabels: [k8s_pod_name], targetLabel: pod}]",
        ),
        (
            &[("kubernetes_namespace", "prod"), ("kubernetes_pod_name", "a-0")],
            "1 series with model_name \"m\" has no label pod, but kubernetes_pod_name",
            "metric_relabel_configs: [{source_labels: [kubernetes_pod_name], target_label: pod}, {source_labels: \
             [kubernetes_namespace], target_label: namespace}]",
        ),
        (
            &[
                ("namespace", "otel"),
                ("pod", "collector-0"),
                ("exported_namespace", "prod"),
                ("exported_pod", "a-0"),
            ],
            "the label pod of another pod (collector-0), and their own in exported_pod",
            "{sourceLabels: [exported_namespace], targetLabel: namespace}",
        ),
    ] {
        check("scrape", &[sentence, rule], |w| without_own_series(w, of(labels)));
    }
    // Series of another namespace or model say nothing.
    for labels in
        [[("namespace", "other"), ("k8s_pod_name", "a-0")], [("namespace", "prod"), ("k8s_pod_name", "b-0")]]
    {
        check("scrape", &["no Service and no PodMonitor selects its pods"], |w| {
            without_own_series(w, of(&labels));
        });
    }
}

#[test]
fn finds_series_under_other_names() {
    for name in ["vllm_kv_cache_usage_perc", "vllm.kv_cache_usage_perc"] {
        let labels = [("__name__", name), ("namespace", "prod"), ("pod", "a-0"), ("model_name", "m")];
        let sentence = format!("1 pod scraped under other names: {name} instead of vllm:kv_cache_usage_perc");
        check("scrape", &[&sentence, "replacement: \"$1:$2\""], |w| {
            without_own_series(w, vec![series(&labels, 1.0)]);
        });
    }
}

#[test]
fn knows_pods_without_a_request_yet() {
    let of = |name: &str| {
        series(&[("__name__", name), ("namespace", "prod"), ("pod", "a-0"), ("model_name", "m")], 1.0)
    };
    let mut world = World::new();
    world.models = vec![of("vllm:prompt_tokens_total")];
    let report = report(world);
    assert!(report.contains("1 pod scraped and without a request yet, so idle: a-0"), "{report}");
    assert!(!report.contains("load is unknown"), "{report}");
}

#[test]
fn finds_pods_that_no_workload_of_the_model_owns() {
    let of = |pod: &str| {
        series(
            &[
                ("__name__", "vllm:kv_cache_usage_perc"),
                ("namespace", "prod"),
                ("pod", pod),
                ("model_name", "m"),
            ],
            1.0,
        )
    };
    let sentence = "2 pods (launcher-0, launcher-1) report this model, but do not belong to Deployment a";
    check("scrape", &[sentence, "llm-d.ai/variant"], |w| {
        without_own_series(w, ["launcher-0", "launcher-1"].map(of).into());
    });
    check("scrape", &["no Service and no PodMonitor selects its pods"], |w| {
        without_own_series(w, Vec::new());
    });
}

#[test]
fn checks_scrape_and_series() {
    let without_metrics = |w: &mut World| {
        w.snapshot = w.snapshot.take().map(|s| s.replace("kv: 0.5, queue: 0, ", ""));
        set_condition(w, 1, "False", "MetricsMissing", "No model server metrics");
        w.models.clear();
    };
    check("scrape", &["no Service and no PodMonitor selects its pods"], without_metrics);
    let service = || json!({"metadata": {"name": "s", "namespace": "prod", "labels": {"x": "y"}}, "spec": {"selector": {"app": "a"}}});
    check("scrape", &["no ServiceMonitor selects Service s, which selects its pods"], |w| {
        without_metrics(w);
        w.services.push(service());
        w.monitors.push(json!({"metadata": {"namespace": "elsewhere"}, "spec": {"selector": {"matchLabels": {"x": "y"}}}}));
    });
    check("scrape", &["although ServiceMonitor elsewhere/m selects its pods"], |w| {
        without_metrics(w);
        w.services.push(service());
        w.monitors.push(
            json!({"kind": "ServiceMonitor", "metadata": {"name": "m", "namespace": "elsewhere"}, "spec": {
            "namespaceSelector": {"matchNames": ["prod"]}, "selector": {"matchLabels": {"x": "y"}}}}),
        );
    });
    check(
        "scrape",
        &["although its pods have the annotation prometheus.io/scrape", "another model_name"],
        |w| {
            without_metrics(w);
            w.pods[0]["metadata"]["annotations"] = json!({"prometheus.io/scrape": "true"});
        },
    );
    check("series", &["ok     scrape      1 pod scraped, under other model names"], |w| {
        without_metrics(w);
        w.models = ["base", "other"]
            .map(|name| series(&[("namespace", "prod"), ("pod", "a-0"), ("model_name", name)], 1.0))
            .into();
    });
    check("scrape", &["No model server metrics", "BROKEN scrape"], |w| {
        without_metrics(w);
        w.snapshot = None;
        set_condition(w, 1, "False", "MetricsStale", "No model server metrics that count");
    });
    check("series", &["the labels namespace and pod of its pods"], |w| w.models.clear());
    check("?series", &["report model_name \"base\""], |w| {
        w.models = vec![series(&[("namespace", "prod"), ("pod", "a-0-rank-0"), ("model_name", "base")], 1.0)];
    });
    check("series", &["\"base\", \"other\"; none is spec.modelID \"m\""], |w| {
        w.models = ["base", "other"]
            .map(|name| series(&[("namespace", "prod"), ("pod_name", "a-0"), ("model_name", name)], 1.0))
            .into();
    });
}
