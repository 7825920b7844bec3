//! Series of the variant's model that have other labels or names, or belong to other pods.

use std::collections::BTreeSet;

use wva_objects::servers::{ServerSignal, server_metrics};

use super::pod_series::{pod_names, pod_of, pods_of};
use crate::cluster::text;
use crate::doctor::chain::Finding;
use crate::doctor::facts::{OTHER_NAMESPACE_LABELS, OTHER_POD_LABELS};
use crate::doctor::variant_state::VariantState;
use crate::output::{count, first_names};
use crate::prometheus::Series;

/// `None` without `--prometheus`, or if no such series reports the model.
pub(super) fn find(variant: &VariantState<'_>) -> Option<Finding> {
    let series = variant.facts.monitoring.series.as_ref()?.as_ref().ok()?;
    let model = text(variant.object, "/spec/modelID");
    let of_model: Vec<&Series> = series.models.iter().filter(|s| s.label("model_name") == model).collect();
    let elsewhere = other_names(variant, &of_model).or_else(|| other_labels(variant, &of_model));
    elsewhere.or_else(|| other_pods(variant, &of_model))
}

/// The pods are scraped, but report other models than the variant's. The check of the series names them.
pub(super) fn of_other_models(variant: &VariantState<'_>) -> Option<Finding> {
    let series = variant.facts.monitoring.series.as_ref()?.as_ref().ok()?;
    let (model, pods) = (text(variant.object, "/spec/modelID"), pod_names(variant));
    let is_own = |s: &&Series| s.label("namespace") == variant.namespace && pods.contains(pod_of(s));
    let own: Vec<&Series> = series.models.iter().filter(is_own).collect();
    let are_others = !own.is_empty() && own.iter().all(|s| s.label("model_name") != model);
    are_others.then(|| {
        Finding::fine(format!("{} scraped, under other model names", count(pods_of(&own).len(), "pod")))
    })
}

/// Another name of a metric, such as `vllm_num_requests_waiting`, which pipelines make that allow no colon.
pub(super) fn renamed(series: &Series) -> Option<&'static str> {
    let name = series.label("__name__");
    let signals = [ServerSignal::KvUsage, ServerSignal::Waiting].into_iter().flat_map(server_metrics);
    let mut names = signals.map(|(_, metric)| metric.name);
    names.find(|own| *own != name && own.replace(':', "_") == name.replace('.', "_"))
}

/// The pods are scraped, but their metrics have other names.
fn other_names(variant: &VariantState<'_>, of_model: &[&Series]) -> Option<Finding> {
    let pods = pod_names(variant);
    let is_own = |s: &&&Series| s.label("namespace") == variant.namespace && pods.contains(pod_of(s));
    let all = of_model.iter().filter(is_own).filter_map(|s| Some((*s, renamed(s)?)));
    let all: Vec<(&Series, &str)> = all.collect();
    let (first, name) = *all.first()?;
    let renamed = first.label("__name__");
    let count = count(pods_of(&all.iter().map(|(s, _)| *s).collect::<Vec<_>>()).len(), "pod");
    Some(Finding::broken(
        format!("{count} scraped under other names: {renamed} instead of {name}"),
        "let the pipeline to Prometheus keep the colon in the names of metrics, or rename them: metricRelabelings: \
         [{sourceLabels: [__name__], regex: \"(vllm|sglang)[_.](.+)\", targetLabel: __name__, replacement: \"$1:$2\"}]",
    ))
}

/// The first of these labels that a series has.
fn first_label(series: &Series, names: [&'static str; 3]) -> Option<&'static str> {
    names.into_iter().find(|name| !series.label(name).is_empty())
}

/// The pod is in another label, as OpenTelemetry and older scrape configurations write it.
fn other_labels(variant: &VariantState<'_>, of_model: &[&Series]) -> Option<Finding> {
    let pods = pod_names(variant);
    let is_in_namespace = |s: &Series| {
        let other = first_label(s, OTHER_NAMESPACE_LABELS).map(|name| s.label(name));
        [Some(s.label("namespace")), other].contains(&Some(variant.namespace.as_str()))
    };
    let named = of_model.iter().filter(|s| is_in_namespace(s));
    let named = named.filter_map(|s| Some((*s, first_label(s, OTHER_POD_LABELS)?)));
    let own: Vec<(&Series, &str)> = named.filter(|(s, label)| pods.contains(s.label(label))).collect();
    let (first, pod_label) = *own.first()?;
    let namespace_label =
        first_label(first, OTHER_NAMESPACE_LABELS).filter(|_| first.label("namespace") != variant.namespace);
    let pod = match pod_of(first) {
        "" => format!("no label pod, but {pod_label}"),
        other => format!("the label pod of another pod ({other}), and their own in {pod_label}"),
    };
    let model = text(variant.object, "/spec/modelID");
    // Each pod has several metrics.
    let alike = own.iter().filter(|(s, _)| s.label("__name__") == first.label("__name__")).count();
    let has = if alike == 1 { "has" } else { "have" };
    let message = format!("{alike} series with model_name {model:?} {has} {pod}");
    Some(Finding::broken(message, relabelling(pod_label, namespace_label)))
}

fn relabelling(pod_label: &str, namespace_label: Option<&str>) -> String {
    let rules = [(Some(pod_label), "pod"), (namespace_label, "namespace")];
    let rules = rules.into_iter().filter_map(|(source, target)| Some((source?, target)));
    let (mut of_monitor, mut of_config) = (Vec::new(), Vec::new());
    for (source, target) in rules {
        of_monitor.push(format!("{{sourceLabels: [{source}], targetLabel: {target}}}"));
        of_config.push(format!("{{source_labels: [{source}], target_label: {target}}}"));
    }
    let (of_monitor, of_config) = (of_monitor.join(", "), of_config.join(", "));
    format!(
        "relabel: add metricRelabelings: [{of_monitor}] to the endpoints of the monitor, or metric_relabel_configs: \
         [{of_config}] to the scrape job of Prometheus"
    )
}

/// Pods that no variant of the model owns, such as those of a launcher.
fn other_pods(variant: &VariantState<'_>, of_model: &[&Series]) -> Option<Finding> {
    let model = text(variant.object, "/spec/modelID");
    let siblings =
        variant.facts.objects.variants.iter().filter(|other| text(other, "/spec/modelID") == model);
    let siblings: Vec<VariantState> = siblings.map(|other| VariantState::new(variant.facts, other)).collect();
    let owned: BTreeSet<&str> =
        siblings.iter().filter(|other| other.namespace == variant.namespace).flat_map(pod_names).collect();
    let in_namespace = of_model.iter().filter(|s| s.label("namespace") == variant.namespace);
    let in_namespace: Vec<&Series> = in_namespace.copied().collect();
    let mut pods = pods_of(&in_namespace);
    pods.retain(|pod| !pod.is_empty() && !owned.contains(pod));
    let workload = variant.target.as_ref()?;
    let (verb, does) = if pods.len() == 1 { ("reports", "does") } else { ("report", "do") };
    (!pods.is_empty()).then(|| {
        Finding::broken(
            format!(
                "{} ({}) {verb} this model, but {does} not belong to {} {}",
                count(pods.len(), "pod"),
                first_names(pods.iter().copied()),
                workload.kind,
                workload.name
            ),
            "wva counts the pods that the workload of spec.scaleTargetRef owns, and does not read the label \
             llm-d.ai/variant: serve the model in pods of that workload, or refer to the workload of these pods",
        )
    })
}
