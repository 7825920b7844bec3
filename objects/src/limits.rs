//! Bounds and tolerance from HPAs and ScaledObjects.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wva_crds::entries::Amount;

/// KEDA's default of `maxReplicaCount`.
const SCALED_OBJECT_MAX: u32 = 100;

/// Limits of one autoscaler, or of all of one workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Fewest replicas.
    pub min: u32,
    /// Most replicas.
    pub max: u32,
    /// The minimum of an HPA is at least 1 by its API, so it does not count.
    pub min_forbids_zero: bool,
    /// True for a ScaledObject with minimum 0, or that idles at 0.
    pub scales_to_zero: bool,
    /// `idleReplicaCount: 0`: KEDA goes from the minimum to 0 and back, so 0 is allowed next to a greater minimum.
    pub idles_at_zero: bool,
    /// Relative change that the HPA ignores.
    pub tolerance: Option<HpaTolerance>,
}

impl Limits {
    /// Limits of two autoscalers of one workload: the narrower bounds and the greater tolerance apply.
    #[must_use]
    pub fn narrowed(self, other: Self) -> Self {
        let wider = |a: Amount, b: Amount| if a.get() >= b.get() { a } else { b };
        let tolerance = match (self.tolerance, other.tolerance) {
            (Some(a), Some(b)) => Some(HpaTolerance { up: wider(a.up, b.up), down: wider(a.down, b.down) }),
            (one, other) => one.or(other),
        };
        Self {
            min: self.min.max(other.min),
            max: self.max.min(other.max),
            min_forbids_zero: self.min_forbids_zero || other.min_forbids_zero,
            scales_to_zero: self.scales_to_zero || other.scales_to_zero,
            idles_at_zero: self.idles_at_zero || other.idles_at_zero,
            tolerance,
        }
    }

    pub(crate) fn from_hpa(hpa: &HorizontalPodAutoscaler) -> Self {
        let spec = &hpa.spec;
        let behavior = spec.behavior.as_ref();
        let default = HpaTolerance::default();
        let up = behavior
            .and_then(|b| b.scale_up.as_ref())
            .and_then(|r| r.tolerance.as_ref())
            .and_then(|q| tolerance_share(&q.0));
        let down = behavior
            .and_then(|b| b.scale_down.as_ref())
            .and_then(|r| r.tolerance.as_ref())
            .and_then(|q| tolerance_share(&q.0));
        Self {
            // 1 is the default.
            min: spec.min_replicas.map_or(1, |m| u32::try_from(m).unwrap_or(0)),
            max: u32::try_from(spec.max_replicas).unwrap_or(0),
            min_forbids_zero: false,
            scales_to_zero: false,
            idles_at_zero: false,
            tolerance: Some(HpaTolerance {
                up: up.unwrap_or(default.up),
                down: down.unwrap_or(default.down),
            }),
        }
    }

    /// Limits of the `spec` of a ScaledObject. The tolerance comes from the HPA that KEDA creates.
    #[must_use]
    pub fn from_scaled_object(spec: &Value) -> Self {
        let count =
            |field: &str| spec.get(field).and_then(Value::as_i64).map(|n| u32::try_from(n).unwrap_or(0));
        let min = count("minReplicaCount").unwrap_or(0);
        // KEDA supports no other number.
        let idles_at_zero = count("idleReplicaCount") == Some(0);
        Self {
            min,
            max: count("maxReplicaCount").unwrap_or(SCALED_OBJECT_MAX),
            min_forbids_zero: min > 0 && !idles_at_zero,
            scales_to_zero: min == 0 || idles_at_zero,
            idles_at_zero,
            tolerance: None,
        }
    }
}

/// Relative change of replicas that an HPA ignores, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HpaTolerance {
    /// `behavior.scaleUp.tolerance`. Default: 0.1.
    pub up: Amount,
    /// `behavior.scaleDown.tolerance`. Default: 0.1.
    pub down: Amount,
}

impl Default for HpaTolerance {
    /// Default of `--horizontal-pod-autoscaler-tolerance` of Kubernetes.
    fn default() -> Self {
        Self { up: Amount::constant(0.1), down: Amount::constant(0.1) }
    }
}

/// A tolerance such as `0.05` or `50m`. Other suffixes make no sense for a share; the default replaces them.
#[must_use]
pub fn tolerance_share(text: &str) -> Option<Amount> {
    let value = match text.strip_suffix('m') {
        Some(milli) => milli.parse::<f64>().ok()? / 1000.0,
        None => text.parse().ok()?,
    };
    Amount::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tolerances_are_read_as_shares() {
        for (text, value) in [("0", 0.0), ("0.05", 0.05), ("50m", 0.05), ("1", 1.0)] {
            assert!((tolerance_share(text).unwrap().get() - value).abs() < 1e-12, "{text}");
        }
        assert_eq!(tolerance_share("5k"), None);
    }

    #[test]
    fn a_scaled_object_has_the_defaults_of_keda() {
        for (spec, min, max, forbids) in [
            (json!({}), 0, 100, false),
            (json!({"minReplicaCount": 0, "maxReplicaCount": 5}), 0, 5, false),
            (json!({"minReplicaCount": 1}), 1, 100, true),
            (json!({"minReplicaCount": "one", "maxReplicaCount": -1}), 0, 0, false),
            (Value::Null, 0, 100, false),
        ] {
            let want = Limits {
                min,
                max,
                min_forbids_zero: forbids,
                scales_to_zero: min == 0,
                idles_at_zero: false,
                tolerance: None,
            };
            assert_eq!(Limits::from_scaled_object(&spec), want, "{spec}");
        }
    }

    #[test]
    fn a_scaled_object_may_idle_at_zero() {
        for (idle, forbids, to_zero) in
            [(json!(0), false, true), (json!(1), true, false), (json!(null), true, false)]
        {
            let spec = json!({"idleReplicaCount": idle, "minReplicaCount": 2, "maxReplicaCount": 8});
            let limits = Limits::from_scaled_object(&spec);
            assert_eq!((limits.min, limits.max), (2, 8));
            assert_eq!((limits.min_forbids_zero, limits.scales_to_zero), (forbids, to_zero), "{idle}");
            assert_eq!(limits.idles_at_zero, to_zero);
        }
    }
}
