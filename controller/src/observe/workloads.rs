//! The workloads behind the variants, read from the watch caches.

use wva_crds::names::ROLE_LABEL;
use wva_runtime::Availability;
use wva_scaling::snapshot::Role;

use crate::model::keys::{LEADER_WORKER_SET, WorkloadKey, qualified};
use crate::observe::pools::Labels;
use crate::observe::watches::{Watches, Workload};

/// Whether the workloads of a kind can be seen, so that one that is not there does not exist.
pub(crate) fn sight(watches: &Watches, kind: &str) -> Option<Availability> {
    match kind {
        "Deployment" | "StatefulSet" => Some(Availability::Watched),
        LEADER_WORKER_SET => Some(watches.leader_worker_sets.availability()),
        _ => None,
    }
}

/// What is kept of a workload; `None` where it does not exist, or is being deleted, and for kinds that are not watched.
#[must_use]
pub(crate) fn workload(watches: &Watches, key: &WorkloadKey) -> Option<Workload> {
    find(watches, &key.namespace, &key.kind, &key.name).filter(|kept| !kept.leaving)
}

fn find(watches: &Watches, namespace: &str, kind: &str, name: &str) -> Option<Workload> {
    match kind {
        "Deployment" => watches.deployments.get(namespace, name),
        "StatefulSet" => watches.stateful_sets.get(namespace, name),
        LEADER_WORKER_SET => watches.leader_worker_sets.cache.get(namespace, name),
        _ => None,
    }
}

/// Replicas a workload asks for; `None` where it does not exist, or is being deleted.
#[must_use]
pub(crate) fn current(watches: &Watches, key: &WorkloadKey) -> Option<u32> {
    ask(watches, key, |kept| (!kept.leaving).then_some(kept.replicas.current)).flatten()
}

/// The part of a request that pods with these labels do. With `both` they do all of it.
pub(crate) fn role(pod_labels: &Labels) -> Option<Role> {
    match pod_labels.get(ROLE_LABEL)? {
        "prefill" => Some(Role::Prefill),
        "decode" => Some(Role::Decode),
        _ => None,
    }
}

/// The part of a request that the pods of a workload do.
pub(crate) fn role_of(watches: &Watches, key: &WorkloadKey) -> Option<Role> {
    ask(watches, key, |kept| role(&kept.pod_labels)).flatten()
}

/// Labels of the pods of a workload; none for one that is not known.
#[must_use]
pub(crate) fn pod_labels(watches: &Watches, key: &WorkloadKey) -> Labels {
    ask(watches, key, |kept| kept.pod_labels.clone()).unwrap_or_default()
}

/// All workloads of a namespace, with the labels of their pods.
pub(crate) fn of_namespace(watches: &Watches, namespace: &str) -> Vec<(WorkloadKey, Labels)> {
    let mut all = Vec::new();
    for (kind, cache) in [
        ("Deployment", &watches.deployments),
        ("StatefulSet", &watches.stateful_sets),
        (LEADER_WORKER_SET, &watches.leader_worker_sets.cache),
    ] {
        cache.each_of(namespace, |name, kept| {
            let (namespace, kind) = (namespace.to_owned(), kind.to_owned());
            all.push((WorkloadKey { namespace, kind, name: name.to_owned() }, kept.pod_labels.clone()));
        });
    }
    all
}

/// Asks what is kept of a workload, without a copy of it.
fn ask<T>(watches: &Watches, key: &WorkloadKey, question: impl FnOnce(&Workload) -> T) -> Option<T> {
    let WorkloadKey { namespace, kind, name } = key;
    match kind.as_str() {
        "Deployment" => watches.deployments.ask(namespace, name, question),
        "StatefulSet" => watches.stateful_sets.ask(namespace, name, question),
        LEADER_WORKER_SET => watches.leader_worker_sets.cache.ask(namespace, name, question),
        _ => None,
    }
}

/// Whether a workload exists; `None` for kinds that are not watched, or cannot be seen.
#[must_use]
pub fn exists(watches: &Watches, namespace: &str, api_version: &str, kind: &str, name: &str) -> Option<bool> {
    let kind = qualified(Some(api_version), kind);
    let seen = sight(watches, &kind).is_some_and(Availability::is_complete);
    seen.then(|| find(watches, namespace, &kind, name).is_some_and(|kept| !kept.leaving))
}

/// The accelerator that the pods of a workload can only run on, as its template says; `None` where it says none, and
/// for a workload that is not known.
#[must_use]
pub fn accelerator(
    watches: &Watches,
    namespace: &str,
    api_version: &str,
    kind: &str,
    name: &str,
) -> Option<String> {
    let kind = qualified(Some(api_version), kind);
    find(watches, namespace, &kind, name)?.template?.accelerator.map(Into::into)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::Cluster;

    #[test]
    fn the_template_of_a_workload_tells_its_accelerator() {
        let mut cluster = Cluster::new();
        cluster.template(
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
    fn what_cannot_be_seen_is_not_said_to_be_missing() {
        let mut cluster = Cluster::new();
        cluster.leader_worker_set("l", 1, 1, json!({}));
        let is_there = |cluster: &Cluster, kind: &str, name: &str| {
            let version = if kind == "LeaderWorkerSet" { "leaderworkerset.x-k8s.io/v1" } else { "apps/v1" };
            exists(&cluster.watches(), "ns", version, kind, name)
        };
        assert_eq!(is_there(&cluster, "Deployment", "d"), Some(false));
        assert_eq!(is_there(&cluster, "DaemonSet", "d"), None);
        for (sight, l, other) in [
            (Availability::Watched, Some(true), Some(false)),
            (Availability::Unknown, None, None),
            (Availability::Forbidden, None, None),
        ] {
            cluster.leader_worker_sets_are(sight);
            assert_eq!(is_there(&cluster, "LeaderWorkerSet", "l"), l, "{sight:?}");
            assert_eq!(is_there(&cluster, "LeaderWorkerSet", "m"), other, "{sight:?}");
        }
    }
}
