//! Autoscalers that read wva's metric: HPAs with an external metric of its name, and ScaledObjects with a Prometheus
//! query of it.

use k8s_openapi::api::autoscaling::v2::{ExternalMetricSource, HorizontalPodAutoscaler};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize as _;
use serde_json::Value;
use wva_crds::names::{is_desired_replicas, reads_desired_replicas};

use crate::autoscaler_kind::AutoscalerKind;
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
        let selectors = signal_metrics(hpa).map(|external| external.metric.selector.as_ref());
        let mut selectors: Vec<SeriesSelector> =
            selectors.map(|selector| selector.map(Into::into).unwrap_or_default()).collect();
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
        let target = Target::of_autoscaler(object)?;
        SignalSource::all(object, AutoscalerKind::ScaledObject).next()?;
        Some((target, Self { name: name.to_owned(), selectors: Vec::new() }))
    }

    /// Reads an HPA or a ScaledObject as JSON. `None` if it does not read wva's metric, or the API server refuses it.
    #[must_use]
    pub fn from_object(object: &Value) -> Option<(Target, Self)> {
        match AutoscalerKind::of(object) {
            AutoscalerKind::ScaledObject => {
                Self::from_scaled_object(at(object, &["metadata", "name"])?.as_str()?, object)
            }
            AutoscalerKind::Hpa => Self::from_hpa(&HorizontalPodAutoscaler::deserialize(object).ok()?),
        }
    }
}

/// Metrics of an HPA that read wva's metric.
pub(crate) fn signal_metrics(hpa: &HorizontalPodAutoscaler) -> impl Iterator<Item = &ExternalMetricSource> {
    let external = hpa.spec.metrics.iter().flatten().filter_map(|metric| metric.external.as_ref());
    external.filter(|external| is_desired_replicas(&external.metric.name))
}

/// A metric of an HPA, or a trigger of a ScaledObject, that reads wva's metric.
#[derive(Debug)]
pub struct SignalSource<'a> {
    /// Position in `spec.metrics` or `spec.triggers`.
    pub position: usize,
    /// The metric or the trigger.
    pub source: &'a Value,
    /// One for each use of wva's metric.
    pub(crate) selectors: Vec<SeriesSelector>,
}

impl<'a> SignalSource<'a> {
    /// All of an HPA or ScaledObject as JSON.
    pub fn all(object: &'a Value, kind: AutoscalerKind) -> impl Iterator<Item = Self> {
        let read = match kind {
            AutoscalerKind::Hpa => metric_selectors,
            AutoscalerKind::ScaledObject => trigger_selectors,
        };
        let sources = metric_sources(object, kind).iter().enumerate();
        sources
            .filter_map(move |(position, source)| Some(Self { position, source, selectors: read(source)? }))
    }

    /// Whether each use of the metric has a requirement on the name of the variant.
    #[must_use]
    pub fn names_variant(&self) -> bool {
        self.selectors.iter().all(SeriesSelector::names_variant)
    }
}

fn metric_selectors(metric: &Value) -> Option<Vec<SeriesSelector>> {
    let metric = at(metric, &["external", "metric"])?;
    at(metric, &["name"])?.as_str().filter(|name| is_desired_replicas(name))?;
    let selector = at(metric, &["selector"]).and_then(|selector| LabelSelector::deserialize(selector).ok());
    Some(vec![selector.as_ref().map(Into::into).unwrap_or_default()])
}

fn trigger_selectors(trigger: &Value) -> Option<Vec<SeriesSelector>> {
    at(trigger, &["type"]).filter(|kind| *kind == "prometheus")?;
    let query = at(trigger, &["metadata", "query"])?.as_str();
    query.filter(|query| reads_desired_replicas(query)).map(promql::selectors)
}

/// Metrics of an HPA, or triggers of a ScaledObject.
#[must_use]
pub fn metric_sources(object: &Value, kind: AutoscalerKind) -> &[Value] {
    at(object, &["spec", kind.metrics_field()]).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Name of a metric of an HPA, or type of a trigger. Empty without one.
#[must_use]
pub fn metric_name(source: &Value) -> &str {
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

/// Formula with which a ScaledObject makes one value of its triggers.
#[must_use]
pub fn formula(scaled_object: &Value) -> Option<&str> {
    let formula = at(scaled_object, &["spec", "advanced", "scalingModifiers", "formula"])?.as_str();
    formula.filter(|formula| !formula.is_empty())
}

#[cfg(test)]
mod tests;
