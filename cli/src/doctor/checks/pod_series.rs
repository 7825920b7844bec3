//! Pods of a variant, and those of series.

use std::collections::BTreeSet;

use wva_objects::servers::{ServerSignal, server_metrics};

use crate::cluster::text;
use crate::doctor::variant_state::VariantState;
use crate::prometheus::Series;

/// Suffix of pod names in metrics of a KServe group.
const RANK: &str = "-rank-";

pub(super) fn pod_names<'a>(variant: &VariantState<'a>) -> BTreeSet<&'a str> {
    variant.pods().into_iter().map(|pod| text(pod, "/metadata/name")).collect()
}

/// Whether a model server has this signal under the name of the series.
pub(super) fn has_name_of(series: &Series, signal: ServerSignal) -> bool {
    server_metrics(signal).any(|(_, metric)| metric.name == series.label("__name__"))
}

pub(super) fn pods_of<'a>(series: &[&'a Series]) -> BTreeSet<&'a str> {
    series.iter().map(|s| pod_of(s)).collect()
}

pub(super) fn pod_of(series: &Series) -> &str {
    let pod = Some(series.label("pod")).filter(|pod| !pod.is_empty()).unwrap_or(series.label("pod_name"));
    pod.split_once(RANK).map_or(pod, |(pod, _)| pod)
}
