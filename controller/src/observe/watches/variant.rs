//! Cached VariantAutoscalings. The admission rules apply again: admission may not have run.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;
use kube::api::DynamicObject;
use wva_crds::names::{ACCELERATOR_LABEL, INSTANCE_LABEL, MODE_ANNOTATION, POD_DELETION_COST_ANNOTATION};
use wva_crds::parse_error::replace_rust_types;
use wva_crds::{
    LearnedCurves, LearnedReserve, OptimizedAlloc, RefusedCount, VariantAutoscalingSpec,
    VariantAutoscalingStatus,
};
use wva_objects::WorkloadKey;
use wva_objects::origin::Origin;
use wva_objects::status::{StatusTrace, read_status};
use wva_rules::{ExistingVariant, validate_stored};
use wva_runtime::cache::Projection;
use wva_scaling::VariantKey;
use wva_scaling::snapshot::{Mode, ReserveEstimate, SpeedEstimate, StepTimes};
use wva_scaling::units::{Amount, Cost};

use crate::model::conditions::VariantError;
use crate::model::reported::{
    ReportedState, SignalCondition, has_newer_state, signal_condition, state_from_conditions,
};
use crate::model::status_fingerprint::StatusFingerprint;
use crate::observe::legacy;

/// A validated VariantAutoscaling.
#[derive(Debug)]
pub struct Variant {
    pub(crate) key: VariantKey,
    /// Distinguishes a recreated object.
    pub(crate) uid: String,
    /// Orders two states of the object.
    pub(crate) revision: Option<u64>,
    /// Written to `observedGeneration`.
    pub(crate) generation: Option<i64>,
    pub(crate) instance: Option<String>,
    pub(crate) accelerator: Option<String>,
    /// Annotated autoscaler, if wva created the object for one.
    pub(crate) origin: Option<Box<Origin>>,
    /// Creation time. The older of two variants with one target wins.
    pub(crate) created: Option<Timestamp>,
    pub(crate) is_terminating: bool,
    pub(crate) status: VariantStatus,
    pub(crate) spec: Result<ParsedSpec, VariantError>,
}

#[derive(Debug)]
pub(crate) struct VariantStatus {
    /// `None` if it is absent or unreadable.
    pub(crate) alloc: Option<OptimizedAlloc>,
    /// The target repeats the replicas: no analysis has succeeded yet.
    pub(crate) unanalyzed: bool,
    /// The model was at 0 replicas.
    pub(crate) waking: bool,
    /// The workload existed then, or before.
    pub(crate) target_seen: bool,
    pub(crate) current: Option<u32>,
    pub(crate) trace: StatusTrace,
    pub(crate) reported: ReportedState,
    pub(crate) signal_problem: Option<SignalCondition>,
    /// Learned by an earlier leader.
    pub(crate) learned: Option<SpeedEstimate>,
    /// The same of the model's reserve.
    pub(crate) reserve: Option<ReserveEstimate>,
    /// Seconds, measured by an earlier leader.
    pub(crate) cold_start: Option<u32>,
    /// Read by an earlier leader.
    pub(crate) refused: Vec<RefusedCount>,
    /// Compared at the next status write.
    pub(crate) fingerprint: StatusFingerprint,
}

#[derive(Debug, PartialEq)]
pub(crate) struct ParsedSpec {
    pub(crate) workload: WorkloadKey,
    pub(crate) model_id: String,
    pub(crate) cost: Cost,
    pub(crate) mode: Mode,
    /// Whether pods get a deletion cost before a scale-down. `None`: if this controller scales the workload.
    pub(crate) sets_deletion_cost: Option<bool>,
    pub(crate) min: Option<u32>,
    pub(crate) max: Option<u32>,
}

impl Variant {
    pub(crate) fn projection() -> Projection<DynamicObject, Arc<Self>> {
        Projection { read: |object| Arc::new(Self::read(object)), is_same: Some(|a, b| a.has_same_spec(b)) }
    }

    /// The object may be older than the current rules.
    #[must_use]
    pub fn read(object: &DynamicObject) -> Self {
        let label = |key: &str| object.labels().get(key).filter(|v| !v.is_empty()).cloned();
        let spec = parse_spec(object);
        Self {
            key: VariantKey { namespace: object.namespace().unwrap_or_default(), name: object.name_any() },
            uid: object.uid().unwrap_or_default(),
            revision: revision(object),
            generation: object.metadata.generation,
            instance: label(INSTANCE_LABEL),
            accelerator: accelerator(object).or_else(|| label(ACCELERATOR_LABEL)),
            origin: Origin::from_meta(&object.metadata).map(Box::new),
            created: object.creation_timestamp().map(|t| t.0),
            is_terminating: object.metadata.deletion_timestamp.is_some(),
            status: VariantStatus::new(&read_status(object)),
            spec,
        }
    }

    /// Reference to the workload, for events.
    pub(crate) fn workload_reference(&self) -> Option<ObjectReference> {
        self.spec.as_ref().ok()?.workload.reference()
    }

    /// A change of the status alone starts no cycle.
    pub(crate) fn has_same_spec(&self, other: &Self) -> bool {
        let of = |v: &Self| (v.generation, v.created, v.is_terminating);
        of(self) == of(other)
            && self.uid == other.uid
            && self.instance == other.instance
            && self.accelerator == other.accelerator
            && self.origin == other.origin
            && self.spec == other.spec
    }

    /// The part that annotated autoscalers are judged by.
    pub(crate) fn to_existing(&self) -> ExistingVariant {
        ExistingVariant {
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            is_terminating: self.is_terminating,
            origin: self.origin.as_deref().cloned(),
            workload: self.spec.as_ref().ok().map(|spec| spec.workload.clone()),
        }
    }

    pub(crate) fn mode(&self) -> Option<Mode> {
        self.spec.as_ref().ok().map(|d| d.mode)
    }
}

impl VariantStatus {
    fn new(status: &VariantAutoscalingStatus) -> Self {
        let state = match &status.controller_state {
            Some(_) if has_newer_state(status) => state_from_conditions(status),
            Some(state) => state.clone(),
            None => legacy::controller_state(status),
        };
        let alloc = status.desired_optimized_alloc.clone();
        Self {
            unanalyzed: state.unanalyzed,
            waking: state.waking,
            target_seen: alloc.is_some() || status.current_replicas.is_some() || state.target_seen,
            current: status.current_replicas.and_then(|n| u32::try_from(n).ok()),
            trace: StatusTrace::new(status),
            reported: ReportedState::from_status(status, &state),
            signal_problem: signal_condition(status),
            fingerprint: StatusFingerprint::from_status(status),
            learned: status.learned.as_ref().and_then(learned_times),
            reserve: status.learned.as_ref().and_then(|learned| learned_reserve(learned.reserve.as_ref()?)),
            cold_start: status.cold_start_seconds.and_then(|seconds| u32::try_from(seconds).ok()),
            refused: state.refused,
            alloc,
        }
    }
}

/// Grows with each change of an object. `None` if it is not a number.
pub(crate) fn revision(object: &DynamicObject) -> Option<u64> {
    object.metadata.resource_version.as_ref()?.parse().ok()
}

/// `None` in an invalid spec, like any text that is empty.
fn accelerator(object: &DynamicObject) -> Option<String> {
    let name = object.data.pointer("/spec/accelerator")?.as_str()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// `None` if a value is invalid.
fn learned_times(learned: &LearnedCurves) -> Option<SpeedEstimate> {
    let amount = |value: f64| Amount::try_from(value).ok();
    let times = StepTimes { a: amount(learned.a)?, b: amount(learned.b)?, c: amount(learned.c)? };
    let samples = u32::try_from(learned.samples.max(0)).unwrap_or(u32::MAX);
    Some(SpeedEstimate { times, samples: amount(f64::from(samples))? })
}

/// `None` if a value is invalid.
fn learned_reserve(learned: &LearnedReserve) -> Option<ReserveEstimate> {
    let amount = |value: f64| Amount::try_from(value).ok();
    let steps = amount(f64::from(u32::try_from(learned.steps).ok()?))?;
    Some(ReserveEstimate { usual: amount(learned.usual)?, ratio: amount(learned.ratio)?, steps })
}

fn parse_spec(object: &DynamicObject) -> Result<ParsedSpec, VariantError> {
    let invalid = |problem: String| VariantError::Invalid(problem);
    // The webhook can be off, and an object can be older than a rule.
    let verdict = validate_stored(serde_json::to_value(object).unwrap_or_default());
    if verdict.is_denied() {
        return Err(invalid(verdict.message()));
    }
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    let spec: VariantAutoscalingSpec = serde_json::from_value(spec)
        .map_err(|e| invalid(format!("spec: {}", replace_rust_types(&e.to_string()))))?;
    let cost = spec.variant_cost.parse().map_err(|e| invalid(format!("spec.variantCost: {e}")))?;
    let mode = match (spec.mode, object.annotations().get(MODE_ANNOTATION)) {
        (Some(mode), _) => Mode::from_spec(mode, spec.fixed_replicas),
        (None, Some(text)) => {
            text.parse().map_err(|e| invalid(format!("metadata.annotations[{MODE_ANNOTATION}]: {e}")))?
        }
        (None, None) => Mode::Auto,
    };
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    let bound = |bound: Option<i32>| bound.and_then(|b| u32::try_from(b).ok());
    Ok(ParsedSpec {
        workload: WorkloadKey::new(namespace, &spec.scale_target_ref),
        model_id: spec.model_id,
        cost,
        mode,
        // The rules allow no other values.
        sets_deletion_cost: object.annotations().get(POD_DELETION_COST_ANNOTATION).map(|v| v == "true"),
        min: bound(spec.min_replicas),
        max: bound(spec.max_replicas),
    })
}
