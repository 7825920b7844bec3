//! Warnings about settings that keep an autoscaler from carrying out a target: a tolerance, a blocked direction, another
//! metric, and bounds that KEDA refuses.

use serde_json::Value;

use super::AutoscalerFacts;
use crate::rule::{Check, Rule, WARN};
use crate::text::show;
use wva_objects::autoscaler::{Direction, PAUSE_ANNOTATIONS};
use wva_objects::json::at;
use wva_objects::limits::{HpaTolerance, tolerance_share};
use wva_objects::{formula, metric_name, metric_sources};

/// Both directions, with the word for each.
const DIRECTIONS: [(&str, &str); 2] = [("scaleUp", "scale-up"), ("scaleDown", "scale-down")];
impl<'a> AutoscalerFacts<'a> {
    /// Path of the scaling policies.
    fn behavior_path(&self) -> &'static str {
        self.by_kind("spec.behavior", "spec.advanced.horizontalPodAutoscalerConfig.behavior")
    }

    fn policy(&self, direction: &str, field: &str) -> Option<&'a Value> {
        let steps: Vec<&str> = self.behavior_path().split('.').chain([direction, field]).collect();
        at(self.object, &steps)
    }

    fn is_disabled(&self, direction: &str) -> bool {
        self.policy(direction, "selectPolicy").and_then(Value::as_str) == Some("Disabled")
    }

    fn reads_signal(&self) -> bool {
        self.signals().next().is_some()
    }

    /// Metrics of an HPA, or triggers of a ScaledObject without a formula: a formula makes one value of them.
    fn all_sources(&self) -> &'a [Value] {
        if formula(self.object).is_some() { &[] } else { metric_sources(self.object, self.kind) }
    }
}

pub(crate) const TOLERANCE: Rule = Rule {
    code: "WVA-HPA-053",
    field: "spec.behavior",
    message: "{found} lets the HPA ignore smaller steps; set \"0\" in scaleUp and scaleDown (Kubernetes 1.35 or later)",
    docs: "An HPA or ScaledObject reads the metric and has a tolerance above 0 in a direction; without the field it is \
           0.1. The HPA then ignores steps below this share of its replicas, and keeps replicas that a rollout or \
           another writer added. wva publishes a whole number of replicas, so set `tolerance: \"0\"`. Kubernetes 1.33 \
           and 1.34 drop the field, and older versions refuse it; `docs/guides/connect-autoscaler.md` says what to do \
           there.",
    check: Check::Autoscaler(|facts, out| {
        if !facts.reads_signal() || facts.kubernetes.is_some_and(|version| !version.has_hpa_tolerance()) {
            return;
        }
        // Unless a flag of the controller manager changes it.
        let default = HpaTolerance::default().up;
        let active = DIRECTIONS.iter().filter(|(direction, _)| !facts.is_disabled(direction));
        let tolerances = active.filter_map(|(direction, _)| {
            let stated = facts.policy(direction, "tolerance").filter(|value| !value.is_null());
            let share = |value: &Value| {
                tolerance_share(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            };
            // The API server refuses what is not a share.
            let ignored = stated.map_or(Some(default), share)?;
            (ignored.get() > 0.0).then_some((*direction, stated))
        });
        // One finding for both directions: the remedy is the same.
        let mut all: Vec<(&str, Option<&Value>)> = tolerances.collect();
        all.sort_by_key(|(_, stated)| stated.is_none());
        if let Some((direction, stated)) = all.first() {
            let default = || format!("the default {}", default.get());
            // A number is as good as text here.
            let text = |value: &Value| if value.is_number() { value.to_string() } else { show(value) };
            let found = stated.map_or_else(default, text);
            out.add_at(format!("{}.{direction}.tolerance", facts.behavior_path()), found, "");
        }
    }),
    ..WARN
};

pub(crate) const OTHER_METRIC: Rule = Rule {
    code: "WVA-HPA-054",
    field: "spec.metrics",
    message: "{found} can ask for more replicas than the target, and the largest number wins; remove it",
    docs: "An HPA or ScaledObject reads the metric and another metric or trigger. Each asks for a number of replicas, \
           and the largest wins: the workload then has more replicas than the target, and does not shrink. For fewer \
           replicas at least, set `spec.minReplicas` of the VariantAutoscaling. A ScaledObject with \
           `scalingModifiers.formula` gets no warning, because the formula makes one value of its triggers.",
    check: Check::Autoscaler(|facts, out| {
        let Some(signal) = facts.signals().next() else { return };
        let other = facts.all_sources().iter().enumerate().find(|(i, _)| *i != signal.position);
        if let Some((i, source)) = other {
            out.add_at(format!("spec.{}[{i}]", facts.kind.metrics_field()), metric_name(source), "");
        }
    }),
    ..WARN
};

pub(crate) const BLOCKED: Rule = Rule {
    code: "WVA-HPA-055",
    field: "spec.behavior",
    message: "{found} stops {other}; the target is not carried out, so remove it",
    docs: "An HPA or ScaledObject reads the metric, but does not scale in a direction: its policy has `selectPolicy: \
           Disabled`, or KEDA's annotation `autoscaling.keda.sh/paused`, `paused-replicas`, `paused-scale-in` or \
           `paused-scale-out` is set. wva then publishes targets that the workload does not get. While a variant \
           cannot grow, other variants of the model take its load.",
    check: Check::Autoscaler(|facts, out| {
        if !facts.reads_signal() {
            return;
        }
        for (direction, stopped) in DIRECTIONS {
            if facts.is_disabled(direction) {
                let field = format!("{}.{direction}.selectPolicy", facts.behavior_path());
                out.add_at(field, "Disabled", stopped);
            }
        }
        let is_scaled_object = facts.by_kind(false, true);
        for pause in PAUSE_ANNOTATIONS.iter().filter(|_| is_scaled_object) {
            let value = at(facts.object, &["metadata", "annotations", pause.key]);
            if let Some(value) = value.filter(|value| value.as_str().is_none_or(|text| pause.is_set(text))) {
                let stopped = match pause.direction {
                    None => "scaling",
                    Some(Direction::Up) => "scale-up",
                    Some(Direction::Down) => "scale-down",
                };
                out.add_at(format!("metadata.annotations[{}]", pause.key), show(value), stopped);
            }
        }
    }),
    ..WARN
};

pub(crate) const IDLE: Rule = Rule {
    code: "WVA-HPA-056",
    field: "spec.idleReplicaCount",
    message: "KEDA refuses {found}, which is not below minReplicaCount {other}; raise minReplicaCount or remove the field",
    docs: "KEDA refuses a ScaledObject whose `idleReplicaCount` is not below its `minReplicaCount`, which is 0 by \
           default. With `idleReplicaCount: 0` and `minReplicaCount: 2`, KEDA takes the step from 0 to 2 replicas.",
    check: Check::Autoscaler(|facts, out| {
        let count = |field: &str| at(facts.object, &["spec", field]).and_then(Value::as_i64);
        let min = count("minReplicaCount").unwrap_or(0);
        let idle = count("idleReplicaCount").filter(|idle| facts.by_kind(false, true) && *idle >= min);
        if let Some(idle) = idle.filter(|_| facts.reads_signal()) {
            out.add(idle.to_string(), min.to_string());
        }
    }),
    ..WARN
};

#[cfg(test)]
mod tests;
