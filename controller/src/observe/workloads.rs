//! Lookups of workloads in the watch caches.

use wva_crds::names::ROLE_LABEL;
use wva_objects::{LEADER_WORKER_SET, WorkloadKey, qualified_kind};
use wva_runtime::Availability;
use wva_scaling::snapshot::Role;

use crate::observe::pools::Labels;
use crate::observe::watches::{Watches, Workload};

/// An absent workload does not exist only if its kind is watched. `None`: unsupported kind.
pub(crate) fn kind_availability(watches: &Watches, kind: &str) -> Option<Availability> {
    match kind {
        "Deployment" | "StatefulSet" => Some(Availability::Watched),
        LEADER_WORKER_SET => Some(watches.leader_worker_sets.availability()),
        _ => None,
    }
}

/// `None` if it is being deleted, or of an unsupported kind.
#[must_use]
pub(crate) fn find_workload(watches: &Watches, key: &WorkloadKey) -> Option<Workload> {
    find_any(watches, &key.namespace, &key.kind, &key.name).filter(|workload| !workload.is_terminating)
}

fn find_any(watches: &Watches, namespace: &str, kind: &str, name: &str) -> Option<Workload> {
    match kind {
        "Deployment" => watches.deployments.get(namespace, name),
        "StatefulSet" => watches.stateful_sets.get(namespace, name),
        LEADER_WORKER_SET => watches.leader_worker_sets.cache.get(namespace, name),
        _ => None,
    }
}

/// `None` if it does not exist or is being deleted.
#[must_use]
pub(crate) fn current_replicas(watches: &Watches, key: &WorkloadKey) -> Option<u32> {
    inspect(watches, key, |workload| (!workload.is_terminating).then_some(workload.replicas.current))
        .flatten()
}

/// `None`: they serve whole requests (label `both` or absent).
pub(crate) fn role_of_labels(pod_labels: &Labels) -> Option<Role> {
    match pod_labels.get(ROLE_LABEL)? {
        "prefill" => Some(Role::Prefill),
        "decode" => Some(Role::Decode),
        _ => None,
    }
}

pub(crate) fn role(watches: &Watches, key: &WorkloadKey) -> Option<Role> {
    inspect(watches, key, |workload| role_of_labels(&workload.pod_labels)).flatten()
}

/// Empty for an unknown workload.
#[must_use]
pub(crate) fn pod_labels(watches: &Watches, key: &WorkloadKey) -> Labels {
    inspect(watches, key, |workload| workload.pod_labels.clone()).unwrap_or_default()
}

pub(crate) fn list(watches: &Watches, namespace: &str) -> Vec<(WorkloadKey, Labels)> {
    let mut all = Vec::new();
    for (kind, cache) in [
        ("Deployment", &watches.deployments),
        ("StatefulSet", &watches.stateful_sets),
        (LEADER_WORKER_SET, &watches.leader_worker_sets.cache),
    ] {
        cache.for_each_in(namespace, |name, workload| {
            let (namespace, kind) = (namespace.to_owned(), kind.to_owned());
            all.push((WorkloadKey { namespace, kind, name: name.to_owned() }, workload.pod_labels.clone()));
        });
    }
    all
}

fn inspect<T>(watches: &Watches, key: &WorkloadKey, read: impl FnOnce(&Workload) -> T) -> Option<T> {
    let WorkloadKey { namespace, kind, name } = key;
    match kind.as_str() {
        "Deployment" => watches.deployments.get_with(namespace, name, read),
        "StatefulSet" => watches.stateful_sets.get_with(namespace, name, read),
        LEADER_WORKER_SET => watches.leader_worker_sets.cache.get_with(namespace, name, read),
        _ => None,
    }
}

/// `None` for kinds that are unsupported or not watched.
#[must_use]
pub fn exists(watches: &Watches, namespace: &str, api_version: &str, kind: &str, name: &str) -> Option<bool> {
    let kind = qualified_kind(Some(api_version), kind);
    let is_watched = kind_availability(watches, &kind).is_some_and(Availability::is_complete);
    is_watched
        .then(|| find_any(watches, namespace, &kind, name).is_some_and(|workload| !workload.is_terminating))
}

/// `None` if the template requires none, or the workload is unknown.
#[must_use]
pub fn accelerator(
    watches: &Watches,
    namespace: &str,
    api_version: &str,
    kind: &str,
    name: &str,
) -> Option<String> {
    let kind = qualified_kind(Some(api_version), kind);
    find_any(watches, namespace, &kind, name)?.template?.accelerator(None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::Cluster;

    #[test]
    fn reads_accelerator_from_pod_template() {
        let mut cluster = Cluster::new();
        cluster.deployment_with_pod_spec(
            "d",
            1,
            &json!({"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}),
        );
        let of = |kind: &str, name: &str| accelerator(&cluster.watches(), "ns", "apps/v1", kind, name);
        assert_eq!(of("Deployment", "d").as_deref(), Some("H100"));
        assert_eq!(of("StatefulSet", "d"), None);
        assert_eq!(of("Deployment", "other"), None);
    }

    #[test]
    fn existence_is_unknown_for_unwatched_kinds() {
        let mut cluster = Cluster::new();
        cluster.leader_worker_set("l", 1, 1, json!({}));
        let is_there = |cluster: &Cluster, kind: &str, name: &str| {
            let version = if kind == "LeaderWorkerSet" { "leaderworkerset.x-k8s.io/v1" } else { "apps/v1" };
            exists(&cluster.watches(), "ns", version, kind, name)
        };
        assert_eq!(is_there(&cluster, "Deployment", "d"), Some(false));
        assert_eq!(is_there(&cluster, "DaemonSet", "d"), None);
        for (availability, l, other) in [
            (Availability::Watched, Some(true), Some(false)),
            (Availability::Unknown, None, None),
            (Availability::Forbidden, None, None),
        ] {
            cluster.set_leader_worker_sets_availability(availability);
            assert_eq!(is_there(&cluster, "LeaderWorkerSet", "l"), l, "{availability:?}");
            assert_eq!(is_there(&cluster, "LeaderWorkerSet", "m"), other, "{availability:?}");
        }
    }
}
