//! Migration plan: manifests to apply, in order, and problems that need a manual change. It leaves out variants that
//! violate the rules.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wva_crds::VariantMode;
use wva_crds::intent::{Mode, stated_accelerator};
use wva_crds::names::{ACCELERATOR_LABEL, KIND, MODE_ANNOTATION};
use wva_objects::{Target, WorkloadKey, is_annotated};
use wva_rules::{Facts, OtherVariant, Severity, apply_defaults, validate};

use super::blueprint::{self, BlueprintConversion};
use super::entry::Entries;
use super::objects::set;
use super::options::PlanOptions;
use super::step::Step;
use super::values::ChartValues;
use super::variant::{self, Conversion};
use super::{autoscaler, maps};
use crate::cluster::text;
use crate::validate::SourceObject;
use crate::workloads::{WorkloadLookup, Workloads, accelerator};

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Entries for blueprints before variants, and these before autoscalers.
    pub(super) steps: Vec<Step>,
    /// Problems that need a manual change, each with its place.
    pub(super) unresolved: Vec<String>,
    pub(super) read: usize,
    pub(super) unchanged: usize,
    pub(super) values: ChartValues,
    /// The destination of global maps is a Helm release.
    pub(super) has_chart: bool,
}

struct Draft {
    place: String,
    namespace: String,
    conversion: Conversion,
}

/// What to apply, before the rules are checked.
#[derive(Default)]
struct Drafts {
    variants: Vec<Draft>,
    autoscalers: Vec<Step>,
    entries: Entries,
}

/// `workloads`: of the cluster or of the same files.
pub(super) fn plan(objects: &[SourceObject], workloads: &Workloads, options: PlanOptions<'_>) -> Plan {
    let (mut plan, mut drafts) = (Plan::default(), Drafts::default());
    for source in objects.iter().filter(|o| text(&o.object, "/kind") == KIND) {
        plan.read += 1;
        drafts.variants.push(Draft::new(source, variant::convert(&source.object)));
    }
    let targets: BTreeSet<WorkloadKey> = drafts.variants.iter().filter_map(Draft::target).collect();
    for source in objects {
        if blueprint::is_blueprint(&source.object) {
            add_blueprint(&mut plan, &mut drafts, source, objects, workloads, &targets, options);
        } else if is_annotated(&source.object) {
            add_annotated(&mut plan, &mut drafts, source, &targets);
        }
    }
    if options.recommend {
        drafts.variants.iter_mut().for_each(set_recommend_mode);
    }
    for draft in &mut drafts.variants {
        add_accelerator_label(draft, workloads);
    }
    plan.steps.extend(drafts.entries.steps(objects));
    add_drafts(&mut plan, &drafts.variants, workloads, options);
    plan.steps.extend(drafts.autoscalers);
    maps::add_maps(&mut plan, objects, options);
    plan
}

fn add_blueprint(
    plan: &mut Plan,
    drafts: &mut Drafts,
    source: &SourceObject,
    objects: &[SourceObject],
    workloads: &Workloads,
    targets: &BTreeSet<WorkloadKey>,
    options: PlanOptions<'_>,
) {
    plan.read += 1;
    let BlueprintConversion { entry, variant, scaled_object, unresolved } =
        match blueprint::convert(source, objects, workloads, options.kubernetes) {
            Ok(conversion) => conversion,
            Err(problem) => {
                plan.unresolved.push(format!("{}: {problem}", source.place));
                return;
            }
        };
    plan.unresolved.extend(unresolved.iter().map(|problem| format!("{}: {problem}", source.place)));
    drafts.entries.add(&source.namespace, text(&variant.object, "/metadata/name"), &source.place, entry);
    let draft = Draft::new(source, variant);
    if draft.target().is_none_or(|target| !targets.contains(&target)) {
        drafts.variants.push(draft);
    }
    // In mode recommend wva publishes no target to follow.
    if !options.recommend {
        drafts.autoscalers.push(Step::new(source, scaled_object));
    }
}

fn add_annotated(
    plan: &mut Plan,
    drafts: &mut Drafts,
    source: &SourceObject,
    targets: &BTreeSet<WorkloadKey>,
) {
    plan.read += 1;
    // The variant exists already.
    if Target::from_object(&source.object)
        .is_some_and(|target| targets.contains(&WorkloadKey::for_target(&source.namespace, &target)))
    {
        plan.unchanged += 1;
        return;
    }
    let converted = autoscaler::convert(&source.object, &source.namespace);
    let problems = converted.unresolved.iter().map(|problem| format!("{}: {problem}", source.place));
    plan.unresolved.extend(problems);
    drafts.variants.extend(converted.variant.map(|conversion| Draft::new(source, conversion)));
    drafts.autoscalers.extend(converted.autoscaler.map(|conversion| Step::new(source, conversion)));
}

impl Draft {
    fn new(source: &SourceObject, conversion: Conversion) -> Self {
        Self { place: source.place.clone(), namespace: source.namespace.clone(), conversion }
    }

    fn target(&self) -> Option<WorkloadKey> {
        Target::from_object(&self.conversion.object)
            .map(|target| WorkloadKey::for_target(&self.namespace, &target))
    }
}

fn set_recommend_mode(draft: &mut Draft) {
    let object = &mut draft.conversion.object;
    if Mode::stated(object) == Some(Mode::Recommend) {
        return;
    }
    // The annotation would contradict the field.
    if let Some(spec) = object["spec"].as_object_mut().filter(|spec| spec.contains_key("mode")) {
        spec.insert("mode".to_owned(), json!(VariantMode::Recommend));
        spec.remove("fixedReplicas");
        draft.conversion.changes.push("spec.mode: Recommend (--recommend)".to_owned());
        return;
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        set(metadata, "annotations", MODE_ANNOTATION, "recommend");
        let change = format!("metadata.annotations[{MODE_ANNOTATION}]: recommend (--recommend)");
        draft.conversion.changes.push(change);
    }
}

fn add_accelerator_label(draft: &mut Draft, workloads: &Workloads) {
    let Conversion { object, changes } = &mut draft.conversion;
    if changes.is_empty() || stated_accelerator(object).is_some() {
        return;
    }
    let Some(target) = Target::from_object(object) else { return };
    let WorkloadLookup::Found(workload) = workloads.find(&draft.namespace, &target) else { return };
    let Some(accelerator) = accelerator(workload) else { return };
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        set(metadata, "labels", ACCELERATOR_LABEL, &accelerator);
        changes.push(format!(
            "metadata.labels[{ACCELERATOR_LABEL}]: {accelerator}, from the pod template of {} {}",
            target.kind, target.name
        ));
    }
}

/// Adds valid drafts as steps, and the violations of the others as problems.
fn add_drafts(plan: &mut Plan, drafts: &[Draft], workloads: &Workloads, options: PlanOptions<'_>) {
    for (i, draft) in drafts.iter().enumerate() {
        let Conversion { object, changes } = &draft.conversion;
        let others: Vec<OtherVariant> = drafts
            .iter()
            .enumerate()
            .filter(|(j, other)| *j != i && other.namespace == draft.namespace)
            .filter_map(|(_, other)| OtherVariant::from_object(&other.conversion.object))
            .collect();
        let mut with_defaults = object.clone();
        apply_defaults(&mut with_defaults);
        let verdict = validate(&Facts { other_variants: &others, ..Facts::new(&with_defaults) });
        let denied = verdict.violations.iter().filter(|v| v.severity == Severity::Deny);
        let denied: Vec<String> =
            denied.map(|v| format!("{}: {}: {} [{}]", draft.place, v.field, v.message, v.code)).collect();
        if denied.is_empty() && changes.is_empty() {
            plan.unchanged += 1;
        } else if denied.is_empty() {
            plan.unresolved.extend(missing_target(draft, workloads).filter(|_| options.from_cluster));
            let (place, object, changes) = (draft.place.clone(), object.clone(), changes.clone());
            plan.steps.push(Step { place, object, changes });
        }
        plan.unresolved.extend(denied);
    }
}

/// You may apply the variant anyway.
fn missing_target(draft: &Draft, workloads: &Workloads) -> Option<String> {
    let target = Target::from_object(&draft.conversion.object)?;
    let WorkloadLookup::NotFound = workloads.find(&draft.namespace, &target) else { return None };
    let (kind, name) = (&target.kind, &target.name);
    Some(format!(
        "{}: spec.scaleTargetRef: {kind} {name} does not exist; set the workload that serves the model",
        draft.place
    ))
}
