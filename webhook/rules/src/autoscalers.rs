//! Warnings about HPAs and ScaledObjects that use wva's metric in a wrong way. Only for files: no webhook reviews these
//! kinds.

mod steps;

use serde_json::Value;
use wva_objects::SignalSource;
use wva_objects::autoscaler::AutoscalerKind;
use wva_objects::json::at;

use crate::kubernetes::KubernetesVersion;
use crate::rule::{Check, Rule, WARN};

pub(crate) use steps::{BLOCKED, IDLE, OTHER_METRIC, TOLERANCE};

/// Facts about an autoscaler.
#[derive(Clone, Copy, Debug)]
pub struct AutoscalerFacts<'a> {
    /// A `HorizontalPodAutoscaler` of `autoscaling/v2`, or a `ScaledObject`.
    pub object: &'a Value,
    /// Kind of the object.
    pub kind: AutoscalerKind,
    /// Version of the cluster. `None`: it is not known.
    pub kubernetes: Option<KubernetesVersion>,
}

impl<'a> AutoscalerFacts<'a> {
    fn signals(&self) -> impl Iterator<Item = SignalSource<'a>> {
        SignalSource::all(self.object, self.kind)
    }

    fn by_kind<T>(&self, of_hpa: T, of_scaled_object: T) -> T {
        match self.kind {
            AutoscalerKind::Hpa => of_hpa,
            AutoscalerKind::ScaledObject => of_scaled_object,
        }
    }

    /// A field of a metric or trigger.
    fn field(&self, position: usize, path: &[&str]) -> String {
        format!("spec.{}[{position}].{}", self.kind.metrics_field(), path.join("."))
    }
}

pub(crate) const ALL_VARIANTS: Rule = Rule {
    code: "WVA-HPA-051",
    field: "spec.metrics",
    message: "adds up all variants; select one by variant_name",
    docs: "An HPA or ScaledObject reads the metric without a selector for `variant_name`. An HPA adds up all matching \
           series, so it would scale the workload to the replicas of all variants together. A label of the result, such as \
           `by (variant_name)`, and a regular expression select no variant.",
    check: Check::Autoscaler(|facts, out| {
        let path: &[&str] = facts.by_kind(&["external", "metric"], &["metadata", "query"]);
        for signal in facts.signals().filter(|signal| !signal.names_variant()) {
            out.add_at(facts.field(signal.position, path), "", "");
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
        let path: &[&str] = facts.by_kind(&["external", "target", "type"], &["metricType"]);
        for signal in
            facts.signals().filter(|signal| at(signal.source, path).is_some_and(|kind| kind == "Value"))
        {
            out.add_at(facts.field(signal.position, path), "", "");
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
    fn check(object: &Value, kind: AutoscalerKind, want: &[(&str, &str)]) {
        let verdict = validate_autoscaler(&AutoscalerFacts { object, kind, kubernetes: OLD });
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
        check(&hpa(DESIRED_REPLICAS_METRIC, &one, "AverageValue"), AutoscalerKind::Hpa, &[]);
        check(&hpa(DESIRED_REPLICAS_METRIC, &expression, "AverageValue"), AutoscalerKind::Hpa, &[]);
        check(&hpa("queue_length", &Value::Null, "Value"), AutoscalerKind::Hpa, &[]);
        check(
            &hpa(LEGACY_DESIRED_REPLICAS_METRIC, &Value::Null, "AverageValue"),
            AutoscalerKind::Hpa,
            &[("WVA-HPA-051", field)],
        );
        let kind = "spec.metrics[0].external.target.type";
        check(&hpa(DESIRED_REPLICAS_METRIC, &one, "Value"), AutoscalerKind::Hpa, &[("WVA-HPA-052", kind)]);
        let trigger = |query: &str, kind: &str| json!({"spec": {"triggers": [{"type": "prometheus", "metricType": kind, "metadata": {"query": query}}]}});
        check(
            &trigger("wva_desired_replicas{variant_name=\"a\"}", "AverageValue"),
            AutoscalerKind::ScaledObject,
            &[],
        );
        let both = [
            ("WVA-HPA-051", "spec.triggers[0].metadata.query"),
            ("WVA-HPA-052", "spec.triggers[0].metricType"),
        ];
        check(&trigger("wva_desired_replicas", "Value"), AutoscalerKind::ScaledObject, &both);
        // A label of the result, or a regular expression, selects no variant.
        for query in
            ["sum by (variant_name) (wva_desired_replicas)", "wva_desired_replicas{variant_name=~\"a\"}"]
        {
            check(&trigger(query, "AverageValue"), AutoscalerKind::ScaledObject, &both[..1]);
        }
        check(&json!({"spec": 7}), AutoscalerKind::ScaledObject, &[]);
    }
}
