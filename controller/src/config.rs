//! ConfigMaps with entries: thresholds, scale to zero and service classes. A watch caches the parsed maps; the engine
//! resolves the settings of each model.

mod change_log;
mod effective;
mod layers;
mod main_map;
mod parsed_map;
mod reloads;
mod resolve;
mod service_classes;
#[cfg(test)]
pub(crate) mod testing;
mod watch;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use effective::{LocalMapScope, global_maps};
use parsed_map::{MapEntry, MapKey, Maps};
use serde_json::Value;
use service_classes::ServiceClasses;
use tokio::sync::Notify;
use wva_crds::entries::{SaturationEntry, ScaleToZeroEntry};
use wva_rules::{MapNames, MapRole};

pub use main_map::main_map;
pub use reloads::ConfigReloads;
pub(crate) use resolve::{ResolvedMaps, Settings};
pub use watch::watch_config_maps;

/// Cache of parsed ConfigMaps. The watch is the only writer.
#[derive(Clone, Debug)]
pub struct ConfigMaps {
    names: MapNames,
    /// Value of the namespace label that opts in to local maps.
    opt_in_value: String,
    cache: Arc<RwLock<MapCache>>,
    /// An old version must never replace a newer one or a deleted map.
    parsing: Arc<Mutex<()>>,
    local_scope: Arc<RwLock<Option<Arc<LocalMapScope>>>>,
    changed: Arc<Notify>,
    /// Some of [`MapCache::wanted`] are new.
    wanted: Arc<Notify>,
}

#[derive(Debug, Default)]
struct MapCache {
    /// Local maps of namespaces that are not in use. Only their names are kept: tenants store them, of any size.
    unread: BTreeSet<MapKey>,
    /// Unread maps whose namespace came into use. The watch reads them.
    wanted: BTreeSet<MapKey>,
    /// Namespaces in use whose maps were unread last. The scope includes them once they are read.
    waiting: BTreeSet<Box<str>>,
    saturation: Maps<SaturationEntry>,
    to_zero: Maps<ScaleToZeroEntry>,
    classes: Maps<ServiceClasses>,
}

impl MapCache {
    /// Parsed maps.
    fn parsed(&self) -> impl Iterator<Item = &MapKey> {
        self.saturation.keys().chain(self.to_zero.keys()).chain(self.classes.keys())
    }

    fn unread_in(&self, namespace: &str) -> impl Iterator<Item = &MapKey> {
        let first = MapKey::new(namespace, "");
        self.unread.range(first..).take_while(move |key| *key.namespace == *namespace)
    }

    /// Returns whether it was parsed.
    fn set_unread(&mut self, key: &MapKey) -> bool {
        self.unread.insert(key.clone());
        self.remove_parsed(key)
    }

    /// Returns whether it was known.
    fn remove(&mut self, key: &MapKey) -> bool {
        self.wanted.remove(key);
        self.unread.remove(key) | self.remove_parsed(key)
    }

    fn remove_parsed(&mut self, key: &MapKey) -> bool {
        let removed = [
            self.saturation.remove(key).is_some(),
            self.to_zero.remove(key).is_some(),
            self.classes.remove(key).is_some(),
        ];
        removed.contains(&true)
    }
}

impl ConfigMaps {
    fn new(names: MapNames, opt_in_value: String) -> Self {
        let (cache, parsing, local_scope, changed, wanted) = Default::default();
        Self { names, opt_in_value, cache, parsing, local_scope, changed, wanted }
    }

    fn lock_parsing(&self) -> MutexGuard<'_, ()> {
        self.parsing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn notify_changed(&self) {
        self.changed.notify_one();
    }

    /// Valid entries of the effective global map, from which local maps inherit. `None` without a map, and for roles
    /// without local maps.
    #[must_use]
    pub fn global(&self, role: MapRole) -> Option<Value> {
        match role {
            MapRole::Saturation => self.first_global(role, |cache| &cache.saturation),
            MapRole::ScaleToZero => self.first_global(role, |cache| &cache.to_zero),
            MapRole::Main | MapRole::ServiceClasses => None,
        }
    }

    fn first_global<E: MapEntry>(&self, role: MapRole, maps: fn(&MapCache) -> &Maps<E>) -> Option<Value> {
        // Without the lock: serializing a large map takes time.
        let map = global_maps(maps(&self.cache()), &self.names, role).next().cloned()?;
        Some(map.to_object())
    }

    fn cache(&self) -> RwLockReadGuard<'_, MapCache> {
        // No code panics with the lock held.
        self.cache.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_local_scope(&self, scope: &Arc<LocalMapScope>) {
        // First, so that a map that arrives now is either found here or starts the next cycle.
        *self.local_scope.write().unwrap_or_else(PoisonError::into_inner) = Some(scope.clone());
        let _parsing = self.lock_parsing();
        let (unused, wanted): (Vec<MapKey>, Vec<MapKey>) = {
            let cache = self.cache();
            let is_used =
                |key: &&MapKey| scope.includes(&key.namespace) || cache.waiting.contains(&key.namespace);
            let is_local = |key: &&MapKey| *key.namespace != *self.names.namespace;
            let unused = cache.parsed().filter(is_local).filter(|key| !is_used(key));
            (unused.cloned().collect(), cache.unread.iter().filter(is_used).cloned().collect())
        };
        for key in unused {
            self.change(|cache| cache.set_unread(&key));
        }
        self.want(wanted);
    }

    /// Leaves out what belongs to a namespace whose local maps are not read yet, and has them read. A change of the maps
    /// follows.
    pub(crate) fn retain_read<T>(&self, all: &mut Vec<T>, namespace_of: impl Fn(&T) -> &str) {
        let (mut waiting, mut wanted) = (BTreeSet::new(), Vec::new());
        {
            let cache = self.cache();
            all.retain(|one| {
                let namespace = namespace_of(one);
                let mut unread = cache.unread_in(namespace).peekable();
                let is_read = unread.peek().is_none();
                if !is_read && waiting.insert(Box::from(namespace)) {
                    wanted.extend(unread.cloned());
                }
                is_read
            });
            if cache.waiting == waiting {
                return;
            }
        }
        self.change(|cache| cache.waiting = waiting);
        self.want(wanted);
    }

    fn want(&self, keys: impl IntoIterator<Item = MapKey>) {
        let is_new = self.change(|cache| {
            let before = cache.wanted.len();
            cache.wanted.extend(keys);
            cache.wanted.len() > before
        });
        if is_new {
            self.wanted.notify_one();
        }
    }

    fn is_in_use(&self, namespace: &str) -> bool {
        let scope = self.local_scope.read().unwrap_or_else(PoisonError::into_inner);
        namespace == self.names.namespace
            || scope.as_ref().is_none_or(|scope| scope.includes(namespace))
            || self.cache().waiting.contains(namespace)
    }

    fn change<T>(&self, change: impl FnOnce(&mut MapCache) -> T) -> T {
        change(&mut self.cache.write().unwrap_or_else(PoisonError::into_inner))
    }
}
