//! What the pods of one replica take from ResourceQuotas.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use wva_objects::pod::{Container, PodSpec};
use wva_scaling::snapshot::QuotaAmount;

use super::quantity::{Rounding, quota_amount};

/// Resource of pods by which a ResourceQuota counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuotaResource {
    Pods,
    Request(Box<str>),
    Limit(Box<str>),
}

impl QuotaResource {
    /// `None` for resources that no pod takes, such as `count/services`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "pods" | "count/pods" => Some(Self::Pods),
            "cpu" | "memory" | "ephemeral-storage" => Some(Self::Request(name.into())),
            _ if name.starts_with("hugepages-") => Some(Self::Request(name.into())),
            // Of claims, not of pods.
            "requests.storage" => None,
            _ => match name.split_once('.')? {
                ("requests", resource) => Some(Self::Request(resource.into())),
                ("limits", resource) => Some(Self::Limit(resource.into())),
                _ => None,
            },
        }
    }
}

/// Selects the pods that a ResourceQuota counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuotaScope {
    /// Pods with a deadline, or without one.
    Terminating(bool),
    /// Pods without requests and limits of CPU and memory, or with any.
    BestEffort(bool),
    /// Pods with a priority class, or without one.
    HasPriorityClass(bool),
    /// Pods with one of these priority classes, or with none of them.
    PriorityClass { is_in: bool, names: Box<[Box<str>]> },
    /// A scope that no pod template of a model server has.
    Other,
}

/// Sums of one resource over the containers of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ResourceDemand {
    resource: Box<str>,
    amounts: Amounts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amounts {
    request: u64,
    limit: u64,
}

/// Kept of a pod: tenants may store any number of resources.
const MAX_RESOURCES: usize = 64;

/// Demand of one pod. Every workload in the cache has one, so it is small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodDemand {
    resources: Box<[ResourceDemand]>,
    priority_class: Option<Box<str>>,
    has_deadline: bool,
}

impl PodDemand {
    pub(crate) fn new(pod: &PodSpec) -> Self {
        let mut sums = Sums::of_containers(&pod.containers, pod.init_containers.iter().flatten());
        // The requests of the whole pod replace those of its containers.
        sums.0.extend(Sums::of_requirements(pod.resources.as_ref()).0);
        for (resource, quantity) in pod.overhead.iter().flatten() {
            let amounts = sums.0.entry(resource).or_default();
            amounts.request = amounts.request.saturating_add(read(resource, quantity));
        }
        let resources = sums.0.into_iter().filter(|(_, amounts)| *amounts != Amounts::default());
        let resources = resources.take(MAX_RESOURCES);
        Self {
            resources: resources
                .map(|(resource, amounts)| ResourceDemand { resource: resource.into(), amounts })
                .collect(),
            priority_class: pod
                .priority_class_name
                .as_deref()
                .filter(|name| !name.is_empty())
                .map(Into::into),
            has_deadline: pod.active_deadline_seconds.is_some(),
        }
    }

    pub(crate) fn amount(&self, resource: &QuotaResource) -> QuotaAmount {
        let amounts = |name: &str| {
            self.resources.iter().find(|demand| *demand.resource == *name).map(|demand| demand.amounts)
        };
        QuotaAmount(match resource {
            QuotaResource::Pods => 1,
            QuotaResource::Request(name) => amounts(name).map_or(0, |amounts| amounts.request),
            QuotaResource::Limit(name) => amounts(name).map_or(0, |amounts| amounts.limit),
        })
    }

    pub(crate) fn is_in_scope(&self, scope: &QuotaScope) -> bool {
        let class = self.priority_class.as_ref();
        match scope {
            QuotaScope::Terminating(wanted) => self.has_deadline == *wanted,
            QuotaScope::BestEffort(wanted) => self.is_best_effort() == *wanted,
            QuotaScope::HasPriorityClass(wanted) => class.is_some() == *wanted,
            QuotaScope::PriorityClass { is_in, names } => class.is_some_and(|c| names.contains(c)) == *is_in,
            QuotaScope::Other => false,
        }
    }

    fn is_best_effort(&self) -> bool {
        !self.resources.iter().any(|demand| matches!(&*demand.resource, "cpu" | "memory"))
    }
}

/// Pods of one kind in a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerDemand {
    pub(crate) pod: PodDemand,
    pub(crate) count: u32,
}

/// The pod of a replica, or the leader and the workers of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaDemand {
    /// Takes requests. Its count is 1.
    pub(crate) leader: PodDemand,
    pub(crate) workers: Option<Box<WorkerDemand>>,
}

#[derive(Default)]
struct Sums<'a>(BTreeMap<&'a str, Amounts>);

impl<'a> Sums<'a> {
    /// Sum over the containers, or the peak of the init containers if that is more. Sidecars keep theirs.
    fn of_containers(
        containers: impl IntoIterator<Item = &'a Container>,
        init: impl IntoIterator<Item = &'a Container>,
    ) -> Self {
        let (mut running, mut peak) = (Self::default(), Self::default());
        for container in init {
            let own = Self::of_requirements(container.resources.as_ref());
            if container.restart_policy.as_deref() == Some("Always") {
                running.merge(&own, Amounts::plus);
                peak.merge(&running, Amounts::max);
            } else {
                let mut with_it = Self(running.0.clone());
                with_it.merge(&own, Amounts::plus);
                peak.merge(&with_it, Amounts::max);
            }
        }
        for container in containers {
            running.merge(&Self::of_requirements(container.resources.as_ref()), Amounts::plus);
        }
        running.merge(&peak, Amounts::max);
        running
    }

    /// Sums up the resources of a container. As in Kubernetes, missing requests default to the limits.
    fn of_requirements(requirements: Option<&'a ResourceRequirements>) -> Self {
        let mut sums = Self::default();
        let Some(requirements) = requirements else { return sums };
        for (resource, quantity) in requirements.limits.iter().flatten() {
            let limit = read(resource, quantity);
            sums.0.insert(resource, Amounts { request: limit, limit });
        }
        for (resource, quantity) in requirements.requests.iter().flatten() {
            sums.0.entry(resource).or_default().request = read(resource, quantity);
        }
        sums
    }

    fn merge(&mut self, other: &Self, join: fn(Amounts, Amounts) -> Amounts) {
        for (resource, amounts) in &other.0 {
            let own = self.0.entry(resource).or_default();
            *own = join(*own, *amounts);
        }
    }
}

impl Amounts {
    fn plus(self, other: Self) -> Self {
        Self {
            request: self.request.saturating_add(other.request),
            limit: self.limit.saturating_add(other.limit),
        }
    }

    fn max(self, other: Self) -> Self {
        Self { request: self.request.max(other.request), limit: self.limit.max(other.limit) }
    }
}

/// Unreadable amounts count as 0: the API server accepts none.
fn read(resource: &str, quantity: &Quantity) -> u64 {
    quota_amount(resource, quantity, Rounding::Up).unwrap_or_default().0
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn demand(pod: Value) -> PodDemand {
        PodDemand::new(&serde_json::from_value(pod).unwrap())
    }

    fn amount(pod: &PodDemand, resource: &str) -> u64 {
        pod.amount(&QuotaResource::parse(resource).unwrap()).0
    }

    #[test]
    fn sums_containers_with_the_peak_of_init_containers() {
        let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"memory": "1Gi"}}});
        let sidecar =
            json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}});
        let pod =
            demand(json!({"containers": [container("1"), container("500m")], "initContainers": [sidecar]}));
        for (resource, want) in [
            ("requests.cpu", 1600),
            ("cpu", 1600),
            ("limits.cpu", 0),
            ("requests.memory", 2 << 30),
            ("limits.memory", 2 << 30),
            ("pods", 1),
            ("count/pods", 1),
            ("requests.nvidia.com/gpu", 0),
        ] {
            assert_eq!(amount(&pod, resource), want, "{resource}");
        }
        let pod =
            demand(json!({"containers": [container("1")], "initContainers": [sidecar, container("4")]}));
        assert_eq!(amount(&pod, "requests.cpu"), 4100);
        let gpus = json!({"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "3"}}});
        let pod = demand(
            json!({"containers": [gpus], "overhead": {"cpu": "250m"}, "resources": {"requests": {"cpu": "8"}}}),
        );
        assert_eq!((amount(&pod, "requests.nvidia.com/gpu"), amount(&pod, "requests.cpu")), (2, 8250));
        for other in ["count/services", "requests.storage", "persistentvolumeclaims", "services"] {
            assert_eq!(QuotaResource::parse(other), None, "{other}");
        }
    }

    #[test]
    fn scopes_select_pods() {
        let plain = demand(json!({"containers": []}));
        let pod = demand(json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}],
            "priorityClassName": "high", "activeDeadlineSeconds": 60}));
        let class = |is_in| QuotaScope::PriorityClass { is_in, names: ["high".into(), "low".into()].into() };
        for (scope, of_plain, of_pod) in [
            (QuotaScope::Terminating(true), false, true),
            (QuotaScope::Terminating(false), true, false),
            (QuotaScope::BestEffort(true), true, false),
            (QuotaScope::BestEffort(false), false, true),
            (QuotaScope::HasPriorityClass(true), false, true),
            (QuotaScope::HasPriorityClass(false), true, false),
            (class(true), false, true),
            (class(false), true, false),
            (QuotaScope::Other, false, false),
        ] {
            assert_eq!((plain.is_in_scope(&scope), pod.is_in_scope(&scope)), (of_plain, of_pod), "{scope:?}");
        }
    }
}
