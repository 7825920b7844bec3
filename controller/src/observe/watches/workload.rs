//! Cached fields of Deployments, StatefulSets and LeaderWorkerSets.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::{ApiResource, DynamicObject};
use kube::core::DynamicResourceScope;
use serde::Deserialize;
use serde_json::Value;
use wva_objects::pod::PodTemplate;
use wva_objects::servers::PodGroup;
use wva_objects::template::{Template, pod_group};
use wva_objects::{Owner, ReplicaTemplate};
use wva_runtime::cache::Projection;

use crate::model::demand::{PodDemand, ReplicaDemand, WorkerDemand};
use crate::model::keys::Replicas;
use crate::observe::pools::Labels;

/// Labels of a pod template that are kept: tenants may store a megabyte of them.
const MAX_LABELS: usize = 64;

/// The fields of a Deployment or StatefulSet that are read.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AppsWorkload {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    replicas: Option<i32>,
    template: PodTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    replicas: Option<i32>,
    ready_replicas: Option<i32>,
}

/// The kind is that of the watch.
impl Resource for AppsWorkload {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        kind.kind.as_str().into()
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        kind.group.as_str().into()
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        kind.version.as_str().into()
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        kind.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) uid: Box<str>,
    /// The workload is being deleted, and counts as deleted.
    pub(crate) is_terminating: bool,
    pub(crate) replicas: Replicas,
    /// Pod template. For a LeaderWorkerSet the template of the leader, with the GPUs of the whole group.
    pub(crate) template: Option<Template>,
    /// Pods of a replica of a LeaderWorkerSet. `None`: one pod.
    pub(crate) group: Option<PodGroup>,
    /// What one replica takes from ResourceQuotas.
    pub(crate) demand: Option<Arc<ReplicaDemand>>,
    /// Labels of the pods, which InferencePool selectors match.
    pub(crate) pod_labels: Labels,
    /// Owner of a StatefulSet, such as a LeaderWorkerSet.
    pub(crate) owner: Option<Box<Owner>>,
}

/// Replicas as the object states them.
struct ReportedReplicas {
    /// Replicas of the spec.
    requested: Option<i32>,
    /// Pods, by the status.
    created: Option<i32>,
    /// Ready pods, by the status.
    ready: Option<i32>,
}

impl Workload {
    fn new(
        meta: &ObjectMeta,
        ReportedReplicas { requested, created, ready }: ReportedReplicas,
        template: Option<Template>,
        pod_labels: Labels,
    ) -> Self {
        Self {
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            is_terminating: meta.deletion_timestamp.is_some(),
            replicas: Replicas {
                // The default of spec.replicas is 1.
                current: u32::try_from(requested.unwrap_or(1)).unwrap_or(0),
                created: u32::try_from(created.unwrap_or(0)).unwrap_or(0),
                ready: u32::try_from(ready.unwrap_or(0)).unwrap_or(0),
            },
            template,
            group: None,
            demand: None,
            pod_labels,
            owner: None,
        }
    }

    /// Whether no cycle is needed. Only creation and deletion start one; replicas change too often.
    fn is_same_object(&self, other: &Self) -> bool {
        (&self.uid, self.is_terminating) == (&other.uid, other.is_terminating)
    }

    pub(crate) fn deployments() -> Projection<AppsWorkload, Self> {
        Projection { read: Self::from_apps, is_same: Some(Self::is_same_object) }
    }

    pub(crate) fn stateful_sets() -> Projection<AppsWorkload, Self> {
        let read = |set: &AppsWorkload| Self {
            owner: Owner::from_meta(&set.metadata).map(Box::new),
            ..Self::from_apps(set)
        };
        Projection { read, is_same: Some(Self::is_same_object) }
    }

    fn from_apps(workload: &AppsWorkload) -> Self {
        let AppsWorkload { metadata, spec: Spec { replicas, template }, status } = workload;
        let reported =
            ReportedReplicas { requested: *replicas, created: status.replicas, ready: status.ready_replicas };
        let labels = template.metadata.iter().flat_map(|meta| meta.labels.iter().flatten());
        let pod = template.spec.as_ref();
        let demand = pod.map(|pod| Arc::new(ReplicaDemand { leader: PodDemand::new(pod), workers: None }));
        Self { demand, ..Self::new(metadata, reported, pod.map(Template::new), pod_labels(labels)) }
    }

    pub(crate) fn leader_worker_sets() -> Projection<DynamicObject, Self> {
        let read = |set: &DynamicObject| {
            let number = |path: &str| set.data.pointer(path).and_then(Value::as_i64);
            let replicas = |path: &str| number(path).and_then(|n| i32::try_from(n).ok());
            let reported = ReportedReplicas {
                requested: replicas("/spec/replicas"),
                created: replicas("/status/replicas"),
                ready: replicas("/status/readyReplicas"),
            };
            let replica = ReplicaTemplate::from_workload(&set.data).ok();
            let replica = replica.as_ref();
            let labels = replica.map(|r| pod_labels(&r.labels)).unwrap_or_default();
            let workload = Self::new(&set.metadata, reported, replica.map(Template::for_replica), labels);
            Self { group: replica.and_then(pod_group), demand: replica.map(group_demand), ..workload }
        };
        Projection { read, is_same: Some(Self::is_same_object) }
    }
}

fn group_demand(replica: &ReplicaTemplate) -> Arc<ReplicaDemand> {
    let workers = replica.workers.as_ref().map(|workers| {
        let count = u32::try_from(workers.count).unwrap_or(u32::MAX);
        Box::new(WorkerDemand { pod: PodDemand::new(&workers.pod), count })
    });
    Arc::new(ReplicaDemand { leader: PodDemand::new(&replica.leader), workers })
}

fn pod_labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Labels {
    let labels = labels.into_iter().take(MAX_LABELS);
    Labels::new(labels.map(|(key, value)| (key, value.as_str())))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
    use kube::runtime::watcher::Event;
    use serde_json::json;
    use wva_objects::servers::ServingPods;
    use wva_runtime::cache::Writer;

    use super::*;

    fn deployment(uid: &str, replicas: u32, deleted: Option<&str>) -> AppsWorkload {
        serde_json::from_value(json!({
            "metadata": {"name": "d", "namespace": "ns", "uid": uid, "deletionTimestamp": deleted},
            "spec": {"replicas": replicas, "selector": {}, "template": {}},
        }))
        .unwrap()
    }

    #[test]
    fn each_kind_has_its_path() {
        for (kind, plural) in [
            (ApiResource::erase::<Deployment>(&()), "deployments"),
            (ApiResource::erase::<StatefulSet>(&()), "statefulsets"),
        ] {
            let path = AppsWorkload::url_path(&kind, Some("ns"));
            assert_eq!(path, format!("/apis/apps/v1/namespaces/ns/{plural}"));
        }
    }

    #[test]
    fn creation_and_deletion_start_a_cycle_but_scaling_does_not() {
        let mut writer = Writer::new(Workload::deployments());
        let mut apply = |d: AppsWorkload| writer.apply(&Event::Apply(d));
        assert!(apply(deployment("1", 2, None)));
        assert!(!apply(deployment("1", 3, None)));
        assert!(apply(deployment("1", 3, Some("2026-01-01T00:00:00Z"))), "its deletion started");
        assert!(apply(deployment("2", 3, None)), "another object of the same name");
    }

    #[test]
    fn caches_replicas_that_start_no_cycle() {
        let mut writer = Writer::new(Workload::deployments());
        let cache = writer.reader();
        for replicas in [2, 3] {
            writer.apply(&Event::Apply(deployment("1", replicas, None)));
            assert_eq!(cache.get("ns", "d").map(|w| w.replicas.current), Some(replicas));
        }
    }

    fn group(spec: &Value) -> Workload {
        let object = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
            "metadata": {"name": "l", "namespace": "ns", "uid": "1"}, "spec": spec, "status": {"readyReplicas": 1}});
        (Workload::leader_worker_sets().read)(&serde_json::from_value(object).unwrap())
    }

    fn pod(gpus: u32, args: &[&str]) -> Value {
        let container = json!({"name": "vllm", "image": "vllm", "args": args,
            "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}});
        let selector = json!({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"});
        json!({"spec": {"nodeSelector": selector, "containers": [container]}})
    }

    #[test]
    fn group_is_one_replica_with_the_gpus_of_all_its_pods() {
        let (leader, worker) = (pod(2, &["--max-num-seqs=1"]), pod(8, &["--max-num-seqs=2"]));
        for (template, gpus, arg) in [
            (json!({"size": 4, "leaderTemplate": leader, "workerTemplate": worker}), 26, "--max-num-seqs=1"),
            (json!({"size": 4, "workerTemplate": worker}), 32, "--max-num-seqs=2"),
            (json!({"leaderTemplate": leader, "workerTemplate": worker}), 2, "--max-num-seqs=1"),
            (json!({"size": 1, "workerTemplate": worker}), 8, "--max-num-seqs=2"),
        ] {
            let workload = group(&json!({"replicas": 3, "leaderWorkerTemplate": template}));
            assert_eq!((workload.replicas.current, workload.replicas.ready), (3, 1));
            let found = workload.template.unwrap();
            assert_eq!((found.gpus, found.engine_args()), (gpus, vec![arg.to_owned()]), "{template}");
            assert_eq!(found.accelerator(None).as_deref(), Some("H100"));
        }
    }

    #[test]
    fn workers_tell_which_pods_of_a_group_serve() {
        let (tensor, hybrid) =
            (pod(8, &["vllm serve m --tensor-parallel-size=16"]), pod(8, &["--data-parallel-hybrid-lb"]));
        let (every, leader) = (ServingPods::Every, ServingPods::Leader);
        for (template, group) in [
            (json!({"size": 2, "workerTemplate": hybrid}), Some((2, every))),
            (json!({"size": 2, "workerTemplate": tensor}), Some((2, leader))),
            // The flags of a leader alone mean nothing.
            (json!({"size": 4, "leaderTemplate": hybrid, "workerTemplate": tensor}), Some((4, leader))),
            (json!({"size": 4, "leaderTemplate": tensor, "workerTemplate": hybrid}), Some((4, every))),
            (json!({"size": 1, "workerTemplate": hybrid}), None),
            (json!({"workerTemplate": hybrid}), None),
        ] {
            let found = self::group(&json!({"leaderWorkerTemplate": template})).group;
            assert_eq!(found.map(|group| (group.pods, group.serving)), group, "{template}");
        }
    }

    #[test]
    fn reads_incomplete_and_invalid_leader_worker_sets() {
        let workload = group(&json!({"leaderWorkerTemplate": {"workerTemplate": pod(1, &[])}}));
        assert_eq!((workload.replicas.current, workload.template.map(|t| t.gpus)), (1, Some(1)));
        let size = json!({"size": u64::MAX, "workerTemplate": pod(8, &[])});
        assert_eq!(group(&json!({"leaderWorkerTemplate": size})).template.map(|t| t.gpus), Some(u32::MAX));
        let workload = group(&json!({"replicas": "three", "leaderWorkerTemplate": {"workerTemplate": 7}}));
        assert_eq!((workload.replicas.current, workload.template), (1, None));
    }
}
