//! Workloads that variants refer to.

use std::collections::BTreeMap;

use serde_json::Value;
use wva_objects::template::Template;
use wva_objects::{ReplicaTemplate, Target, WorkloadKey, api_group, qualified_kind};

use super::cluster::{Cluster, ListError, ObjectId, WORKLOADS, id, items, number, text};
use super::gpus::{ClaimTemplates, GpuRequests};

#[derive(Default)]
pub(super) struct Workloads {
    all: BTreeMap<WorkloadKey, Value>,
    pub(super) unreadable: Vec<(&'static str, ListError)>,
}

pub(super) enum WorkloadLookup<'a> {
    Found(&'a Value),
    NotFound,
    Unreadable(&'a ListError),
    UnsupportedKind,
}

impl Workloads {
    /// A kind that is not installed has no workloads.
    pub(super) async fn read(cluster: &Cluster) -> Self {
        let mut workloads = Self::default();
        for kind in WORKLOADS {
            match cluster.list(kind).await {
                Ok(objects) => objects.into_iter().for_each(|object| workloads.add(object)),
                Err(error) if error.is_kind_missing() => {}
                Err(error) => workloads.unreadable.push((kind.kind, error)),
            }
        }
        workloads
    }

    pub(super) fn add(&mut self, object: Value) {
        let (api_version, kind) = (text(&object, "/apiVersion"), text(&object, "/kind"));
        if is_scalable(api_group(api_version), kind) {
            let ObjectId { namespace, name } = id(&object);
            let kind = qualified_kind(Some(api_version), kind);
            self.all.insert(WorkloadKey { namespace, kind, name }, object);
        }
    }

    pub(super) fn find(&self, namespace: &str, target: &Target) -> WorkloadLookup<'_> {
        if !is_scalable(target.group(), &target.kind) {
            return WorkloadLookup::UnsupportedKind;
        }
        if let Some(object) = self.all.get(&WorkloadKey::for_target(namespace, target)) {
            return WorkloadLookup::Found(object);
        }
        let unreadable = self.unreadable.iter().find(|(kind, _)| *kind == target.kind);
        unreadable.map_or(WorkloadLookup::NotFound, |(_, error)| WorkloadLookup::Unreadable(error))
    }
}

fn is_scalable(group: &str, kind: &str) -> bool {
    WORKLOADS.iter().any(|workload| workload.group == group && workload.kind == kind)
}

/// The API server defaults it to 1.
pub(super) fn spec_replicas(workload: &Value) -> u64 {
    number(workload, "/spec/replicas").unwrap_or(1)
}

/// Ready replicas, at most `spec.replicas`.
pub(super) fn ready_replicas(workload: &Value) -> u64 {
    number(workload, "/status/readyReplicas").unwrap_or(0).min(spec_replicas(workload))
}

/// Accelerator that the pods of a replica require.
pub(super) fn accelerator(workload: &Value) -> Option<String> {
    Template::for_replica(&ReplicaTemplate::from_workload(workload).ok()?).accelerator(None)
}

/// GPUs of all pods of a replica. Invalid pod templates request none.
pub(super) fn gpu_requests(workload: &Value, namespace: &str, templates: &ClaimTemplates) -> GpuRequests {
    let replica = ReplicaTemplate::from_workload(workload).unwrap_or_default();
    GpuRequests::new(&replica, namespace, templates)
}

/// A `fieldRef` to the pod's namespace resolves to `namespace`.
pub(crate) fn env_value(container: &Value, namespace: &str, key: &str) -> Option<String> {
    let variable = items(container, "/env").find(|variable| text(variable, "/name") == key)?;
    if text(variable, "/valueFrom/fieldRef/fieldPath") == "metadata.namespace" {
        return Some(namespace.to_owned());
    }
    Some(text(variable, "/value").to_owned()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The controller reads the leader; migrate once read the workers.
    #[test]
    fn accelerator_of_a_group_is_that_of_its_leader() {
        let pod = |card: &str| json!({"spec": {"containers": [], "nodeSelector": {"nvidia.com/gpu.product": card}}});
        let (leader, worker) = (pod("NVIDIA-H100-80GB-HBM3"), pod("NVIDIA-L4"));
        let group = json!({"size": 2, "leaderTemplate": leader, "workerTemplate": worker});
        let workload = json!({"spec": {"leaderWorkerTemplate": group}});
        assert_eq!(accelerator(&workload).as_deref(), Some("H100"));
    }
}
