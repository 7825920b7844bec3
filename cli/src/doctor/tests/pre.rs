//! Checks before an install.

use wva_crds::settings::map::MapText;

use super::*;
use crate::doctor::controllers::{Controller, Installed};
use crate::doctor::pre::{check, prometheus_services};
use crate::doctor::pre_facts::RIGHTS;

/// A cluster in which wva can be installed, without an answer of Prometheus.
fn calm() -> PreFacts {
    let node = json!({"metadata": {"name": "n", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}}});
    PreFacts {
        namespace: "wva".to_owned(),
        kubernetes: "v1.34.0".parse().ok(),
        missing_rights: Ok(Vec::new()),
        controllers: Ok(Installed { running: Vec::new(), stopped: Vec::new() }),
        api_service: Ok(None),
        has_keda: Ok(false),
        has_monitors: Ok(true),
        nodes: Ok(vec![node]),
        webhooks: Vec::new(),
        network_policies: Vec::new(),
        prometheus_services: Vec::new(),
        series: Some(Ok(vec![series(&[("namespace", "prod")], 3.0)])),
        proxy: None,
    }
}

/// State and text of a check; panics if it is missing.
fn found(facts: &PreFacts, name: &str) -> (State, String) {
    let (_, finding) = check(facts).into_iter().find(|(check, _)| *check == name).unwrap();
    (finding.state, [finding.message, finding.remedy.unwrap_or_default()].join(" -> "))
}

#[test]
fn a_cluster_that_is_ready_has_no_remedy() {
    let findings = check(&calm());
    assert!(findings.iter().all(|(_, finding)| finding.state == State::Fine), "{findings:?}");
    assert!(found(&calm(), "gpus").1.starts_with("H100 on 1 node"));
    assert!(found(&calm(), "prometheus").1.contains("prod (3)"));
    let text = text::render_cluster(&findings, false);
    assert!(text.ends_with("wva can be installed: 0 broken, 0 warnings\n"), "{text}");
}

#[test]
fn missing_rights_are_broken_only_if_a_namespace_needs_them() {
    let right = |plural: &str| *RIGHTS.iter().find(|right| right.plural == plural).unwrap();
    let of_cluster = PreFacts { missing_rights: Ok(vec![right("clusterroles")]), ..calm() };
    assert_eq!(found(&of_cluster, "rights").0, State::Warning);
    assert!(found(&of_cluster, "rights").1.contains("values-namespace.yaml"));
    let of_namespace = PreFacts { missing_rights: Ok(vec![right("deployments")]), ..calm() };
    assert_eq!(found(&of_namespace, "rights").0, State::Broken);
}

#[test]
fn what_an_install_would_meet_is_named() {
    type Break = fn(&mut PreFacts);
    let cases: [(&str, State, &str, Break); 10] = [
        ("kubernetes", State::Warning, "1.20", |f| f.kubernetes = "v1.20.3".parse().ok()),
        ("controller", State::Warning, "llm-d WVA runs", |f| {
            let llm_d_wva = Controller::from_deployment(&llm_d_wva(), &MapText::default());
            f.controllers = Ok(Installed { running: llm_d_wva.into_iter().collect(), stopped: Vec::new() });
        }),
        ("metrics API", State::Fine, "served by keda/keda-operator", |f| {
            f.api_service =
                Ok(Some(json!({"spec": {"service": {"namespace": "keda", "name": "keda-operator"}},
                "status": {"conditions": [{"type": "Available", "status": "True"}]}})));
        }),
        ("metrics API", State::Broken, "no namespace can be deleted", |f| {
            f.api_service =
                Ok(Some(json!({"spec": {"service": {"namespace": "keda", "name": "keda-operator"}},
                "status": {"conditions": [{"type": "Available", "status": "False", "message": "gone"}]}})));
        }),
        ("prometheus", State::Unknown, "no Service of its usual names is visible", |f| f.series = None),
        (
            "prometheus",
            State::Unknown,
            "monitoring/prometheus-server:80 may be it -> kubectl port-forward -n monitoring svc/prometheus-server 9090:80, ",
            |f| {
                f.series = None;
                f.prometheus_services = vec!["monitoring/prometheus-server:80".to_owned()];
            },
        ),
        ("prometheus", State::Warning, "no series of a model server", |f| f.series = Some(Ok(Vec::new()))),
        ("gpus", State::Warning, "no label names the GPUs of n", |f| {
            f.nodes =
                Ok(vec![json!({"metadata": {"name": "n"}, "status": {"allocatable": {"amd.com/gpu": "8"}}})]);
        }),
        ("policies", State::Warning, "kyverno-resource", |f| {
            f.webhooks = vec!["cert-manager-webhook".to_owned(), "kyverno-resource".to_owned()];
        }),
        ("network", State::Warning, "deny-all in namespace wva", |f| {
            f.network_policies = vec![json!({"metadata": {"name": "deny-all"}, "spec": {"podSelector": {}}})];
        }),
    ];
    for (name, state, part, damage) in cases {
        let mut facts = calm();
        damage(&mut facts);
        let (seen, text) = found(&facts, name);
        assert_eq!(seen, state, "{name}: {text}");
        assert!(text.contains(part), "{name}: {text}");
    }
}

#[test]
fn services_of_prometheus_are_found_by_name_and_port() {
    let service = |name: &str, port: u64| json!({"metadata": {"namespace": "monitoring", "name": name}, "spec": {"ports": [{"port": port}]}});
    let all = [
        service("kube-prometheus-stack-prometheus", 9090),
        service("prometheus-node-exporter", 9100),
        service("prometheus-server", 80),
        service("prometheus-ui", 80),
    ];
    let found = ["monitoring/kube-prometheus-stack-prometheus:9090", "monitoring/prometheus-server:80"];
    assert_eq!(prometheus_services(&all), found);
}
