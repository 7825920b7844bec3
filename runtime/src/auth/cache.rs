//! Small cache with limits on entries and age; it drops the oldest.

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

pub(super) struct Cache<K, V> {
    max_entries: usize,
    lifetime: Duration,
    entries: Mutex<Entries<K, V>>,
}

struct Entries<K, V> {
    values: HashMap<K, (Instant, V)>,
    order: VecDeque<K>,
}

impl<K: Clone + Eq + Hash, V: Clone> Cache<K, V> {
    pub(super) fn new(max_entries: usize, lifetime: Duration) -> Self {
        Self {
            max_entries,
            lifetime,
            entries: Mutex::new(Entries { values: HashMap::new(), order: VecDeque::new() }),
        }
    }

    pub(super) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.get_within(key, self.lifetime)
    }

    /// `age` may exceed the lifetime.
    pub(super) fn get_within<Q: Eq + Hash + ?Sized>(&self, key: &Q, age: Duration) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let entries = self.lock();
        let (since, value) = entries.values.get(key)?;
        (since.elapsed() < age).then(|| value.clone())
    }

    pub(super) fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q)
    where
        K: Borrow<Q>,
    {
        let mut entries = self.lock();
        if entries.values.remove(key).is_some() {
            entries.order.retain(|known| known.borrow() != key);
        }
    }

    pub(super) fn insert(&self, key: K, value: V) {
        let mut entries = self.lock();
        if entries.values.insert(key.clone(), (Instant::now(), value)).is_some() {
            // Written again, so it is the newest now.
            entries.order.retain(|known| *known != key);
        }
        entries.order.push_back(key);
        while entries.order.len() > self.max_entries {
            if let Some(oldest) = entries.order.pop_front() {
                entries.values.remove(&oldest);
            }
        }
    }

    /// A panic leaves at worst a key in one collection only, which all methods tolerate.
    fn lock(&self) -> MutexGuard<'_, Entries<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn drops_entries_by_age_and_number() {
        let cache: Cache<String, u32> = Cache::new(2, Duration::from_mins(1));
        cache.insert("a".into(), 1);
        cache.insert("b".into(), 2);
        cache.insert("a".into(), 3);
        cache.insert("c".into(), 4);
        assert_eq!((cache.get("a"), cache.get("b"), cache.get("c")), (Some(3), None, Some(4)));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(cache.get("a"), Some(3));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get("a"), None);
        assert_eq!(cache.get_within("a", Duration::from_mins(2)), Some(3));
        cache.remove("a");
        assert_eq!(cache.get_within("a", Duration::from_mins(2)), None);
    }
}
