//! Which watch caches are complete.

use tokio::sync::watch;

/// Which caches have seen their first list. kube's own `Store::wait_until_ready` wakes only the last of several
/// waiters (kube 5.0, `DelayedInit`), and readiness, engine and reviews all wait.
#[derive(Clone, Debug, Default)]
pub struct Synced(Vec<(&'static str, watch::Receiver<bool>)>);

impl Synced {
    /// Adds a cache.
    pub fn add(&mut self, name: &'static str, complete: watch::Receiver<bool>) {
        self.0.push((name, complete));
    }

    /// Each cache with whether it is complete.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.0.iter().map(|(name, synced)| (*name, *synced.borrow()))
    }

    /// All are complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.each().all(|(_, complete)| complete)
    }

    /// Waits until all are complete.
    ///
    /// # Errors
    /// The name of a cache whose watch has ended.
    pub async fn wait(&self) -> Result<(), &'static str> {
        for (name, synced) in &self.0 {
            synced.clone().wait_for(|synced| *synced).await.map_err(|_| *name)?;
        }
        Ok(())
    }
}
