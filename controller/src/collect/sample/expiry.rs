//! Removes samples that are too old.

use std::time::{Duration, Instant};

use super::{QUEUE_EXPIRY, Samples};

/// Ages at which the samples of a pod are removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleExpiry {
    /// Age for a pod that was deleted.
    pub(crate) deleted: Duration,
    /// Age for a pod that exists.
    pub(crate) existing: Duration,
}

impl Samples {
    /// Removes samples that are too old. `exists`: whether the pod exists.
    pub(crate) fn remove_expired(
        &mut self,
        now: Instant,
        expiry: SampleExpiry,
        exists: impl Fn(&str, &str) -> bool,
    ) {
        let SampleExpiry { deleted, existing } = expiry;
        let limit = |namespace: &str, pod: &str| if exists(namespace, pod) { existing } else { deleted };
        self.loads.retain(|key, load| {
            let age = load.newest().map(|at| now.saturating_duration_since(at));
            age.is_some_and(|age| age <= limit(&key.namespace, &key.pod))
        });
        self.caches.retain(|(namespace, pod), cache| cache.age(now) <= limit(namespace, pod));
        self.counters.remove_expired(now, |key| limit(&key.namespace, &key.pod));
        for queues in [&mut self.queues, &mut self.pool_queues] {
            queues.retain(|_, queue| queue.age(now) <= QUEUE_EXPIRY);
        }
        self.routers.remove_expired(now, QUEUE_EXPIRY);
        self.failing.retain(|_, failure| failure.age(now) <= QUEUE_EXPIRY);
    }
}
