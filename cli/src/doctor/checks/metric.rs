//! Whether the signal reaches an autoscaler. Sends the query of the HPA.

use serde_json::Value;
use wva_crds::names::DESIRED_REPLICAS_METRIC;

use crate::cluster::{condition, id, items, text};
use crate::doctor::chain::Finding;
use crate::doctor::facts::{DESCRIBE_API_SERVICE, ExternalMetric, metrics_server, signal_metrics};
use crate::doctor::variant_state::VariantState;

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    let findings: Vec<Finding> =
        variant.autoscalers.iter().flat_map(|autoscaler| check_autoscaler(variant, autoscaler)).collect();
    if !findings.is_empty() {
        return findings;
    }
    if variant.is_recommend_only() {
        return vec![Finding::fine("mode recommend: no autoscaler needed yet")];
    }
    if variant.facts.controllers.iter().flatten().any(|c| c.scales_directly && c.manages(variant.object)) {
        return vec![Finding::fine("WVA_ACTUATION=scale: the controller scales the workload itself")];
    }
    let unreadable = ["horizontalpodautoscalers", "scaledobjects"]
        .into_iter()
        .find_map(|plural| variant.facts.unreadable_reason(plural));
    if let Some(reason) = unreadable {
        return vec![Finding::unknown(reason)];
    }
    let target = variant.target.as_ref().map(|t| format!("{} {}", t.kind, t.name)).unwrap_or_default();
    vec![Finding::broken(
        format!(
            "no HPA and no ScaledObject on {target} reads {DESIRED_REPLICAS_METRIC}, so the target has no effect"
        ),
        "add one (config/samples in the repository; Helm: hpa.enabled=true), or set WVA_ACTUATION=scale",
    )]
}

fn check_autoscaler(variant: &VariantState<'_>, autoscaler: &Value) -> Vec<Finding> {
    if text(autoscaler, "/kind") == "ScaledObject" {
        return check_scaled_object(autoscaler).into_iter().collect();
    }
    let answers = variant.facts.external_metrics.get(&id(autoscaler));
    answers.into_iter().flatten().map(|answer| check_hpa(variant, autoscaler, answer)).collect()
}

/// Checks KEDA's conditions; `None` if no trigger reads the signal.
fn check_scaled_object(object: &Value) -> Option<Finding> {
    let mut queries = items(object, "/spec/triggers").map(|trigger| text(trigger, "/metadata/query"));
    let name = id(object).name;
    queries.find(|query| query.contains("_desired_replicas"))?;
    Some(match condition(object, "Ready") {
        None => Finding::unknown(format!("ScaledObject {name} has no status: check that KEDA runs")),
        Some(ready) if text(ready, "/status") == "True" => match condition(object, "Fallback") {
            Some(fallback) if text(fallback, "/status") == "True" => Finding::warning(
                format!("ScaledObject {name} is in fallback: KEDA reads no target and uses spec.fallback"),
                format!(
                    "kubectl describe scaledobject -n {} {name}; check that KEDA reaches Prometheus and that its query \
                     returns one series",
                    text(object, "/metadata/namespace")
                ),
            ),
            _ => Finding::fine(format!("ScaledObject {name} is ready")),
        },
        Some(ready) => Finding::broken(
            format!("ScaledObject {name} is not ready: {}", text(ready, "/message")),
            format!(
                "kubectl describe scaledobject -n {} {name}, then check the log of KEDA",
                text(object, "/metadata/namespace")
            ),
        ),
    })
}

fn check_hpa(variant: &VariantState<'_>, hpa: &Value, answer: &ExternalMetric) -> Finding {
    let (name, metric) = (id(hpa).name, &answer.metric);
    let values = match &answer.values {
        Err(error) => {
            let MetricsPath { server, remedy } = metrics_path(variant);
            return Finding::broken(format!("HPA {name} cannot read {metric}: {error} ({server})"), remedy);
        }
        Ok(values) => values,
    };
    let value = |v: &Value| text(v, "/value").to_owned();
    match values.as_slice() {
        [] if variant.is_recommend_only() => {
            Finding::fine(format!("HPA {name} gets no value, as intended in mode recommend"))
        }
        [] => {
            let server = metrics_path(variant).server;
            Finding::broken(
                format!(
                    "HPA {name} gets no value of {metric} ({server}): no series matches its selector, or the server has none"
                ),
                format!(
                    "kubectl get --raw '/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/{metric}'",
                    variant.namespace
                ),
            )
        }
        [one] => Finding::fine(format!("HPA {name} gets {}", value(one))),
        several => Finding::broken(
            format!(
                "HPA {name} gets {} values of {metric} and adds them up: {}",
                several.len(),
                several
                    .iter()
                    .map(|v| format!("{} {}", value(v), v["metricLabels"]))
                    .collect::<Vec<_>>()
                    .join("; ")
            ),
            format!(
                "kubectl edit hpa -n {} {name}: select variant_name and exported_namespace; or stop the second publisher",
                variant.namespace
            ),
        ),
    }
}

struct MetricsPath {
    server: String,
    /// What to do if an HPA cannot read the metric.
    remedy: String,
}

fn metrics_path(variant: &VariantState<'_>) -> MetricsPath {
    let Some(service) = &variant.facts.api_service else {
        if let Some(reason) = variant.facts.unreadable_reason("apiservices") {
            let server = format!("its server is unknown: {reason}");
            return MetricsPath { server, remedy: DESCRIBE_API_SERVICE.to_owned() };
        }
        let server = "no APIService v1beta1.external.metrics.k8s.io";
        let remedy =
            "install prometheus-adapter or KEDA, or set wva.externalMetrics.enabled=true in the chart";
        return MetricsPath { server: server.to_owned(), remedy: remedy.to_owned() };
    };
    let (namespace, name) = (text(service, "/spec/service/namespace"), text(service, "/spec/service/name"));
    let remedy = format!("{DESCRIBE_API_SERVICE}, then check the pods of Service {namespace}/{name}");
    MetricsPath { server: metrics_server(service).text, remedy }
}

pub(super) fn reads_signal(autoscaler: &Value) -> bool {
    signal_metrics(autoscaler).next().is_some()
}
