//! Initial sync of watch caches.

use tokio::sync::watch;

/// Whether each watch cache has its first list. kube's `Store::wait_until_ready` wakes only the last of several waiters
/// (kube 5.0, `DelayedInit`).
#[derive(Clone, Debug, Default)]
pub struct SyncStatus(Vec<(&'static str, watch::Receiver<bool>)>);

impl SyncStatus {
    /// Adds a cache and its completion channel.
    pub fn add(&mut self, name: &'static str, complete: watch::Receiver<bool>) {
        self.0.push((name, complete));
    }

    /// Name of each cache, and whether it is complete.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.0.iter().map(|(name, synced)| (*name, *synced.borrow()))
    }

    /// Whether all caches are complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.iter().all(|(_, complete)| complete)
    }

    /// Waits until all caches are complete.
    ///
    /// # Errors
    /// A cache whose watch ended before.
    pub async fn wait(&self) -> Result<(), &'static str> {
        for (name, synced) in &self.0 {
            synced.clone().wait_for(|synced| *synced).await.map_err(|_| *name)?;
        }
        Ok(())
    }
}
