//! Whether the signal reaches an autoscaler. Sends the query of the HPA.

use serde_json::Value;

use crate::cluster::{id, text};
use crate::doctor::chain::Finding;
use crate::doctor::facts::{DESCRIBE_API_SERVICE, ExternalMetric, metrics_server, signal_metrics};
use crate::doctor::variant_state::{VariantState, edit};

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    let answers = variant.autoscalers.iter().flat_map(|hpa| {
        let answers = variant.facts.autoscaling.external_metrics.get(&id(hpa)).into_iter().flatten();
        answers.map(move |answer| check_hpa(variant, hpa, answer))
    });
    let findings: Vec<Finding> = answers.collect();
    if findings.is_empty() {
        return vec![Finding::fine("no HPA queries it")];
    }
    findings
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
                "{}: select variant_name and exported_namespace; or stop the second publisher",
                edit(hpa, "hpa")
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
    let Some(service) = &variant.facts.autoscaling.api_service else {
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
