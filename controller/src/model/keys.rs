//! Keys of workloads, pods and models, and replica counts.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ApiResource, GroupVersionKind};
use wva_crds::ScaleTargetRef;
use wva_crds::entries::EndpointPicker;
use wva_crds::events::object_reference;
use wva_scaling::Decision;

/// An optional CRD.
pub(crate) const LEADER_WORKER_SET: &str = "LeaderWorkerSet.leaderworkerset.x-k8s.io";

/// Resource of the LeaderWorkerSets.
pub(crate) fn leader_worker_sets() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"))
}

/// Namespace, kind and name of a workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkloadKey {
    pub namespace: String,
    /// Kinds outside group `apps` include the group, such as `LeaderWorkerSet.leaderworkerset.x-k8s.io`.
    pub kind: String,
    pub name: String,
}

impl WorkloadKey {
    #[must_use]
    pub(crate) fn new(namespace: &str, target: &ScaleTargetRef) -> Self {
        Self {
            namespace: namespace.to_owned(),
            kind: qualified_kind(Some(&target.api_version), &target.kind),
            name: target.name.clone(),
        }
    }

    /// For events; `None` for kinds that wva does not scale, whose version it does not know.
    pub(crate) fn reference(&self) -> Option<ObjectReference> {
        let kind = match self.kind.as_str() {
            kind @ ("Deployment" | "StatefulSet") => ("apps/v1", kind),
            LEADER_WORKER_SET => ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
            _ => return None,
        };
        Some(object_reference(kind, (&self.namespace, &self.name), None))
    }
}

/// Namespace and name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodKey {
    pub namespace: String,
    pub name: String,
}

impl PodKey {
    #[must_use]
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// All variants with one `modelID` in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ModelKey {
    pub namespace: String,
    /// `spec.modelID`.
    pub model_id: String,
}

impl ModelKey {
    #[must_use]
    pub(crate) fn new(namespace: &str, model_id: &str) -> Self {
        Self { namespace: namespace.to_owned(), model_id: model_id.to_owned() }
    }

    #[must_use]
    pub(crate) fn for_decision(decision: &Decision) -> Self {
        Self::new(&decision.namespace, &decision.model_id)
    }
}

/// Endpoint pickers that entries name. Other models have those of their InferencePools.
pub(crate) type NamedPickers = BTreeMap<ModelKey, EndpointPicker>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub current: u32,
    /// `status.replicas`.
    pub created: u32,
    pub ready: u32,
}

/// Qualified kind, as kubectl writes it: with its group unless that is `apps`. Without a version the group is `apps`.
pub(crate) fn qualified_kind(api_version: Option<&str>, kind: &str) -> String {
    match api_version.map(|v| v.split_once('/').map_or("core", |(group, _)| group)) {
        None | Some("apps") => kind.to_owned(),
        Some(group) => format!("{kind}.{group}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_have_the_version_of_scalable_kinds() {
        let reference = |kind: &str| {
            let key = WorkloadKey { namespace: "ns".into(), kind: kind.into(), name: "w".into() };
            key.reference().map(|object| [object.api_version, object.kind, object.name].map(Option::unwrap))
        };
        let of = |version: &str, kind: &str| Some([version, kind, "w"].map(str::to_owned));
        assert_eq!(reference("StatefulSet"), of("apps/v1", "StatefulSet"));
        assert_eq!(reference(LEADER_WORKER_SET), of("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"));
        assert_eq!(reference("Rollout.argoproj.io"), None);
    }
}
