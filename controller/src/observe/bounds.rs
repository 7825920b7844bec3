//! Replica limits and tolerances of autoscalers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::keys::WorkloadKey;
use crate::model::limits::Limits;
use crate::observe::signal::AutoscalerIndex;
use crate::observe::watches::Autoscaler;

/// Several autoscalers of one workload give the narrowest bounds and the greatest tolerance.
#[must_use]
pub(crate) fn autoscaler_limits(autoscalers: &AutoscalerIndex) -> BTreeMap<WorkloadKey, Limits> {
    let limits = |(key, all): (&WorkloadKey, &[Arc<Autoscaler>])| {
        Some((key.clone(), all.iter().map(|a| a.limits).reduce(Limits::narrowed)?))
    };
    autoscalers.iter().filter_map(limits).collect()
}
