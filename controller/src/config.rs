//! The ConfigMaps with entries: thresholds and scale to zero, for all namespaces or for their own, and service classes.
//! A watch keeps what
//! was last read of each map; the engine asks, cycle by cycle, which of them are in force, and which settings follow
//! for each model.

mod in_force;
mod layers;
mod main_map;
mod news;
mod read;
mod reloads;
mod resolve;
mod service_classes;
#[cfg(test)]
pub(crate) mod testing;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use in_force::{Readers, global};
use k8s_openapi::api::core::v1::ConfigMap;
use read::{MapEntry, MapKey, Maps};
use serde_json::Value;
use service_classes::ServiceClasses;
use tokio::sync::Notify;
use wva_crds::entries::{SaturationEntry, ScaleToZeroEntry};
use wva_rules::{MapNames, MapRole};

pub use main_map::main_map;
pub use reloads::{Config, ConfigReloads};
pub(crate) use resolve::Settings;
pub use watch::watch_config_maps;

/// Which ConfigMaps are read, and what was read of them last. One writer, the watch; any number of readers.
#[derive(Clone, Debug)]
pub struct ConfigMaps {
    names: MapNames,
    /// Value of the namespace label that opts in to maps there.
    opted_in: String,
    kept: Arc<RwLock<Kept>>,
    /// Held while something is made of a map, by the watch and by the engine: what an older version says must not be
    /// kept in place of a newer one, nor after the map is gone.
    making: Arc<Mutex<()>>,
    /// Which namespaces the last cycle read maps of. `None`: there was none yet.
    readers: Arc<RwLock<Option<Arc<Readers>>>>,
    /// A map that is read has changed.
    changed: Arc<Notify>,
}

/// What is kept of all maps.
#[derive(Debug, Default)]
struct Kept {
    /// Maps of other namespaces than the controller's as they came, for the day that somebody reads them. Of a namespace
    /// that nobody reads there is no more than this: what is made of a map can be much larger.
    local: BTreeMap<MapKey, Arc<ConfigMap>>,
    saturation: Maps<SaturationEntry>,
    to_zero: Maps<ScaleToZeroEntry>,
    classes: Maps<ServiceClasses>,
}

impl Kept {
    /// Something was made of the map.
    fn knows(&self, key: &MapKey) -> bool {
        self.saturation.contains_key(key) || self.to_zero.contains_key(key) || self.classes.contains_key(key)
    }

    /// Lets go what was made of a map. Says whether there was anything.
    fn forget(&mut self, key: &MapKey) -> bool {
        let forgotten = [
            self.saturation.remove(key).is_some(),
            self.to_zero.remove(key).is_some(),
            self.classes.remove(key).is_some(),
        ];
        forgotten.contains(&true)
    }
}

impl ConfigMaps {
    fn new(names: MapNames, opted_in: String) -> Self {
        let (kept, making, readers, changed) = Default::default();
        Self { names, opted_in, kept, making, readers, changed }
    }

    fn making(&self) -> MutexGuard<'_, ()> {
        self.making.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change of a map that is read.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Tells the engine of one.
    pub(crate) fn tell(&self) {
        self.changed.notify_one();
    }

    /// The global map with entries of this role that is in force, as far as it holds: what a namespace's own map inherits
    /// from. `None` where there is none, and for roles without such maps.
    #[must_use]
    pub fn global(&self, role: MapRole) -> Option<Value> {
        match role {
            MapRole::Saturation => self.first(role, |kept| &kept.saturation),
            MapRole::ScaleToZero => self.first(role, |kept| &kept.to_zero),
            MapRole::Main | MapRole::ServiceClasses => None,
        }
    }

    fn first<E: MapEntry>(&self, role: MapRole, of_kind: fn(&Kept) -> &Maps<E>) -> Option<Value> {
        // No longer than that: a large map takes its time to be written.
        let map = global(of_kind(&self.kept()), &self.names, role).next().cloned()?;
        Some(map.object())
    }

    fn kept(&self) -> RwLockReadGuard<'_, Kept> {
        // Nothing panics while it holds the lock; if it did, what is kept would still be whole.
        self.kept.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over who reads maps: those of namespaces that are read now are, and of the others only the text stays.
    fn read_by(&self, readers: &Arc<Readers>) {
        // First: a map that comes in meanwhile is either found here, or starts the next cycle.
        *self.readers.write().unwrap_or_else(PoisonError::into_inner) = Some(readers.clone());
        let (mut read, mut unread) = (Vec::new(), Vec::new());
        let _making = self.making();
        {
            let kept = self.kept();
            for (key, map) in &kept.local {
                match (readers.includes(&key.namespace), kept.knows(key)) {
                    (true, false) => read.push(map.clone()),
                    (false, true) => unread.push(key.clone()),
                    _ => {}
                }
            }
        }
        for map in read {
            self.read(&map);
        }
        for key in unread {
            self.change(|kept| kept.forget(&key));
        }
    }

    /// Whether anybody reads the maps of a namespace: anybody may write there.
    fn are_read(&self, namespace: &str) -> bool {
        let readers = self.readers.read().unwrap_or_else(PoisonError::into_inner);
        namespace == self.names.namespace
            || readers.as_ref().is_none_or(|readers| readers.includes(namespace))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        change(&mut self.kept.write().unwrap_or_else(PoisonError::into_inner))
    }
}
