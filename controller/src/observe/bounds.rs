//! Replica limits and tolerances of autoscalers.

use std::collections::BTreeMap;

use crate::model::keys::WorkloadKey;
use crate::model::limits::Limits;
use crate::observe::watches::{Autoscaler, Watches};

/// Several autoscalers of one workload give the narrowest bounds and the greatest tolerance.
#[must_use]
pub(crate) fn autoscaler_limits(watches: &Watches) -> BTreeMap<WorkloadKey, Limits> {
    let mut all: BTreeMap<WorkloadKey, Limits> = BTreeMap::new();
    let mut take = |namespace: &str, _: &str, autoscaler: &Autoscaler| {
        let own = autoscaler.limits;
        let key = autoscaler.workload(namespace);
        all.entry(key).and_modify(|limits| *limits = limits.narrowed(own)).or_insert(own);
    };
    watches.autoscalers.for_each(&mut take);
    watches.scaled_objects.cache.for_each(&mut take);
    all
}
