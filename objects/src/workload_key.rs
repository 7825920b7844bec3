//! Keys of workloads.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{ApiResource, GroupVersionKind};
use wva_crds::ScaleTargetRef;
use wva_crds::events::{ObjectKind, object_reference};

use crate::target::Target;

/// Qualified kind of the LeaderWorkerSets, an optional CRD.
pub const LEADER_WORKER_SET: &str = "LeaderWorkerSet.leaderworkerset.x-k8s.io";

/// Resource of the LeaderWorkerSets.
#[must_use]
pub fn leader_worker_sets() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"))
}

/// Namespace, kind and name of a workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadKey {
    /// Namespace.
    pub namespace: String,
    /// Kinds outside group `apps` include the group, such as `LeaderWorkerSet.leaderworkerset.x-k8s.io`.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl WorkloadKey {
    /// Workload that the spec of a variant names.
    #[must_use]
    pub fn new(namespace: &str, target: &ScaleTargetRef) -> Self {
        Self {
            namespace: namespace.to_owned(),
            kind: qualified_kind(Some(&target.api_version), &target.kind),
            name: target.name.clone(),
        }
    }

    /// Workload that another object names.
    #[must_use]
    pub fn for_target(namespace: &str, Target { api_version, kind, name }: &Target) -> Self {
        let kind = qualified_kind(Some(api_version), kind);
        Self { namespace: namespace.to_owned(), kind, name: name.clone() }
    }

    /// Reference for events. `None` for kinds that wva does not scale, whose version it does not know.
    #[must_use]
    pub fn reference(&self) -> Option<ObjectReference> {
        let kind = match self.kind.as_str() {
            kind @ ("Deployment" | "StatefulSet") => ObjectKind { api_version: "apps/v1", kind },
            LEADER_WORKER_SET => {
                ObjectKind { api_version: "leaderworkerset.x-k8s.io/v1", kind: "LeaderWorkerSet" }
            }
            _ => return None,
        };
        Some(object_reference(kind, &self.namespace, &self.name, None))
    }
}

/// Qualified kind, as kubectl writes it: with its group unless that is `apps`. Without a version the group is `apps`.
#[must_use]
pub fn qualified_kind(api_version: Option<&str>, kind: &str) -> String {
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
