//! The workloads that variants name, as they are stored: how many replicas each has, and how many of them are ready.

use std::collections::BTreeMap;

use serde_json::Value;
use wva_rules::{Target, api_group};

use super::cluster::{Cluster, ObjectId, Unseen, WORKLOADS, id, items, number, text};

/// Names a workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkloadKey {
    namespace: String,
    group: String,
    kind: String,
    name: String,
}

impl WorkloadKey {
    /// The workload that a reference in a namespace names.
    pub(crate) fn new(namespace: &str, target: &Target) -> Self {
        Self {
            namespace: namespace.to_owned(),
            group: target.group().to_owned(),
            kind: target.kind.clone(),
            name: target.name.clone(),
        }
    }
}

/// All workloads of the kinds that are scaled.
#[derive(Default)]
pub(super) struct Workloads {
    all: BTreeMap<WorkloadKey, Value>,
    /// Kinds that could not be seen, and why.
    pub(super) unseen: Vec<(&'static str, Unseen)>,
}

/// What became of the search for a workload.
pub(super) enum Found<'a> {
    /// As it is stored.
    Here(&'a Value),
    Missing,
    /// Its kind cannot be seen.
    Hidden(&'a Unseen),
    /// It is of a kind that nobody looks at here.
    Unknown,
}

impl Workloads {
    /// Reads what can be seen of them. A kind that the cluster does not have has no workloads.
    pub(super) async fn read(cluster: &Cluster) -> Self {
        let mut read = Self::default();
        for kind in WORKLOADS {
            match cluster.list(kind).await {
                Ok(found) => found.into_iter().for_each(|object| read.add(object)),
                Err(error) if error.is_no_kind() => {}
                Err(error) => read.unseen.push((kind.kind, error)),
            }
        }
        read
    }

    /// Takes one in that is of a kind that is scaled.
    pub(super) fn add(&mut self, object: Value) {
        let group = api_group(text(&object, "/apiVersion")).to_owned();
        let kind = text(&object, "/kind").to_owned();
        if WORKLOADS.iter().any(|known| known.group == group && known.kind == kind) {
            let ObjectId { namespace, name } = id(&object);
            self.all.insert(WorkloadKey { namespace, group, kind, name }, object);
        }
    }

    /// What a reference in a namespace leads to.
    pub(super) fn find(&self, namespace: &str, target: &Target) -> Found<'_> {
        let (group, kind) = (target.group(), target.kind.as_str());
        if !WORKLOADS.iter().any(|known| known.group == group && known.kind == kind) {
            return Found::Unknown;
        }
        if let Some(object) = self.all.get(&WorkloadKey::new(namespace, target)) {
            return Found::Here(object);
        }
        let hidden = self.unseen.iter().find(|(unseen, _)| *unseen == kind);
        hidden.map_or(Found::Missing, |(_, why)| Found::Hidden(why))
    }
}

/// Replicas that a workload asks for: 1 where it does not say.
pub(super) fn replicas(workload: &Value) -> u64 {
    number(workload, "/spec/replicas").unwrap_or(1)
}

/// The accelerator that its pods can only run on, where its template says one.
pub(super) fn accelerator(workload: &Value) -> Option<String> {
    let template = ["/spec/template/spec", "/spec/leaderWorkerTemplate/workerTemplate/spec"];
    let pod = template.into_iter().find_map(|pointer| workload.pointer(pointer))?;
    wva_controller::template_accelerator(&serde_json::from_value(pod.clone()).ok()?)
}

/// A variable of a container; the namespace may stand there as a reference to the pod's own.
pub(crate) fn in_environment(container: &Value, namespace: &str, key: &str) -> Option<String> {
    let variable = items(container, "/env").find(|variable| text(variable, "/name") == key)?;
    if text(variable, "/valueFrom/fieldRef/fieldPath") == "metadata.namespace" {
        return Some(namespace.to_owned());
    }
    Some(text(variable, "/value").to_owned()).filter(|value| !value.is_empty())
}

/// Those of them that are ready.
pub(super) fn ready(workload: &Value) -> u64 {
    number(workload, "/status/readyReplicas").unwrap_or(0).min(replicas(workload))
}
