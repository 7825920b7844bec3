//! What reviews are told of the cluster, beyond the indexes that the watches keep: lookups in the watch caches, with
//! the settings they depend on.

use std::sync::Arc;

use wva_controller::{
    ConfigMaps, NamespaceFacts, Watches, namespace_is_excluded, workload_accelerator, workload_exists,
};
use wva_rules::NamespaceState;
use wva_runtime::{Cache, Synced};
use wva_webhook::{
    Check, GlobalMapLookup, NamespaceLookup, OptedInLookup, OwnedLookup, TargetLookup, TargetState,
};

use crate::settings::Settings;

/// The cache of Namespaces; `None` in single-namespace mode, which sees none.
type Namespaces = Option<Cache<NamespaceFacts>>;

/// All caches have seen their first list.
pub(crate) fn complete(synced: Synced) -> Check {
    Arc::new(move || synced.is_complete())
}

/// What workloads there are; kinds that are not watched cannot be told.
pub(crate) fn targets(watches: Watches) -> TargetLookup {
    Arc::new(move |namespace, target| {
        let (version, kind, name) = (&target.api_version, &target.kind, &target.name);
        if !workload_exists(&watches, namespace, version, kind, name)? {
            return Some(TargetState::Absent);
        }
        let accelerator = workload_accelerator(&watches, namespace, version, kind, name);
        Some(TargetState::Present { accelerator_derivable: accelerator.is_some() })
    })
}

/// Whose a namespace is, as far as the instance policy goes.
pub(crate) fn owned(settings: &Settings, namespaces: Namespaces) -> OwnedLookup {
    let (watched, instance) = (settings.watch_namespace.clone(), settings.instance.clone());
    Arc::new(move |namespace| {
        if watched.as_deref() == Some(namespace) {
            return true;
        }
        let object = namespaces.as_ref().and_then(|n| n.get("", namespace));
        instance.is_some() && object.is_some_and(|o| o.instance.as_deref() == instance.as_deref())
    })
}

/// What the controller does with the variants of a namespace.
pub(crate) fn managed(settings: &Settings, namespaces: Namespaces) -> NamespaceLookup {
    let watched = settings.watch_namespace.clone();
    Arc::new(move |namespace| match watched.as_deref() {
        Some(watched) if watched != namespace => NamespaceState::Unwatched,
        _ if namespace_is_excluded(namespaces.as_ref(), namespace) => NamespaceState::Excluded,
        _ => NamespaceState::Managed,
    })
}

/// The config maps for all namespaces, as far as they hold.
pub(crate) fn global_maps(maps: ConfigMaps) -> GlobalMapLookup {
    Arc::new(move |role| maps.global(role))
}

/// Which namespaces are opted in to config maps of their own, by label.
pub(crate) fn opted_in(settings: &Settings, namespaces: Namespaces) -> OptedInLookup {
    let value = settings.config_enabled_value.clone();
    Arc::new(move |namespace| {
        let object = namespaces.as_ref()?.get("", namespace);
        Some(object.is_some_and(|o| o.config_enabled.as_deref() == Some(value.as_str())))
    })
}
