//! The policies that a backtest compares, and their names.

use serde_json::{Value, json};

use crate::measure::Objectives;
use crate::scenario::spec;

/// Name of the replicas that ran, among the policies.
pub const RAN: &str = "what ran";
/// Name of wva as its chart installs it.
pub const WVA: &str = "wva, default";

/// wva with an entry, and the settings of its chart.
///
/// # Errors
/// The entry is not valid.
pub(super) fn wva_policy(name: &str, entry: &Value) -> Result<spec::Policy, serde_json::Error> {
    let ten = json!([{"type": "Pods", "value": 10, "periodSeconds": 150}]);
    serde_json::from_value(json!({"name": name, "wva": {
        "saturation": entry, "interval": "15s", "fetchInterval": "15s",
        "behavior": {"scaleUp": {"policies": ten}, "scaleDown": {"stabilizationWindowSeconds": 60, "policies": ten}}}}))
}

/// Entry with the objectives.
pub(super) fn stated(objectives: Objectives) -> Value {
    json!({
        "analyzerName": "throughput",
        "ttftSlo": millis(objectives.ttft),
        "itlSlo": millis(objectives.itl),
    })
}

/// The policies to compare, with the objectives and the share that are stated.
///
/// # Errors
/// A policy cannot be read: the objectives are out of range.
pub fn policies(objectives: Objectives, targets: &[f64]) -> Result<Vec<spec::Policy>, serde_json::Error> {
    let mut all = vec![wva_policy(WVA, &json!({"analyzerName": "throughput"}))?];
    for target in targets {
        let mut entry = stated(objectives);
        entry["sloTarget"] = json!(target);
        all.push(wva_policy(&format!("wva, sloTarget {target}"), &entry)?);
    }
    for rival in [
        json!({"name": "HPA on queue and KV", "hpa": {"waiting": 2, "kv": 0.7}}),
        json!({"name": "KEDA llm-d queue", "keda": {"like": "llm-d-queue"}}),
        json!({"name": "KEDA llm-d token-aware", "keda": {"like": "llm-d-token-aware"}}),
        json!({"name": "KEDA llm-d slo-aware", "keda": {"like": "llm-d-slo-aware"}}),
        json!({"name": "best fixed fleet", "fixedBest": {}}),
        json!({"name": "oracle", "oracle": {}}),
    ] {
        all.push(serde_json::from_value(rival)?);
    }
    Ok(all)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn millis(seconds: f64) -> u32 {
    ((seconds * 1000.0).round() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_with_objectives_and_targets() {
        let objectives = Objectives { ttft: 1.0, itl: 0.1, attainment: 0.99 };
        let names: Vec<String> =
            policies(objectives, &[95.0, 99.0]).unwrap().into_iter().map(|p| p.name).collect();
        assert_eq!(names[0], WVA);
        assert_eq!(names[2], "wva, sloTarget 99");
        assert_eq!(names.len(), 9);
        assert!(policies(objectives, &[5.0]).is_err(), "a share has to be one that wva accepts");
    }
}
