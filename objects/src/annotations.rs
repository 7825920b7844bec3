//! Annotations of llm-d WVA v0.9 on HPAs and ScaledObjects, which describe a variant without a `VariantAutoscaling`.

use serde_json::{Map, Value, json};
use wva_crds::names::{
    ACCELERATOR_LABEL, GROUP, INSTANCE_LABEL, KIND, MANAGED_ANNOTATION, MODE_ANNOTATION, MODEL_ANNOTATION,
    POD_DELETION_COST_ANNOTATION, VARIANT_COST_ANNOTATION, VERSION, is_desired_replicas,
    reads_desired_replicas,
};

use crate::json::at;
use crate::series::VARIANT_LABEL;
use crate::target::Target;

/// Labels of the series that become labels of the variant.
const ACCELERATOR_SERIES_LABEL: &str = "accelerator_type";
const INSTANCE_SERIES_LABEL: &str = "controller_instance";
/// Annotations of wva on the autoscaler that apply to the variant.
const COPIED: [&str; 2] = [MODE_ANNOTATION, POD_DELETION_COST_ANNOTATION];

/// Variant that an annotated autoscaler describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotatedVariant {
    /// `variant_name` that the autoscaler selects, else the name of its workload.
    pub name: String,
    /// Workload that the autoscaler scales.
    pub target: Target,
    /// Model.
    pub model: String,
    /// `None` for the default.
    pub cost: Option<String>,
    /// Value of the accelerator label.
    pub accelerator: Option<String>,
    /// Value of the instance label.
    pub instance: Option<String>,
    /// Annotations of wva.
    pub annotations: Vec<(&'static str, String)>,
}

/// A field without which there is no variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// Annotation of the model.
    #[error("metadata.annotations[{MODEL_ANNOTATION}]: missing; add the name of the model")]
    MissingModel,
    /// Name of the workload.
    #[error("spec.scaleTargetRef.name: missing; add the name of the workload")]
    MissingTarget,
}

/// Whether the autoscaler has the annotation `llm-d.ai/managed: "true"`. KEDA copies the annotations of a ScaledObject to
/// its HPA, which does not count.
#[must_use]
pub fn is_annotated(autoscaler: &Value) -> bool {
    let kind = at(autoscaler, &["kind"]).and_then(Value::as_str).unwrap_or_default();
    ["HorizontalPodAutoscaler", "ScaledObject"].contains(&kind)
        && entry(autoscaler, "annotations", MANAGED_ANNOTATION)
            .is_some_and(|v| v.eq_ignore_ascii_case("true"))
        && !has_scaled_object(autoscaler)
}

fn has_scaled_object(autoscaler: &Value) -> bool {
    let owners = at(autoscaler, &["metadata", "ownerReferences"]).and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| owner["kind"] == "ScaledObject" && owner["controller"] == true)
}

fn entry<'a>(object: &'a Value, map: &str, key: &str) -> Option<&'a str> {
    at(object, &["metadata", map, key])?.as_str().filter(|value| !value.trim().is_empty())
}

impl AnnotatedVariant {
    /// Reads the annotations, the labels and the selectors of an autoscaler.
    ///
    /// # Errors
    /// The model or the workload is missing.
    pub fn from_autoscaler(autoscaler: &Value) -> Result<Self, AnnotationError> {
        let selection = MetricSelection::from_autoscaler(autoscaler);
        let model =
            entry(autoscaler, "annotations", MODEL_ANNOTATION).ok_or(AnnotationError::MissingModel)?;
        let text = |field| {
            let value = at(autoscaler, &["spec", "scaleTargetRef", field]).and_then(Value::as_str);
            value.filter(|value| !value.is_empty())
        };
        let workload = text("name").ok_or(AnnotationError::MissingTarget)?;
        let copied =
            COPIED.iter().filter_map(|key| Some((*key, entry(autoscaler, "annotations", key)?.to_owned())));
        Ok(Self {
            name: selection.label(VARIANT_LABEL).unwrap_or(workload).to_owned(),
            target: Target::with_defaults(text("apiVersion"), text("kind"), workload),
            model: model.to_owned(),
            cost: entry(autoscaler, "annotations", VARIANT_COST_ANNOTATION).map(str::to_owned),
            accelerator: entry(autoscaler, "labels", ACCELERATOR_LABEL)
                .or_else(|| selection.label(ACCELERATOR_SERIES_LABEL))
                .map(str::to_owned),
            instance: instance(autoscaler, &selection),
            annotations: copied.collect(),
        })
    }

    /// The `VariantAutoscaling`, without namespace and bounds.
    #[must_use]
    pub fn object(&self) -> Value {
        let mut metadata = Map::from_iter([("name".to_owned(), json!(self.name))]);
        let labels = [(ACCELERATOR_LABEL, &self.accelerator), (INSTANCE_LABEL, &self.instance)];
        let labels =
            labels.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value.as_ref()?))));
        let annotations = self.annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value)));
        let maps: [(&str, Map<String, Value>); 2] =
            [("labels", labels.collect()), ("annotations", annotations.collect())];
        let maps = maps.into_iter().filter(|(_, map)| !map.is_empty());
        metadata.extend(maps.map(|(key, map)| (key.to_owned(), Value::Object(map))));
        let Target { api_version, kind, name } = &self.target;
        let mut spec = json!({
            "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": name},
            "modelID": self.model,
        });
        if let Some(cost) = &self.cost {
            spec["variantCost"] = json!(cost);
        }
        json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND, "metadata": metadata, "spec": spec})
    }
}

/// Instance to which an autoscaler belongs, by its label or its selector.
#[must_use]
pub fn annotated_instance(autoscaler: &Value) -> Option<String> {
    instance(autoscaler, &MetricSelection::from_autoscaler(autoscaler))
}

fn instance(autoscaler: &Value, selection: &MetricSelection) -> Option<String> {
    let label = entry(autoscaler, "labels", INSTANCE_LABEL);
    label.or_else(|| selection.label(INSTANCE_SERIES_LABEL)).map(str::to_owned)
}

/// How an autoscaler selects series of wva's metric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricSelection {
    /// Positions of the metrics or triggers that select all variants.
    pub unrestricted: Vec<usize>,
    /// Whether it reads the metric.
    pub reads_signal: bool,
    labels: Vec<(String, String)>,
}

impl MetricSelection {
    /// Reads the metrics of an HPA or the triggers of a ScaledObject.
    #[must_use]
    pub fn from_autoscaler(autoscaler: &Value) -> Self {
        let is_scaled_object = at(autoscaler, &["kind"]).and_then(Value::as_str) == Some("ScaledObject");
        if is_scaled_object { Self::from_triggers(autoscaler) } else { Self::from_metrics(autoscaler) }
    }

    /// Value that it requires of a label of the series.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == key).map(|(_, value)| value.as_str())
    }

    fn from_metrics(hpa: &Value) -> Self {
        let mut selection = Self::default();
        let metrics = at(hpa, &["spec", "metrics"]).and_then(Value::as_array).into_iter().flatten();
        for (i, metric) in metrics.enumerate() {
            let name = at(metric, &["external", "metric", "name"]).and_then(Value::as_str);
            if !name.is_some_and(is_desired_replicas) {
                continue;
            }
            selection.reads_signal = true;
            let selector = at(metric, &["external", "metric", "selector"]).unwrap_or(&Value::Null);
            let labels = at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten();
            let mut pairs: Vec<_> =
                labels.filter_map(|(key, v)| Some((key.clone(), v.as_str()?.to_owned()))).collect();
            let expressions = at(selector, &["matchExpressions"]).and_then(Value::as_array);
            let mut by_expression = false;
            for expression in expressions.into_iter().flatten() {
                let key = expression["key"].as_str().unwrap_or_default();
                by_expression |= key == VARIANT_LABEL;
                if let ("In", Some([value])) = (
                    expression["operator"].as_str().unwrap_or_default(),
                    expression["values"].as_array().map(Vec::as_slice),
                ) {
                    pairs.extend(value.as_str().map(|value| (key.to_owned(), value.to_owned())));
                }
            }
            if !by_expression && !pairs.iter().any(|(key, _)| key == VARIANT_LABEL) {
                selection.unrestricted.push(i);
            }
            selection.labels.extend(pairs);
        }
        selection
    }

    fn from_triggers(scaled_object: &Value) -> Self {
        let mut selection = Self::default();
        let triggers =
            at(scaled_object, &["spec", "triggers"]).and_then(Value::as_array).into_iter().flatten();
        for (i, trigger) in triggers.enumerate() {
            let query = at(trigger, &["metadata", "query"]).and_then(Value::as_str).unwrap_or_default();
            if !reads_desired_replicas(query) {
                continue;
            }
            selection.reads_signal = true;
            for key in [VARIANT_LABEL, ACCELERATOR_SERIES_LABEL, INSTANCE_SERIES_LABEL] {
                if let Some(value) = label_in_query(query, key) {
                    selection.labels.push((key.to_owned(), value.to_owned()));
                }
            }
            if label_in_query(query, VARIANT_LABEL).is_none() {
                selection.unrestricted.push(i);
            }
        }
        selection
    }
}

/// The value that a `PromQL` query requires of a label with `=`. `None` without such a matcher.
#[must_use]
pub fn label_in_query<'a>(query: &'a str, key: &str) -> Option<&'a str> {
    let after = query.split_once(key)?.1.trim_start().strip_prefix('=')?.trim_start();
    let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    after[1..].split_once(quote).map(|(value, _)| value)
}

#[cfg(test)]
mod tests;
