//! Cached fields of ReplicaSets and Namespaces.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::PartialObjectMeta;
use wva_crds::names::{CONFIG_ENABLED_LABEL, EXCLUDE_ANNOTATION, INSTANCE_LABEL, PICKER_TOKEN_LABEL};
use wva_objects::Owner;
use wva_runtime::cache::Projection;

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

/// Cached labels and annotations of a Namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Variants of the namespace are not managed.
    pub excluded: bool,
    /// Instance label.
    pub instance: Option<Box<str>>,
    /// Label that opts in to local ConfigMaps.
    pub config_enabled: Option<Box<str>>,
    /// Endpoint pickers of the namespace get a token.
    pub picker_token: bool,
}

impl NamespaceFacts {
    pub(crate) fn namespaces() -> Projection<PartialObjectMeta<Namespace>, Self> {
        let read = |object: &PartialObjectMeta<Namespace>| {
            let label = |key: &str| object.labels().get(key).map(|value| value.as_str().into());
            Self {
                excluded: object.annotations().get(EXCLUDE_ANNOTATION).is_some_and(|v| v == "true"),
                instance: label(INSTANCE_LABEL),
                config_enabled: label(CONFIG_ENABLED_LABEL),
                picker_token: object.labels().get(PICKER_TOKEN_LABEL).is_some_and(|v| v == "true"),
            }
        };
        Projection { read, is_same: Some(Self::eq) }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};
    use wva_runtime::cache::Writer;

    use super::*;

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
            picker_token: true,
        };
        let labels =
            json!({INSTANCE_LABEL: "blue", CONFIG_ENABLED_LABEL: "true", PICKER_TOKEN_LABEL: "true"});
        assert_eq!(apply(labels, json!({EXCLUDE_ANNOTATION: "yes"})), (true, labelled));
    }
}
