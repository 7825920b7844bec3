//! Watch caches by what reviews ask for. One writer, the watch task, keeps an index in step with each event; a review
//! touches only what concerns its object, however many there are.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Resource;
use kube::core::DynamicObject;
use kube::runtime::watcher::Event;
use serde_json::Value;
use wva_crds::names::INSTANCE_LABEL;
use wva_rules::{MetricReader, OtherVariant, Target, sets_cost};
use wva_runtime::watch::Observer;

/// What objects are found by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// They name this workload. Versions of one group show the same objects.
    Target {
        /// Of the objects.
        namespace: Box<str>,
        /// API group of the workload.
        group: Box<str>,
        /// Its kind.
        kind: Box<str>,
        /// Its name.
        name: Box<str>,
    },
    /// They are variants of this model with a cost that somebody chose.
    CostOf {
        /// Of the objects.
        namespace: Box<str>,
        /// `spec.modelID`.
        model: Box<str>,
    },
}

impl Key {
    /// Objects that name this workload.
    #[must_use]
    pub fn target(namespace: &str, target: &Target) -> Self {
        Self::Target {
            namespace: namespace.into(),
            group: target.group().into(),
            kind: target.kind.as_str().into(),
            name: target.name.as_str().into(),
        }
    }

    /// Variants of this model with a cost that somebody chose.
    #[must_use]
    pub fn cost_of(namespace: &str, model: &str) -> Self {
        Self::CostOf { namespace: namespace.into(), model: model.into() }
    }
}

/// Namespace and name.
type Id = (Box<str>, Box<str>);

/// What is kept of one object, and the keys it is found by.
type Entry<V> = (Vec<Key>, V);

/// The same as it is filed.
type Filed<V> = (Box<[Arc<Key>]>, V);

/// Ids and keys stand in both maps, and are shared: there are thousands of either.
#[derive(Debug, PartialEq)]
struct Entries<V> {
    objects: BTreeMap<Arc<Id>, Filed<V>>,
    /// The objects of each key, in order.
    by_key: BTreeMap<Arc<Key>, Vec<Arc<Id>>>,
}

impl<V> Default for Entries<V> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), by_key: BTreeMap::new() }
    }
}

impl<V: PartialEq> Entries<V> {
    /// Puts an object in place of what was known of it; `None` where it is found by nothing any more.
    fn put(&mut self, id: Id, entry: Option<Entry<V>>) {
        if let (Some((keys, value)), Some((new_keys, new_value))) = (self.objects.get(&id), &entry)
            && value == new_value
            && keys.iter().map(AsRef::as_ref).eq(new_keys)
        {
            return;
        }
        self.remove(&id);
        let Some((keys, value)) = entry else { return };
        let id = Arc::new(id);
        let keys = keys.into_iter().map(|key| self.file(key, &id)).collect();
        self.objects.insert(id, (keys, value));
    }

    fn remove(&mut self, id: &Id) {
        let Some((keys, _)) = self.objects.remove(id) else { return };
        for key in keys {
            if let Some(ids) = self.by_key.get_mut(&key) {
                ids.retain(|other| **other != *id);
                if ids.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
    }

    /// Lets an object be found by a key, and gives the key as it is shared.
    fn file(&mut self, key: Key, id: &Arc<Id>) -> Arc<Key> {
        let key = self.by_key.get_key_value(&key).map_or_else(|| Arc::new(key), |(key, _)| key.clone());
        let ids = self.by_key.entry(key.clone()).or_default();
        if let Err(at) = ids.binary_search(id) {
            // Most keys have one object, for which `insert` alone would make room for four.
            ids.reserve_exact(1);
            ids.insert(at, id.clone());
        }
        key
    }
}

/// The reviews' side of an index.
pub struct Index<V>(Arc<RwLock<Entries<V>>>);

impl<V> Clone for Index<V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<V> fmt::Debug for Index<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Index").field("objects", &entries.objects.len()).finish()
    }
}

impl<V: Clone> Index<V> {
    /// What is found by this key, in order of name.
    #[must_use]
    pub fn get(&self, key: &Key) -> Vec<V> {
        // Nothing panics while it holds the lock; if it did, the entries would still be whole.
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let ids = entries.by_key.get(key).into_iter().flatten();
        ids.filter_map(|id| entries.objects.get(id)).map(|(_, value)| value.clone()).collect()
    }

    /// Whether the namespace has any object.
    #[must_use]
    pub fn any_in(&self, namespace: &str) -> bool {
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let first = entries.objects.range::<Id, _>((namespace.into(), "".into())..).next();
        first.is_some_and(|(id, _)| &*id.0 == namespace)
    }

    /// The first name under this key that is not `name`.
    #[must_use]
    pub fn other_than(&self, key: &Key, name: &str) -> Option<String> {
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut names = entries.by_key.get(key)?.iter().map(|id| &*id.1);
        names.find(|other| *other != name).map(str::to_owned)
    }
}

/// An index, and the observer that keeps it. `read` says what is kept of an object.
fn index<K, V>(read: impl Fn(&K) -> Option<Entry<V>> + Send + 'static) -> (Observer<K>, Index<V>)
where
    K: Resource,
    V: PartialEq + Send + Sync + 'static,
{
    let index = Index(Arc::new(RwLock::new(Entries::default())));
    let written = index.clone();
    // Filled while a watch lists anew, so that reviews see the old list until the new one is whole.
    let mut listed = Entries::default();
    let id = |o: &K| {
        let part = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        (part(&o.meta().namespace), part(&o.meta().name))
    };
    let observe = move |event: &Event<K>| {
        let now = || written.0.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Apply(object) => {
                let entry = read(object);
                now().put(id(object), entry);
            }
            Event::Delete(object) => now().put(id(object), None),
            Event::Init => listed = Entries::default(),
            Event::InitApply(object) => listed.put(id(object), read(object)),
            Event::InitDone => {
                let before = std::mem::replace(&mut *now(), std::mem::take(&mut listed));
                // Not under the lock: there may be thousands.
                drop(before);
            }
        }
    };
    (Box::new(observe), index)
}

/// Variants, by target and, where somebody chose their cost, by model.
#[must_use]
pub fn variant_index() -> (Observer<DynamicObject>, Index<OtherVariant>) {
    index(|object: &DynamicObject| {
        let namespace = object.metadata.namespace.as_deref()?;
        let variant = other(object)?;
        let mut keys = vec![Key::target(namespace, &variant.target)];
        keys.extend(sets_cost(&object.data).map(|model| Key::cost_of(namespace, model)));
        Some((keys, variant))
    })
}

/// HPAs that read this program's metric, by target.
#[must_use]
pub fn autoscaler_index() -> (Observer<HorizontalPodAutoscaler>, Index<MetricReader>) {
    index(|hpa: &HorizontalPodAutoscaler| {
        let namespace = hpa.metadata.namespace.as_deref()?;
        let (target, reader) = MetricReader::of_autoscaler(hpa)?;
        Some((vec![Key::target(namespace, &target)], reader))
    })
}

/// ScaledObjects that read this program's metric, by target.
#[must_use]
pub fn scaled_object_index() -> (Observer<DynamicObject>, Index<MetricReader>) {
    index(|object: &DynamicObject| {
        let namespace = object.metadata.namespace.as_deref()?;
        let (target, reader) =
            MetricReader::of_scaled_object(object.metadata.name.as_deref()?, &object.data)?;
        Some((vec![Key::target(namespace, &target)], reader))
    })
}

/// Without a copy of the whole object: its managed fields alone are often larger than the rest.
fn other(object: &DynamicObject) -> Option<OtherVariant> {
    let meta = &object.metadata;
    Some(OtherVariant {
        name: meta.name.clone()?,
        instance: meta.labels.as_ref().and_then(|l| l.get(INSTANCE_LABEL).cloned()),
        target: Target::of(&object.data)?,
        created: meta.creation_timestamp.as_ref().map(|t| match serde_json::to_value(t) {
            Ok(Value::String(text)) => text,
            _ => String::new(),
        }),
    })
}

#[cfg(test)]
mod tests;
