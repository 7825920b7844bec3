//! Selects the effective maps.

use std::collections::BTreeSet;
use std::sync::Arc;

use wva_rules::{MapNames, MapRole};
use wva_runtime::Cache;

use super::ConfigMaps;
use super::layers::EffectiveMaps;
use super::parsed_map::{MapKey, Maps, ParsedMap};
use crate::observe::variants::{ManagedVariant, is_excluded};
use crate::observe::watches::NamespaceFacts;

/// Namespaces with managed variants or the opt-in label.
#[derive(Debug, Default)]
pub(super) struct LocalMapScope {
    managed: BTreeSet<String>,
    namespaces: Option<Cache<NamespaceFacts>>,
    opt_in_value: String,
}

impl LocalMapScope {
    pub(super) fn new(
        maps: &ConfigMaps,
        managed: &[ManagedVariant],
        namespaces: Option<&Cache<NamespaceFacts>>,
    ) -> Self {
        let managed = managed.iter().map(|m| m.key.namespace.clone()).collect();
        Self { managed, namespaces: namespaces.cloned(), opt_in_value: maps.opt_in_value.clone() }
    }

    /// An excluded namespace needs managed variants.
    pub(super) fn includes(&self, namespace: &str) -> bool {
        let has_opted_in = || {
            let all = self.namespaces.as_ref();
            let facts = all.and_then(|all| all.get("", namespace));
            let value = facts.and_then(|facts| facts.config_enabled);
            value.as_deref() == Some(&*self.opt_in_value) && !is_excluded(all, namespace)
        };
        self.managed.contains(namespace) || has_opted_in()
    }
}

pub(super) fn global_maps<'m, E>(
    maps: &'m Maps<E>,
    names: &'m MapNames,
    role: MapRole,
) -> impl Iterator<Item = &'m Arc<ParsedMap<E>>> {
    let of_name = |name: &str| maps.get(&MapKey::new(&names.namespace, name));
    names.global_names(role).into_iter().filter_map(of_name)
}

pub(super) fn effective_maps<E>(
    maps: &Maps<E>,
    names: &MapNames,
    role: MapRole,
    scope: &LocalMapScope,
) -> EffectiveMaps<E> {
    let mut present = global_maps(maps, names, role);
    let global = present.next().cloned();
    let ignored = present.map(|map| map.name.to_string()).collect();
    // In other namespaces only maps with the local name are cached.
    let local = maps.iter().filter(|(key, _)| *key.namespace != *names.namespace);
    let local = local.filter(|(key, _)| scope.includes(&key.namespace));
    let local = local.map(|(key, map)| (key.namespace.clone(), map.clone())).collect();
    EffectiveMaps { global, ignored, local }
}
