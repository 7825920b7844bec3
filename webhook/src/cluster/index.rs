//! Indexed watch caches for reviews.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::Resource;
use kube::core::DynamicObject;
use wva_crds::names::INSTANCE_LABEL;
use wva_objects::{MetricReader, Target};
use wva_rules::{OtherVariant, model_with_own_cost};
use wva_runtime::Cache;
use wva_runtime::cache::{Indexed, Writer};
use wva_runtime::watch::Observer;

/// Key by which reviews find objects of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// Objects that target this workload. The version is not part of the key: versions of a group share objects.
    Target {
        /// API group of the workload.
        group: Box<str>,
        /// Kind of the workload.
        kind: Box<str>,
        /// Name of the workload.
        name: Box<str>,
    },
    /// Variants with a cost that differs from the default.
    ModelWithOwnCost(Box<str>),
}

impl Key {
    /// Objects that target this workload.
    #[must_use]
    pub fn for_target(target: &Target) -> Self {
        Self::Target {
            group: target.group().into(),
            kind: target.kind.as_str().into(),
            name: target.name.as_str().into(),
        }
    }
}

/// Watch cache that reviews read.
pub type Index<V> = Cache<V, Key>;

fn new_index<K, V>(
    read: impl Fn(&K) -> Option<Indexed<V, Key>> + Send + Sync + 'static,
) -> (Observer<K>, Index<V>)
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

/// Index by target, and by model if the cost differs from the default.
#[must_use]
pub fn variant_index() -> (Observer<DynamicObject>, Index<OtherVariant>) {
    new_index(|object: &DynamicObject| {
        // A copy of the object would include its large managed fields.
        let meta = &object.metadata;
        let instance = meta.labels.as_ref().and_then(|labels| labels.get(INSTANCE_LABEL));
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        let name = meta.name.as_deref()?;
        let variant = OtherVariant::new(name, instance.map(String::as_str), created, &object.data)?;
        let mut keys = vec![Key::for_target(&variant.target)];
        keys.extend(model_with_own_cost(&object.data).map(|model| Key::ModelWithOwnCost(model.into())));
        Some(Indexed { value: variant, keys })
    })
}

/// HPAs that read wva's metric, by target.
#[must_use]
pub fn autoscaler_index() -> (Observer<HorizontalPodAutoscaler>, Index<MetricReader>) {
    new_index(|hpa| MetricReader::from_hpa(hpa).map(|(target, reader)| with_target_key(&target, reader)))
}

/// ScaledObjects that read wva's metric, by target.
#[must_use]
pub fn scaled_object_index() -> (Observer<DynamicObject>, Index<MetricReader>) {
    new_index(|object: &DynamicObject| {
        let found = MetricReader::from_scaled_object(object.metadata.name.as_deref()?, &object.data);
        found.map(|(target, reader)| with_target_key(&target, reader))
    })
}

fn with_target_key(target: &Target, reader: MetricReader) -> Indexed<MetricReader, Key> {
    Indexed { value: reader, keys: vec![Key::for_target(target)] }
}

#[cfg(test)]
mod tests;
