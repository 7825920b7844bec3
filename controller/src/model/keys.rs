//! Keys of workloads, pods and models, and how many replicas a workload has.

use wva_crds::ScaleTargetRef;
use wva_scaling::Decision;

/// A LeaderWorkerSet, qualified. A cluster need not have the kind.
pub(crate) const LEADER_WORKER_SET: &str = "LeaderWorkerSet.leaderworkerset.x-k8s.io";

/// Kind and name of a workload within its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkloadKey {
    /// Namespace.
    pub namespace: String,
    /// `Deployment` or `StatefulSet`; a kind of a group other than `apps` carries its group,
    /// `LeaderWorkerSet.leaderworkerset.x-k8s.io`.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl WorkloadKey {
    /// The workload a reference names.
    #[must_use]
    pub(crate) fn new(namespace: &str, target: &ScaleTargetRef) -> Self {
        Self {
            namespace: namespace.to_owned(),
            kind: qualified(Some(&target.api_version), &target.kind),
            name: target.name.clone(),
        }
    }
}

/// Names one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl PodKey {
    #[must_use]
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// Names one model: variants with the same `modelID` in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ModelKey {
    /// Namespace.
    pub namespace: String,
    /// `spec.modelID`.
    pub model_id: String,
}

impl ModelKey {
    #[must_use]
    pub(crate) fn new(namespace: &str, model_id: &str) -> Self {
        Self { namespace: namespace.to_owned(), model_id: model_id.to_owned() }
    }

    /// The model a decision is about.
    #[must_use]
    pub(crate) fn of(decision: &Decision) -> Self {
        Self::new(&decision.namespace, &decision.model_id)
    }
}

/// Replicas of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replicas {
    /// `spec.replicas`.
    pub current: u32,
    /// Ready ones.
    pub ready: u32,
}

/// A kind as kubectl writes it: with its group, where that is not `apps`. What names no version is of `apps`.
pub(crate) fn qualified(api_version: Option<&str>, kind: &str) -> String {
    match api_version.map(|v| v.split_once('/').map_or("core", |(group, _)| group)) {
        None | Some("apps") => kind.to_owned(),
        Some(group) => format!("{kind}.{group}"),
    }
}
