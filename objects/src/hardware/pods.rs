//! GPUs by extended resource: what pods request and what nodes offer.

use std::collections::BTreeMap;
use std::ops::Add;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::resources::{is_gpu_resource, is_partition};
use crate::pod::{Container, PodSpec};

/// Counts of GPU resources, sorted by resource, without zeros. Every pod in the controller's cache has one, so it is
/// small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpus(Box<[GpuCount]>);

/// Units of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuCount {
    /// `nvidia.com/gpu`.
    pub resource: Box<str>,
    /// Cards, slices or shares.
    pub count: u16,
}

impl Gpus {
    /// GPUs in a list of resources, such as the allocatable of a node.
    #[must_use]
    pub fn from_resources(resources: &BTreeMap<String, Quantity>) -> Self {
        let gpus = resources.iter().filter(|(name, _)| is_gpu_resource(name));
        let counts = gpus.map(|(name, quantity)| GpuCount {
            resource: name.as_str().into(),
            count: whole_number(quantity).unwrap_or(0),
        });
        Self(counts.filter(|gpus| gpus.count > 0).collect())
    }

    /// GPUs of a container. As in Kubernetes, missing requests default to the limits.
    #[must_use]
    pub fn for_container(container: &Container) -> Self {
        let list = |of: fn(&ResourceRequirements) -> Option<&BTreeMap<String, Quantity>>| {
            container.resources.as_ref().and_then(of).map(Self::from_resources).unwrap_or_default()
        };
        list(|r| r.requests.as_ref()).max(&list(|r| r.limits.as_ref()))
    }

    /// GPUs that the scheduler reserves for a pod: of each resource the sum of its containers, or the peak of its init
    /// containers if that is more. Sidecars keep theirs.
    #[must_use]
    pub fn for_containers<'a>(
        containers: impl IntoIterator<Item = &'a Container>,
        init: impl IntoIterator<Item = &'a Container>,
    ) -> Self {
        let (mut sidecars, mut peak) = (Self::default(), Self::default());
        for container in init {
            let with_it = sidecars.clone() + Self::for_container(container);
            peak = peak.max(&with_it);
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars = with_it;
            }
        }
        containers.into_iter().map(Self::for_container).fold(sidecars, Add::add).max(&peak)
    }

    /// [`Gpus::for_containers`] of a pod.
    #[must_use]
    pub fn for_pod(pod: &PodSpec) -> Self {
        Self::for_containers(&pod.containers, pod.init_containers.iter().flatten())
    }

    /// All resources with a count.
    pub fn iter(&self) -> impl Iterator<Item = &GpuCount> {
        self.0.iter()
    }

    /// Units of one resource.
    #[must_use]
    pub fn count(&self, resource: &str) -> u16 {
        self.0.iter().find(|gpus| &*gpus.resource == resource).map_or(0, |gpus| gpus.count)
    }

    /// Units of all resources. A pod with two kinds of GPUs holds both.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.0.iter().map(|gpus| u32::from(gpus.count)).fold(0, u32::saturating_add)
    }

    /// Resource of MIG slices or shares, if these are its only GPUs.
    #[must_use]
    pub fn partition(&self) -> Option<&str> {
        match &*self.0 {
            [gpus] if is_partition(&gpus.resource) => Some(&gpus.resource),
            _ => None,
        }
    }

    /// The same without a resource.
    #[must_use]
    pub fn without(self, resource: &str) -> Self {
        Self(self.0.into_iter().filter(|gpus| &*gpus.resource != resource).collect())
    }

    fn max(self, other: &Self) -> Self {
        self.combined(other, u16::max)
    }

    /// `combine` returns the other count if one is 0.
    fn combined(self, other: &Self, combine: fn(u16, u16) -> u16) -> Self {
        if other.0.is_empty() {
            return self;
        }
        let mut all: BTreeMap<Box<str>, u16> =
            self.0.into_iter().map(|gpus| (gpus.resource, gpus.count)).collect();
        for GpuCount { resource, count } in &other.0 {
            let sum = all.entry(resource.clone()).or_default();
            *sum = combine(*sum, *count);
        }
        Self(all.into_iter().map(|(resource, count)| GpuCount { resource, count }).collect())
    }
}

impl Add for Gpus {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.combined(&other, u16::saturating_add)
    }
}

/// Reads a whole quantity. For extended resources the API server accepts no fractions and abbreviates thousands as
/// `k`.
fn whole_number(quantity: &Quantity) -> Option<u16> {
    let text = quantity.0.as_str();
    let count = match text.strip_suffix('k') {
        Some(thousands) => thousands.parse::<u32>().ok()?.saturating_mul(1000),
        None => text.parse().ok()?,
    };
    Some(u16::try_from(count).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A container with these limits.
    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn limits(limits: Value) -> Value {
        json!({"name": "c", "resources": {"limits": limits}})
    }

    fn nvidia(count: u32) -> Value {
        limits(json!({"nvidia.com/gpu": count.to_string(), "cpu": "4"}))
    }

    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn pod(containers: Value, init: Value) -> Gpus {
        let pod = json!({"containers": containers, "initContainers": init});
        Gpus::for_pod(&serde_json::from_value(pod).unwrap())
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn check(containers: Value, init: Value, want: &[(&str, u16)]) {
        let gpus = pod(containers.clone(), init.clone());
        let found: Vec<(&str, u16)> = gpus.iter().map(|gpus| (&*gpus.resource, gpus.count)).collect();
        assert_eq!(found, want, "{containers} after {init}");
    }

    #[test]
    fn pod_takes_the_peak_of_each_resource() {
        // Gaudi's and AMD's GPUs are reserved for the whole life of the pod, though AMD's peak is over after the start.
        let both = limits(json!({"habana.ai/gaudi": "8", "amd.com/gpu": "2"}));
        let init = limits(json!({"amd.com/gpu": "8"}));
        check(json!([both]), json!([init]), &[("amd.com/gpu", 8), ("habana.ai/gaudi", 8)]);
        let gpus = pod(json!([both]), json!([init]));
        assert_eq!((gpus.total(), gpus.count("amd.com/gpu"), gpus.count("nvidia.com/gpu")), (16, 8, 0));
    }

    #[test]
    fn init_containers_count_by_peak_and_sidecars_add_up() {
        let sidecar = |n| {
            let mut container = nvidia(n);
            container["restartPolicy"] = "Always".into();
            container
        };
        for (containers, init, want) in [
            (json!([nvidia(2)]), json!([nvidia(1)]), 2),
            (json!([nvidia(2)]), json!([nvidia(4), nvidia(3)]), 4),
            (json!([nvidia(2)]), json!([sidecar(1)]), 3),
            (json!([nvidia(2)]), json!([sidecar(1), nvidia(4)]), 5),
            (json!([nvidia(2)]), json!([nvidia(4), sidecar(1)]), 4),
        ] {
            check(containers, init, &[("nvidia.com/gpu", want)]);
        }
    }

    #[test]
    fn limits_stand_in_for_requests() {
        check(json!([nvidia(2), nvidia(1), {"name": "sidecar"}]), json!([]), &[("nvidia.com/gpu", 3)]);
        let both = json!({"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}});
        check(json!([{"name": "c", "resources": both}]), json!([]), &[("nvidia.com/gpu", 2)]);
        let requests = json!({"requests": {"amd.com/gpu": "4"}});
        check(json!([{"name": "c", "resources": requests}]), json!([]), &[("amd.com/gpu", 4)]);
        check(json!([limits(json!({"intel.com/gpu": "1k"}))]), json!([]), &[("intel.com/gpu", 1000)]);
        for strange in ["0.5", "", "many", "-1"] {
            check(json!([limits(json!({"nvidia.com/gpu": strange}))]), json!([]), &[]);
        }
        check(json!([nvidia(70_000), nvidia(1)]), json!([]), &[("nvidia.com/gpu", u16::MAX)]);
    }

    #[test]
    fn partition_is_the_only_resource_of_a_pod() {
        let (slice, shared) = ("nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared");
        let other = "nvidia.com/mig-2g.10gb.me";
        for (resources, total, partition) in [
            (json!({slice: "1"}), 1, Some(slice)),
            (json!({shared: "3"}), 3, Some(shared)),
            (json!({slice: "1", other: "2"}), 3, None),
            (json!({slice: "1", "nvidia.com/gpu": "1"}), 2, None),
            (json!({"nvidia.com/gpu": "1"}), 1, None),
            (json!({slice: "0"}), 0, None),
        ] {
            let gpus = pod(json!([limits(resources.clone())]), json!([]));
            assert_eq!((gpus.total(), gpus.partition()), (total, partition), "{resources}");
        }
    }

    #[test]
    fn removes_one_resource() {
        let all =
            pod(json!([limits(json!({"nvidia.com/gpu": "2", "nvidia.com/mig-1g.5gb": "1"}))]), json!([]));
        assert_eq!(all.clone().without("nvidia.com/gpu").total(), 1);
        assert_eq!(all.clone().without("nvidia.com/mig-1g.5gb").total(), 2);
        assert_eq!(all.clone().without("nvidia.com/mig-2g.10gb").without("cpu"), all);
    }
}
