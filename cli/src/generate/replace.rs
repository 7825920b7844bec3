//! For `wva migrate`: what replaces a ScaledObject whose triggers scale a workload without wva.

use serde_json::{Value, json};
use wva_crds::names::KIND;
use wva_objects::Target;
use wva_objects::autoscaler::AutoscalerKind;
use wva_rules::KubernetesVersion;

use super::inputs::Inputs;
use super::options::Options;
use super::plan::plan;
use super::render::{Document, Field};
use super::workload::Workload;
use crate::cluster::text;
use crate::validate::SourceObject;

/// A `VariantAutoscaling`, and a ScaledObject that follows its target.
pub(crate) struct Replacement {
    pub(crate) variant: Replaced,
    pub(crate) scaled_object: Replaced,
    /// What to check.
    pub(crate) notes: Vec<String>,
}

/// An object, and where its values come from.
pub(crate) struct Replaced {
    pub(crate) object: Value,
    pub(crate) sources: Vec<String>,
}

/// `workload`: the target of the ScaledObject, if the input has it. `model`: name in the queries of its triggers.
/// `objects`: among them the variants that exist.
///
/// # Errors
/// A value is missing or wrong.
pub(crate) fn replace(
    scaled_object: &SourceObject,
    workload: Option<&Value>,
    model: Option<&str>,
    objects: &[SourceObject],
    kubernetes: Option<KubernetesVersion>,
) -> Result<Replacement, String> {
    let target =
        Target::of_autoscaler(&scaled_object.object).ok_or("spec.scaleTargetRef names no workload")?;
    if workload.is_none() && model.is_none() {
        return Err(format!(
            "no query has the label model_name, and {} {} is not in the input: pass its manifest, too, or use `wva generate \
             --model-id`",
            target.kind, target.name
        ));
    }
    let object = workload.cloned().unwrap_or_else(|| json!({"metadata": {"name": target.name}}));
    let source = SourceObject { object, ..scaled_object.clone() };
    let mut read = match workload {
        Some(_) => Workload::new(&source)?,
        None => Workload::without_pods(&source, target),
    };
    read.declared_model =
        model.map(|model| (model.to_owned(), "from the label model_name of its queries".to_owned()));
    let variants = objects.iter().filter(|source| text(&source.object, "/kind") == KIND);
    let inputs = Inputs {
        variants: variants.cloned().collect(),
        autoscalers: vec![scaled_object.clone()],
        kubernetes,
        ..Inputs::default()
    };
    let options = Options { autoscaler: Some(AutoscalerKind::ScaledObject), ..Options::default() };
    let planned = plan(&read, &inputs, &options);
    let mut planned = planned.map_err(|problem| format!("{problem} (an option of `wva generate`)"))?;
    if workload.is_none() {
        planned.notes = vec![format!(
            "{} is not in the input: set the accelerator and variantCost, or pass its manifest, too",
            read.title()
        )];
        remove_cost(&mut planned.documents);
    }
    let mut documents = planned.documents.into_iter().map(Replaced::new);
    let (Some(variant), Some(scaled_object)) = (documents.next(), documents.next()) else {
        return Err("no object to apply".to_owned());
    };
    Ok(Replacement { variant, scaled_object, notes: planned.notes })
}

/// Admission sets the default cost.
fn remove_cost(documents: &mut [Document]) {
    for document in documents {
        if let Some(spec) = document.object.pointer_mut("/spec").and_then(Value::as_object_mut)
            && spec.remove("variantCost").is_some()
        {
            document.fields.retain(|field| field.key != "variantCost");
        }
    }
}

impl Replaced {
    fn new(document: Document) -> Self {
        let source = |field: Field| Some(format!("{}: {}, {}", field.key, field.value, field.source?));
        let sources = document.fields.into_iter().filter_map(source).collect();
        Self { object: document.object, sources }
    }
}
