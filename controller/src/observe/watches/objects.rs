//! Cached fields of ReplicaSets, autoscalers and Namespaces.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{DynamicObject, PartialObjectMeta};
use serde_json::Value;
use wva_crds::names::{CONFIG_ENABLED_LABEL, EXCLUDE_ANNOTATION, INSTANCE_LABEL};
use wva_runtime::cache::Projection;

use crate::model::keys::{WorkloadKey, qualified_kind};
use crate::model::limits::Limits;

#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
}

impl Owner {
    pub(crate) fn from_meta(meta: &ObjectMeta) -> Option<Self> {
        let owner = meta.owner_references.iter().flatten().find(|o| o.controller == Some(true))?;
        Some(Self {
            kind: qualified_kind(Some(&owner.api_version), &owner.kind).into(),
            name: owner.name.as_str().into(),
            uid: owner.uid.as_str().into(),
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct OwnedSet {
    pub(crate) uid: Box<str>,
    pub(crate) owner: Option<Owner>,
}

impl OwnedSet {
    pub(crate) fn replica_sets() -> Projection<PartialObjectMeta<ReplicaSet>, Self> {
        let read = |set: &PartialObjectMeta<ReplicaSet>| Self {
            uid: set.metadata.uid.as_deref().unwrap_or_default().into(),
            owner: Owner::from_meta(&set.metadata),
        };
        Projection { read, is_same: None }
    }
}

/// Cached fields of an HPA or ScaledObject.
#[derive(Clone, Debug)]
pub(crate) struct Autoscaler {
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) limits: Limits,
    /// Replicas that an HPA asks for; `None` before its first status, and for a ScaledObject.
    pub(crate) desired: Option<u32>,
    /// Whether KEDA created the HPA.
    pub(crate) is_from_keda: bool,
}

impl Autoscaler {
    /// Kind that the user wrote.
    pub(crate) const fn user_kind(&self) -> &'static str {
        if self.is_from_keda { "ScaledObject" } else { "HorizontalPodAutoscaler" }
    }

    /// Key of the workload that it scales.
    pub(crate) fn workload(&self, namespace: &str) -> WorkloadKey {
        let (kind, name) = (self.kind.to_string(), self.name.to_string());
        WorkloadKey { namespace: namespace.to_owned(), kind, name }
    }

    pub(crate) fn hpas() -> Projection<HorizontalPodAutoscaler, Self> {
        let read = |hpa: &HorizontalPodAutoscaler| {
            let target = &hpa.spec.scale_target_ref;
            Self {
                kind: qualified_kind(target.api_version.as_deref(), &target.kind).into(),
                name: target.name.as_str().into(),
                limits: Limits::from_hpa(hpa),
                desired: hpa.status.as_ref().and_then(|s| u32::try_from(s.desired_replicas).ok()),
                is_from_keda: hpa.owner_references().iter().any(|owner| owner.kind == "ScaledObject"),
            }
        };
        Projection { read, is_same: None }
    }

    pub(crate) fn scaled_objects() -> Projection<DynamicObject, Self> {
        let read = |object: &DynamicObject| {
            let spec = object.data.get("spec").unwrap_or(&Value::Null);
            let target =
                |field: &str| spec.pointer(&format!("/scaleTargetRef/{field}")).and_then(Value::as_str);
            // KEDA's default.
            let kind = target("kind").filter(|k| !k.is_empty()).unwrap_or("Deployment");
            Self {
                kind: qualified_kind(target("apiVersion").filter(|v| !v.is_empty()), kind).into(),
                name: target("name").unwrap_or_default().into(),
                limits: Limits::from_scaled_object(spec),
                desired: None,
                is_from_keda: false,
            }
        };
        Projection { read, is_same: None }
    }
}

/// Cached labels and annotations of a Namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Its variants are not managed.
    pub excluded: bool,
    /// Instance label.
    pub instance: Option<Box<str>>,
    /// Opts in to local ConfigMaps.
    pub config_enabled: Option<Box<str>>,
}

impl NamespaceFacts {
    pub(crate) fn namespaces() -> Projection<PartialObjectMeta<Namespace>, Self> {
        let read = |object: &PartialObjectMeta<Namespace>| {
            let label = |key: &str| object.labels().get(key).map(|value| value.as_str().into());
            Self {
                excluded: object.annotations().get(EXCLUDE_ANNOTATION).is_some_and(|v| v == "true"),
                instance: label(INSTANCE_LABEL),
                config_enabled: label(CONFIG_ENABLED_LABEL),
            }
        };
        Projection { read, is_same: Some(Self::eq) }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use wva_runtime::cache::Writer;

    #[test]
    fn scaled_object_targets_deployment_by_default() {
        let read = |target: Value| {
            let object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": "s"},
                "spec": {"scaleTargetRef": target}});
            let autoscaler = (Autoscaler::scaled_objects().read)(&serde_json::from_value(object).unwrap());
            (autoscaler.kind.to_string(), autoscaler.name.to_string())
        };
        let of = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
        assert_eq!(read(json!({"name": "d"})), of("Deployment", "d"));
        assert_eq!(
            read(json!({"name": "s", "kind": "StatefulSet", "apiVersion": "apps/v1"})),
            of("StatefulSet", "s")
        );
        let group =
            json!({"name": "l", "kind": "LeaderWorkerSet", "apiVersion": "leaderworkerset.x-k8s.io/v1"});
        assert_eq!(read(group), of("LeaderWorkerSet.leaderworkerset.x-k8s.io", "l"));
        assert_eq!(read(Value::Null), of("Deployment", ""));
    }

    #[test]
    fn reads_namespace_labels_and_annotations() {
        let mut writer = Writer::new(NamespaceFacts::namespaces());
        let cache = writer.reader();
        let mut apply = |labels: Value, annotations: Value| {
            let metadata = json!({"name": "n", "labels": labels, "annotations": annotations});
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            let is_change = writer.apply(&Event::Apply(serde_json::from_value(object).unwrap()));
            (is_change, cache.get("", "n").unwrap())
        };
        assert_eq!(apply(json!({}), json!({})), (true, NamespaceFacts::default()));
        assert!(!apply(json!({"team": "a"}), json!({"note": "b"})).0, "these are not read");
        let excluded = NamespaceFacts { excluded: true, ..NamespaceFacts::default() };
        assert_eq!(apply(json!({}), json!({EXCLUDE_ANNOTATION: "true"})), (true, excluded));
        let labelled = NamespaceFacts {
            excluded: false,
            instance: Some("blue".into()),
            config_enabled: Some("true".into()),
        };
        let labels = json!({INSTANCE_LABEL: "blue", CONFIG_ENABLED_LABEL: "true"});
        assert_eq!(apply(labels, json!({EXCLUDE_ANNOTATION: "yes"})), (true, labelled));
    }
}
