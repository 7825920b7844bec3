//! Which of the maps that are kept are in force: of the global names the first that exists, of service classes every one,
//! and the maps of namespaces that this controller manages variants in, or that are opted in by their label.

use std::collections::BTreeSet;
use std::sync::Arc;

use wva_rules::{MapNames, MapRole};
use wva_runtime::Cache;

use super::ConfigMaps;
use super::layers::InForce;
use super::read::{MapKey, Maps, ReadMap};
use crate::observe::variants::{Managed, is_excluded};
use crate::observe::watches::NamespaceFacts;

/// Which namespaces may have maps for themselves.
#[derive(Debug)]
pub(super) struct Readers {
    /// Those with variants that this controller manages.
    managed: BTreeSet<String>,
    namespaces: Option<Cache<NamespaceFacts>>,
    opted_in: String,
}

impl Readers {
    pub(super) fn new(
        maps: &ConfigMaps,
        managed: &[Managed],
        namespaces: Option<&Cache<NamespaceFacts>>,
    ) -> Self {
        let managed = managed.iter().map(|m| m.key.namespace.clone()).collect();
        Self { managed, namespaces: namespaces.cloned(), opted_in: maps.opted_in.clone() }
    }

    /// Variants of an excluded namespace are not managed, so only its label has to be asked.
    pub(super) fn includes(&self, namespace: &str) -> bool {
        let opted_in = || {
            let all = self.namespaces.as_ref();
            let facts = all.and_then(|all| all.get("", namespace));
            let value = facts.and_then(|facts| facts.config_enabled);
            value.as_deref() == Some(&*self.opted_in) && !is_excluded(all, namespace)
        };
        self.managed.contains(namespace) || opted_in()
    }
}

/// The global maps of one kind that exist. Of thresholds the first is in force, of service classes all are.
pub(super) fn global<'m, E>(
    maps: &'m Maps<E>,
    names: &'m MapNames,
    role: MapRole,
) -> impl Iterator<Item = &'m Arc<ReadMap<E>>> {
    let of_name = |name: &str| maps.get(&MapKey::new(&names.namespace, name));
    names.in_order(role).into_iter().filter_map(of_name)
}

/// The maps of one kind that are in force.
pub(super) fn in_force<E>(maps: &Maps<E>, names: &MapNames, role: MapRole, readers: &Readers) -> InForce<E> {
    let mut present = global(maps, names, role);
    let first = present.next().cloned();
    let behind = present.map(|map| map.name.to_string()).collect();
    // Elsewhere only maps of the one local name are kept.
    let local = maps.iter().filter(|(key, _)| *key.namespace != *names.namespace);
    let local = local.filter(|(key, _)| readers.includes(&key.namespace));
    let local = local.map(|(key, map)| (key.namespace.clone(), map.clone())).collect();
    InForce { global: first, behind, local }
}
