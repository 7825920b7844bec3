//! The objects for one workload.

use serde_json::{Value, json};
use wva_crds::intent::stated_accelerator;
use wva_crds::names::{
    ACCELERATOR_LABEL, DESIRED_REPLICAS_METRIC, GROUP, KIND, VERSION, is_desired_replicas,
};
use wva_crds::settings::without_password;
use wva_crds::text::quote;
use wva_objects::Target;
use wva_objects::autoscaler::AutoscalerKind;
use wva_objects::hardware::Gpus;
use wva_rules::{Facts, OtherVariant, Severity, apply_defaults, validate};

use super::accelerator::{check_parallelism, find_accelerator};
use super::autoscaler::{
    AutoscalerPlan, ExistingAutoscaler, Tolerance, bounds_fields, find_bounds, find_prometheus,
};
use super::guess::Guess;
use super::inputs::Inputs;
use super::model::find_model;
use super::options::Options;
use super::render::{Document, Field, Plan};
use super::server::Server;
use super::workload::Workload;
use crate::cluster::{entry, text};
use crate::gpus::GpuRequests;
use crate::migrate::objects::{object, set, user_metadata};
use crate::validate::SourceObject;

/// Cost of one GPU, in the unit of the default cost of a replica.
const COST_PER_GPU: u64 = 10;

/// # Errors
/// A value is missing or wrong; the text names the flag that sets it.
pub(super) fn plan(workload: &Workload, inputs: &Inputs, options: &Options) -> Result<Plan, String> {
    let mut notes = Vec::new();
    let variant = plan_variant(workload, inputs, options, &mut notes)?;
    let name = text(&variant.object, "/metadata/name").to_owned();
    let autoscaler = plan_autoscaler(workload, inputs, options, &name, &mut notes)?;
    notes.extend(workload.notes.iter().cloned());
    Ok(Plan { title: workload.title(), documents: vec![variant, autoscaler], notes })
}

fn plan_variant(
    workload: &Workload,
    inputs: &Inputs,
    options: &Options,
    notes: &mut Vec<String>,
) -> Result<Document, String> {
    let server = Server::find(&workload.replica.leader);
    if server.is_none() && workload.declared_model.is_none() && options.model_id.is_none() {
        return Err(no_server(workload));
    }
    let mut variants = inputs.variants.iter();
    let existing =
        variants.find(|source| workload.is_target_of(&source.namespace, Target::from_object(&source.object)));
    let existing = existing.map(|source| &source.object);
    check_new_name(existing, options)?;
    let model = choose_model(workload, server.as_ref(), existing, options, notes)?;
    let accelerator = choose_accelerator(workload, existing, options, notes);
    let requests = GpuRequests::new(&workload.replica, &workload.namespace, &inputs.claim_templates);
    let gpus = requests.total();
    let cost = choose_cost(gpus, existing, options);
    notes.extend(check_gpus(workload, &requests));
    if let Some(server) = &server {
        notes.extend(check_parallelism(&server.words, gpus));
        if !server.others.is_empty() {
            let (chosen, others) = (&server.container.name, server.others.join(", "));
            notes.push(format!("several containers may serve the model: wva reads {chosen}, not {others}"));
        }
    }
    let mut fields = vec![Field::new("modelID", &model)];
    fields.extend(accelerator.as_ref().map(|guess| Field::new(accelerator_key(existing), guess)));
    fields.push(Field::new("variantCost", &cost));
    let guesses = VariantGuesses { model, accelerator, cost };
    let object = variant_object(workload, existing, options, &guesses);
    check_name(workload, inputs, text(&object, "/metadata/name"))?;
    check_rules(workload, inputs, &object)?;
    let heading = match existing {
        Some(_) => format!("VariantAutoscaling that {} has", workload.title()),
        None => format!("VariantAutoscaling for {}", workload.title()),
    };
    Ok(Document { heading, object, fields })
}

/// Note if the number of GPUs says little about the cost.
fn check_gpus(workload: &Workload, requests: &GpuRequests) -> Option<String> {
    if let Some(template) = requests.unknown_templates().next() {
        return Some(format!(
            "GPUs of the ResourceClaimTemplate {} are not counted: it is not in the input; check variantCost",
            quote(template)
        ));
    }
    if requests.total() == 0 {
        return Some("the pods request no GPUs: the limiter cannot count them".to_owned());
    }
    let gpus = Gpus::for_pod(&workload.replica.leader);
    let part = gpus.partition()?;
    Some(format!("the pods request {part}, a part of a GPU: the limiter counts the parts; check variantCost"))
}

fn no_server(workload: &Workload) -> String {
    let names: Vec<&str> =
        workload.replica.leader.containers.iter().map(|container| container.name.as_str()).collect();
    let containers = if names.is_empty() { "no container".to_owned() } else { names.join(", ") };
    format!("no container runs vLLM or names a model ({containers}); if one does, set --model-id")
}

fn choose_model(
    workload: &Workload,
    server: Option<&Server<'_>>,
    existing: Option<&Value>,
    options: &Options,
    notes: &mut Vec<String>,
) -> Result<Guess, String> {
    let found = find_model(workload, server);
    if let Some(model) = &options.model_id {
        return Ok(Guess::from_flag(model.clone()));
    }
    if let Some(model) =
        existing.map(|variant| text(variant, "/spec/modelID")).filter(|model| !model.is_empty())
    {
        if let Ok((guess, _)) = &found
            && guess.value != model
        {
            notes.push(format!(
                "the workload seems to serve {}, {}",
                guess.value,
                guess.source.as_deref().unwrap_or_default()
            ));
        }
        return Ok(Guess::new(model.to_owned(), "from the VariantAutoscaling"));
    }
    let (guess, about) = found?;
    notes.extend(about);
    Ok(guess)
}

fn choose_accelerator(
    workload: &Workload,
    existing: Option<&Value>,
    options: &Options,
    notes: &mut Vec<String>,
) -> Option<Guess> {
    if let Some(name) = &options.accelerator {
        return Some(Guess::from_flag(name.clone()));
    }
    if let Some(name) = existing.and_then(stated_accelerator) {
        return Some(Guess::new(name.to_owned(), "from the VariantAutoscaling"));
    }
    let (guess, about) = find_accelerator(workload);
    notes.extend(about);
    guess
}

/// An existing variant keeps its spelling: a second one could contradict it.
fn accelerator_key(existing: Option<&Value>) -> &'static str {
    let has_field = |variant: &Value| variant.pointer("/spec/accelerator").is_some();
    let has_label = |variant: &Value| entry(variant, "/metadata/labels", ACCELERATOR_LABEL).is_some();
    let is_label = existing.is_some_and(|variant| has_label(variant) && !has_field(variant));
    if is_label { ACCELERATOR_LABEL } else { "accelerator" }
}

fn choose_cost(gpus: u64, existing: Option<&Value>, options: &Options) -> Guess {
    if let Some(cost) = &options.cost {
        return Guess::from_flag(cost.clone());
    }
    if let Some(cost) =
        existing.map(|variant| text(variant, "/spec/variantCost")).filter(|cost| !cost.is_empty())
    {
        return Guess::new(cost.to_owned(), "from the VariantAutoscaling");
    }
    let source = format!("guess: {COST_PER_GPU} per GPU, and a replica has {gpus}; --cost sets it");
    Guess::new(gpus.max(1).saturating_mul(COST_PER_GPU).to_string(), source)
}

/// What the spec of the variant gets.
struct VariantGuesses {
    model: Guess,
    accelerator: Option<Guess>,
    cost: Guess,
}

/// The rest of an existing variant stays.
fn variant_object(
    workload: &Workload,
    existing: Option<&Value>,
    options: &Options,
    VariantGuesses { model, accelerator, cost }: &VariantGuesses,
) -> Value {
    let mut metadata = existing.map(user_metadata).unwrap_or_default();
    let found = existing.map_or(workload.target.name.as_str(), |variant| text(variant, "/metadata/name"));
    let name = options.name.as_deref().filter(|_| existing.is_none()).unwrap_or(found);
    metadata.insert("name".to_owned(), json!(name));
    metadata.insert("namespace".to_owned(), json!(workload.namespace));
    let Target { api_version, kind, name } = &workload.target;
    let spec = existing.and_then(|variant| variant.get("spec")?.as_object());
    let mut spec = spec.cloned().unwrap_or_default();
    if let Some(accelerator) = accelerator {
        match accelerator_key(existing) {
            ACCELERATOR_LABEL => set(&mut metadata, "labels", ACCELERATOR_LABEL, &accelerator.value),
            field => drop(spec.insert(field.to_owned(), json!(accelerator.value))),
        }
    }
    spec.insert("scaleTargetRef".to_owned(), json!({"apiVersion": api_version, "kind": kind, "name": name}));
    spec.insert("modelID".to_owned(), json!(model.value));
    spec.insert("variantCost".to_owned(), json!(cost.value));
    object(&format!("{GROUP}/{VERSION}"), KIND, &metadata, &Value::Object(spec))
}

/// A second variant of the workload would be denied.
fn check_new_name(existing: Option<&Value>, options: &Options) -> Result<(), String> {
    let existing = existing.map(|variant| text(variant, "/metadata/name"));
    match (existing, options.name.as_deref()) {
        (Some(existing), Some(name)) if existing != name => {
            Err(format!("VariantAutoscaling {existing} has this target; delete it first, or omit --name"))
        }
        _ => Ok(()),
    }
}

/// Two workloads need two names.
fn check_name(workload: &Workload, inputs: &Inputs, name: &str) -> Result<(), String> {
    let is_taken = |source: &&SourceObject| {
        source.namespace == workload.namespace
            && text(&source.object, "/metadata/name") == name
            && !workload.is_target_of(&source.namespace, Target::from_object(&source.object))
    };
    match inputs.variants.iter().find(is_taken) {
        Some(_) => Err(format!("VariantAutoscaling {} has another target; set --name", quote(name))),
        None => Ok(()),
    }
}

/// The rules of the admission webhook.
fn check_rules(workload: &Workload, inputs: &Inputs, variant: &Value) -> Result<(), String> {
    let mut with_defaults = variant.clone();
    apply_defaults(&mut with_defaults);
    let others = inputs.variants.iter().filter(|source| source.namespace == workload.namespace);
    let others: Vec<OtherVariant> =
        others.filter_map(|source| OtherVariant::from_object(&source.object)).collect();
    let verdict = validate(&Facts { other_variants: &others, ..Facts::new(&with_defaults) });
    let denied = verdict.violations.iter().filter(|violation| violation.severity == Severity::Deny);
    let denied: Vec<String> = denied.map(|v| format!("{}: {} [{}]", v.field, v.message, v.code)).collect();
    if denied.is_empty() { Ok(()) } else { Err(denied.join("; ")) }
}

fn plan_autoscaler(
    workload: &Workload,
    inputs: &Inputs,
    options: &Options,
    variant: &str,
    notes: &mut Vec<String>,
) -> Result<Document, String> {
    let all = ExistingAutoscaler::find(&inputs.autoscalers, workload);
    let first = all.iter().find(|it| options.autoscaler.is_none_or(|kind| kind == it.kind)).or(all.first());
    let kind = options.autoscaler.or(first.map(|it| it.kind)).unwrap_or(AutoscalerKind::Hpa);
    let existing = first.copied().filter(|it| it.kind == kind);
    let [min, max] = find_bounds(kind, first, workload, [options.min, options.max])?;
    if kind == AutoscalerKind::Hpa && min.value == 0 {
        notes.push(
            "an HPA with minReplicas 0 needs the feature gate HPAScaleToZero; without it set --min 1, and wva scales to and \
             from 0 itself"
                .to_owned(),
        );
    }
    let prometheus = options.prometheus.clone().map_or_else(|| find_prometheus(first), Guess::from_flag);
    let tolerance = Tolerance::find(kind, options.kubernetes.or(inputs.kubernetes));
    let plan = AutoscalerPlan {
        kind,
        existing,
        namespace: &workload.namespace,
        variant,
        target: &workload.target,
        bounds: [min.value, max.value],
        prometheus: &prometheus.value,
        has_tolerance: !matches!(tolerance, Tolerance::NotInCluster(_)),
    };
    check_autoscaler_name(workload, inputs, &plan)?;
    let heading = describe_change(&all, &plan, notes);
    let [min_field, max_field] = bounds_fields(kind);
    let mut fields = vec![Field::new(min_field, &min), Field::new(max_field, &max)];
    match &tolerance {
        Tolerance::Assumed(guess) => fields.push(Field::new("tolerance", guess)),
        Tolerance::NotInCluster(note) => notes.push(note.clone()),
        Tolerance::Known => {}
    }
    if kind == AutoscalerKind::ScaledObject {
        let shown = Guess { value: without_password(&prometheus.value), source: prometheus.source.clone() };
        fields.push(Field::new("serverAddress", &shown));
    }
    Ok(Document { heading, object: plan.build(), fields })
}

/// Heading of the autoscaler, and notes on the autoscalers that the workload has.
fn describe_change(
    all: &[ExistingAutoscaler<'_>],
    plan: &AutoscalerPlan<'_>,
    notes: &mut Vec<String>,
) -> String {
    let is_kept =
        |it: &ExistingAutoscaler<'_>| plan.existing.is_some_and(|kept| std::ptr::eq(kept.object, it.object));
    for other in all.iter().filter(|it| !is_kept(it)) {
        notes.push(format!(
            "{} scales the workload, too: delete it before you apply the output",
            other.title()
        ));
    }
    let Some(existing) = &plan.existing else {
        return format!("{} that follows the target of the variant", plan.kind.api().kind);
    };
    let (title, field, metrics) = (existing.title(), plan.kind.metrics_field(), existing.metrics());
    if !metrics.is_empty() && metrics.iter().all(|metric| is_desired_replicas(metric)) {
        return format!("{title} of the workload, which follows {DESIRED_REPLICAS_METRIC} already");
    }
    let metrics = if metrics.is_empty() { "no metric".to_owned() } else { metrics.join(", ") };
    notes.push(format!(
        "{title} scales the workload now by {metrics}: the output replaces its {field}, windows and tolerance"
    ));
    format!("{title} of the workload; it follows the variant instead of {metrics}")
}

/// Applying the output must not change the autoscaler of another workload.
fn check_autoscaler_name(
    workload: &Workload,
    inputs: &Inputs,
    plan: &AutoscalerPlan<'_>,
) -> Result<(), String> {
    let is_taken = |source: &SourceObject| {
        source.namespace == workload.namespace
            && text(&source.object, "/kind") == plan.kind.api().kind
            && text(&source.object, "/metadata/name") == plan.name()
    };
    if plan.existing.is_none() && inputs.autoscalers.iter().any(is_taken) {
        return Err(format!(
            "{} {} has another target; set --name",
            plan.kind.api().kind,
            quote(plan.name())
        ));
    }
    Ok(())
}
