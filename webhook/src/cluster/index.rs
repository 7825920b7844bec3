//! Watch caches by what reviews ask for: a review touches only what concerns its object, however many there are.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Resource;
use kube::core::DynamicObject;
use wva_crds::names::INSTANCE_LABEL;
use wva_rules::{MetricReader, OtherVariant, Target, sets_cost};
use wva_runtime::Cache;
use wva_runtime::cache::Writer;
use wva_runtime::watch::Observer;

/// What objects of a namespace are found by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// They name this workload. Versions of one group show the same objects.
    Target {
        /// API group of the workload.
        group: Box<str>,
        /// Its kind.
        kind: Box<str>,
        /// Its name.
        name: Box<str>,
    },
    /// They are variants of this model (`spec.modelID`) with a cost that somebody chose.
    CostOf(Box<str>),
}

impl Key {
    /// Objects that name this workload.
    #[must_use]
    pub fn target(target: &Target) -> Self {
        Self::Target {
            group: target.group().into(),
            kind: target.kind.as_str().into(),
            name: target.name.as_str().into(),
        }
    }
}

/// A watch cache that reviews read.
pub type Index<V> = Cache<V, Key>;

/// An index, and the observer that fills it.
fn index<K, V>(read: impl Fn(&K) -> Option<(V, Vec<Key>)> + Send + Sync + 'static) -> (Observer<K>, Index<V>)
where
    K: Resource + 'static,
    V: Send + Sync + 'static,
{
    let mut writer = Writer::indexed(read);
    let index = writer.reader();
    let observe = move |event: &_| {
        writer.apply(event);
    };
    (Box::new(observe), index)
}

/// Variants, by target and, where somebody chose their cost, by model.
#[must_use]
pub fn variant_index() -> (Observer<DynamicObject>, Index<OtherVariant>) {
    index(|object: &DynamicObject| {
        // Without a copy of the whole object: its managed fields alone are often larger than the rest.
        let meta = &object.metadata;
        let instance = meta.labels.as_ref().and_then(|labels| labels.get(INSTANCE_LABEL));
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        let name = meta.name.as_deref()?;
        let variant = OtherVariant::new(name, instance.map(String::as_str), created, &object.data)?;
        let mut keys = vec![Key::target(&variant.target)];
        keys.extend(sets_cost(&object.data).map(|model| Key::CostOf(model.into())));
        Some((variant, keys))
    })
}

/// HPAs that read this program's metric, by target.
#[must_use]
pub fn autoscaler_index() -> (Observer<HorizontalPodAutoscaler>, Index<MetricReader>) {
    index(|hpa| MetricReader::of_autoscaler(hpa).map(by_target))
}

/// ScaledObjects that read this program's metric, by target.
#[must_use]
pub fn scaled_object_index() -> (Observer<DynamicObject>, Index<MetricReader>) {
    index(|object: &DynamicObject| {
        MetricReader::of_scaled_object(object.metadata.name.as_deref()?, &object.data).map(by_target)
    })
}

fn by_target((target, reader): (Target, MetricReader)) -> (MetricReader, Vec<Key>) {
    (reader, vec![Key::target(&target)])
}

#[cfg(test)]
mod tests;
