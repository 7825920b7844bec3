//! Replica limits and tolerances of autoscalers.

use std::collections::BTreeMap;
use std::sync::Arc;

use wva_objects::WorkloadKey;
use wva_objects::autoscaler::Autoscaler;
use wva_objects::limits::Limits;

use crate::observe::autoscaler_index::AutoscalerIndex;

/// Several autoscalers of one workload give the narrowest bounds and the greatest tolerance.
#[must_use]
pub(crate) fn autoscaler_limits(autoscalers: &AutoscalerIndex) -> BTreeMap<WorkloadKey, Limits> {
    let limits = |(key, all): (&WorkloadKey, &[Arc<Autoscaler>])| {
        Some((key.clone(), all.iter().map(|a| a.limits).reduce(Limits::narrowed)?))
    };
    autoscalers.iter().filter_map(limits).collect()
}
