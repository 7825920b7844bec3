//! Watch cache: one small value for each object of a watch. The object itself is dropped with its event: a cluster has
//! thousands, and most of their fields are unused. The watch task is the only writer. An optional index finds
//! objects by keys.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use kube::Resource;
use kube::runtime::watcher::Event;

#[derive(Debug, PartialEq)]
struct Objects<V, I> {
    values: BTreeMap<Box<str>, V>,
    /// Shared with `names` to save memory.
    keys: BTreeMap<Box<str>, Box<[Arc<I>]>>,
    names: BTreeMap<Arc<I>, Vec<Box<str>>>,
}

impl<V, I> Default for Objects<V, I> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), keys: BTreeMap::new(), names: BTreeMap::new() }
    }
}

impl<V, I: Ord> Objects<V, I> {
    fn index(&mut self, name: &str, keys: Vec<I>) {
        let before = self.keys.get(name).into_iter().flat_map(|keys| keys.iter());
        if before.map(AsRef::as_ref).eq(&keys) {
            return;
        }
        for key in self.keys.remove(name).unwrap_or_default() {
            if let Some(names) = self.names.get_mut(&key) {
                names.retain(|other| **other != *name);
                if names.is_empty() {
                    self.names.remove(&key);
                }
            }
        }
        let keys: Box<[Arc<I>]> = keys.into_iter().map(|key| self.add_name(key, name)).collect();
        if !keys.is_empty() {
            self.keys.insert(name.into(), keys);
        }
    }

    fn add_name(&mut self, key: I, name: &str) -> Arc<I> {
        let key = self.names.get_key_value(&key).map_or_else(|| Arc::new(key), |(key, _)| key.clone());
        let names = self.names.entry(key.clone()).or_default();
        if let Err(at) = names.binary_search_by(|other| (**other).cmp(name)) {
            // Most keys have one object; `insert` alone would allocate four places.
            names.reserve_exact(1);
            names.insert(at, name.into());
        }
        key
    }
}

/// The empty namespace holds cluster-scoped objects.
#[derive(Debug, PartialEq)]
struct Entries<V, I>(BTreeMap<Box<str>, Objects<V, I>>);

impl<V, I> Default for Entries<V, I> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V, I> Entries<V, I> {
    fn get(&self, namespace: &str, name: &str) -> Option<&V> {
        self.0.get(namespace)?.values.get(name)
    }

    /// Sorted by namespace and name.
    fn iter(&self) -> impl Iterator<Item = (&str, &str, &V)> {
        self.0.iter().flat_map(|(namespace, objects)| {
            objects.values.iter().map(|(name, value)| (&**namespace, &**name, value))
        })
    }

    fn equals_by(&self, other: &Self, is_same: fn(&V, &V) -> bool) -> bool {
        self.iter().count() == other.iter().count()
            && self.iter().all(|(namespace, name, value)| {
                other.get(namespace, name).is_some_and(|other| is_same(value, other))
            })
    }
}

impl<V, I: Ord> Entries<V, I> {
    /// Returns the previous value. `None` removes the object.
    fn set(&mut self, namespace: &str, name: &str, entry: Option<Indexed<V, I>>) -> Option<V> {
        if entry.is_some() && !self.0.contains_key(namespace) {
            self.0.insert(namespace.into(), Objects::default());
        }
        let objects = self.0.get_mut(namespace)?;
        let Some(Indexed { value, keys }) = entry else {
            objects.index(name, Vec::new());
            let before = objects.values.remove(name);
            if objects.values.is_empty() {
                self.0.remove(namespace);
            }
            return before;
        };
        objects.index(name, keys);
        objects.values.insert(name.into(), value)
    }
}

/// Read side. `I` is the key type of the index; `Infallible` means none.
#[derive(Debug)]
pub struct Cache<V, I = Infallible>(Arc<RwLock<Entries<V, I>>>);

impl<V, I> Clone for Cache<V, I> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V, I> Cache<V, I> {
    fn entries(&self) -> RwLockReadGuard<'_, Entries<V, I>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sorted by namespace and name. The watch cannot write meanwhile.
    pub fn for_each(&self, mut visit: impl FnMut(&str, &str, &V)) {
        self.entries().iter().for_each(|(namespace, name, value)| visit(namespace, name, value));
    }

    /// Sorted by name.
    pub fn for_each_in(&self, namespace: &str, mut visit: impl FnMut(&str, &V)) {
        let entries = self.entries();
        for (name, value) in entries.0.get(namespace).into_iter().flat_map(|objects| &objects.values) {
            visit(name, value);
        }
    }

    /// Whether the cache has no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries().0.is_empty()
    }

    /// Whether the namespace has any object.
    #[must_use]
    pub fn has_any_in(&self, namespace: &str) -> bool {
        self.entries().0.contains_key(namespace)
    }

    /// Reads a value without a clone.
    pub fn get_with<T>(&self, namespace: &str, name: &str, read: impl FnOnce(&V) -> T) -> Option<T> {
        self.entries().get(namespace, name).map(read)
    }
}

impl<V: Clone, I> Cache<V, I> {
    /// The namespace of a cluster-scoped object is empty.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<V> {
        self.get_with(namespace, name, V::clone)
    }

    /// Sorted by name.
    #[must_use]
    pub fn values_in(&self, namespace: &str) -> Vec<V> {
        let mut all = Vec::new();
        self.for_each_in(namespace, |_, value| all.push(value.clone()));
        all
    }

    /// Sorted by namespace and name.
    #[must_use]
    pub fn all(&self) -> Vec<V> {
        self.entries().iter().map(|(_, _, value)| value.clone()).collect()
    }
}

impl<V, I: Ord> Cache<V, I> {
    /// Sorted by name.
    #[must_use]
    pub fn values_by_key(&self, namespace: &str, key: &I) -> Vec<V>
    where
        V: Clone,
    {
        let entries = self.entries();
        let Some(objects) = entries.0.get(namespace) else { return Vec::new() };
        let names = objects.names.get(key).into_iter().flatten();
        names.filter_map(|name| objects.values.get(name)).cloned().collect()
    }

    /// First name with this key that is not `name`.
    #[must_use]
    pub fn other_name_by_key(&self, namespace: &str, key: &I, name: &str) -> Option<String> {
        let entries = self.entries();
        let mut names = entries.0.get(namespace)?.names.get(key)?.iter();
        names.find(|other| ***other != *name).map(ToString::to_string)
    }
}

/// Makes the cached value of a kind, and tells which changes need a cycle.
pub struct Projection<K, V> {
    /// Makes the value of an object.
    pub read: fn(&K) -> V,
    /// Equality for the engine. `None`: no change needs a cycle.
    pub is_same: Option<fn(&V, &V) -> bool>,
}

/// Value of an object, and the keys that find it.
#[derive(Debug)]
pub struct Indexed<V, I> {
    /// Cached value.
    pub value: V,
    /// Keys of the index.
    pub keys: Vec<I>,
}

/// Reads an object. `None` leaves the object out.
type ReadEntry<K, V, I> = Box<dyn Fn(&K) -> Option<Indexed<V, I>> + Send + Sync>;

/// Write side: applies the events in order.
pub struct Writer<K, V, I = Infallible> {
    cache: Cache<V, I>,
    read: ReadEntry<K, V, I>,
    is_same: Option<fn(&V, &V) -> bool>,
    /// New list of the watch. Readers see the old one until it is complete.
    listed: Entries<V, I>,
}

impl<K: Resource + 'static, V: 'static> Writer<K, V> {
    /// Cache without an index.
    #[must_use]
    pub fn new(Projection { read, is_same }: Projection<K, V>) -> Self {
        Self {
            is_same,
            ..Self::indexed(move |object| Some(Indexed { value: read(object), keys: Vec::new() }))
        }
    }
}

impl<K: Resource, V, I: Ord> Writer<K, V, I> {
    /// Cache with an index. `read` makes value and keys.
    #[must_use]
    pub fn indexed(read: impl Fn(&K) -> Option<Indexed<V, I>> + Send + Sync + 'static) -> Self {
        Self { cache: Cache(Arc::default()), read: Box::new(read), is_same: None, listed: Entries::default() }
    }

    /// Read side of the cache.
    #[must_use]
    pub fn reader(&self) -> Cache<V, I> {
        self.cache.clone()
    }

    /// Returns whether a cycle is needed.
    pub fn apply(&mut self, event: &Event<K>) -> bool {
        match event {
            Event::Apply(object) => self.set(object, (self.read)(object)),
            Event::Delete(object) => self.set(object, None),
            Event::Init => {
                self.listed = Entries::default();
                false
            }
            Event::InitApply(object) => {
                let (namespace, name) = id(object);
                self.listed.set(namespace, name, (self.read)(object));
                false
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let before = self.write(|entries| std::mem::replace(entries, listed));
                self.is_same.is_some_and(|is_same| !before.equals_by(&self.cache.entries(), is_same))
            }
        }
    }

    /// Returns whether a cycle is needed.
    fn set(&self, object: &K, entry: Option<Indexed<V, I>>) -> bool {
        let (namespace, name) = id(object);
        let before = self.write(|entries| entries.set(namespace, name, entry));
        let Some(is_same) = self.is_same else { return false };
        match (before, self.cache.entries().get(namespace, name)) {
            (Some(before), Some(now)) => !is_same(&before, now),
            (before, now) => before.is_some() || now.is_some(),
        }
    }

    fn write<T>(&self, change: impl FnOnce(&mut Entries<V, I>) -> T) -> T {
        change(&mut self.cache.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

fn id<K: Resource>(object: &K) -> (&str, &str) {
    let meta = object.meta();
    (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests;
