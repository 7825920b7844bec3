//! What a review knows of the cluster. It comes from watch caches alone: a review makes no API call, so no slow
//! apiserver can hold up an answer that the apiserver itself waits for.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt as _;
use kube::core::DynamicObject;
use kube::runtime::reflector::Store;
use serde_json::Value;
use wva_crds::names::INSTANCE_LABEL;
use wva_rules::{OtherVariant, Target};

/// The facts of the cluster that the rules may ask for.
pub trait ClusterFacts: Send + Sync {
    /// The caches hold everything the other answers need.
    fn synced(&self) -> bool;
    /// The variants of a namespace, of every instance.
    fn variants(&self, namespace: &str) -> Vec<OtherVariant>;
    /// Whether the workload exists; `None` where its kind is not watched.
    fn target_exists(&self, namespace: &str, target: &Target) -> Option<bool>;
    /// Whether the namespace is this instance's own: it carries the instance's label, or it is the one namespace that
    /// is watched.
    fn namespace_owned(&self, namespace: &str) -> bool;
    /// Whether namespace-local config maps of the namespace are read; `None` where nobody can tell.
    fn config_tracked(&self, _namespace: &str) -> Option<bool> {
        None
    }
    /// Whether the accelerator can be told from the workload; `None` where nobody looks.
    fn accelerator_derivable(&self, _namespace: &str, _target: &Target) -> Option<bool> {
        None
    }
}

/// Answers [`ClusterFacts::target_exists`] from whatever caches of workloads the caller keeps.
pub type TargetLookup = Arc<dyn Fn(&str, &Target) -> Option<bool> + Send + Sync>;
/// Answers [`ClusterFacts::namespace_owned`] for a namespace.
pub type OwnedLookup = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Facts from reflector stores. Variants are cached as [`DynamicObject`], so that an object that breaks today's
/// schema never stops the watch.
#[derive(Clone)]
pub struct StoreFacts {
    /// All `VariantAutoscaling`s this process watches.
    pub variants: Store<DynamicObject>,
    /// Which workloads exist; `None` where no workloads are watched.
    pub targets: Option<TargetLookup>,
    /// Which namespaces are the instance's own.
    pub owned: OwnedLookup,
}

impl fmt::Debug for StoreFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreFacts").field("variants", &self.variants.len()).finish_non_exhaustive()
    }
}

impl ClusterFacts for StoreFacts {
    fn synced(&self) -> bool {
        matches!(self.variants.wait_until_ready().now_or_never(), Some(Ok(())))
    }

    fn variants(&self, namespace: &str) -> Vec<OtherVariant> {
        let here = |o: &&Arc<DynamicObject>| o.metadata.namespace.as_deref() == Some(namespace);
        self.variants.state().iter().filter(here).filter_map(|o| other(o)).collect()
    }

    fn target_exists(&self, namespace: &str, target: &Target) -> Option<bool> {
        self.targets.as_ref().and_then(|exists| exists(namespace, target))
    }

    fn namespace_owned(&self, namespace: &str) -> bool {
        (self.owned)(namespace)
    }
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
mod tests {
    use kube::core::ApiResource;
    use kube::runtime::{reflector, watcher::Event};
    use serde_json::json;

    use super::*;

    #[test]
    fn stores_answer_for_one_namespace_and_survive_objects_of_old_releases() {
        let resource = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
            "llmd.ai",
            "v1alpha1",
            "VariantAutoscaling",
        ));
        let mut writer = reflector::store::Writer::new(resource);
        let facts = StoreFacts {
            variants: writer.as_reader(),
            targets: None,
            owned: Arc::new(|namespace| namespace == "mine"),
        };
        assert!(!facts.synced(), "nothing was listed yet");
        let object = |name: &str, namespace: &str, spec: Value| -> DynamicObject {
            let meta = json!({"name": name, "namespace": namespace, "labels": {INSTANCE_LABEL: "a"},
                "creationTimestamp": "2026-01-02T03:04:05Z"});
            serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
        };
        writer.apply_watcher_event(&Event::Init);
        for listed in [
            object("x", "ns", json!({"scaleTargetRef": {"name": "llama"}})),
            object("elsewhere", "other", json!({"scaleTargetRef": {"name": "llama"}})),
            object("broken", "ns", json!({"scaleTargetRef": 7})),
        ] {
            writer.apply_watcher_event(&Event::InitApply(listed));
        }
        writer.apply_watcher_event(&Event::InitDone);
        assert!(facts.synced());
        let target =
            Target { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "llama".into() };
        let want = OtherVariant {
            name: "x".into(),
            instance: Some("a".into()),
            target: target.clone(),
            created: Some("2026-01-02T03:04:05Z".into()),
        };
        assert_eq!(facts.variants("ns"), [want]);
        assert_eq!(facts.target_exists("ns", &target), None);
        assert!(facts.namespace_owned("mine") && !facts.namespace_owned("ns"));
    }
}
