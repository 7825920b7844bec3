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

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::Notify;

use wva_crds::entries::{SaturationEntry, ScaleToZeroEntry};
use wva_rules::MapNames;

use in_force::Readers;
use read::Maps;
use service_classes::ServiceClasses;

pub use main_map::main_map;
pub use reloads::{Config, ConfigReloads};
pub(crate) use resolve::Settings;

/// Which ConfigMaps are read, and what was read of them last. One writer, the watch; any number of readers.
#[derive(Clone, Debug)]
pub struct ConfigMaps {
    names: MapNames,
    /// Value of the namespace label that opts in to maps there.
    opted_in: String,
    kept: Arc<RwLock<Kept>>,
    /// Which namespaces the last cycle read maps of. `None`: there was none yet.
    readers: Arc<RwLock<Option<Arc<Readers>>>>,
    /// A map that is read has changed.
    changed: Arc<Notify>,
}

/// What is kept of all maps.
#[derive(Debug, Default)]
struct Kept {
    saturation: Maps<SaturationEntry>,
    to_zero: Maps<ScaleToZeroEntry>,
    classes: Maps<ServiceClasses>,
}

impl ConfigMaps {
    fn new(names: MapNames, opted_in: String) -> Self {
        Self { names, opted_in, kept: Arc::default(), readers: Arc::default(), changed: Arc::default() }
    }

    /// Waits for a change of a map that is read.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Tells the engine of one.
    pub(crate) fn tell(&self) {
        self.changed.notify_one();
    }

    fn kept(&self) -> RwLockReadGuard<'_, Kept> {
        // Nothing panics while it holds the lock; if it did, what is kept would still be whole.
        self.kept.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_by(&self, readers: Arc<Readers>) {
        *self.readers.write().unwrap_or_else(PoisonError::into_inner) = Some(readers);
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
