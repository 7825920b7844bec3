//! Autoscalers by the workload that they scale.

use std::collections::BTreeMap;
use std::sync::Arc;

use wva_objects::WorkloadKey;
use wva_objects::autoscaler::Autoscaler;

use crate::observe::watches::Watches;

/// Autoscalers by the workload that they scale.
#[derive(Debug, Default)]
pub(crate) struct AutoscalerIndex(BTreeMap<WorkloadKey, Vec<Arc<Autoscaler>>>);

impl AutoscalerIndex {
    pub(crate) fn new(watches: &Watches) -> Self {
        let mut index = Self::default();
        let mut add = |namespace: &str, _: &str, autoscaler: &Arc<Autoscaler>| {
            index.0.entry(autoscaler.workload(namespace)).or_default().push(autoscaler.clone());
        };
        watches.autoscalers.for_each(&mut add);
        watches.scaled_objects.cache.for_each(&mut add);
        index
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&WorkloadKey, &[Arc<Autoscaler>])> {
        self.0.iter().map(|(key, all)| (key, all.as_slice()))
    }

    pub(crate) fn of(&self, workload: &WorkloadKey) -> Vec<&Autoscaler> {
        self.0.get(workload).into_iter().flatten().map(AsRef::as_ref).collect()
    }

    pub(crate) fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Autoscaler> {
        let first = WorkloadKey { namespace: namespace.to_owned(), kind: String::new(), name: String::new() };
        let of_namespace = self.0.range(first..).take_while(move |(key, _)| key.namespace == namespace);
        of_namespace.flat_map(|(_, all)| all).map(AsRef::as_ref)
    }
}
