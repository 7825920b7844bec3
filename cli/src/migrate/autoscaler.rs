//! Converts HPAs and ScaledObjects with annotations of llm-d WVA v0.9 to a `VariantAutoscaling` and an autoscaler that
//! reads only its target.

use serde_json::{Value, json};
use wva_crds::names::{
    ACCELERATOR_LABEL, DESIRED_REPLICAS_METRIC, INSTANCE_LABEL, MANAGED_ANNOTATION, MODEL_ANNOTATION,
    VARIANT_COST_ANNOTATION,
};
use wva_objects::{AnnotatedVariant, MetricSelection};

use super::objects::{object, user_metadata};
use super::variant::Conversion;
use crate::cluster::text;

#[derive(Debug, Default, PartialEq)]
pub(super) struct AutoscalerConversion {
    /// `None` if information is missing; see `unresolved`.
    pub(super) variant: Option<Conversion>,
    /// `None` if the autoscaler needs no change.
    pub(super) autoscaler: Option<Conversion>,
    /// Problems that need a manual change.
    pub(super) unresolved: Vec<String>,
}

pub(super) fn convert(autoscaler: &Value, namespace: &str) -> AutoscalerConversion {
    let mut conversion = AutoscalerConversion::default();
    let selection = MetricSelection::from_autoscaler(autoscaler);
    let target = text(autoscaler, "/spec/scaleTargetRef/name");
    let name = selection.label("variant_name").unwrap_or(target);
    match AnnotatedVariant::from_autoscaler(autoscaler) {
        Ok(variant) => conversion.variant = Some(create_variant(autoscaler, &variant)),
        Err(problem) => conversion.unresolved.push(problem.to_string()),
    }
    if text(autoscaler, "/kind") == "ScaledObject" {
        conversion.unresolved.extend(query_to_fix(autoscaler, name, namespace, &selection));
    } else {
        conversion.autoscaler = select_variant(autoscaler, name, namespace, &selection);
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

fn create_variant(autoscaler: &Value, variant: &AnnotatedVariant) -> Conversion {
    let mut object = variant.object();
    if let Some(namespace) = autoscaler.pointer("/metadata/namespace") {
        object["metadata"]["namespace"] = namespace.clone();
    }
    let mut changes = vec![format!(
        "new VariantAutoscaling for the annotations {MANAGED_ANNOTATION} and {MODEL_ANNOTATION}"
    )];
    if variant.cost.is_some() {
        changes.push(format!("spec.variantCost: from the annotation {VARIANT_COST_ANNOTATION}"));
    }
    // The series have these labels only if the variant has them.
    for (label, value) in [(ACCELERATOR_LABEL, &variant.accelerator), (INSTANCE_LABEL, &variant.instance)] {
        if value.is_some() {
            changes.push(format!("metadata.labels[{label}]: from its labels or its selector"));
        }
    }
    changes.extend(variant.annotations.iter().map(|(key, _)| format!("metadata.annotations[{key}]: copied")));
    Conversion { object, changes }
}

/// `None` if the HPA needs no change.
fn select_variant(
    hpa: &Value,
    name: &str,
    namespace: &str,
    selection: &MetricSelection,
) -> Option<Conversion> {
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
