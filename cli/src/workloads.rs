//! Workloads that variants refer to.

use std::collections::BTreeMap;

use serde_json::Value;
use wva_objects::{Target, api_group};

use super::cluster::{Cluster, ListError, ObjectId, WORKLOADS, id, items, number, text};
use super::gpus::{ClaimTemplates, GpuRequests};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkloadKey {
    namespace: String,
    group: String,
    kind: String,
    name: String,
}

impl WorkloadKey {
    pub(crate) fn new(namespace: &str, target: &Target) -> Self {
        Self {
            namespace: namespace.to_owned(),
            group: target.group().to_owned(),
            kind: target.kind.clone(),
            name: target.name.clone(),
        }
    }
}

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
        let group = api_group(text(&object, "/apiVersion")).to_owned();
        let kind = text(&object, "/kind").to_owned();
        if is_scalable(&group, &kind) {
            let ObjectId { namespace, name } = id(&object);
            self.all.insert(WorkloadKey { namespace, group, kind, name }, object);
        }
    }

    pub(super) fn find(&self, namespace: &str, target: &Target) -> WorkloadLookup<'_> {
        if !is_scalable(target.group(), &target.kind) {
            return WorkloadLookup::UnsupportedKind;
        }
        if let Some(object) = self.all.get(&WorkloadKey::new(namespace, target)) {
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

pub(super) fn accelerator(workload: &Value) -> Option<String> {
    let template = ["/spec/template/spec", "/spec/leaderWorkerTemplate/workerTemplate/spec"];
    let pod = template.into_iter().find_map(|pointer| workload.pointer(pointer))?;
    wva_controller::template_accelerator(&serde_json::from_value(pod.clone()).ok()?)
}

/// GPUs of all pods of a replica. Invalid pod templates request none.
pub(super) fn gpu_requests(workload: &Value, namespace: &str, templates: &ClaimTemplates) -> GpuRequests {
    let mut requests = GpuRequests::default();
    let mut add = |template: Option<&Value>, count: u64| {
        let pod = template.and_then(|template| template.get("spec"));
        if let Some(pod) = pod.and_then(|pod| serde_json::from_value(pod.clone()).ok()) {
            requests.add(&pod, count, namespace, templates);
        }
    };
    match workload.pointer("/spec/leaderWorkerTemplate") {
        None => add(workload.pointer("/spec/template"), 1),
        Some(group) => {
            let worker = group.get("workerTemplate");
            add(group.get("leaderTemplate").or(worker), 1);
            add(worker, number(group, "/size").unwrap_or(1).saturating_sub(1));
        }
    }
    requests
}

/// A `fieldRef` to the pod's namespace resolves to `namespace`.
pub(crate) fn env_value(container: &Value, namespace: &str, key: &str) -> Option<String> {
    let variable = items(container, "/env").find(|variable| text(variable, "/name") == key)?;
    if text(variable, "/valueFrom/fieldRef/fieldPath") == "metadata.namespace" {
        return Some(namespace.to_owned());
    }
    Some(text(variable, "/value").to_owned()).filter(|value| !value.is_empty())
}
