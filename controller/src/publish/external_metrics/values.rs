//! Derives metric values from the status. Outdated values are left out: an HPA holds if a metric is missing, and scales
//! down if it is 0.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::core::{Selector, SelectorExt};
use serde::Serialize;
use wva_crds::names::UNRESOLVED_ACCELERATOR;
use wva_objects::status::MAX_TARGET_AGE;
use wva_runtime::age;
use wva_scaling::snapshot::Mode;

use super::{API_VERSION, LEGACY_METRIC, METRIC};
use crate::observe::watches::variant::Variant;

/// Age by which a target must be confirmed. The rest of [`MAX_TARGET_AGE`] is for the cycle and its write.
pub const CONFIRMATION_DEADLINE: SignedDuration = SignedDuration::from_mins(MAX_TARGET_AGE.as_mins() - 1);

/// `ExternalMetricValueList` of `external.metrics.k8s.io/v1beta1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalMetricValueList {
    kind: &'static str,
    api_version: &'static str,
    metadata: BTreeMap<String, String>,
    /// Sorted by variant name.
    pub items: Vec<ExternalMetricValue>,
}

/// `ExternalMetricValue`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalMetricValue {
    /// The requested metric.
    pub metric_name: String,
    /// `variant_name`, `exported_namespace`, `accelerator_type`, and `controller_instance` if there is one.
    pub metric_labels: BTreeMap<String, String>,
    /// Confirmation of the target, in whole seconds as all times of the API.
    pub timestamp: Timestamp,
    /// Replicas, as a Kubernetes quantity.
    pub value: String,
}

/// The older name needs `legacy`.
#[must_use]
pub fn is_served(metric: &str, legacy: bool) -> bool {
    metric == METRIC || (legacy && metric == LEGACY_METRIC)
}

/// Values of one namespace and all instances that match `selector`. The caller checks [`is_served`].
#[must_use]
pub fn values(
    vas: &[Arc<Variant>],
    metric: &str,
    selector: &Selector,
    now: Timestamp,
) -> ExternalMetricValueList {
    let mut items: Vec<_> = vas
        .iter()
        .filter_map(|va| value(va, metric, now))
        .filter(|item| selector.matches(&item.metric_labels))
        .collect();
    items.sort_by(|a, b| a.metric_labels["variant_name"].cmp(&b.metric_labels["variant_name"]));
    ExternalMetricValueList {
        kind: "ExternalMetricValueList",
        api_version: API_VERSION,
        metadata: BTreeMap::new(),
        items,
    }
}

fn value(va: &Variant, metric: &str, now: Timestamp) -> Option<ExternalMetricValue> {
    // Their status is from an earlier release.
    if va.mode()? == Mode::Recommend || va.is_terminating {
        return None;
    }
    let alloc = va.status.alloc.as_ref()?;
    let confirmed = alloc.last_run_time.as_ref()?.0;
    if age(confirmed, now) > MAX_TARGET_AGE {
        return None;
    }
    let accelerator = Some(alloc.accelerator.as_str()).filter(|name| !name.is_empty());
    let accelerator = accelerator.or(va.accelerator.as_deref()).unwrap_or(UNRESOLVED_ACCELERATOR);
    let mut metric_labels = BTreeMap::from([
        ("variant_name".to_owned(), va.key.name.clone()),
        ("exported_namespace".to_owned(), va.key.namespace.clone()),
        ("accelerator_type".to_owned(), accelerator.to_owned()),
    ]);
    if let Some(instance) = &va.instance {
        metric_labels.insert("controller_instance".to_owned(), instance.clone());
    }
    Some(ExternalMetricValue {
        metric_name: metric.to_owned(),
        metric_labels,
        timestamp: Timestamp::from_second(confirmed.as_second()).ok()?,
        value: alloc.num_replicas.to_string(),
    })
}

#[cfg(test)]
pub(super) mod tests;
