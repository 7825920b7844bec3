//! What carries the metric to an autoscaler: prometheus-adapter, KEDA, or the external metrics API of this program. Asked
//! is what the HPA asks.

use serde_json::Value;
use wva_crds::names::DESIRED_REPLICAS_METRIC;

use crate::cluster::{condition, id, items, text};
use crate::doctor::chain::Found;
use crate::doctor::facts::{Answered, DESCRIBE_API_SERVICE, metrics, served_by};
use crate::doctor::seen::Seen;

pub(in crate::doctor) fn check(seen: &Seen<'_>) -> Vec<Found> {
    let hidden =
        ["horizontalpodautoscalers", "scaledobjects"].into_iter().find_map(|kind| seen.facts.hidden(kind));
    let found: Vec<Found> = seen.autoscalers.iter().flat_map(|autoscaler| of(seen, autoscaler)).collect();
    if !found.is_empty() {
        return found;
    }
    if seen.recommends() {
        return vec![Found::fine("mode recommend: nothing has to follow it yet")];
    }
    if seen.facts.controllers.iter().flatten().any(|c| c.scales && c.takes(seen.object)) {
        return vec![Found::fine("WVA_ACTUATION=scale: the controller carries the target out itself")];
    }
    if let Some(why) = hidden {
        return vec![Found::unknown(why)];
    }
    let target = seen.target.as_ref().map(|t| format!("{} {}", t.kind, t.name)).unwrap_or_default();
    vec![Found::broken(
        format!(
            "no HPA and no ScaledObject on {target} follows {DESIRED_REPLICAS_METRIC}, so nobody carries the target out"
        ),
        "add one (config/samples in the repository, or hpa.enabled=true of the chart), or set WVA_ACTUATION=scale",
    )]
}

fn of(seen: &Seen<'_>, autoscaler: &Value) -> Vec<Found> {
    if text(autoscaler, "/kind") == "ScaledObject" {
        return scaled_object(autoscaler).into_iter().collect();
    }
    let answers = seen.facts.external.get(&id(autoscaler));
    answers.into_iter().flatten().map(|answered| hpa(seen, autoscaler, answered)).collect()
}

/// KEDA says of each whether it can read its triggers.
fn scaled_object(object: &Value) -> Option<Found> {
    let mut queries = items(object, "/spec/triggers").map(|trigger| text(trigger, "/metadata/query"));
    let name = id(object).name;
    queries.find(|query| query.contains("_desired_replicas"))?;
    Some(match condition(object, "Ready") {
        None => Found::unknown(format!("ScaledObject {name} has no status: does KEDA run?")),
        Some(ready) if text(ready, "/status") == "True" => match condition(object, "Fallback") {
            Some(fallback) if text(fallback, "/status") == "True" => Found::doubtful(
                format!("ScaledObject {name} is in fallback: KEDA gets no target and follows spec.fallback"),
                format!(
                    "kubectl describe scaledobject -n {} {name}: can KEDA reach Prometheus, and does its query find one series?",
                    text(object, "/metadata/namespace")
                ),
            ),
            _ => Found::fine(format!("ScaledObject {name} is ready")),
        },
        Some(ready) => Found::broken(
            format!("ScaledObject {name} is not ready: {}", text(ready, "/message")),
            format!(
                "kubectl describe scaledobject -n {} {name}, and look at the log of KEDA",
                text(object, "/metadata/namespace")
            ),
        ),
    })
}

fn hpa(seen: &Seen<'_>, hpa: &Value, answered: &Answered) -> Found {
    let (name, metric) = (id(hpa).name, &answered.metric);
    let values = match &answered.values {
        Err(said) => {
            let MetricsPath { why, remedy } = metrics_path(seen);
            return Found::broken(format!("HPA {name} cannot read {metric}: {said} ({why})"), remedy);
        }
        Ok(values) => values,
    };
    let value = |v: &Value| text(v, "/value").to_owned();
    match values.as_slice() {
        [] if seen.recommends() => {
            Found::fine(format!("HPA {name} is told nothing, as mode recommend wants"))
        }
        [] => {
            let why = metrics_path(seen).why;
            Found::broken(
                format!(
                    "HPA {name} is told nothing of {metric} ({why}): no series meets its selector, or none arrives there"
                ),
                format!(
                    "kubectl get --raw '/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/{metric}'",
                    seen.namespace
                ),
            )
        }
        [one] => Found::fine(format!("HPA {name} is told {}", value(one))),
        several => Found::broken(
            format!(
                "HPA {name} is told {} values of {metric}, which it adds up: {}",
                several.len(),
                several
                    .iter()
                    .map(|v| format!("{} {}", value(v), v["metricLabels"]))
                    .collect::<Vec<_>>()
                    .join("; ")
            ),
            format!(
                "kubectl edit hpa -n {} {name}: select variant_name and exported_namespace; or stop the second publisher",
                seen.namespace
            ),
        ),
    }
}

/// How external metrics reach an HPA.
struct MetricsPath {
    /// What serves them, or why nothing does.
    why: String,
    /// What to do where they do not arrive.
    remedy: String,
}

fn metrics_path(seen: &Seen<'_>) -> MetricsPath {
    let Some(service) = &seen.facts.api_service else {
        if let Some(why) = seen.facts.hidden("apiservices") {
            let why = format!("who serves it cannot be seen: {why}");
            return MetricsPath { why, remedy: DESCRIBE_API_SERVICE.to_owned() };
        }
        let why = "no APIService v1beta1.external.metrics.k8s.io";
        let remedy =
            "install prometheus-adapter or KEDA, or set wva.externalMetrics.enabled=true in the chart";
        return MetricsPath { why: why.to_owned(), remedy: remedy.to_owned() };
    };
    let (namespace, name) = (text(service, "/spec/service/namespace"), text(service, "/spec/service/name"));
    let remedy = format!("{DESCRIBE_API_SERVICE}, and look at the pods behind {namespace}/{name}");
    MetricsPath { why: served_by(service).text, remedy }
}

/// Whether an autoscaler follows the metric of this program at all.
pub(super) fn follows(autoscaler: &Value) -> bool {
    metrics(autoscaler).next().is_some()
}
