//! Cached VariantAutoscalings. The admission rules apply again: admission may not have run.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use wva_crds::names::{
    ACCELERATOR_LABEL, INSTANCE_LABEL, MANAGED_BY_LABEL, MODE_ANNOTATION, POD_DELETION_COST_ANNOTATION,
};
use wva_crds::parse_error::replace_rust_types;
use wva_crds::{
    ConditionType, ControllerState, LearnedCurves, LearnedReserve, OptimizedAlloc, RefusedCount,
    VariantAutoscalingSpec, VariantAutoscalingStatus,
};
use wva_runtime::cache::Projection;
use wva_scaling::VariantKey;
use wva_scaling::snapshot::{Mode, ReserveEstimate, SpeedEstimate, StepTimes};
use wva_scaling::units::{Amount, Cost};

use super::autoscaler::{AutoscalerKind, AutoscalerName};
use super::objects::Owner;
use crate::model::conditions::VariantError;
use crate::model::keys::WorkloadKey;
use crate::model::reported::{
    ReportedState, SignalCondition, find_condition, has_newer_state, signal_condition, state_from_conditions,
};
use crate::model::status_fingerprint::StatusFingerprint;
use crate::observe::{legacy, validation};

/// Annotated autoscaler for which wva created the object.
#[derive(Debug, PartialEq)]
pub(crate) struct Origin {
    pub(crate) autoscaler: AutoscalerName,
    pub(crate) uid: Box<str>,
}

/// Value of the label [`MANAGED_BY_LABEL`] on objects that wva creates.
pub(crate) const MANAGED_BY: &str = "wva";

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
    /// If wva created it.
    pub(crate) origin: Option<Box<Origin>>,
    /// The older of two variants with one target wins.
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
    /// Generation in the condition Ready.
    pub(crate) observed: Option<i64>,
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
            origin: origin(object),
            created: object.creation_timestamp().map(|t| t.0),
            is_terminating: object.metadata.deletion_timestamp.is_some(),
            status: VariantStatus::new(&status(object)),
            spec,
        }
    }

    /// For events.
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

    /// Namespace of the object.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.key.namespace
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
            observed: find_condition(status, ConditionType::Ready).and_then(|c| c.observed_generation),
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

fn origin(object: &DynamicObject) -> Option<Box<Origin>> {
    object.labels().get(MANAGED_BY_LABEL).filter(|by| *by == MANAGED_BY)?;
    let owner = Owner::from_meta(&object.metadata)?;
    let kind = match &*owner.kind {
        "HorizontalPodAutoscaler.autoscaling" => AutoscalerKind::Hpa,
        "ScaledObject.keda.sh" => AutoscalerKind::ScaledObject,
        _ => return None,
    };
    Some(Box::new(Origin { autoscaler: AutoscalerName { kind, name: owner.name }, uid: owner.uid }))
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

/// Reads each field alone: an unreadable field of another release must not lose the target.
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
    // A newer version may have fields of other types.
    let state = |value: &Value| {
        let version = i32::try_from(value.get("version")?.as_i64()?).unwrap_or(i32::MAX);
        let unreadable = ControllerState { version, ..ControllerState::default() };
        Some(serde_json::from_value(value.clone()).unwrap_or(unreadable))
    };
    VariantAutoscalingStatus {
        // The schema's default is below 0.
        observed_generation: field("observedGeneration").as_i64().filter(|generation| *generation >= 0),
        desired_optimized_alloc: alloc(&field("desiredOptimizedAlloc")),
        current_replicas: serde_json::from_value(field("currentReplicas")).ok(),
        actuation: serde_json::from_value(field("actuation")).ok(),
        mode: serde_json::from_value(field("mode")).ok(),
        learned: serde_json::from_value(field("learned")).ok(),
        cold_start_seconds: serde_json::from_value(field("coldStartSeconds")).ok(),
        controller_state: state(&field("controllerState")),
        conditions: match field("conditions") {
            Value::Array(items) => {
                items.into_iter().filter_map(|it| serde_json::from_value(it).ok()).collect()
            }
            _ => Vec::new(),
        },
    }
}

fn parse_spec(object: &DynamicObject) -> Result<ParsedSpec, VariantError> {
    let invalid = |problem: String| VariantError::Invalid(problem);
    if let Some(problems) = validation::violations(object) {
        return Err(invalid(problems));
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
