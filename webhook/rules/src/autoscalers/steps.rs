//! Warnings about settings that keep an autoscaler from carrying out a target: a tolerance, a blocked direction, another
//! metric, and bounds that KEDA refuses.

use serde_json::Value;

use super::AutoscalerFacts;
use crate::rule::{Check, Rule, WARN};
use crate::text::show;
use wva_objects::json::at;

/// Annotations of KEDA that stop a ScaledObject, and what they stop.
const PAUSES: [Pause; 4] = [
    Pause { annotation: "autoscaling.keda.sh/paused-replicas", stopped: "scaling", is_boolean: false },
    Pause { annotation: "autoscaling.keda.sh/paused", stopped: "scaling", is_boolean: true },
    Pause { annotation: "autoscaling.keda.sh/paused-scale-in", stopped: "scale-down", is_boolean: true },
    Pause { annotation: "autoscaling.keda.sh/paused-scale-out", stopped: "scale-up", is_boolean: true },
];
/// Directions of an HPA's behavior, with the word for each.
const DIRECTIONS: [(&str, &str); 2] = [("scaleUp", "scale-up"), ("scaleDown", "scale-down")];
/// Tolerance of an HPA that states none, unless a flag of the controller manager changes it.
const DEFAULT_TOLERANCE: f64 = 0.1;
/// Texts that KEDA reads as false. Any other text pauses.
const FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

struct Pause {
    annotation: &'static str,
    stopped: &'static str,
    /// The annotation pauses if it is true. False: its presence pauses.
    is_boolean: bool,
}

impl Pause {
    fn is_set(&self, value: &Value) -> bool {
        !self.is_boolean || !value.as_str().is_some_and(|text| FALSE.contains(&text))
    }
}

impl<'a> AutoscalerFacts<'a> {
    /// Path of the scaling policies.
    fn behavior_path(&self) -> &'static str {
        if self.scaled_object {
            "spec.advanced.horizontalPodAutoscalerConfig.behavior"
        } else {
            "spec.behavior"
        }
    }

    fn policy(&self, direction: &str, field: &str) -> Option<&'a Value> {
        let steps: Vec<&str> = self.behavior_path().split('.').chain([direction, field]).collect();
        at(self.object, &steps)
    }

    fn is_disabled(&self, direction: &str) -> bool {
        self.policy(direction, "selectPolicy").and_then(Value::as_str) == Some("Disabled")
    }

    fn reads_signal(&self) -> bool {
        !self.metric_sources().is_empty()
    }

    /// Metrics of an HPA, or triggers of a ScaledObject without a formula: a formula makes one value of them.
    fn all_sources(&self) -> &'a [Value] {
        let formula = ["spec", "advanced", "scalingModifiers", "formula"];
        let formula = at(self.object, &formula).and_then(Value::as_str).filter(|text| !text.is_empty());
        let field = if self.scaled_object { "triggers" } else { "metrics" };
        let all = at(self.object, &["spec", field]).and_then(Value::as_array);
        all.filter(|_| formula.is_none()).map_or(&[], Vec::as_slice)
    }
}

/// Share of the replicas, such as `0.05` or `50m`. `None`: the API server refuses it.
fn share(value: &Value) -> Option<f64> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let share = match text.strip_suffix('m') {
        Some(milli) => milli.parse::<f64>().ok()? / 1000.0,
        None => text.parse().ok()?,
    };
    Some(share).filter(|share| share.is_finite())
}

/// Name of a metric or the type of a trigger, for messages.
fn source_name(source: &Value) -> &str {
    const NAMES: [&[&str]; 6] = [
        &["resource", "name"],
        &["containerResource", "name"],
        &["pods", "metric", "name"],
        &["object", "metric", "name"],
        &["external", "metric", "name"],
        &["type"],
    ];
    NAMES.into_iter().find_map(|path| at(source, path)?.as_str()).unwrap_or_default()
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
        let active = DIRECTIONS.iter().filter(|(direction, _)| !facts.is_disabled(direction));
        let tolerances = active.filter_map(|(direction, _)| {
            let stated = facts.policy(direction, "tolerance").filter(|value| !value.is_null());
            let ignored = stated.map_or(Some(DEFAULT_TOLERANCE), share)?;
            (ignored > 0.0).then_some((*direction, stated))
        });
        // One finding for both directions: the remedy is the same.
        let mut all: Vec<(&str, Option<&Value>)> = tolerances.collect();
        all.sort_by_key(|(_, stated)| stated.is_none());
        if let Some((direction, stated)) = all.first() {
            let default = || format!("the default {DEFAULT_TOLERANCE}");
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
        let field = if facts.scaled_object { "triggers" } else { "metrics" };
        let signals = facts.metric_sources();
        let Some(signal) = signals.first() else { return };
        let other = facts.all_sources().iter().enumerate().find(|(i, _)| *i != signal.position);
        if let Some((i, source)) = other {
            out.add_at(format!("spec.{field}[{i}]"), source_name(source), "");
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
        for pause in PAUSES.iter().filter(|_| facts.scaled_object) {
            let value = at(facts.object, &["metadata", "annotations", pause.annotation]);
            if let Some(value) = value.filter(|value| pause.is_set(value)) {
                out.add_at(format!("metadata.annotations[{}]", pause.annotation), show(value), pause.stopped);
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
        let idle = count("idleReplicaCount").filter(|idle| facts.scaled_object && *idle >= min);
        if let Some(idle) = idle.filter(|_| facts.reads_signal()) {
            out.add(idle.to_string(), min.to_string());
        }
    }),
    ..WARN
};

#[cfg(test)]
mod tests;
