//! What the caches keep of the objects of Kubernetes itself: exactly what the engine and reviews read. Who needs more
//! of an object adds a field here.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Namespace, Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::PartialObjectMeta;
use wva_crds::names::{CONFIG_ENABLED_LABEL, EXCLUDE_ANNOTATION, INSTANCE_LABEL};

use super::cache::Kind;
use crate::workloads::{HpaLimits, Replicas, demanded, limits, qualified};

/// A Deployment or StatefulSet.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    uid: Box<str>,
    /// It waits for its dependants to be deleted, which counts as gone.
    pub(crate) leaving: bool,
    pub(crate) replicas: Replicas,
    /// The accelerator that its pods can only run on, where its template says one.
    pub(crate) accelerator: Option<Box<str>>,
}

impl Workload {
    fn new(
        meta: &ObjectMeta,
        asked: Option<i32>,
        ready: Option<i32>,
        template: Option<&PodTemplateSpec>,
    ) -> Self {
        let accelerator = template.and_then(|t| t.spec.as_ref()).and_then(demanded);
        Self {
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            leaving: meta.deletion_timestamp.is_some(),
            replicas: Replicas {
                // Kubernetes runs one replica where spec.replicas is left out.
                current: u32::try_from(asked.unwrap_or(1)).unwrap_or(0),
                ready: u32::try_from(ready.unwrap_or(0)).unwrap_or(0),
            },
            accelerator: accelerator.map(Into::into),
        }
    }

    /// Only that it comes or goes is reason for a cycle: its replicas change all the time.
    fn same(&self, other: &Self) -> bool {
        (&self.uid, self.leaving) == (&other.uid, other.leaving)
    }

    pub(crate) fn deployments() -> Kind<Deployment, Self> {
        let read = |d: &Deployment| {
            let (spec, status) = (d.spec.as_ref(), d.status.as_ref());
            let (asked, ready) = (spec.and_then(|s| s.replicas), status.and_then(|s| s.ready_replicas));
            Self::new(&d.metadata, asked, ready, spec.map(|s| &s.template))
        };
        Kind { read, same: Some(Self::same) }
    }

    pub(crate) fn stateful_sets() -> Kind<StatefulSet, Self> {
        let read = |set: &StatefulSet| {
            let (spec, status) = (set.spec.as_ref(), set.status.as_ref());
            let (asked, ready) = (spec.and_then(|s| s.replicas), status.and_then(|s| s.ready_replicas));
            Self::new(&set.metadata, asked, ready, spec.map(|s| &s.template))
        };
        Kind { read, same: Some(Self::same) }
    }
}

/// The controller an object belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
}

impl Owner {
    fn of(meta: &ObjectMeta) -> Option<Self> {
        let owner = meta.owner_references.iter().flatten().find(|o| o.controller == Some(true))?;
        Some(Self {
            kind: owner.kind.as_str().into(),
            name: owner.name.as_str().into(),
            uid: owner.uid.as_str().into(),
        })
    }
}

/// A ReplicaSet, for what stands behind it.
#[derive(Clone, Debug)]
pub(crate) struct OwnedSet {
    pub(crate) uid: Box<str>,
    pub(crate) owner: Option<Owner>,
}

impl OwnedSet {
    pub(crate) fn replica_sets() -> Kind<PartialObjectMeta<ReplicaSet>, Self> {
        let read = |set: &PartialObjectMeta<ReplicaSet>| Self {
            uid: set.metadata.uid.as_deref().unwrap_or_default().into(),
            owner: Owner::of(&set.metadata),
        };
        Kind { read, same: None }
    }
}

/// A pod, for what stands behind it, and its age.
#[derive(Clone, Debug)]
pub(crate) struct OwnedPod {
    pub(crate) owner: Option<Owner>,
    /// Its creation; `None` only for objects no API server wrote.
    pub(crate) created: Option<Timestamp>,
    /// It is being deleted.
    pub(crate) leaving: bool,
}

impl OwnedPod {
    pub(crate) fn pods() -> Kind<PartialObjectMeta<Pod>, Self> {
        let read = |pod: &PartialObjectMeta<Pod>| Self {
            owner: Owner::of(&pod.metadata),
            created: pod.creation_timestamp().map(|t| t.0),
            leaving: pod.metadata.deletion_timestamp.is_some(),
        };
        Kind { read, same: None }
    }
}

/// An HPA: what it scales, and how far.
#[derive(Clone, Debug)]
pub(crate) struct Autoscaler {
    /// Kind of the workload, qualified.
    pub(crate) kind: Box<str>,
    /// Name of the workload.
    pub(crate) name: Box<str>,
    pub(crate) limits: HpaLimits,
}

impl Autoscaler {
    pub(crate) fn hpas() -> Kind<HorizontalPodAutoscaler, Self> {
        let read = |hpa: &HorizontalPodAutoscaler| {
            let target = &hpa.spec.scale_target_ref;
            Self {
                kind: qualified(target.api_version.as_deref(), &target.kind).into(),
                name: target.name.as_str().into(),
                limits: limits(hpa),
            }
        };
        Kind { read, same: None }
    }
}

/// A Namespace: what its labels and annotations mean to this program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Nothing of it is managed.
    pub excluded: bool,
    /// Its instance label.
    pub instance: Option<Box<str>>,
    /// Its label that opts in to config maps of its own.
    pub config_enabled: Option<Box<str>>,
}

impl NamespaceFacts {
    pub(crate) fn namespaces() -> Kind<PartialObjectMeta<Namespace>, Self> {
        let read = |object: &PartialObjectMeta<Namespace>| {
            let label = |key: &str| object.labels().get(key).map(|value| value.as_str().into());
            Self {
                excluded: object.annotations().get(EXCLUDE_ANNOTATION).is_some_and(|v| v == "true"),
                instance: label(INSTANCE_LABEL),
                config_enabled: label(CONFIG_ENABLED_LABEL),
            }
        };
        Kind { read, same: Some(Self::eq) }
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::watches::cache::Writer;

    fn deployment(uid: &str, replicas: u32, deleted: Option<&str>) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "d", "namespace": "ns", "uid": uid, "deletionTimestamp": deleted},
            "spec": {"replicas": replicas, "selector": {}, "template": {}},
        }))
        .unwrap()
    }

    #[test]
    fn a_workload_asks_for_a_cycle_when_it_comes_or_goes_and_not_when_it_scales() {
        let mut writer = Writer::new(Workload::deployments());
        let mut take_in = |d: Deployment| writer.take_in(&Event::Apply(d));
        assert!(take_in(deployment("1", 2, None)));
        assert!(!take_in(deployment("1", 3, None)));
        assert!(take_in(deployment("1", 3, Some("2026-01-01T00:00:00Z"))), "its deletion begins");
        assert!(take_in(deployment("2", 3, None)), "another of the same name");
    }

    #[test]
    fn the_latest_figures_of_a_workload_are_kept_though_they_ask_for_no_cycle() {
        let mut writer = Writer::new(Workload::deployments());
        let cache = writer.reader();
        for replicas in [2, 3] {
            writer.take_in(&Event::Apply(deployment("1", replicas, None)));
            assert_eq!(cache.get("ns", "d").map(|w| w.replicas.current), Some(replicas));
        }
    }

    #[test]
    fn a_namespace_is_what_its_labels_and_annotations_say() {
        let mut writer = Writer::new(NamespaceFacts::namespaces());
        let cache = writer.reader();
        let mut show = |labels: Value, annotations: Value| {
            let metadata = json!({"name": "n", "labels": labels, "annotations": annotations});
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            let concerns = writer.take_in(&Event::Apply(serde_json::from_value(object).unwrap()));
            (concerns, cache.get("", "n").unwrap())
        };
        assert_eq!(show(json!({}), json!({})), (true, NamespaceFacts::default()));
        assert!(!show(json!({"team": "a"}), json!({"note": "b"})).0, "nobody reads these");
        let excluded = NamespaceFacts { excluded: true, ..NamespaceFacts::default() };
        assert_eq!(show(json!({}), json!({EXCLUDE_ANNOTATION: "true"})), (true, excluded));
        let labelled = NamespaceFacts {
            excluded: false,
            instance: Some("blue".into()),
            config_enabled: Some("true".into()),
        };
        let labels = json!({INSTANCE_LABEL: "blue", CONFIG_ENABLED_LABEL: "true"});
        assert_eq!(show(labels, json!({EXCLUDE_ANNOTATION: "yes"})), (true, labelled));
    }
}
