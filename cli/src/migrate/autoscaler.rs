//! Converts HPAs and ScaledObjects with annotations of llm-d WVA v0.9 to a `VariantAutoscaling` and an autoscaler that
//! reads only its target.

use serde_json::{Map, Value, json};
use wva_crds::names::{
    ACCELERATOR_LABEL, DESIRED_REPLICAS_METRIC, GROUP, INSTANCE_LABEL, KIND, VERSION, is_desired_replicas,
    reads_desired_replicas,
};

use super::objects::{object, set, user_metadata};
use super::variant::Conversion;
use crate::cluster::{entry, items, text};

const MANAGED: &str = "llm-d.ai/managed";
const MODEL: &str = "llm-d.ai/model-id";
const COST: &str = "llm-d.ai/variant-cost";

#[derive(Debug, Default, PartialEq)]
pub(super) struct AutoscalerConversion {
    /// `None` if information is missing; see `unresolved`.
    pub(super) variant: Option<Conversion>,
    /// `None` if the autoscaler needs no change.
    pub(super) autoscaler: Option<Conversion>,
    /// Problems that need a manual change.
    pub(super) unresolved: Vec<String>,
}

pub(super) fn is_managed(autoscaler: &Value) -> bool {
    let kinds = ["HorizontalPodAutoscaler", "ScaledObject"];
    kinds.contains(&text(autoscaler, "/kind"))
        && entry(autoscaler, "/metadata/annotations", MANAGED).is_some_and(|v| v.eq_ignore_ascii_case("true"))
}

pub(super) fn convert(autoscaler: &Value, namespace: &str) -> AutoscalerConversion {
    let mut conversion = AutoscalerConversion::default();
    let is_scaled_object = text(autoscaler, "/kind") == "ScaledObject";
    let selection = if is_scaled_object { triggers(autoscaler) } else { metrics(autoscaler) };
    let target = text(autoscaler, "/spec/scaleTargetRef/name");
    let name = selection
        .labels
        .iter()
        .find(|(key, _)| key == "variant_name")
        .map_or(target, |(_, name)| name.as_str());
    match create_variant(autoscaler, name, &selection) {
        Ok(variant) => conversion.variant = Some(variant),
        Err(problem) => conversion.unresolved.push(problem),
    }
    if is_scaled_object {
        conversion.unresolved.extend(query_to_fix(autoscaler, name, namespace, &selection));
    } else {
        conversion.autoscaler = select_variant(autoscaler, name, namespace);
    }
    conversion
}

/// Metric of an HPA that follows the target of one variant.
pub(crate) fn signal_metric(variant: &str, namespace: &str) -> Value {
    json!({"type": "External", "external": {
        "metric": {"name": DESIRED_REPLICAS_METRIC, "selector": {"matchLabels": {
            "variant_name": variant, "exported_namespace": namespace,
        }}},
        "target": {"type": "AverageValue", "averageValue": "1"},
    }})
}

/// Query of a ScaledObject that follows the target of one variant. Another namespace may have a variant with the same
/// name.
pub(crate) fn signal_query(variant: &str, namespace: &str) -> String {
    format!("max({DESIRED_REPLICAS_METRIC}{{variant_name=\"{variant}\",exported_namespace=\"{namespace}\"}})")
}

/// How an autoscaler selects series of the signal.
#[derive(Default)]
struct MetricSelection {
    /// Metrics or triggers that select all variants.
    unrestricted: Vec<usize>,
    reads_signal: bool,
    labels: Vec<(String, String)>,
}

fn metrics(hpa: &Value) -> MetricSelection {
    let mut selection = MetricSelection::default();
    for (i, metric) in items(hpa, "/spec/metrics").enumerate() {
        if !is_desired_replicas(text(metric, "/external/metric/name")) {
            continue;
        }
        selection.reads_signal = true;
        let labels = metric.pointer("/external/metric/selector/matchLabels").and_then(Value::as_object);
        let pairs =
            labels.into_iter().flatten().filter_map(|(key, v)| Some((key.clone(), v.as_str()?.to_owned())));
        let pairs: Vec<_> = pairs.collect();
        let mut expressions = items(metric, "/external/metric/selector/matchExpressions");
        let by_expression = expressions.any(|e| text(e, "/key") == "variant_name");
        if !by_expression && !pairs.iter().any(|(key, _)| key == "variant_name") {
            selection.unrestricted.push(i);
        }
        selection.labels.extend(pairs);
    }
    selection
}

fn triggers(scaled_object: &Value) -> MetricSelection {
    let mut selection = MetricSelection::default();
    for (i, trigger) in items(scaled_object, "/spec/triggers").enumerate() {
        let query = text(trigger, "/metadata/query");
        if !reads_desired_replicas(query) {
            continue;
        }
        selection.reads_signal = true;
        for key in ["variant_name", "accelerator_type", "controller_instance"] {
            if let Some(value) = label_in_query(query, key) {
                selection.labels.push((key.to_owned(), value.to_owned()));
            }
        }
        if label_in_query(query, "variant_name").is_none() {
            selection.unrestricted.push(i);
        }
    }
    selection
}

/// The value that a query requires with `=`.
fn label_in_query<'a>(query: &'a str, key: &str) -> Option<&'a str> {
    let after = query.split_once(key)?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    after[1..].split_once(quote).map(|(value, _)| value)
}

fn create_variant(autoscaler: &Value, name: &str, selection: &MetricSelection) -> Result<Conversion, String> {
    let annotation = |key| entry(autoscaler, "/metadata/annotations", key).filter(|v| !v.trim().is_empty());
    let model = annotation(MODEL)
        .ok_or_else(|| format!("metadata.annotations[{MODEL}]: missing; add the name of the model"))?;
    let target = autoscaler.pointer("/spec/scaleTargetRef").and_then(Value::as_object);
    let field = |key: &str| target.and_then(|t| t.get(key)).and_then(Value::as_str).filter(|v| !v.is_empty());
    let workload = field("name").ok_or("spec.scaleTargetRef.name: missing; add the name of the workload")?;
    let mut spec = json!({
        "scaleTargetRef": {
            "apiVersion": field("apiVersion").unwrap_or("apps/v1"),
            "kind": field("kind").unwrap_or("Deployment"),
            "name": workload,
        },
        "modelID": model,
    });
    let mut changes = vec![format!("new VariantAutoscaling for the annotations {MANAGED} and {MODEL}")];
    if let Some(cost) = annotation(COST) {
        spec["variantCost"] = json!(cost);
        changes.push(format!("spec.variantCost: from the annotation {COST}"));
    }
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    if let Some(namespace) = autoscaler.pointer("/metadata/namespace") {
        metadata.insert("namespace".to_owned(), namespace.clone());
    }
    // The series have these labels only if the variant has them.
    for (series_label, label) in
        [("accelerator_type", ACCELERATOR_LABEL), ("controller_instance", INSTANCE_LABEL)]
    {
        if let Some((_, value)) = selection.labels.iter().find(|(key, _)| key == series_label) {
            set(&mut metadata, "labels", label, value);
            changes.push(format!("metadata.labels[{label}]: from its selector {series_label}"));
        }
    }
    let object = object(&format!("{GROUP}/{VERSION}"), KIND, &metadata, &spec);
    Ok(Conversion { object, changes })
}

/// `None` if the HPA needs no change.
fn select_variant(hpa: &Value, name: &str, namespace: &str) -> Option<Conversion> {
    let selection = metrics(hpa);
    if selection.reads_signal && selection.unrestricted.is_empty() {
        return None;
    }
    let (mut spec, mut changes) = (hpa.get("spec")?.clone(), Vec::new());
    let labels = [("variant_name", name), ("exported_namespace", namespace)];
    for i in &selection.unrestricted {
        let metric = spec.pointer_mut(&format!("/metrics/{i}/external/metric"))?.as_object_mut()?;
        let selector = metric.entry("selector").or_insert_with(|| json!({})).as_object_mut()?;
        let match_labels = selector.entry("matchLabels").or_insert_with(|| json!({})).as_object_mut()?;
        match_labels.extend(labels.map(|(key, value)| (key.to_owned(), json!(value))));
        changes.push(format!(
            "spec.metrics[{i}]: selects only this variant, because an HPA adds up all series that match"
        ));
    }
    if !selection.reads_signal {
        let metrics = spec.as_object_mut()?.entry("metrics").or_insert_with(|| json!([])).as_array_mut()?;
        metrics.push(signal_metric(name, namespace));
        changes.push(format!(
            "spec.metrics: added {DESIRED_REPLICAS_METRIC}; an HPA uses the highest of its metrics, so remove the others \
             unless they should scale too"
        ));
    }
    let object = object(text(hpa, "/apiVersion"), text(hpa, "/kind"), &user_metadata(hpa), &spec);
    Some(Conversion { object, changes })
}

/// Query for a ScaledObject; `None` if it needs no change. wva only reports the query.
fn query_to_fix(
    scaled_object: &Value,
    name: &str,
    namespace: &str,
    selection: &MetricSelection,
) -> Option<String> {
    let query = signal_query(name, namespace);
    let problem = match selection.unrestricted.first() {
        Some(i) => {
            let query = text(scaled_object, &format!("/spec/triggers/{i}/metadata/query"));
            format!("spec.triggers[{i}].metadata.query: {query} does not select variant_name")
        }
        None if selection.reads_signal => return None,
        None => format!("spec.triggers: no prometheus trigger reads {DESIRED_REPLICAS_METRIC}"),
    };
    Some(format!("{problem}; use {query} with metricType AverageValue and threshold \"1\""))
}
