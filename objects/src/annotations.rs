//! Annotations of llm-d WVA v0.9 on HPAs and ScaledObjects, which describe a variant without a `VariantAutoscaling`.

use serde_json::{Map, Value, json};
use wva_crds::names::{
    ACCELERATOR_LABEL, GROUP, INSTANCE_LABEL, KIND, MANAGED_ANNOTATION, MODE_ANNOTATION, MODEL_ANNOTATION,
    POD_DELETION_COST_ANNOTATION, VARIANT_COST_ANNOTATION, VERSION,
};

use crate::autoscaler_kind::AutoscalerKind;
use crate::json::at;
use crate::readers::{SeriesSelector, SignalSource};
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

/// Whether KEDA made the HPA of a ScaledObject.
#[must_use]
pub fn has_scaled_object(autoscaler: &Value) -> bool {
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
        let target = Target::of_autoscaler(autoscaler).ok_or(AnnotationError::MissingTarget)?;
        let copied =
            COPIED.iter().filter_map(|key| Some((*key, entry(autoscaler, "annotations", key)?.to_owned())));
        Ok(Self {
            name: selection.label(VARIANT_LABEL).unwrap_or(&target.name).to_owned(),
            target,
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
        let mut selection = Self::default();
        for signal in SignalSource::all(autoscaler, AutoscalerKind::of(autoscaler)) {
            selection.reads_signal = true;
            if !signal.names_variant() {
                selection.unrestricted.push(signal.position);
            }
            selection.labels.extend(signal.selectors.iter().flat_map(SeriesSelector::values));
        }
        selection
    }

    /// Value that it requires of a label of the series.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == key).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests;
