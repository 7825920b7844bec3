//! Which series the managed variants have.

use wva_objects::WorkloadKey;

use crate::collect::filter::SeriesFilter;
use crate::observe::variants::ManagedVariant;

/// Series of the managed models, without those of pods.
pub(super) fn model_filter(managed: &[ManagedVariant]) -> SeriesFilter {
    let mut filter = SeriesFilter::default();
    for m in managed {
        if let Ok(spec) = m.spec() {
            filter.add_model(&m.key.namespace, &spec.model_id);
        }
    }
    filter
}

pub(super) fn managed_workloads(managed: &[ManagedVariant]) -> impl Iterator<Item = &WorkloadKey> {
    managed.iter().filter_map(|m| Some(&m.spec().ok()?.workload))
}
