//! What is kept of the objects of one watch: of each a small value, read when the object comes in, so that the object
//! itself lives no longer than its event. There are thousands of them, and most of an object nobody reads. One writer,
//! the watch task; any number of readers.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use kube::Resource;
use kube::runtime::watcher::Event;

/// Values by namespace, empty for what has none, and name.
type Entries<V> = BTreeMap<Box<str>, BTreeMap<Box<str>, V>>;

/// The readers' side.
#[derive(Debug)]
pub struct Cache<V>(Arc<RwLock<Entries<V>>>);

impl<V> Clone for Cache<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V> Cache<V> {
    fn entries(&self) -> RwLockReadGuard<'_, Entries<V>> {
        // Nothing panics while it holds the lock; if it did, the entries would still be whole.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows every value with its namespace and name, in that order. The watch waits meanwhile.
    pub fn each(&self, mut show: impl FnMut(&str, &str, &V)) {
        for (namespace, values) in self.entries().iter() {
            for (name, value) in values {
                show(namespace, name, value);
            }
        }
    }

    /// The same of one namespace.
    pub fn each_of(&self, namespace: &str, mut show: impl FnMut(&str, &V)) {
        for (name, value) in self.entries().get(namespace).into_iter().flatten() {
            show(name, value);
        }
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Asks what is kept of one object, without a copy of it.
    pub fn ask<T>(&self, namespace: &str, name: &str, question: impl FnOnce(&V) -> T) -> Option<T> {
        self.entries().get(namespace)?.get(name).map(question)
    }
}

impl<V: Clone> Cache<V> {
    /// What is kept of one object. The namespace of what has none is empty.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<V> {
        self.entries().get(namespace)?.get(name).cloned()
    }

    /// The values of one namespace, in order of name.
    #[must_use]
    pub fn of_namespace(&self, namespace: &str) -> Vec<V> {
        self.entries().get(namespace).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// All values, in order of namespace and name.
    #[must_use]
    pub fn all(&self) -> Vec<V> {
        self.entries().values().flat_map(BTreeMap::values).cloned().collect()
    }
}

/// How the values of one kind are made, and what of them is reason for a cycle of the engine.
pub struct Projection<K, V> {
    /// What is kept of an object.
    pub read: fn(&K) -> V,
    /// Two values of one object are the same for the engine. `None`: not even that one comes or goes concerns it.
    pub same: Option<fn(&V, &V) -> bool>,
}

/// The watch's side: takes in each event, in order.
pub struct Writer<K, V> {
    cache: Cache<V>,
    projection: Projection<K, V>,
    /// Filled while a watch lists anew, so that readers see the old list until the new one is whole.
    listed: Entries<V>,
}

impl<K: Resource, V> Writer<K, V> {
    /// An empty cache.
    #[must_use]
    pub fn new(projection: Projection<K, V>) -> Self {
        Self { cache: Cache(Arc::default()), projection, listed: Entries::new() }
    }

    /// The readers' side.
    #[must_use]
    pub fn reader(&self) -> Cache<V> {
        self.cache.clone()
    }

    /// Takes an event in and says whether it is reason for a cycle.
    pub fn apply(&mut self, event: &Event<K>) -> bool {
        match event {
            Event::Apply(object) => {
                let new = (self.projection.read)(object);
                let concerns = self.projection.same.is_some_and(|same| {
                    let entries = self.cache.entries();
                    let (namespace, name) = key(object);
                    entries.get(namespace).and_then(|of| of.get(name)).is_none_or(|old| !same(old, &new))
                });
                self.write(|entries| put(entries, object, new));
                concerns
            }
            Event::Delete(object) => {
                self.write(|entries| remove(entries, object)) && self.projection.same.is_some()
            }
            Event::Init => {
                self.listed.clear();
                false
            }
            Event::InitApply(object) => {
                put(&mut self.listed, object, (self.projection.read)(object));
                false
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let before = self.write(|entries| std::mem::replace(entries, listed));
                self.projection.same.is_some_and(|same| !alike(&before, &self.cache.entries(), same))
            }
        }
    }

    fn write<T>(&self, change: impl FnOnce(&mut Entries<V>) -> T) -> T {
        change(&mut self.cache.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

fn key<K: Resource>(object: &K) -> (&str, &str) {
    let meta = object.meta();
    (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

fn put<K: Resource, V>(entries: &mut Entries<V>, object: &K, value: V) {
    let (namespace, name) = key(object);
    if !entries.contains_key(namespace) {
        entries.insert(namespace.into(), BTreeMap::new());
    }
    if let Some(values) = entries.get_mut(namespace) {
        values.insert(name.into(), value);
    }
}

/// Whether it was there.
fn remove<K: Resource, V>(entries: &mut Entries<V>, object: &K) -> bool {
    let (namespace, name) = key(object);
    let Some(values) = entries.get_mut(namespace) else { return false };
    let removed = values.remove(name).is_some();
    if values.is_empty() {
        entries.remove(namespace);
    }
    removed
}

/// Both hold the same objects, and each is the same in both.
fn alike<V>(a: &Entries<V>, b: &Entries<V>, same: fn(&V, &V) -> bool) -> bool {
    let flat = |entries: &Entries<V>| entries.values().map(BTreeMap::len).sum::<usize>();
    flat(a) == flat(b)
        && a.iter().all(|(namespace, values)| {
            values.iter().all(|(name, value)| {
                b.get(namespace).and_then(|of| of.get(name)).is_some_and(|other| same(value, other))
            })
        })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    /// What is kept of an object in these tests: a text, of which what comes after a `/` does not concern the engine.
    type Text = Arc<str>;

    fn object(namespace: &str, name: &str, text: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some(namespace.to_owned());
        object.metadata.name = Some(name.to_owned());
        object.data = Some([("text".to_owned(), text.to_owned())].into());
        object
    }

    fn read(object: &ConfigMap) -> Text {
        object.data.iter().flatten().map(|(_, text)| text.as_str()).collect::<String>().into()
    }

    fn same(a: &Text, b: &Text) -> bool {
        a.split('/').next() == b.split('/').next()
    }

    fn writer() -> Writer<ConfigMap, Text> {
        Writer::new(Projection { read, same: Some(same) })
    }

    #[test]
    fn a_value_is_found_by_namespace_and_name_until_its_object_is_gone() {
        let mut writer = writer();
        let cache = writer.reader();
        for (namespace, name) in [("b", "x"), ("a", "y"), ("a", "x"), ("", "x")] {
            writer.apply(&Event::Apply(object(namespace, name, &format!("{namespace}.{name}"))));
        }
        assert_eq!(cache.get("a", "x").as_deref(), Some("a.x"));
        assert_eq!(cache.get("a", "z"), None);
        assert_eq!(cache.of_namespace("a"), ["a.x", "a.y"].map(Text::from));
        assert_eq!(cache.all(), [".x", "a.x", "a.y", "b.x"].map(Text::from));
        writer.apply(&Event::Delete(object("b", "x", "")));
        assert_eq!(cache.get("b", "x"), None);
        let mut shown = Vec::new();
        cache.each(|namespace, name, _| shown.push(format!("{namespace}.{name}")));
        assert_eq!(shown, [".x", "a.x", "a.y"]);
    }

    #[test]
    fn only_what_concerns_the_engine_is_reason_for_a_cycle() {
        let mut writer = writer();
        let mut apply = |e: Event<ConfigMap>| writer.apply(&e);
        assert!(apply(Event::Apply(object("ns", "a", "1"))));
        assert!(!apply(Event::Apply(object("ns", "a", "1/later"))));
        assert!(apply(Event::Apply(object("ns", "a", "2"))));
        assert!(apply(Event::Delete(object("ns", "a", "2"))));
        assert!(!apply(Event::Delete(object("ns", "a", "2"))), "it is gone already");
    }

    #[test]
    fn a_new_list_is_reason_for_a_cycle_only_when_it_differs() {
        let mut writer = writer();
        let mut list = |names: &[(&str, &str)]| {
            assert!(!writer.apply(&Event::Init));
            for (name, text) in names {
                assert!(!writer.apply(&Event::InitApply(object("ns", name, text))));
            }
            writer.apply(&Event::InitDone)
        };
        assert!(!list(&[]));
        assert!(list(&[("a", "1"), ("b", "1")]));
        assert!(!list(&[("a", "1/later"), ("b", "1")]));
        assert!(list(&[("a", "1")]));
        assert!(list(&[("c", "1")]));
        assert!(list(&[("c", "2")]));
    }

    #[test]
    fn readers_see_the_old_list_until_the_new_one_is_whole() {
        let mut writer = writer();
        let cache = writer.reader();
        writer.apply(&Event::Apply(object("ns", "a", "a")));
        writer.apply(&Event::Init);
        writer.apply(&Event::InitApply(object("ns", "b", "b")));
        assert_eq!(cache.all(), [Text::from("a")]);
        // The list was broken off: what it had does not end up in the next.
        writer.apply(&Event::Init);
        writer.apply(&Event::InitApply(object("ns", "c", "c")));
        writer.apply(&Event::InitDone);
        assert_eq!(cache.all(), [Text::from("c")]);
    }

    #[test]
    fn what_never_concerns_the_engine_asks_for_no_cycle() {
        let mut writer = Writer::new(Projection { read, same: None });
        let list = [Event::Init, Event::InitApply(object("ns", "a", "1")), Event::InitDone];
        let later = [Event::Apply(object("ns", "a", "2")), Event::Delete(object("ns", "a", "2"))];
        for event in list.iter().chain(&later) {
            assert!(!writer.apply(event));
        }
    }
}
