//! All originals together: what is to be applied, in order, and what a person has to settle first. Every variant that
//! comes out passes the admission rules, or is not printed. Pure.

use std::collections::BTreeSet;

use serde_json::Value;
use wva_crds::names::{ACCELERATOR_LABEL, KIND, MODE_ANNOTATION};
use wva_rules::{Facts, OtherVariant, Severity, Target, apply_defaults, validate};

use super::objects::set;
use super::variant::{self, Changed};
use super::{annotated, maps};
use crate::cluster::{entry, text};
use crate::validate::FoundObject;
use crate::workloads::{Found, WorkloadKey, Workloads, accelerator};

/// What is asked for beyond what has to be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    /// Every variant in mode `recommend`.
    pub(super) recommend: bool,
    /// The workloads are all that there are, so that one that is not among them is missing.
    pub(super) in_cluster: bool,
}

/// One object to apply.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) place: String,
    pub(super) object: Value,
    pub(super) changes: Vec<String>,
}

/// What to do.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Variants before autoscalers.
    pub(super) steps: Vec<Step>,
    /// What a person has to settle, with the place.
    pub(super) open: Vec<String>,
    /// Objects of the original that were read.
    pub(super) read: usize,
    /// Those that are as they should be.
    pub(super) fine: usize,
}

/// A variant that is to be.
struct Draft {
    place: String,
    namespace: String,
    changed: Changed,
}

/// The plan for all of them, with the workloads of the cluster or of the same files.
pub(super) fn plan(originals: &[FoundObject], workloads: &Workloads, wanted: Wanted) -> Plan {
    let mut plan = Plan::default();
    let mut drafts: Vec<Draft> = Vec::new();
    for original in originals.iter().filter(|o| text(&o.object, "/kind") == KIND) {
        plan.read += 1;
        drafts.push(Draft::of(original, variant::migrate(&original.object)));
    }
    let known: BTreeSet<WorkloadKey> = drafts.iter().filter_map(Draft::key).collect();
    let mut autoscalers = Vec::new();
    for original in originals.iter().filter(|o| annotated::is_managed(&o.object)) {
        plan.read += 1;
        // Somebody has made the variant already.
        if Target::from_object(&original.object)
            .is_some_and(|target| known.contains(&WorkloadKey::new(&original.namespace, &target)))
        {
            plan.fine += 1;
            continue;
        }
        let made = annotated::migrate(&original.object, &original.namespace);
        plan.open.extend(made.open.iter().map(|open| format!("{}: {open}", original.place)));
        drafts.extend(made.variant.map(|changed| Draft::of(original, changed)));
        let place = original.place.clone();
        autoscalers.extend(made.autoscaler.map(|Changed { object, changes }| Step {
            place,
            object,
            changes,
        }));
    }
    if wanted.recommend {
        drafts.iter_mut().for_each(recommend);
    }
    for draft in &mut drafts {
        label(draft, workloads);
    }
    settle(&mut plan, &drafts, workloads, wanted);
    plan.steps.extend(autoscalers);
    let maps: Vec<&FoundObject> = originals.iter().filter(|o| maps::is_saturation(&o.object)).collect();
    let named = maps::name_analyzers(&maps);
    plan.read += maps.len();
    plan.fine += maps.len() - named.len();
    plan.steps.extend(named);
    plan
}

impl Draft {
    fn of(original: &FoundObject, changed: Changed) -> Self {
        Self { place: original.place.clone(), namespace: original.namespace.clone(), changed }
    }

    fn key(&self) -> Option<WorkloadKey> {
        Target::from_object(&self.changed.object).map(|target| WorkloadKey::new(&self.namespace, &target))
    }
}

fn recommend(draft: &mut Draft) {
    let object = &mut draft.changed.object;
    if entry(object, "/metadata/annotations", MODE_ANNOTATION) == Some("recommend") {
        return;
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        set(metadata, "annotations", MODE_ANNOTATION, "recommend");
        draft.changed.changes.push("decided and explained, and not published (--recommend)".to_owned());
    }
}

/// What is printed says its accelerator, where the workload does.
fn label(draft: &mut Draft, workloads: &Workloads) {
    let Changed { object, changes } = &mut draft.changed;
    if changes.is_empty() || entry(object, "/metadata/labels", ACCELERATOR_LABEL).is_some() {
        return;
    }
    let Some(target) = Target::from_object(object) else { return };
    let Found::Here(workload) = workloads.find(&draft.namespace, &target) else { return };
    let Some(accelerator) = accelerator(workload) else { return };
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        set(metadata, "labels", ACCELERATOR_LABEL, &accelerator);
        changes.push(format!(
            "metadata.labels[{ACCELERATOR_LABEL}] is what the pods of {} {} run on, {accelerator}",
            target.kind, target.name
        ));
    }
}

/// Takes the drafts into the plan that the rules let through.
fn settle(plan: &mut Plan, drafts: &[Draft], workloads: &Workloads, wanted: Wanted) {
    for (i, draft) in drafts.iter().enumerate() {
        let Changed { object, changes } = &draft.changed;
        let others: Vec<OtherVariant> = drafts
            .iter()
            .enumerate()
            .filter(|(j, other)| *j != i && other.namespace == draft.namespace)
            .filter_map(|(_, other)| OtherVariant::from_object(&other.changed.object))
            .collect();
        let mut whole = object.clone();
        apply_defaults(&mut whole);
        let verdict = validate(&Facts { other_variants: &others, ..Facts::new(&whole) });
        let denied = verdict.violations.iter().filter(|v| v.severity == Severity::Deny);
        let denied: Vec<String> =
            denied.map(|v| format!("{}: {}: {} [{}]", draft.place, v.field, v.message, v.code)).collect();
        if denied.is_empty() && changes.is_empty() {
            plan.fine += 1;
        } else if denied.is_empty() {
            plan.open.extend(missing_target(draft, workloads).filter(|_| wanted.in_cluster));
            let (place, object, changes) = (draft.place.clone(), object.clone(), changes.clone());
            plan.steps.push(Step { place, object, changes });
        }
        plan.open.extend(denied);
    }
}

/// A target that does not exist is only said where the cluster is known; the object may be applied all the same.
fn missing_target(draft: &Draft, workloads: &Workloads) -> Option<String> {
    let target = Target::from_object(&draft.changed.object)?;
    let Found::Missing = workloads.find(&draft.namespace, &target) else { return None };
    let (kind, name) = (&target.kind, &target.name);
    Some(format!(
        "{}: spec.scaleTargetRef: found no {kind} {name}: name the workload that serves the model",
        draft.place
    ))
}
