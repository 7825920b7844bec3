//! What the next status keeps of the present one, and a digest that shows whether it differs. A whole status takes ten
//! times the memory.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use wva_crds::{ConditionStatus, ConditionType, VariantAutoscalingStatus};
use wva_objects::status::find_condition;

use crate::model::reported::has_newer_state;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StatusFingerprint {
    /// Covers what this release writes, except the times.
    digest: u64,
    /// `desiredOptimizedAlloc.lastRunTime`.
    pub(crate) last_run: Option<Timestamp>,
    /// One per type of condition.
    since: [Option<(ConditionStatus, Timestamp)>; ConditionType::ALL.len()],
    /// Conditions that other controllers added.
    pub(crate) foreign: Vec<Condition>,
    /// The state of a newer release stays.
    pub(crate) keeps_state: bool,
}

impl Default for StatusFingerprint {
    fn default() -> Self {
        Self::from_status(&VariantAutoscalingStatus::default())
    }
}

impl StatusFingerprint {
    pub(crate) fn from_status(status: &VariantAutoscalingStatus) -> Self {
        let since = |type_| {
            let condition = find_condition(status, type_)?;
            Some((ConditionStatus::parse(&condition.status)?, condition.last_transition_time.0))
        };
        let last_run = status.desired_optimized_alloc.as_ref().and_then(|a| a.last_run_time.as_ref());
        let is_foreign = |condition: &&Condition| !ConditionType::is_known(&condition.type_);
        Self {
            digest: digest(status),
            last_run: last_run.map(|t| t.0),
            since: ConditionType::ALL.map(since),
            foreign: status.conditions.iter().filter(is_foreign).cloned().collect(),
            keeps_state: has_newer_state(status),
        }
    }

    /// Adds to a new status what does not belong to this release: it replaces the present one.
    pub(crate) fn keep_in(&self, status: &mut VariantAutoscalingStatus) {
        status.conditions.retain(|condition| ConditionType::is_known(&condition.type_));
        status.conditions.extend_from_slice(&self.foreign);
        if self.keeps_state {
            status.controller_state = None;
        }
    }

    /// Fingerprint of the status after this write, which has left a kept state in place.
    pub(crate) fn after_write(&self, written: &VariantAutoscalingStatus) -> Self {
        Self { keeps_state: self.keeps_state, ..Self::from_status(written) }
    }

    /// Equal except for times.
    pub(crate) fn matches(&self, status: &VariantAutoscalingStatus) -> bool {
        self.digest == digest(status)
    }

    /// `None` if the condition has another status.
    pub(crate) fn since(&self, type_: ConditionType, status: ConditionStatus) -> Option<Timestamp> {
        let (_, since) = ConditionType::ALL.iter().zip(&self.since).find(|(t, _)| **t == type_)?;
        since.filter(|(before, _)| *before == status).map(|(_, at)| at)
    }
}

/// 64 bits suffice: only statuses of the same variant are compared.
fn digest(status: &VariantAutoscalingStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    status.observed_generation.hash(&mut hasher);
    let alloc = status.desired_optimized_alloc.as_ref();
    alloc.map(|a| (a.num_replicas, &a.accelerator)).hash(&mut hasher);
    status.current_replicas.hash(&mut hasher);
    status.actuation.as_ref().map(|a| a.applied).hash(&mut hasher);
    status.mode.hash(&mut hasher);
    let learned = status.learned.as_ref();
    learned.map(|l| ([l.a, l.b, l.c].map(f64::to_bits), l.samples)).hash(&mut hasher);
    let reserve = learned.and_then(|l| l.reserve.as_ref());
    reserve.map(|r| ([r.usual, r.ratio].map(f64::to_bits), r.steps)).hash(&mut hasher);
    status.cold_start_seconds.hash(&mut hasher);
    status.controller_state.as_ref().filter(|_| !has_newer_state(status)).hash(&mut hasher);
    let conditions = status.conditions.iter().filter(|c| ConditionType::is_known(&c.type_));
    let without_times: Vec<_> =
        conditions.map(|c| (&c.type_, &c.status, &c.reason, &c.message, c.observed_generation)).collect();
    without_times.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status() -> Value {
        let condition = |type_: &str, status: &str, minute: u32| {
            json!({"type": type_, "status": status, "reason": "Because", "message": "so", "observedGeneration": 1,
                "lastTransitionTime": format!("2026-01-01T00:{minute:02}:00Z")})
        };
        json!({
            "desiredOptimizedAlloc": {"numReplicas": 3, "accelerator": "H100", "lastRunTime": "2026-01-01T00:09:00Z"},
            "currentReplicas": 2,
            "actuation": {"applied": true},
            "mode": "Auto",
            "coldStartSeconds": 95,
            "observedGeneration": 1,
            "controllerState": {"version": 1},
            "conditions": [condition("Ready", "True", 1), condition("OptimizationReady", "False", 2),
                condition("MetricsAvailable", "Unknown", 3), condition("team.example/Audited", "True", 4)],
        })
    }

    fn read(status: &Value) -> VariantAutoscalingStatus {
        serde_json::from_value(status.clone()).unwrap()
    }

    #[test]
    fn any_change_except_of_a_time_is_a_change() {
        let fingerprint = StatusFingerprint::from_status(&read(&status()));
        let rows = [
            ("/desiredOptimizedAlloc", Value::Null, true),
            ("/desiredOptimizedAlloc/numReplicas", json!(4), true),
            ("/desiredOptimizedAlloc/accelerator", json!("L4"), true),
            ("/desiredOptimizedAlloc/lastRunTime", json!("2026-01-01T01:00:00Z"), false),
            ("/currentReplicas", json!(3), true),
            ("/currentReplicas", Value::Null, true),
            ("/actuation/applied", json!(false), true),
            ("/mode", json!("Paused"), true),
            ("/conditions/0/status", json!("False"), true),
            ("/conditions/0/reason", json!("Other"), true),
            ("/conditions/0/message", json!("other"), true),
            ("/conditions/0/observedGeneration", json!(2), true),
            ("/conditions/0/lastTransitionTime", json!("2026-01-01T01:00:00Z"), false),
            ("/conditions", json!([]), true),
            ("/coldStartSeconds", json!(96), true),
            ("/observedGeneration", json!(2), true),
            ("/controllerState/version", json!(0), true),
            ("/conditions/3/message", json!("other"), false),
        ];
        assert!(fingerprint.matches(&read(&status())));
        for (path, to, differs) in rows {
            let mut other = status();
            *other.pointer_mut(path).unwrap() = to;
            assert_eq!(!fingerprint.matches(&read(&other)), differs, "{path}");
        }
    }

    #[test]
    fn a_condition_keeps_the_time_of_its_transition() {
        let fingerprint = StatusFingerprint::from_status(&read(&status()));
        let at = |minute: u32| format!("2026-01-01T00:{minute:02}:00Z").parse().ok();
        assert_eq!(fingerprint.since(ConditionType::Ready, ConditionStatus::True), at(1));
        assert_eq!(fingerprint.since(ConditionType::Ready, ConditionStatus::False), None);
        assert_eq!(fingerprint.since(ConditionType::OptimizationReady, ConditionStatus::False), at(2));
        assert_eq!(fingerprint.since(ConditionType::MetricsAvailable, ConditionStatus::Unknown), at(3));
        assert_eq!(fingerprint.since(ConditionType::MetricsAvailable, ConditionStatus::True), None);
        assert_eq!(fingerprint.since(ConditionType::TargetResolved, ConditionStatus::True), None, "absent");
        assert_eq!(fingerprint.last_run, at(9));
    }
}
