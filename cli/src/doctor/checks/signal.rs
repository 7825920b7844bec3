//! Whether one controller publishes the target. An HPA adds up all series that match, so a second one doubles it.

use std::collections::BTreeMap;

use wva_crds::names::DESIRED_REPLICAS_METRIC;

use crate::cluster::id;
use crate::doctor::chain::Finding;
use crate::doctor::facts::{ExternalMetric, is_served_by_wva};
use crate::doctor::variant_state::VariantState;
use crate::prometheus::Series;

const RECOMMEND_ONLY: &str = "mode recommend: not published, as intended";

pub(in crate::doctor) fn check(variant: &VariantState<'_>) -> Vec<Finding> {
    let query_error = match &variant.facts.monitoring.series {
        Some(Ok(series)) => return vec![in_prometheus(variant, &series.signals)],
        Some(Err(error)) => Some(Finding::unknown(error)),
        None => None,
    };
    let by_status = by_status(variant);
    vec![query_error.filter(|_| by_status.remedy.is_none()).unwrap_or(by_status)]
}

fn by_status(variant: &VariantState<'_>) -> Finding {
    if variant.is_recommend_only() {
        return Finding::fine(RECOMMEND_ONLY);
    }
    if variant.object.pointer("/status/actuation/applied") == Some(&serde_json::Value::Bool(true)) {
        let target = variant.desired().map(|n| format!("{n} ")).unwrap_or_default();
        return Finding::fine(format!("{target}published, according to the status"));
    }
    Finding::warning(
        "the target is not published: status.actuation.applied is not true",
        format!("kubectl describe va {}", variant.argument()),
    )
}

pub(in crate::doctor) fn series_of<'a>(series: &'a [Series], namespace: &str, name: &str) -> Vec<&'a Series> {
    let is_match = |s: &&Series| {
        // With `honorLabels: false` Prometheus renames the variant's namespace.
        let exported = s.label("exported_namespace");
        s.label("variant_name") == name
            && (if exported.is_empty() { s.label("namespace") } else { exported }) == namespace
    };
    series.iter().filter(is_match).collect()
}

pub(in crate::doctor) fn publisher(series: &Series) -> String {
    let keys = ["job", "namespace", "pod", "instance", "controller_instance"];
    let labels = keys.iter().map(|key| (key, series.label(key))).filter(|(key, value)| {
        // Without `exported_namespace`, `namespace` is the variant's.
        !value.is_empty() && (**key != "namespace" || !series.label("exported_namespace").is_empty())
    });
    let labels: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
    if labels.is_empty() { "unknown".to_owned() } else { labels.join(",") }
}

fn in_prometheus(variant: &VariantState<'_>, all: &[Series]) -> Finding {
    let published = series_of(all, &variant.namespace, &variant.name);
    let has_present_name = |s: &&&Series| s.label("__name__") == DESIRED_REPLICAS_METRIC;
    let present = published.iter().filter(has_present_name).count();
    let by_publisher: BTreeMap<String, f64> = published.iter().map(|s| (publisher(s), s.value)).collect();
    let list = || {
        let values = by_publisher.iter().map(|(publisher, value)| format!("{value} by {publisher}"));
        values.collect::<Vec<_>>().join("; ")
    };
    if variant.is_recommend_only() {
        return Finding::fine(match by_publisher.len() {
            0 => RECOMMEND_ONLY.to_owned(),
            _ => format!("mode recommend: not published by this controller; published by others: {}", list()),
        });
    }
    if present > 1 || by_publisher.len() > 1 {
        return Finding::broken(
            format!(
                "{} publishers of one variant, and an HPA adds up their values: {}",
                by_publisher.len().max(present),
                list()
            ),
            "stop all publishers but one: kubectl get pods -A -l app.kubernetes.io/name=workload-variant-autoscaler",
        );
    }
    let Some(one) = published.first() else {
        // wva itself serves external metrics, so Prometheus need not scrape it.
        let has_value =
            |answer: &ExternalMetric| answer.values.as_ref().is_ok_and(|values| !values.is_empty());
        let answers: Vec<_> = variant
            .autoscalers
            .iter()
            .filter_map(|hpa| variant.facts.autoscaling.external_metrics.get(&id(hpa)))
            .flatten()
            .collect();
        let is_served_by_wva = variant.facts.autoscaling.api_service.as_ref().is_some_and(is_served_by_wva);
        // Without a reader the autoscaler is the first broken link, and nothing needs the series yet.
        if variant.autoscalers.is_empty() || is_served_by_wva || answers.into_iter().any(has_value) {
            return by_status(variant);
        }
        return Finding::broken(
            format!(
                "Prometheus has no {DESIRED_REPLICAS_METRIC} of this variant: it does not scrape the controller's metrics"
            ),
            "kubectl get servicemonitor -A; one of them must select <release>-controller-manager-metrics-service (not \
             needed with the external metrics API)",
        );
    };
    Finding::fine(format!("{} in Prometheus, by {}", one.value, publisher(one)))
}
