//! GPU counts: one extended resource per vendor.

use std::collections::BTreeMap;
use std::ops::Add;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

pub(crate) struct Vendor {
    /// That containers request.
    pub(crate) resource: &'static str,
    /// Node label with the product name.
    pub(crate) product: &'static str,
}

pub(crate) const VENDORS: [Vendor; 3] = [
    Vendor { resource: "nvidia.com/gpu", product: "nvidia.com/gpu.product" },
    Vendor { resource: "amd.com/gpu", product: "amd.com/gpu.product" },
    Vendor { resource: "intel.com/gpu", product: "intel.com/gpu.product" },
];

/// In the order of [`VENDORS`]. Every pod in the cache has one, so it is small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpus(pub(crate) [u16; VENDORS.len()]);

impl Gpus {
    pub(crate) fn from_resources(resources: &BTreeMap<String, Quantity>) -> Self {
        Self(VENDORS.map(|v| resources.get(v.resource).and_then(whole_number).unwrap_or(0)))
    }

    /// GPUs that a container requests. As in Kubernetes, missing requests default to the limits.
    fn requested(resources: Option<&ResourceRequirements>) -> Self {
        let list = |of: fn(&ResourceRequirements) -> Option<&BTreeMap<String, Quantity>>| {
            resources.and_then(of).map(Self::from_resources).unwrap_or_default()
        };
        list(|r| r.requests.as_ref()).max(list(|r| r.limits.as_ref()))
    }

    /// GPUs of the containers, or the peak of the init containers if that is more. Sidecars keep theirs.
    pub(crate) fn for_pod<'a>(
        containers: impl IntoIterator<Item = &'a Container>,
        init: impl IntoIterator<Item = &'a Container>,
    ) -> Self {
        let requested = |c: &Container| Self::requested(c.resources.as_ref());
        let (mut sidecars, mut peak) = (Self::default(), Self::default());
        for container in init {
            let with_it = sidecars + requested(container);
            peak = peak.max(with_it);
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars = with_it;
            }
        }
        containers.into_iter().map(requested).fold(sidecars, Add::add).max(peak)
    }

    pub(crate) fn for_template(pod: &PodSpec) -> u32 {
        Self::for_pod(&pod.containers, pod.init_containers.iter().flatten()).total()
    }

    pub(crate) fn total(self) -> u32 {
        self.0.iter().map(|n| u32::from(*n)).sum()
    }

    fn max(self, other: Self) -> Self {
        let mut greater = self.0;
        for (n, other) in greater.iter_mut().zip(other.0) {
            *n = other.max(*n);
        }
        Self(greater)
    }
}

impl Add for Gpus {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let mut sum = self.0;
        for (n, other) in sum.iter_mut().zip(other.0) {
            *n = n.saturating_add(other);
        }
        Self(sum)
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

    fn asks(gpus: &Value) -> Value {
        json!({"name": "c", "resources": gpus})
    }

    fn nvidia(n: u32) -> Value {
        asks(&json!({"limits": {"nvidia.com/gpu": n.to_string(), "cpu": "4"}}))
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "tests hand it over as they write it")]
    fn check(containers: Value, init: Value, want: [u16; 3]) {
        let pod: PodSpec =
            serde_json::from_value(json!({"containers": containers, "initContainers": init})).unwrap();
        let found = Gpus::for_pod(&pod.containers, pod.init_containers.iter().flatten());
        assert_eq!(found, Gpus(want), "{containers} after {init}");
    }

    #[test]
    fn limits_stand_in_for_requests_and_vendors_count_apart() {
        check(json!([nvidia(2), nvidia(1), {"name": "sidecar"}]), json!([]), [3, 0, 0]);
        let both = json!({"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}});
        check(json!([asks(&both)]), json!([]), [2, 0, 0]);
        check(json!([asks(&json!({"requests": {"amd.com/gpu": "4"}}))]), json!([]), [0, 4, 0]);
        check(json!([asks(&json!({"limits": {"intel.com/gpu": "1k"}}))]), json!([]), [0, 0, 1000]);
        for strange in ["0.5", "", "many", "-1"] {
            check(json!([asks(&json!({"limits": {"nvidia.com/gpu": strange}}))]), json!([]), [0, 0, 0]);
        }
        check(json!([nvidia(70_000), nvidia(1)]), json!([]), [u16::MAX, 0, 0]);
    }

    #[test]
    fn init_containers_count_by_peak_and_sidecars_add_up() {
        let sidecar = |n| {
            let mut container = nvidia(n);
            container["restartPolicy"] = "Always".into();
            container
        };
        check(json!([nvidia(2)]), json!([nvidia(1)]), [2, 0, 0]);
        check(json!([nvidia(2)]), json!([nvidia(4), nvidia(3)]), [4, 0, 0]);
        check(json!([nvidia(2)]), json!([sidecar(1)]), [3, 0, 0]);
        check(json!([nvidia(2)]), json!([sidecar(1), nvidia(4)]), [5, 0, 0]);
        check(json!([nvidia(2)]), json!([nvidia(4), sidecar(1)]), [4, 0, 0]);
    }
}
