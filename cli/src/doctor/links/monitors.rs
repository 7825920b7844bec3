//! Why no metrics of a variant's pods arrive: whether a ServiceMonitor selects a Service of theirs, or a `PodMonitor` the
//! pods themselves.

use kube::core::SelectorExt as _;
use serde_json::Value;

use crate::cluster::{items, text};
use crate::doctor::chain::Found;
use crate::doctor::seen::{Seen, labels, selector};

/// What is missing for the pods to be scraped.
pub(super) fn why_not(seen: &Seen<'_>) -> Found {
    let facts = seen.facts;
    let hidden = ["pods", "services", "servicemonitors", "podmonitors"]
        .into_iter()
        .find_map(|kind| facts.hidden(kind));
    let none = format!("no vLLM metrics of model {} arrive", text(seen.object, "/spec/modelID"));
    if let Some(why) = hidden {
        return Found::broken(format!("{none}; why cannot be told: {why}"), targets());
    }
    let pods = seen.pods();
    let pod_monitors: Vec<&Value> = facts.pod_monitors.iter().filter(|m| selects_any(m, &pods)).collect();
    let services: Vec<&Value> =
        facts.services.iter().filter(|service| leads_to(service, seen, &pods)).collect();
    let monitors: Vec<&Value> = facts.service_monitors.iter().filter(|m| selects_any(m, &services)).collect();
    let namespace = &seen.namespace;
    if let Some(monitor) = monitors.first().or(pod_monitors.first()) {
        return Found::broken(
            format!("{none}, though {} selects its pods", shown(monitor)),
            format!("{}: port, path and labels of the series (namespace, pod)", targets()),
        );
    }
    match services.first() {
        Some(service) => Found::broken(
            format!(
                "{none}: Service {} leads to its pods, and no ServiceMonitor selects it",
                text(service, "/metadata/name")
            ),
            format!(
                "kubectl get servicemonitor -A, and let one select the labels of that Service in namespace {namespace}"
            ),
        ),
        None => Found::broken(
            format!("{none}: no Service and no PodMonitor selects its pods"),
            format!(
                "kubectl get service,podmonitor -n {namespace}, and add a Service with a ServiceMonitor (the chart: vllmService.enabled=true)"
            ),
        ),
    }
}

fn targets() -> &'static str {
    "look at the targets page of Prometheus"
}

fn shown(monitor: &Value) -> String {
    format!(
        "{} {}/{}",
        text(monitor, "/kind"),
        text(monitor, "/metadata/namespace"),
        text(monitor, "/metadata/name")
    )
}

/// Whether a Service leads to any of the pods.
fn leads_to(service: &Value, seen: &Seen<'_>, pods: &[&Value]) -> bool {
    let wanted = labels(service, "/spec/selector");
    text(service, "/metadata/namespace") == seen.namespace
        && !wanted.is_empty()
        && pods.iter().any(|pod| {
            let has = labels(pod, "/metadata/labels");
            wanted.iter().all(|(key, value)| has.get(key) == Some(value))
        })
}

/// Whether a monitor selects any of the objects: in its own namespace, unless it says otherwise.
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
