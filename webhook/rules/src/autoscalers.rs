//! Warnings about HPAs and ScaledObjects that follow this program's metric in a way that cannot end well. They are
//! asked of files alone: no webhook of ours is called for objects of these kinds.

use serde_json::Value;
use wva_crds::names::{is_desired_replicas, reads_desired_replicas};

use crate::facts::at;
use crate::rule::{Check, Rule, WARN};

/// The label by which a metric is one variant's.
const VARIANT: &str = "variant_name";

/// What a rule about autoscalers may look at.
#[derive(Clone, Copy, Debug)]
pub struct AutoscalerFacts<'a> {
    /// The object as it would be stored: a `HorizontalPodAutoscaler` of `autoscaling/v2`, or a `ScaledObject`.
    pub object: &'a Value,
    /// It is a `ScaledObject`.
    pub scaled_object: bool,
}

/// A metric of ours that an autoscaler follows.
struct Followed<'a> {
    /// Where it stands in the object.
    field: String,
    /// It selects the series of one variant.
    one_variant: bool,
    /// How the value is read: `Value` or `AverageValue`.
    kind: Option<&'a str>,
    /// The field that says so.
    kind_field: String,
}

impl<'a> AutoscalerFacts<'a> {
    fn followed(&self) -> Vec<Followed<'a>> {
        if self.scaled_object { self.triggers() } else { self.metrics() }
    }

    fn metrics(&self) -> Vec<Followed<'a>> {
        let metrics = at(self.object, &["spec", "metrics"]).and_then(Value::as_array).into_iter().flatten();
        let ours = |(i, metric): (usize, &'a Value)| {
            let external = at(metric, &["external"])?;
            at(external, &["metric", "name"])?.as_str().filter(|name| is_desired_replicas(name))?;
            let selector = at(external, &["metric", "selector"]);
            let labels = selector.and_then(|s| at(s, &["matchLabels", VARIANT])).is_some();
            let expressions = selector.and_then(|s| at(s, &["matchExpressions"])).and_then(Value::as_array);
            let selects = |e: &Value| at(e, &["key"]).and_then(Value::as_str) == Some(VARIANT);
            Some(Followed {
                field: format!("spec.metrics[{i}].external.metric"),
                one_variant: labels || expressions.is_some_and(|all| all.iter().any(selects)),
                kind: at(external, &["target", "type"]).and_then(Value::as_str),
                kind_field: format!("spec.metrics[{i}].external.target.type"),
            })
        };
        metrics.enumerate().filter_map(ours).collect()
    }

    fn triggers(&self) -> Vec<Followed<'a>> {
        let triggers = at(self.object, &["spec", "triggers"]).and_then(Value::as_array).into_iter().flatten();
        let ours = |(i, trigger): (usize, &'a Value)| {
            at(trigger, &["type"])?.as_str().filter(|t| *t == "prometheus")?;
            let query =
                at(trigger, &["metadata", "query"])?.as_str().filter(|q| reads_desired_replicas(q))?;
            Some(Followed {
                field: format!("spec.triggers[{i}].metadata.query"),
                one_variant: query.contains(VARIANT),
                kind: at(trigger, &["metricType"]).and_then(Value::as_str),
                kind_field: format!("spec.triggers[{i}].metricType"),
            })
        };
        triggers.enumerate().filter_map(ours).collect()
    }
}

pub(crate) const ALL_VARIANTS: Rule = Rule {
    code: "WVA-HPA-051",
    field: "spec.metrics",
    message: "adds up all variants: select variant_name",
    docs: "An HPA or a ScaledObject follows the metric without selecting `variant_name`. An HPA adds up all series \
           that match, so the workload would be scaled to the replicas of all variants together.",
    check: Check::Autoscaler(|facts, out| {
        for metric in facts.followed().into_iter().filter(|m| !m.one_variant) {
            out.at(metric.field, "", "");
        }
    }),
    ..WARN
};

pub(crate) const MULTIPLIES: Rule = Rule {
    code: "WVA-HPA-052",
    field: "spec.metrics",
    message: "Value multiplies by the replicas there are: use AverageValue",
    docs: "An HPA or a ScaledObject follows the metric with the target type `Value`, by which the HPA multiplies the \
           replicas there are by the metric. The metric is the number of replicas itself, so the type is \
           `AverageValue`, with the value 1.",
    check: Check::Autoscaler(|facts, out| {
        for metric in facts.followed() {
            if metric.kind == Some("Value") {
                out.at(metric.kind_field, "", "");
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
    use crate::judge::validate_autoscaler;

    #[track_caller]
    fn check(object: &Value, scaled_object: bool, want: &[(&str, &str)]) {
        let verdict = validate_autoscaler(&AutoscalerFacts { object, scaled_object });
        let found: Vec<_> = verdict.violations.iter().map(|v| (v.code, v.field.as_str())).collect();
        assert_eq!(found, want, "{verdict:#?}");
    }

    #[test]
    fn an_autoscaler_follows_one_variant_by_average() {
        let hpa = |name: &str, selector: &Value, kind: &str| {
            let external = json!({"metric": {"name": name, "selector": selector}, "target": {"type": kind}});
            json!({"spec": {"metrics": [{"type": "Resource"}, {"type": "External", "external": external}]}})
        };
        let one = json!({"matchLabels": {"variant_name": "a"}});
        let expression =
            json!({"matchExpressions": [{"key": "variant_name", "operator": "In", "values": ["a"]}]});
        let field = "spec.metrics[1].external.metric";
        check(&hpa(DESIRED_REPLICAS_METRIC, &one, "AverageValue"), false, &[]);
        check(&hpa(DESIRED_REPLICAS_METRIC, &expression, "AverageValue"), false, &[]);
        check(&hpa("queue_length", &Value::Null, "Value"), false, &[]);
        check(
            &hpa(LEGACY_DESIRED_REPLICAS_METRIC, &Value::Null, "AverageValue"),
            false,
            &[("WVA-HPA-051", field)],
        );
        let kind = "spec.metrics[1].external.target.type";
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
