//! Watch caches by what reviews ask for. One writer, the watch task, keeps an index in step with each event; a review
//! touches only what concerns its object, however many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Resource;
use kube::core::DynamicObject;
use kube::runtime::watcher::Event;
use serde_json::Value;
use wva_crds::names::INSTANCE_LABEL;
use wva_rules::{MetricReader, OtherVariant, Target, sets_cost};

/// What objects are found by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// They name this workload. Versions of one group show the same objects.
    Target { namespace: String, group: String, kind: String, name: String },
    /// They are variants of this model with a cost that somebody chose.
    CostOf { namespace: String, model: String },
}

impl Key {
    pub(super) fn target(namespace: &str, target: &Target) -> Self {
        Self::Target {
            namespace: namespace.to_owned(),
            group: target.group().to_owned(),
            kind: target.kind.clone(),
            name: target.name.clone(),
        }
    }

    pub(super) fn cost_of(namespace: &str, model: &str) -> Self {
        Self::CostOf { namespace: namespace.to_owned(), model: model.to_owned() }
    }
}

/// Namespace and name.
type Id = (String, String);

/// What is kept of one object, and the keys it is found by.
type Entry<V> = (Vec<Key>, V);

#[derive(Debug, PartialEq)]
struct Entries<V> {
    objects: BTreeMap<Id, Entry<V>>,
    by_key: BTreeMap<Key, BTreeSet<Id>>,
}

impl<V> Default for Entries<V> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), by_key: BTreeMap::new() }
    }
}

impl<V> Entries<V> {
    /// Puts an object in place of what was known of it; `None` where it is found by nothing any more.
    fn put(&mut self, id: Id, entry: Option<Entry<V>>) {
        if let Some((keys, _)) = self.objects.remove(&id) {
            for key in keys {
                if let Some(ids) = self.by_key.get_mut(&key) {
                    ids.remove(&id);
                    if ids.is_empty() {
                        self.by_key.remove(&key);
                    }
                }
            }
        }
        if let Some(entry) = entry {
            for key in &entry.0 {
                self.by_key.entry(key.clone()).or_default().insert(id.clone());
            }
            self.objects.insert(id, entry);
        }
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
    pub(super) fn get(&self, key: &Key) -> Vec<V> {
        // Nothing panics while it holds the lock; if it did, the entries would still be whole.
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let ids = entries.by_key.get(key).into_iter().flatten();
        ids.filter_map(|id| entries.objects.get(id)).map(|(_, value)| value.clone()).collect()
    }

    /// Whether the namespace has any object.
    pub(super) fn any_in(&self, namespace: &str) -> bool {
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let first = entries.objects.range((namespace.to_owned(), String::new())..).next();
        first.is_some_and(|((found, _), _)| found == namespace)
    }

    /// The first name under this key that is not `name`.
    pub(super) fn other_than(&self, key: &Key, name: &str) -> Option<String> {
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        entries.by_key.get(key)?.iter().find(|(_, n)| n != name).map(|(_, n)| n.clone())
    }
}

/// The watch's side of an index: takes in each event, in order. There is one for each index.
pub type Observer<K> = Box<dyn FnMut(&Event<K>) + Send>;

/// An index, and the observer that keeps it. `read` says what is kept of an object.
fn index<K, V>(read: impl Fn(&K) -> Option<Entry<V>> + Send + 'static) -> (Observer<K>, Index<V>)
where
    K: Resource,
    V: Send + Sync + 'static,
{
    let index = Index(Arc::new(RwLock::new(Entries::default())));
    let written = index.clone();
    // Filled while a watch lists anew, so that reviews see the old list until the new one is whole.
    let mut listed = Entries::default();
    let id =
        |o: &K| (o.meta().namespace.clone().unwrap_or_default(), o.meta().name.clone().unwrap_or_default());
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
