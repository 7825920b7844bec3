//! Warnings about HPAs and ScaledObjects that use wva's metric in a wrong way. Only for files: no webhook reviews these
//! kinds.

mod steps;

use serde_json::Value;
use wva_crds::names::{is_desired_replicas, reads_desired_replicas};
use wva_objects::json::at;
use wva_objects::series::VARIANT_LABEL;

use crate::kubernetes::KubernetesVersion;
use crate::rule::{Check, Rule, WARN};

pub(crate) use steps::{BLOCKED, IDLE, OTHER_METRIC, TOLERANCE};

/// Facts about an autoscaler.
#[derive(Clone, Copy, Debug)]
pub struct AutoscalerFacts<'a> {
    /// A `HorizontalPodAutoscaler` of `autoscaling/v2`, or a `ScaledObject`.
    pub object: &'a Value,
    /// Whether it is a `ScaledObject`.
    pub scaled_object: bool,
    /// Version of the cluster. `None`: it is not known.
    pub kubernetes: Option<KubernetesVersion>,
}

struct MetricSource<'a> {
    /// Position in `spec.metrics` or `spec.triggers`.
    position: usize,
    field: String,
    /// Whether it selects one variant.
    selects_variant: bool,
    /// `Value` or `AverageValue`.
    target_type: Option<&'a str>,
    target_type_field: String,
}

impl<'a> AutoscalerFacts<'a> {
    fn metric_sources(&self) -> Vec<MetricSource<'a>> {
        if self.scaled_object { self.triggers() } else { self.hpa_metrics() }
    }

    fn hpa_metrics(&self) -> Vec<MetricSource<'a>> {
        let metrics = at(self.object, &["spec", "metrics"]).and_then(Value::as_array).into_iter().flatten();
        let metric_source = |(i, metric): (usize, &'a Value)| {
            let external = at(metric, &["external"])?;
            at(external, &["metric", "name"])?.as_str().filter(|name| is_desired_replicas(name))?;
            let selector = at(external, &["metric", "selector"]);
            let has_label = selector.and_then(|s| at(s, &["matchLabels", VARIANT_LABEL])).is_some();
            let expressions = selector.and_then(|s| at(s, &["matchExpressions"])).and_then(Value::as_array);
            let selects = |e: &Value| at(e, &["key"]).and_then(Value::as_str) == Some(VARIANT_LABEL);
            Some(MetricSource {
                position: i,
                field: format!("spec.metrics[{i}].external.metric"),
                selects_variant: has_label || expressions.is_some_and(|all| all.iter().any(selects)),
                target_type: at(external, &["target", "type"]).and_then(Value::as_str),
                target_type_field: format!("spec.metrics[{i}].external.target.type"),
            })
        };
        metrics.enumerate().filter_map(metric_source).collect()
    }

    fn triggers(&self) -> Vec<MetricSource<'a>> {
        let triggers = at(self.object, &["spec", "triggers"]).and_then(Value::as_array).into_iter().flatten();
        let metric_source = |(i, trigger): (usize, &'a Value)| {
            at(trigger, &["type"])?.as_str().filter(|t| *t == "prometheus")?;
            let query =
                at(trigger, &["metadata", "query"])?.as_str().filter(|q| reads_desired_replicas(q))?;
            Some(MetricSource {
                position: i,
                field: format!("spec.triggers[{i}].metadata.query"),
                selects_variant: query.contains(VARIANT_LABEL),
                target_type: at(trigger, &["metricType"]).and_then(Value::as_str),
                target_type_field: format!("spec.triggers[{i}].metricType"),
            })
        };
        triggers.enumerate().filter_map(metric_source).collect()
    }
}

pub(crate) const ALL_VARIANTS: Rule = Rule {
    code: "WVA-HPA-051",
    field: "spec.metrics",
    message: "adds up all variants; select one by variant_name",
    docs: "An HPA or ScaledObject reads the metric without a selector for `variant_name`. An HPA adds up all matching \
           series, so it would scale the workload to the replicas of all variants together.",
    check: Check::Autoscaler(|facts, out| {
        for metric in facts.metric_sources().into_iter().filter(|m| !m.selects_variant) {
            out.add_at(metric.field, "", "");
        }
    }),
    ..WARN
};

pub(crate) const MULTIPLIES: Rule = Rule {
    code: "WVA-HPA-052",
    field: "spec.metrics",
    message: "Value multiplies by the current replicas; use AverageValue",
    docs: "An HPA or ScaledObject reads the metric with target type `Value`. Then the HPA multiplies the current replicas \
           by the metric. The metric is the number of replicas itself, so use type `AverageValue` with value 1.",
    check: Check::Autoscaler(|facts, out| {
        for metric in facts.metric_sources() {
            if metric.target_type == Some("Value") {
                out.add_at(metric.target_type_field, "", "");
            }
        }
    }),
    ..WARN
};

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wva_crds::names::{DESIRED_REPLICAS_METRIC, LEGACY_DESIRED_REPLICAS_METRIC};

    use super::*;
    use crate::evaluate::validate_autoscaler;

    /// Release of Kubernetes without tolerances.
    const OLD: Option<KubernetesVersion> = Some(KubernetesVersion { major: 1, minor: 34 });

    #[track_caller]
    fn check(object: &Value, scaled_object: bool, want: &[(&str, &str)]) {
        let verdict = validate_autoscaler(&AutoscalerFacts { object, scaled_object, kubernetes: OLD });
        let found: Vec<_> = verdict.violations.iter().map(|v| (v.code, v.field.as_str())).collect();
        assert_eq!(found, want, "{verdict:#?}");
    }

    #[test]
    fn accepts_one_variant_with_average_value() {
        let hpa = |name: &str, selector: &Value, kind: &str| {
            let external = json!({"metric": {"name": name, "selector": selector}, "target": {"type": kind}});
            json!({"spec": {"metrics": [{"type": "External", "external": external}]}})
        };
        let one = json!({"matchLabels": {"variant_name": "a"}});
        let expression =
            json!({"matchExpressions": [{"key": "variant_name", "operator": "In", "values": ["a"]}]});
        let field = "spec.metrics[0].external.metric";
        check(&hpa(DESIRED_REPLICAS_METRIC, &one, "AverageValue"), false, &[]);
        check(&hpa(DESIRED_REPLICAS_METRIC, &expression, "AverageValue"), false, &[]);
        check(&hpa("queue_length", &Value::Null, "Value"), false, &[]);
        check(
            &hpa(LEGACY_DESIRED_REPLICAS_METRIC, &Value::Null, "AverageValue"),
            false,
            &[("WVA-HPA-051", field)],
        );
        let kind = "spec.metrics[0].external.target.type";
        check(&hpa(DESIRED_REPLICAS_METRIC, &one, "Value"), false, &[("WVA-HPA-052", kind)]);
        let trigger = |query: &str, kind: &str| json!({"spec": {"triggers": [{"type": "prometheus", "metricType": kind, "metadata": {"query": query}}]}});
        check(&trigger("wva_desired_replicas{variant_name=\"a\"}", "AverageValue"), true, &[]);
        let both = [
            ("WVA-HPA-051", "spec.triggers[0].metadata.query"),
            ("WVA-HPA-052", "spec.triggers[0].metricType"),
        ];
        check(&trigger("wva_desired_replicas", "Value"), true, &both);
        check(&json!({"spec": 7}), true, &[]);
    }
}
