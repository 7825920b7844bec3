//! Facts about the cluster for admission reviews.

use serde_json::Value;
use wva_controller::{
    ConfigMaps, NamespaceFacts, Watches, namespace_is_excluded, workload_accelerator, workload_exists,
};
use wva_objects::{MetricReader, Target};
use wva_rules::{MapRole, NamespaceState, OtherVariant};
use wva_runtime::{Availability, Cache, SyncStatus};
use wva_webhook::{ClusterFacts, Index, Key, TargetReaders, TargetState};

pub(crate) struct CacheFacts {
    pub(crate) synced: SyncStatus,
    pub(crate) variants: Index<OtherVariant>,
    /// `None` in single-namespace mode, which has no permission to watch namespaces.
    pub(crate) namespaces: Option<Cache<NamespaceFacts>>,
    /// `None` in a process that only serves admission.
    pub(crate) controller: Option<ControllerFacts>,
    pub(crate) watch_namespace: Option<String>,
    pub(crate) instance: Option<String>,
    /// Value of the namespace label that enables ConfigMaps of the namespace.
    pub(crate) config_enabled_value: String,
    pub(crate) controller_namespace: String,
}

#[derive(Clone)]
pub(crate) struct ControllerFacts {
    pub(crate) watches: Watches,
    pub(crate) maps: ConfigMaps,
    /// HPAs that read wva's metric.
    pub(crate) autoscalers: Index<MetricReader>,
    /// ScaledObjects that read wva's metric.
    pub(crate) scaled_objects: Index<MetricReader>,
}

impl ClusterFacts for CacheFacts {
    fn is_synced(&self) -> bool {
        self.synced.is_complete()
    }

    fn variants_with_target(&self, namespace: &str, target: &Target) -> Vec<OtherVariant> {
        self.variants.values_by_key(namespace, &Key::for_target(target))
    }

    fn target(&self, namespace: &str, target: &Target) -> Option<TargetState> {
        let watches = &self.controller.as_ref()?.watches;
        let (version, kind, name) = (&target.api_version, &target.kind, &target.name);
        if !workload_exists(watches, namespace, version, kind, name)? {
            return Some(TargetState::Absent);
        }
        let accelerator = workload_accelerator(watches, namespace, version, kind, name);
        Some(TargetState::Present { is_accelerator_known: accelerator.is_some() })
    }

    fn is_namespace_owned(&self, namespace: &str) -> bool {
        if self.watch_namespace.as_deref() == Some(namespace) {
            return true;
        }
        let label = self.namespaces.as_ref().and_then(|all| all.get("", namespace)?.instance);
        self.instance.is_some() && label.as_deref() == self.instance.as_deref()
    }

    fn namespace_state(&self, namespace: &str) -> NamespaceState {
        match self.watch_namespace.as_deref() {
            Some(watched) if watched != namespace => NamespaceState::Unwatched,
            _ if namespace_is_excluded(self.namespaces.as_ref(), namespace) => NamespaceState::Excluded,
            _ => NamespaceState::Managed,
        }
    }

    fn controller_namespace(&self) -> Option<&str> {
        Some(&self.controller_namespace)
    }

    fn reads_local_maps(&self, namespace: &str) -> Option<bool> {
        if self.namespace_state(namespace) != NamespaceState::Managed {
            return Some(false);
        }
        if self.variants.has_any_in(namespace) {
            return Some(true);
        }
        let label = self.namespaces.as_ref()?.get("", namespace).and_then(|facts| facts.config_enabled);
        Some(label.as_deref() == Some(self.config_enabled_value.as_str()))
    }

    fn global_map(&self, role: MapRole) -> Option<Value> {
        self.controller.as_ref()?.maps.global(role)
    }

    fn variant_with_own_cost(&self, namespace: &str, model: &str, name: &str) -> Option<String> {
        self.variants.other_name_by_key(namespace, &Key::ModelWithOwnCost(model.into()), name)
    }

    fn metric_readers(&self, namespace: &str, target: &Target) -> TargetReaders {
        let Some(controller) = &self.controller else { return TargetReaders::default() };
        // Read before the lookup, so that a complete cache was complete during the lookup.
        let is_complete = Availability::is_complete(controller.watches.scaled_objects_availability());
        let key = Key::for_target(target);
        let mut readers = controller.autoscalers.values_by_key(namespace, &key);
        readers.extend(controller.scaled_objects.values_by_key(namespace, &key));
        TargetReaders { readers, is_complete }
    }
}
