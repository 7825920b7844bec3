//! Status of a stored VariantAutoscaling.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::core::DynamicObject;
use serde_json::Value;
use wva_crds::{ConditionStatus, ConditionType, ControllerState, OptimizedAlloc, VariantAutoscalingStatus};

/// Maximum age of a confirmed target. A new leader and the external metrics API ignore older ones.
pub const MAX_TARGET_AGE: SignedDuration = SignedDuration::from_mins(15);

/// Traces of the controller that wrote a status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusTrace {
    /// `desiredOptimizedAlloc.lastRunTime`.
    pub last_run: Option<Timestamp>,
    /// Last change of a condition of wva.
    pub last_change: Option<Timestamp>,
    /// Generation in the condition `Ready`.
    pub observed: Option<i64>,
    /// The status has a field that wva writes.
    pub is_written: bool,
}

impl StatusTrace {
    /// Ignores conditions of other controllers.
    #[must_use]
    pub fn new(status: &VariantAutoscalingStatus) -> Self {
        let alloc = status.desired_optimized_alloc.as_ref();
        let own = || ConditionType::ALL.into_iter().filter_map(|type_| find_condition(status, type_));
        let has_known_status = |condition: &&Condition| ConditionStatus::parse(&condition.status).is_some();
        let has_field = [
            status.observed_generation.is_some(),
            alloc.is_some(),
            status.current_replicas.is_some(),
            status.actuation.is_some(),
            status.mode.is_some(),
            status.learned.is_some(),
            status.cold_start_seconds.is_some(),
            status.controller_state.is_some(),
        ];
        Self {
            last_run: alloc.and_then(|alloc| alloc.last_run_time.as_ref()).map(|time| time.0),
            last_change: own().filter(has_known_status).map(|c| c.last_transition_time.0).max(),
            observed: find_condition(status, ConditionType::Ready).and_then(|c| c.observed_generation),
            is_written: has_field.contains(&true) || own().next().is_some(),
        }
    }
}

/// The condition of a type in a status.
#[must_use]
pub fn find_condition(status: &VariantAutoscalingStatus, type_: ConditionType) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == type_.as_str())
}

/// Reads each field alone: an unreadable field of another release must not lose the target.
#[must_use]
pub fn read_status(object: &DynamicObject) -> VariantAutoscalingStatus {
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
