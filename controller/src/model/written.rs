//! What is remembered of a status that was written: the times that the next one carries on, and a digest of the rest,
//! which tells whether the next one differs. A whole status takes ten times as much, and there are thousands.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use wva_crds::VariantAutoscalingStatus;

use crate::model::conditions::TYPES;

/// What is remembered of one status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Of all but the times.
    digest: u64,
    /// `desiredOptimizedAlloc.lastRunTime`.
    pub(crate) last_run: Option<Timestamp>,
    /// Of each condition in [`TYPES`]: whether it holds, and since when.
    since: [Option<(bool, Timestamp)>; TYPES.len()],
}

impl Default for Written {
    /// Of an object without a status.
    fn default() -> Self {
        Self::of(&VariantAutoscalingStatus::default())
    }
}

impl Written {
    /// What is remembered of this one.
    pub(crate) fn of(status: &VariantAutoscalingStatus) -> Self {
        let since = |type_| {
            let condition = status.conditions.iter().find(|c| c.type_ == type_)?;
            let holds = match condition.status.as_str() {
                "True" => true,
                "False" => false,
                _ => return None,
            };
            Some((holds, condition.last_transition_time.0))
        };
        let last_run = status.desired_optimized_alloc.as_ref().and_then(|a| a.last_run_time.as_ref());
        Self { digest: digest(status), last_run: last_run.map(|t| t.0), since: TYPES.map(since) }
    }

    /// But for its times, the status is this one.
    pub(crate) fn says(&self, status: &VariantAutoscalingStatus) -> bool {
        self.digest == digest(status)
    }

    /// Anybody ever wrote a condition or a target.
    pub(crate) fn says_something(&self) -> bool {
        *self != Self::default()
    }

    /// When a condition last became true, or false.
    pub(crate) fn last_change(&self) -> Option<Timestamp> {
        self.since.iter().flatten().map(|(_, at)| *at).max()
    }

    /// Since when the condition has been true, or false; `None` where it was not so.
    pub(crate) fn since(&self, type_: &str, holds: bool) -> Option<Timestamp> {
        let (_, since) = TYPES.iter().zip(&self.since).find(|(t, _)| **t == type_)?;
        since.filter(|(held, _)| *held == holds).map(|(_, at)| at)
    }
}

/// Of 64 bits: that two statuses of one variant have the same by chance happens to nobody.
fn digest(status: &VariantAutoscalingStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    let alloc = status.desired_optimized_alloc.as_ref();
    alloc.map(|a| (a.num_replicas, &a.accelerator)).hash(&mut hasher);
    status.current_replicas.hash(&mut hasher);
    status.actuation.as_ref().map(|a| a.applied).hash(&mut hasher);
    let learned = status.learned.as_ref();
    learned.map(|l| ([l.a, l.b, l.c].map(f64::to_bits), l.samples)).hash(&mut hasher);
    status.controller_state.hash(&mut hasher);
    let conditions = status.conditions.iter();
    let told: Vec<_> =
        conditions.map(|c| (&c.type_, &c.status, &c.reason, &c.message, c.observed_generation)).collect();
    told.hash(&mut hasher);
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
            "conditions": [condition("Ready", "True", 1), condition("OptimizationReady", "False", 2),
                condition("MetricsAvailable", "Unknown", 3)],
        })
    }

    fn read(status: &Value) -> VariantAutoscalingStatus {
        serde_json::from_value(status.clone()).unwrap()
    }

    #[test]
    fn any_change_but_of_a_time_is_a_change() {
        let written = Written::of(&read(&status()));
        let rows = [
            ("/desiredOptimizedAlloc", Value::Null, true),
            ("/desiredOptimizedAlloc/numReplicas", json!(4), true),
            ("/desiredOptimizedAlloc/accelerator", json!("L4"), true),
            ("/desiredOptimizedAlloc/lastRunTime", json!("2026-01-01T01:00:00Z"), false),
            ("/currentReplicas", json!(3), true),
            ("/currentReplicas", Value::Null, true),
            ("/actuation/applied", json!(false), true),
            ("/conditions/0/status", json!("False"), true),
            ("/conditions/0/reason", json!("Other"), true),
            ("/conditions/0/message", json!("other"), true),
            ("/conditions/0/observedGeneration", json!(2), true),
            ("/conditions/0/lastTransitionTime", json!("2026-01-01T01:00:00Z"), false),
            ("/conditions", json!([]), true),
        ];
        assert!(written.says(&read(&status())));
        for (path, to, differs) in rows {
            let mut other = status();
            *other.pointer_mut(path).unwrap() = to;
            assert_eq!(!written.says(&read(&other)), differs, "{path}");
        }
    }

    #[test]
    fn a_condition_is_known_since_when_it_has_been_so() {
        let written = Written::of(&read(&status()));
        let at = |minute: u32| format!("2026-01-01T00:{minute:02}:00Z").parse().ok();
        assert_eq!(written.since("Ready", true), at(1));
        assert_eq!(written.since("Ready", false), None);
        assert_eq!(written.since("OptimizationReady", false), at(2));
        assert_eq!(written.since("MetricsAvailable", true), None, "neither true nor false");
        assert_eq!(written.since("TargetResolved", true), None, "it is not there");
        assert_eq!(written.last_run, at(9));
    }
}
