//! What the parts of the engine read.

use std::collections::BTreeMap;

use wva_runtime::Availability;

use super::{EngineConfig, EngineMetrics, Sources};
use crate::observe::variants::{self, ManagedVariant};
use crate::observe::workloads;

/// Sources and settings for one event.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'e> {
    pub(super) sources: &'e Sources,
    pub(super) metrics: &'e EngineMetrics,
    pub(super) config: EngineConfig,
}

impl Inputs<'_> {
    /// Managed variants, by key. Those whose kind of workload has unknown availability are left out, and those whose
    /// namespace has ConfigMaps that are not read yet.
    pub(super) fn managed(self) -> Vec<ManagedVariant> {
        let Self { sources, .. } = self;
        let mut managed = variants::managed_variants(&sources.watches, &sources.ownership);
        // Their status must stay unchanged, because it holds the target.
        managed.retain(|m| {
            m.spec().ok().and_then(|d| workloads::kind_availability(&sources.watches, &d.workload.kind))
                != Some(Availability::Unknown)
        });
        sources.maps.retain_read(&mut managed, |m| &m.key.namespace);
        managed
    }

    /// Number of managed pods that report metrics, by namespace.
    pub(super) fn expected_pods(self, managed: &[ManagedVariant]) -> BTreeMap<String, usize> {
        let mut pods: BTreeMap<String, usize> = BTreeMap::new();
        for m in managed {
            let found =
                m.spec().ok().and_then(|d| workloads::find_workload(&self.sources.watches, &d.workload));
            let expected = found.map_or(0, |w| usize::try_from(w.replicas.current).unwrap_or(usize::MAX));
            let of_namespace = pods.entry(m.key.namespace.clone()).or_default();
            *of_namespace = of_namespace.saturating_add(expected);
        }
        pods
    }
}
