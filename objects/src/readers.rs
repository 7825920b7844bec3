//! Autoscalers that read wva's metric: HPAs with an external metric of its name, and ScaledObjects with a Prometheus
//! query of it.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;
use wva_crds::names::{is_desired_replicas, reads_desired_replicas};

use crate::json::at;
use crate::promql;
use crate::target::Target;

/// Scales a workload by wva's metric.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricReader {
    /// Name.
    pub name: String,
    /// Empty for a ScaledObject, whose query is not parsed.
    pub selectors: Vec<SeriesSelector>,
}

/// A series must meet all requirements. Takes a tenth of the memory of a `LabelSelector`: the cache contains every HPA
/// of the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesSelector(pub(crate) Box<[Requirement]>);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Requirement {
    pub(crate) key: Box<str>,
    pub(crate) operator: Operator,
    pub(crate) values: Box<[Box<str>]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl From<&LabelSelector> for SeriesSelector {
    fn from(selector: &LabelSelector) -> Self {
        let labels = selector.match_labels.iter().flatten().map(|(key, value)| Requirement {
            key: key.as_str().into(),
            operator: Operator::In,
            values: [value.as_str().into()].into(),
        });
        let expressions = selector.match_expressions.iter().flatten().filter_map(|e| {
            let operator = match e.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                // The API server admits no other operator.
                _ => return None,
            };
            let values = e.values.iter().flatten().map(|value| value.as_str().into()).collect();
            Some(Requirement { key: e.key.as_str().into(), operator, values })
        });
        Self(labels.chain(expressions).collect())
    }
}

impl MetricReader {
    /// `None` if the HPA does not read wva's metric.
    #[must_use]
    pub fn from_hpa(hpa: &HorizontalPodAutoscaler) -> Option<(Target, Self)> {
        let metrics = hpa.spec.metrics.iter().flatten().filter(|m| m.type_ == "External");
        let mut selectors: Vec<SeriesSelector> = metrics
            .filter_map(|m| Some(&m.external.as_ref()?.metric))
            .filter(|metric| is_desired_replicas(&metric.name))
            .map(|metric| metric.selector.as_ref().map(Into::into).unwrap_or_default())
            .collect();
        selectors.shrink_to_fit();
        let reference = &hpa.spec.scale_target_ref;
        let target =
            Target::with_defaults(reference.api_version.as_deref(), Some(&reference.kind), &reference.name);
        let name = hpa.metadata.name.clone().filter(|_| !selectors.is_empty())?;
        Some((target, Self { name, selectors }))
    }

    /// `None` without a `prometheus` trigger whose query contains wva's metric.
    #[must_use]
    pub fn from_scaled_object(name: &str, object: &Value) -> Option<(Target, Self)> {
        let text = |field: &str| at(object, &["spec", "scaleTargetRef", field]).and_then(Value::as_str);
        let target = Target::with_defaults(text("apiVersion"), text("kind"), text("name")?);
        let reads_metric = |trigger: &Value| {
            trigger.get("type").and_then(Value::as_str) == Some("prometheus")
                && at(trigger, &["metadata", "query"])
                    .and_then(Value::as_str)
                    .is_some_and(reads_desired_replicas)
        };
        let triggers = at(object, &["spec", "triggers"]).and_then(Value::as_array)?;
        triggers
            .iter()
            .any(reads_metric)
            .then(|| (target, Self { name: name.to_owned(), selectors: Vec::new() }))
    }
}

/// Position of the first `prometheus` trigger of a ScaledObject whose query contains wva's metric, and its selectors.
pub(crate) fn signal_trigger(spec: &Value) -> Option<(usize, Vec<SeriesSelector>)> {
    let triggers = spec.get("triggers")?.as_array()?;
    triggers.iter().enumerate().find_map(|(i, trigger)| {
        let query = at(trigger, &["metadata", "query"])?.as_str()?;
        let is_signal = trigger.get("type")?.as_str()? == "prometheus" && reads_desired_replicas(query);
        is_signal.then(|| (i, promql::selectors(query)))
    })
}
