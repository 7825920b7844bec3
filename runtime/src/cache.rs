//! What is kept of the objects of one watch: of each a small value, read when the object comes in, so that the object
//! itself lives no longer than its event. There are thousands of them, and most of an object nobody reads. One writer,
//! the watch task; any number of readers. A cache may have an index, which finds objects by keys of their own and
//! touches no others.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use kube::Resource;
use kube::runtime::watcher::Event;

/// The objects of one namespace.
#[derive(Debug, PartialEq)]
struct Objects<V, I> {
    /// Values by name.
    values: BTreeMap<Box<str>, V>,
    /// Keys by name. Each is shared with `names`: there are thousands.
    keys: BTreeMap<Box<str>, Box<[Arc<I>]>>,
    /// Names by key, in order.
    names: BTreeMap<Arc<I>, Vec<Box<str>>>,
}

impl<V, I> Default for Objects<V, I> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), keys: BTreeMap::new(), names: BTreeMap::new() }
    }
}

impl<V, I: Ord> Objects<V, I> {
    /// Indexes an object by these keys, and by no others.
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

    /// Adds a name to those of a key, and returns the key as it is shared.
    fn add_name(&mut self, key: I, name: &str) -> Arc<I> {
        let key = self.names.get_key_value(&key).map_or_else(|| Arc::new(key), |(key, _)| key.clone());
        let names = self.names.entry(key.clone()).or_default();
        if let Err(at) = names.binary_search_by(|other| (**other).cmp(name)) {
            // Most keys have one object, for which `insert` alone would make room for four.
            names.reserve_exact(1);
            names.insert(at, name.into());
        }
        key
    }
}

/// Objects by namespace, which is empty for what has none.
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

    /// Every value with its namespace and name, in that order.
    fn each(&self) -> impl Iterator<Item = (&str, &str, &V)> {
        self.0.iter().flat_map(|(namespace, objects)| {
            objects.values.iter().map(|(name, value)| (&**namespace, &**name, value))
        })
    }

    /// Both hold the same objects, and each is the same in both.
    fn is_alike(&self, other: &Self, same: fn(&V, &V) -> bool) -> bool {
        self.each().count() == other.each().count()
            && self.each().all(|(namespace, name, value)| {
                other.get(namespace, name).is_some_and(|other| same(value, other))
            })
    }
}

impl<V, I: Ord> Entries<V, I> {
    /// Puts an object in place of what was known of it, or takes that away, and returns what was known.
    fn set(&mut self, (namespace, name): (&str, &str), entry: Option<(V, Vec<I>)>) -> Option<V> {
        if entry.is_some() && !self.0.contains_key(namespace) {
            self.0.insert(namespace.into(), Objects::default());
        }
        let objects = self.0.get_mut(namespace)?;
        let Some((value, keys)) = entry else {
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

/// The readers' side. `I` are the keys of the index; without one there are none.
#[derive(Debug)]
pub struct Cache<V, I = Infallible>(Arc<RwLock<Entries<V, I>>>);

impl<V, I> Clone for Cache<V, I> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V, I> Cache<V, I> {
    fn entries(&self) -> RwLockReadGuard<'_, Entries<V, I>> {
        // Nothing panics while it holds the lock; if it did, the entries would still be whole.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows every value with its namespace and name, in that order. The watch waits meanwhile.
    pub fn each(&self, mut show: impl FnMut(&str, &str, &V)) {
        self.entries().each().for_each(|(namespace, name, value)| show(namespace, name, value));
    }

    /// The same of one namespace.
    pub fn each_of(&self, namespace: &str, mut show: impl FnMut(&str, &V)) {
        let entries = self.entries();
        for (name, value) in entries.0.get(namespace).into_iter().flat_map(|objects| &objects.values) {
            show(name, value);
        }
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries().0.is_empty()
    }

    /// Whether the namespace has any object.
    #[must_use]
    pub fn has_any_in(&self, namespace: &str) -> bool {
        self.entries().0.contains_key(namespace)
    }

    /// Asks what is kept of one object, without a copy of it.
    pub fn ask<T>(&self, namespace: &str, name: &str, question: impl FnOnce(&V) -> T) -> Option<T> {
        self.entries().get(namespace, name).map(question)
    }
}

impl<V: Clone, I> Cache<V, I> {
    /// What is kept of one object. The namespace of what has none is empty.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<V> {
        self.ask(namespace, name, V::clone)
    }

    /// The values of one namespace, in order of name.
    #[must_use]
    pub fn of_namespace(&self, namespace: &str) -> Vec<V> {
        let mut all = Vec::new();
        self.each_of(namespace, |_, value| all.push(value.clone()));
        all
    }

    /// All values, in order of namespace and name.
    #[must_use]
    pub fn all(&self) -> Vec<V> {
        self.entries().each().map(|(_, _, value)| value.clone()).collect()
    }
}

impl<V, I: Ord> Cache<V, I> {
    /// The values of a namespace that have this key, in order of name.
    #[must_use]
    pub fn of_key(&self, namespace: &str, key: &I) -> Vec<V>
    where
        V: Clone,
    {
        let entries = self.entries();
        let Some(objects) = entries.0.get(namespace) else { return Vec::new() };
        let names = objects.names.get(key).into_iter().flatten();
        names.filter_map(|name| objects.values.get(name)).cloned().collect()
    }

    /// The first name in a namespace that has this key and is not `name`.
    #[must_use]
    pub fn other_of_key(&self, namespace: &str, key: &I, name: &str) -> Option<String> {
        let entries = self.entries();
        let mut names = entries.0.get(namespace)?.names.get(key)?.iter();
        names.find(|other| ***other != *name).map(ToString::to_string)
    }
}

/// How the values of one kind are made, and what of them is reason for a cycle of the engine.
pub struct Projection<K, V> {
    /// What is kept of an object.
    pub read: fn(&K) -> V,
    /// Two values of one object are the same for the engine. `None`: not even that one comes or goes concerns it.
    pub same: Option<fn(&V, &V) -> bool>,
}

/// Reads the value of an object and its keys; `None` for one that is not kept.
type ReadEntry<K, V, I> = Box<dyn Fn(&K) -> Option<(V, Vec<I>)> + Send + Sync>;

/// The watch's side: takes in each event, in order.
pub struct Writer<K, V, I = Infallible> {
    cache: Cache<V, I>,
    read: ReadEntry<K, V, I>,
    same: Option<fn(&V, &V) -> bool>,
    /// Filled while a watch lists anew, so that readers see the old list until the new one is whole.
    listed: Entries<V, I>,
}

impl<K: Resource + 'static, V: 'static> Writer<K, V> {
    /// An empty cache without an index.
    #[must_use]
    pub fn new(Projection { read, same }: Projection<K, V>) -> Self {
        Self { same, ..Self::indexed(move |object| Some((read(object), Vec::new()))) }
    }
}

impl<K: Resource, V, I: Ord> Writer<K, V, I> {
    /// An empty cache with an index. `read` returns what is kept of an object, and its keys.
    #[must_use]
    pub fn indexed(read: impl Fn(&K) -> Option<(V, Vec<I>)> + Send + Sync + 'static) -> Self {
        Self { cache: Cache(Arc::default()), read: Box::new(read), same: None, listed: Entries::default() }
    }

    /// The readers' side.
    #[must_use]
    pub fn reader(&self) -> Cache<V, I> {
        self.cache.clone()
    }

    /// Takes an event in and says whether it is reason for a cycle.
    pub fn apply(&mut self, event: &Event<K>) -> bool {
        match event {
            Event::Apply(object) => self.set(object, (self.read)(object)),
            Event::Delete(object) => self.set(object, None),
            Event::Init => {
                self.listed = Entries::default();
                false
            }
            Event::InitApply(object) => {
                self.listed.set(id(object), (self.read)(object));
                false
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let before = self.write(|entries| std::mem::replace(entries, listed));
                self.same.is_some_and(|same| !before.is_alike(&self.cache.entries(), same))
            }
        }
    }

    /// Whether the engine is concerned.
    fn set(&self, object: &K, entry: Option<(V, Vec<I>)>) -> bool {
        let (namespace, name) = id(object);
        let before = self.write(|entries| entries.set((namespace, name), entry));
        let Some(same) = self.same else { return false };
        match (before, self.cache.entries().get(namespace, name)) {
            (Some(before), Some(now)) => !same(&before, now),
            (before, now) => before.is_some() || now.is_some(),
        }
    }

    /// What `change` takes away is dropped by the caller, outside the lock.
    fn write<T>(&self, change: impl FnOnce(&mut Entries<V, I>) -> T) -> T {
        change(&mut self.cache.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Namespace and name.
fn id<K: Resource>(object: &K) -> (&str, &str) {
    let meta = object.meta();
    (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests;
