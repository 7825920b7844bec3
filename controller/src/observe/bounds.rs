//! Limits of the autoscalers, by the workload that they scale.

use std::collections::BTreeMap;

use crate::model::keys::WorkloadKey;
use crate::model::limits::Limits;
use crate::observe::watches::{Autoscaler, Watches};

/// What the autoscalers allow, by the workload they scale. Of several on one workload the narrowest bounds and the
/// greatest tolerance count.
#[must_use]
pub(crate) fn limits(watches: &Watches) -> BTreeMap<WorkloadKey, Limits> {
    let mut all: BTreeMap<WorkloadKey, Limits> = BTreeMap::new();
    let mut take = |namespace: &str, _: &str, autoscaler: &Autoscaler| {
        let own = autoscaler.limits;
        let key = WorkloadKey {
            namespace: namespace.to_owned(),
            kind: autoscaler.kind.to_string(),
            name: autoscaler.name.to_string(),
        };
        all.entry(key).and_modify(|limits| *limits = limits.narrowed(own)).or_insert(own);
    };
    watches.autoscalers.each(&mut take);
    watches.scaled_objects.cache.each(&mut take);
    all
}
