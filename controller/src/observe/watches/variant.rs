//! VariantAutoscalings as the cache keeps them. Admission is never trusted to have run: the same rules are applied
//! here, and an object that breaks them is kept with the reason, never an error of a loop.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use wva_crds::names::{ACCELERATOR_LABEL, INSTANCE_LABEL, MODE_ANNOTATION};
use wva_crds::plain::plain_words;
use wva_crds::{LearnedCurves, OptimizedAlloc, VariantAutoscalingSpec, VariantAutoscalingStatus};
use wva_runtime::cache::Projection;
use wva_scaling::VariantKey;
use wva_scaling::snapshot::{Known, Mode, StepTimes};
use wva_scaling::units::{Amount, Cost};

use crate::model::conditions::Unusable;
use crate::model::keys::WorkloadKey;
use crate::model::reported::ReportedState;
use crate::model::written::Written;
use crate::observe::{guard, legacy};

/// A VariantAutoscaling as the cache keeps it: what is read of it, and judged once. One that breaks today's rules or
/// schema is kept with the reason.
#[derive(Debug)]
pub struct Variant {
    /// Namespace and name.
    pub(crate) key: VariantKey,
    /// Tells a re-created object from the one before.
    pub(crate) uid: String,
    /// Which of two states of it is the later one: see [`revision`].
    pub(crate) revision: Option<u64>,
    /// For `observedGeneration`.
    pub(crate) generation: Option<i64>,
    /// Value of its instance label.
    pub(crate) instance: Option<String>,
    /// Value of its accelerator label.
    pub(crate) accelerator: Option<String>,
    /// Creation, by which the older of two with one target is the one that counts.
    pub(crate) created: Option<Timestamp>,
    /// It is being deleted.
    pub(crate) leaving: bool,
    /// Its status as last seen.
    pub(crate) status: Status,
    /// What it declares, or why that cannot be used.
    pub(crate) declared: Result<Declared, Unusable>,
}

/// What is kept of a status.
#[derive(Debug)]
pub(crate) struct Status {
    /// The target; `None` where there is none, or it cannot be read.
    pub(crate) alloc: Option<OptimizedAlloc>,
    /// The target repeats the replicas of the workload, because no analysis has succeeded yet.
    pub(crate) unanalyzed: bool,
    /// A model at 0 was being woken, or was at rest.
    pub(crate) waking: bool,
    /// The workload was there when it was written, or before.
    pub(crate) target_seen: bool,
    /// Replicas the workload had.
    pub(crate) current: Option<u32>,
    /// The generation that it is about.
    pub(crate) observed: Option<i64>,
    /// What events have reported.
    pub(crate) reported: ReportedState,
    /// How fast a replica is, as an earlier leader learnt it.
    pub(crate) known: Option<Known>,
    /// For whoever writes the next.
    pub(crate) written: Written,
}

/// A valid declaration.
#[derive(Debug, PartialEq)]
pub(crate) struct Declared {
    /// The workload, `spec.scaleTargetRef`.
    pub(crate) workload: WorkloadKey,
    /// `spec.modelID`.
    pub(crate) model_id: String,
    /// `spec.variantCost` as a number.
    pub(crate) cost: Cost,
    /// The mode annotation.
    pub(crate) mode: Mode,
    /// `spec.minReplicas`.
    pub(crate) min: Option<u32>,
    /// `spec.maxReplicas`.
    pub(crate) max: Option<u32>,
}

impl Variant {
    /// How the cache is filled.
    pub(crate) fn projection() -> Projection<DynamicObject, Arc<Self>> {
        Projection { read: |object| Arc::new(Self::read(object)), same: Some(|a, b| a.same(b)) }
    }

    /// Reads one object as it is stored, which may be from a time with other rules.
    pub(crate) fn read(object: &DynamicObject) -> Self {
        let label = |key: &str| object.labels().get(key).filter(|v| !v.is_empty()).cloned();
        let declared = declared(object);
        Self {
            key: VariantKey { namespace: object.namespace().unwrap_or_default(), name: object.name_any() },
            uid: object.uid().unwrap_or_default(),
            revision: revision(object),
            generation: object.metadata.generation,
            instance: label(INSTANCE_LABEL),
            accelerator: label(ACCELERATOR_LABEL),
            created: object.creation_timestamp().map(|t| t.0),
            leaving: object.metadata.deletion_timestamp.is_some(),
            status: Status::new(&status(object)),
            declared,
        }
    }

    /// But for the status, which this program writes: a change of it alone is no reason for a cycle.
    fn same(&self, other: &Self) -> bool {
        let of = |v: &Self| (v.generation, v.created, v.leaving);
        of(self) == of(other)
            && self.uid == other.uid
            && self.instance == other.instance
            && self.accelerator == other.accelerator
            && self.declared == other.declared
    }

    /// Whether it is being deleted: nobody decides on it any more, however long its finalizers take.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// The mode; `None` for what breaks the rules.
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.declared.as_ref().ok().map(|d| d.mode)
    }
}

impl Status {
    fn new(status: &VariantAutoscalingStatus) -> Self {
        let condition = |type_: &str| status.conditions.iter().find(|c| c.type_ == type_);
        let state = status.controller_state.clone();
        let state = state.unwrap_or_else(|| legacy::controller_state(status));
        let alloc = status.desired_optimized_alloc.clone();
        Self {
            unanalyzed: state.unanalyzed,
            waking: state.waking,
            target_seen: alloc.is_some() || status.current_replicas.is_some() || state.target_seen,
            current: status.current_replicas.and_then(|n| u32::try_from(n).ok()),
            observed: condition("Ready").and_then(|c| c.observed_generation),
            reported: ReportedState::of_status(status, &state),
            written: Written::of(status),
            known: status.learned.as_ref().and_then(known),
            alloc,
        }
    }
}

/// What the API server counts changes with, which is greater for the later state of an object. `None` where it is no
/// number: then nobody can tell.
pub(crate) fn revision(object: &DynamicObject) -> Option<u64> {
    object.metadata.resource_version.as_ref()?.parse().ok()
}

/// What an earlier leader learnt, as far as it can be right.
fn known(learned: &LearnedCurves) -> Option<Known> {
    let amount = |value: f64| Amount::try_from(value).ok();
    let times = StepTimes { a: amount(learned.a)?, b: amount(learned.b)?, c: amount(learned.c)? };
    let samples = u32::try_from(learned.samples.max(0)).unwrap_or(u32::MAX);
    Some(Known { times, samples: amount(f64::from(samples))? })
}

/// The status as far as it can be read: what another release wrote into one field must not cost the target.
fn status(object: &DynamicObject) -> VariantAutoscalingStatus {
    let field = |name: &str| object.data.get("status").and_then(|s| s.get(name)).cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_default();
    let alloc = |value: &Value| {
        Some(OptimizedAlloc {
            num_replicas: i32::try_from(value.get("numReplicas")?.as_u64()?).ok()?,
            accelerator: value.get("accelerator").map(text).unwrap_or_default(),
            last_run_time: value
                .get("lastRunTime")
                .and_then(Value::as_str)
                .and_then(|t| t.parse().ok())
                .map(Time),
        })
    };
    VariantAutoscalingStatus {
        desired_optimized_alloc: alloc(&field("desiredOptimizedAlloc")),
        current_replicas: serde_json::from_value(field("currentReplicas")).ok(),
        actuation: serde_json::from_value(field("actuation")).ok(),
        learned: serde_json::from_value(field("learned")).ok(),
        controller_state: serde_json::from_value(field("controllerState")).unwrap_or_default(),
        conditions: serde_json::from_value(field("conditions")).unwrap_or_default(),
    }
}

fn declared(object: &DynamicObject) -> Result<Declared, Unusable> {
    let invalid = |problem: String| Unusable::Invalid(problem);
    if let Some(problems) = guard::violations(object) {
        return Err(invalid(problems));
    }
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    let spec: VariantAutoscalingSpec = serde_json::from_value(spec)
        .map_err(|e| invalid(format!("spec: {}", plain_words(&e.to_string()))))?;
    let cost = spec.variant_cost.parse().map_err(|e| invalid(format!("spec.variantCost: {e}")))?;
    let mode = object.annotations().get(MODE_ANNOTATION).map(|m| m.parse()).transpose();
    let mode = mode
        .map_err(|e| invalid(format!("metadata.annotations[{MODE_ANNOTATION}]: {e}")))?
        .unwrap_or_default();
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let bound = |bound: Option<i32>| bound.and_then(|b| u32::try_from(b).ok());
    Ok(Declared {
        workload: WorkloadKey::new(namespace, &spec.scale_target_ref),
        model_id: spec.model_id,
        cost,
        mode,
        min: bound(spec.min_replicas),
        max: bound(spec.max_replicas),
    })
}
