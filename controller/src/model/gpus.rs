//! GPUs as Kubernetes counts them: one extended resource a vendor, asked for by the containers of a pod and offered by
//! nodes.

use std::collections::BTreeMap;
use std::ops::Add;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// How a vendor's GPUs are named.
pub(crate) struct Vendor {
    /// The resource that containers ask for.
    pub(crate) resource: &'static str,
    /// The node label with the product.
    pub(crate) product: &'static str,
}

/// The vendors whose GPUs are counted.
pub(crate) const VENDORS: [Vendor; 3] = [
    Vendor { resource: "nvidia.com/gpu", product: "nvidia.com/gpu.product" },
    Vendor { resource: "amd.com/gpu", product: "amd.com/gpu.product" },
    Vendor { resource: "intel.com/gpu", product: "intel.com/gpu.product" },
];

/// GPUs of each vendor, in the order of [`VENDORS`]. Small, for every pod of a cluster has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpus(pub(crate) [u16; VENDORS.len()]);

impl Gpus {
    /// What a list of resources holds.
    pub(crate) fn of(resources: &BTreeMap<String, Quantity>) -> Self {
        Self(VENDORS.map(|v| resources.get(v.resource).and_then(whole).unwrap_or(0)))
    }

    /// What a container asks for: its requests, which its limits stand for where they are left out.
    fn asked(resources: Option<&ResourceRequirements>) -> Self {
        let list = |of: fn(&ResourceRequirements) -> Option<&BTreeMap<String, Quantity>>| {
            resources.and_then(of).map(Self::of).unwrap_or_default()
        };
        list(|r| r.requests.as_ref()).max(list(|r| r.limits.as_ref()))
    }

    /// What a pod holds: its containers all at once, or what the greediest init container needs before them. Init
    /// containers that stay (sidecars) are held from their turn on.
    pub(crate) fn of_pod<'a>(
        containers: impl IntoIterator<Item = &'a Container>,
        init: impl IntoIterator<Item = &'a Container>,
    ) -> Self {
        let asked = |c: &Container| Self::asked(c.resources.as_ref());
        let (mut staying, mut peak) = (Self::default(), Self::default());
        for container in init {
            let with_it = staying + asked(container);
            peak = peak.max(with_it);
            if container.restart_policy.as_deref() == Some("Always") {
                staying = with_it;
            }
        }
        containers.into_iter().map(asked).fold(staying, Add::add).max(peak)
    }

    /// What a pod of this template will hold, of all vendors together.
    pub(crate) fn of_template(pod: &PodSpec) -> u32 {
        Self::of_pod(&pod.containers, pod.init_containers.iter().flatten()).total()
    }

    /// All vendors together.
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

/// A whole quantity. The API server admits no other for an extended resource, and writes thousands as `k`.
fn whole(quantity: &Quantity) -> Option<u16> {
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
        let found = Gpus::of_pod(&pod.containers, pod.init_containers.iter().flatten());
        assert_eq!(found, Gpus(want), "{containers} after {init}");
    }

    #[test]
    fn limits_stand_for_requests_and_vendors_are_counted_apart() {
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
    fn init_containers_count_where_they_need_more_and_sidecars_stay() {
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
