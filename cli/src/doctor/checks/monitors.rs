//! Why Prometheus does not scrape the pods.

use kube::core::SelectorExt as _;
use serde_json::Value;

use crate::cluster::{entry, items, text};
use crate::doctor::chain::Finding;
use crate::doctor::variant_state::{VariantState, labels, selector};

const CHECK_TARGETS: &str = "check the targets page of Prometheus";
/// Prometheus servers without an operator follow it.
const SCRAPE_ANNOTATION: &str = "prometheus.io/scrape";

pub(super) fn diagnose_scrape(variant: &VariantState<'_>) -> Finding {
    let facts = variant.facts;
    let unreadable = ["pods", "services", "servicemonitors", "podmonitors"]
        .into_iter()
        .find_map(|plural| facts.unreadable_reason(plural));
    let symptom = format!("no model server metrics of model {}", text(variant.object, "/spec/modelID"));
    if let Some(reason) = unreadable {
        return Finding::broken(format!("{symptom}; the cause is unknown: {reason}"), CHECK_TARGETS);
    }
    let pods = variant.pods();
    let pod_monitors: Vec<&Value> =
        facts.monitoring.pod_monitors.iter().filter(|m| selects_any(m, &pods)).collect();
    let services: Vec<&Value> =
        facts.monitoring.services.iter().filter(|service| routes_to_any(service, variant, &pods)).collect();
    let monitors: Vec<&Value> =
        facts.monitoring.service_monitors.iter().filter(|m| selects_any(m, &services)).collect();
    let namespace = &variant.namespace;
    let is_annotated = |pod: &&Value| entry(pod, "/metadata/annotations", SCRAPE_ANNOTATION) == Some("true");
    let annotated =
        || pods.iter().any(is_annotated).then(|| format!("its pods have the annotation {SCRAPE_ANNOTATION}"));
    let monitor = monitors.first().or(pod_monitors.first());
    if let Some(cause) =
        monitor.map(|monitor| format!("{} selects its pods", describe(monitor))).or_else(annotated)
    {
        return Finding::broken(
            format!("{symptom}, although {cause}"),
            format!(
                "{CHECK_TARGETS}: port, path, and the labels namespace and pod of the series; with --prometheus URL, \
                 doctor also finds series of another model_name"
            ),
        );
    }
    match services.first() {
        Some(service) => Finding::broken(
            format!(
                "{symptom}: no ServiceMonitor selects Service {}, which selects its pods",
                text(service, "/metadata/name")
            ),
            format!(
                "kubectl get servicemonitor -A; one of them must select the labels of that Service in namespace {namespace}"
            ),
        ),
        None => Finding::broken(
            format!("{symptom}: no Service and no PodMonitor selects its pods"),
            format!(
                "kubectl get service,podmonitor -n {namespace}; add a Service and a ServiceMonitor (Helm: \
                 vllmService.enabled=true)"
            ),
        ),
    }
}

fn describe(monitor: &Value) -> String {
    let (namespace, name) = (text(monitor, "/metadata/namespace"), text(monitor, "/metadata/name"));
    format!("{} {namespace}/{name}", text(monitor, "/kind"))
}

fn routes_to_any(service: &Value, variant: &VariantState<'_>, pods: &[&Value]) -> bool {
    let selector = labels(service, "/spec/selector");
    text(service, "/metadata/namespace") == variant.namespace
        && !selector.is_empty()
        && pods.iter().any(|pod| {
            let labels = labels(pod, "/metadata/labels");
            selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        })
}

fn selects_any(monitor: &Value, objects: &[&Value]) -> bool {
    let any = monitor.pointer("/spec/namespaceSelector/any") == Some(&Value::Bool(true));
    let mut named = items(monitor, "/spec/namespaceSelector/matchNames").filter_map(Value::as_str).peekable();
    let own = text(monitor, "/metadata/namespace");
    let namespaces: Vec<&str> = if named.peek().is_some() { named.collect() } else { vec![own] };
    let Some(selector) = selector(monitor, "/spec/selector") else { return false };
    objects.iter().any(|object| {
        (any || namespaces.contains(&text(object, "/metadata/namespace")))
            && selector.matches(&labels(object, "/metadata/labels"))
    })
}
